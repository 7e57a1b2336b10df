//! Packet I/O behind one small trait.
