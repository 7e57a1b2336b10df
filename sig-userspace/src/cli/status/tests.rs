use super::*;
use crate::observe::example::{busy, found, idle};

fn human(status: &Status) -> String {
    let mut out = Vec::new();
    write_human(status, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn an_idle_gateway_says_what_to_do_next() {
    assert_eq!(
        human(&idle()),
        "sig 0.1.0, gateway \"west\" at 1-ff00:0:110,10.10.0.2:30056, up 1 min 1 s
serves no prefixes: set prefixes in [gateway], or everything received is refused

Ports
  none: check underlay and lan in [dataplane], then \"sig doctor\"

Workers
  none: the data plane does not run, look into the log

To the LAN
  straight to 0 known neighbours, else via the helper and the kernel's tables
  via the helper: everything: no interface in `[dataplane] lan`

Remotes
  none: add a [[remote]] to the configuration, \"sig config sample\" shows one

Traffic
  none yet: send something from a prefix served here to one of a remote

Drops
  none: nothing to do
"
    );
}

#[test]
fn a_busy_gateway_shows_tables() {
    assert_eq!(
        human(&busy()),
        "sig 0.1.0, gateway \"west\" at 1-ff00:0:110,10.10.0.2:30056, up 2 d 7 h
serves 10.1.0.0/24

Ports
  interface  role      link  driver  XDP     buffers  queues   MTU  received  sent
  eth0       underlay  down  veth    native  copy          1  1500        10     5
  eth0 is down: ip link set eth0 up

Workers
  worker  CPU  received  sent  straight to the LAN  via helper  sleeps
       0    2        30    20                    7           2       4

To the LAN
  straight to 3 known neighbours, else via the helper and the kernel's tables

Remotes
  ISD-AS        gateway          session  frames received  packets received  prefixes
  1-ff00:0:111  10.11.0.2:30056        0               10                 9  10.2.0.0/24

Paths
  ISD-AS        path  next hop         MAC          MTU  packets sent  frames sent  bytes sent  streams
  1-ff00:0:111  0     10.10.0.1:30042  unresolved  1472            20            5        5000  77
  10.10.0.1 does not answer: check that the router is up and on the underlay, \"ip neighbour show 10.10.0.1\"

Traffic
            packets  bytes  frames  frame bytes  packets/frame
  sent           20   2000       5         2080           4.00
  received        9    900      10         1060           0.90
  reordering: 2 frames waited for an earlier one, 1 gaps were given up

Drops
  reason          where   count  meaning
  unknown_remote  kernel      3  A SIG frame came from a gateway that is not configured as a remote.
"
    );
}

#[test]
fn what_the_control_plane_knows_is_shown() {
    let text = human(&found());
    let begin = text.find("\nControl plane").unwrap();
    let end = text.find("\nRemotes\n").unwrap();
    assert_eq!(&text[begin..end], "");
}

#[test]
fn before_anything_is_found_it_says_so() {
    let mut status = found();
    status.remotes.clear();
    status.prefixes.clear();
    if let Some(control) = &mut status.control {
        control.ases.clear();
        control.sites.clear();
    }
    let text = human(&status);
    assert!(!text.contains("[[remote]]"), "{text}");
    assert!(!text.contains("set prefixes"), "{text}");
    assert!(text.contains("\nRemote ASes\n  none: name some in the traffic policy file\n"));
    assert!(text.contains("\nSessions\n  none: no remote gateway has told prefixes yet\n"));
}

#[test]
fn the_json_form_is_the_document_of_the_gateway() {
    let document = serde_json::to_vec(&found()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Status>(&document).unwrap(),
        found()
    );
}
