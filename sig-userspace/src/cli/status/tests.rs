use super::*;
use sig_observe::example::{busy, found, idle};

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
serves no prefixes: set prefixes in [gateway], or all received packets are dropped

Ports
  none: check underlay and lan in [dataplane], then \"sig doctor\"

Workers
  none: the data plane is not running; see the log

To the LAN
  direct to 0 known neighbours; the rest via the helper
  via the helper: everything: no interface in `[dataplane] lan`

Fast path in the kernel
  off

Remotes
  none: add a [[remote]] to the configuration; \"sig config sample\" shows one

Traffic
  none yet: send a packet from a prefix served here to a prefix of a remote

Drops
  none
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
  eth2 is not in service: there is no such interface

Workers
  worker  CPU  received  sent  directly to the LAN  via helper  sleeps
       0    2        30    20                    7           2       4

From the underlay
  frames from 10.10.0.66 were dropped: if it is a border router of this AS, add it to underlay_sources in [dataplane]

To the LAN
  direct to 3 known neighbours; the rest via the helper

Fast path in the kernel
  12 packets sent to remotes, 5 delivered to the LAN
  eth1: packets to hosts behind it take the slower way

Remotes
  ISD-AS        gateway          session  frames received  packets received  prefixes
  1-ff00:0:111  10.11.0.2:30056        0               10                 9  10.2.0.0/24

Paths
  ISD-AS        path  next hop         MAC          MTU  expires               packets sent  frames sent  bytes sent  streams
  1-ff00:0:111  0     10.10.0.1:30042  unresolved  1472  2023-11-15T04:13:20Z            20            5        5000  77
  10.10.0.1 does not answer: check that the router is up and on the underlay, \"ip neighbour show 10.10.0.1\"

Traffic
            packets  bytes  frames  frame bytes  packets/frame
  sent           20   2000       5         2080           4.00
  received        9    900      10         1060           0.90
  reordering: 2 frames waited for an earlier one, 1 gaps abandoned, 1 frames late

Drops
  reason           where   count  meaning
  unknown_remote   kernel      3  A SIG frame came from an unknown gateway.
  no_route         engine      4  No remote announces the destination of the packet.
  no_route         engine      1  No remote announces the destination of the packet.
  frame_duplicate  engine      8  A SIG frame was received twice.
"
    );
}

#[test]
fn an_expired_path_is_shown_as_such_with_the_remedy() {
    let mut status = busy();
    status.remotes[0].paths[0].expired = true;
    let text = human(&status);
    assert!(text.contains("  1472  expired "), "{text}");
    let remedy = "1-ff00:0:111 path 0 has expired: replace it and run \"sig reload\"";
    assert!(text.contains(remedy), "{text}");
}

#[test]
fn what_the_control_plane_knows_is_shown() {
    let text = human(&found());
    let begin = text.find("\nControl plane").unwrap();
    let end = text.find("\nRemotes\n").unwrap();
    assert_eq!(
        &text[begin..end],
        "
Control plane
  daemon 127.0.0.1:30255: reachable, 50 requests, 1 failed
  prefixes served at 10.10.0.2:30256, session probes answered at 10.10.0.2:30856, end host port: own
  advertised to 1-ff00:0:111: 10.1.0.0/24 (asked 12 times)

Remote ASes
  ISD-AS        gateways  paths  alive  probes  answers  discovered  static prefixes
  1-ff00:0:111         1      3      2     470      460  2.5 s ago   10.2.7.0/24
  2-ff00:0:220         0      0      0       0        0  never       -
  2-ff00:0:220 discovery failed: no path to it
  2-ff00:0:220 path lookup failed: the daemon knows no path

Remote gateways
  ISD-AS        control          data             interfaces  asked      accepted  rejected  prefixes
  1-ff00:0:111  10.11.0.2:30256  10.11.0.2:30056  all         1.5 s ago         2         1  10.2.0.0/24, fd00:2::/64

Protection of frames
  this gateway: ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
  ISD-AS        control          to it      from it    key age  pinned  identity
  1-ff00:0:111  10.11.0.2:30256  protected  protected  321 s    yes     ed25519:Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=

Known paths
  ISD-AS        state            latency   jitter      loss   MTU  sessions  path
  1-ff00:0:111  dead                   -        -  100.00 %  1472  -         Hops: [1-ff00:0:110 2>1 1-ff00:0:112 2>3 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
  1-ff00:0:111  alive           12.35 ms  0.68 ms    0.25 %  1472  0         Hops: [1-ff00:0:110 1>41 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042
  1-ff00:0:111  alive, revoked  12.35 ms  0.68 ms    0.25 %  1472  -         Hops: [1-ff00:0:110 3>1 1-ff00:0:113 2>4 1-ff00:0:111] MTU: 1472 NextHop: 10.10.0.1:30042

Sessions
  ISD-AS        session  policy  gateway          healthy  probes  answers  state changes  path changes  alive  dead  rejected
  1-ff00:0:111        0       0  10.11.0.2:30056  yes         100       98              1             2      1     1         1
  1-ff00:0:111        1       1  10.11.0.2:30056  no            7        0              0             0      0     0         0

Traffic classes
  class  ISD-AS        condition  session  candidates  alive  kernel routes  prefixes
      1  1-ff00:0:111  dscp=0x2e  none     1               0  yes            10.2.0.0/24, fd00:2::/64
      2  1-ff00:0:111  BOOL=true  0        0, 1            1  yes            10.2.0.0/24, fd00:2::/64

Prefixes claimed by several ASes
  prefix       ISD-AS        standby
  10.2.0.0/24  1-ff00:0:111  2-ff00:0:220

Rejected input from peers
  ISD-AS        reason         count
  1-ff00:0:111  default_route      2
"
    );
}

#[test]
fn before_anything_is_found_it_says_so() {
    let mut status = found();
    status.remotes.clear();
    status.prefixes.clear();
    if let Some(control) = &mut status.control {
        control.ases.clear();
        control.sites.clear();
        control.contested.clear();
    }
    let text = human(&status);
    assert!(!text.contains("[[remote]]"), "{text}");
    assert!(!text.contains("set prefixes"), "{text}");
    assert!(text.contains("\nRemote ASes\n  none: list remote ASes in the traffic policy file\n"));
    assert!(text.contains("\nSessions\n  none: no remote gateway has announced prefixes yet\n"));
}

#[test]
fn the_json_form_is_the_document_of_the_gateway() {
    let document = serde_json::to_vec(&found()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Status>(&document).unwrap(),
        found()
    );
}
