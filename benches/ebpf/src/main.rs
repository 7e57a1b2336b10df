//! XDP and TC programs of the throughput harness, apart from those of the product.
//!
//! | program | hook | does |
//! |---|---|---|
//! | `generate` | none: live frames | fills frames from templates and sends them |
//! | `sink` | XDP | counts generated packets and drops them |
//! | `drop` | XDP | drops and counts |
//! | `redirect` | XDP | sends through another device; may drop one packet in so many |
//! | `to_socket` | XDP | gives to the AF_XDP socket of the queue |
//! | `tc_redirect` | TC ingress | sends through another device |
#![no_std]
#![no_main]

mod forward;
mod generate;
#[allow(dead_code, unused_imports, reason = "the harness uses the rest of it")]
mod layout;
mod packet;
mod sink;

/// The verifier leaves no panic reachable.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel offers its GPL-only helpers to programs with this licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
