//! What an operator wants: which packets take which way, and what is said to and believed of others.
//!
//! Pure: text in, decisions out.

pub mod class;
