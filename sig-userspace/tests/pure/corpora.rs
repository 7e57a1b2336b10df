//! Every input that a fuzz target has found worth keeping runs through it again.
//!
//! The targets and how to run them: `fuzz/Cargo.toml`.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/bodies/configuration.rs"]
mod configuration;
#[path = "../../fuzz/bodies/frame_decode.rs"]
mod frame_decode;
#[path = "../../fuzz/bodies/protected_frame.rs"]
mod protected_frame;
#[path = "../../fuzz/bodies/reassembly.rs"]
mod reassembly;
#[path = "../../fuzz/bodies/router_configuration.rs"]
mod router_configuration;
#[path = "../../fuzz/bodies/router_packet.rs"]
mod router_packet;
#[path = "../../fuzz/bodies/routing_policy.rs"]
mod routing_policy;
#[path = "../../fuzz/bodies/scion_header.rs"]
mod scion_header;
#[path = "../../fuzz/bodies/scion_packet.rs"]
mod scion_packet;
#[path = "../../fuzz/bodies/srh.rs"]
mod srh;
#[path = "../../fuzz/bodies/traffic_policy.rs"]
mod traffic_policy;
#[path = "../../fuzz/bodies/worker.rs"]
mod worker;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for file in files {
        // Shown if the run panics.
        println!("{}", file.display());
        run(&fs::read(&file).expect("a corpus file"));
    }
}

#[test]
fn the_corpus_of_configuration_replays() {
    replay("configuration", configuration::run);
}

#[test]
fn the_corpus_of_frame_decode_replays() {
    replay("frame_decode", frame_decode::run);
}

#[test]
fn the_corpus_of_protected_frame_replays() {
    replay("protected_frame", protected_frame::run);
}

#[test]
fn the_corpus_of_reassembly_replays() {
    replay("reassembly", reassembly::run);
}

#[test]
fn the_corpus_of_router_configuration_replays() {
    replay("router_configuration", router_configuration::run);
}

#[test]
fn the_corpus_of_router_packet_replays() {
    replay("router_packet", router_packet::run);
}

#[test]
fn the_corpus_of_routing_policy_replays() {
    replay("routing_policy", routing_policy::run);
}

#[test]
fn the_corpus_of_scion_header_replays() {
    replay("scion_header", scion_header::run);
}

#[test]
fn the_corpus_of_scion_packet_replays() {
    replay("scion_packet", scion_packet::run);
}

#[test]
fn the_corpus_of_srh_replays() {
    replay("srh", srh::run);
}

#[test]
fn the_corpus_of_traffic_policy_replays() {
    replay("traffic_policy", traffic_policy::run);
}

#[test]
fn the_corpus_of_worker_replays() {
    replay("worker", worker::run);
}
