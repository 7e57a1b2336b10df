//! The SIG framing: packing, splitting and reassembly. Pure: bytes in, bytes out, time is an argument.
