#![no_std]
//! Wire formats and BPF map layouts shared by the XDP programs and the engine.

pub mod addr;
pub mod maps;
pub mod reason;
pub mod router;
pub mod scope;
pub mod wire;
