//! What an operator wants: which packets take which way, and what is said to and believed of others.
//!
//! Pure: text in, decisions out.

pub mod advice;
pub mod class;
pub mod path;
pub mod performance;
pub mod prefix_set;
pub mod routing;
pub mod rules;
pub mod traffic;

/// Longest text of a policy file in bytes; far more than any number of prefixes in use needs.
const LONGEST_TEXT: usize = 16 << 20;
