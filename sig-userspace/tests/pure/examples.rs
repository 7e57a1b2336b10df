//! The examples do what they say.

#[allow(dead_code, reason = "its `main` is not run")]
#[path = "../../examples/embedded.rs"]
pub(crate) mod embedded;
#[allow(dead_code, reason = "its `main` is not run")]
#[path = "../../examples/framing.rs"]
mod framing;

#[test]
fn packets_go_through_the_framing_alone() {
    framing::main().expect("the example succeeds");
}

#[test]
fn two_gateways_in_one_process_carry_a_packet() {
    embedded::main().expect("the example succeeds");
}
