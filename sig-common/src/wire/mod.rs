//! Packet headers: checked constructors, then accessors that cannot panic.
