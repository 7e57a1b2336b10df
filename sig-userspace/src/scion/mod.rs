//! What the engine needs of SCION: header templates per path and paths.
