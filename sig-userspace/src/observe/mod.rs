//! What an operator sees: counters and status.
