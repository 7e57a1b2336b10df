//! SCION-IP gateway.
