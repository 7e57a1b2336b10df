//! The engine on single packets of one AS.

mod fixture;
mod vectors;
