use std::os::unix::net::UnixListener;

use super::*;
use crate::observe::status::{
    Counters, Drop, DropPlace, Lan, Path as StatusPath, PortRole, Traffic, XdpAttachment,
};

fn idle() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        id: "west".to_owned(),
        isd_as: "1-ff00:0:110".to_owned(),
        data_addr: "10.10.0.2:30056".parse().unwrap(),
        prefixes: vec![],
        uptime_ms: 61_500,
        workers: vec![],
        ports: vec![],
        lan: Lan {
            neighbours: 0,
            helped: vec!["everything: no interface in `[dataplane] lan`".to_owned()],
        },
        remotes: vec![],
        control: None,
        counters: Counters::default(),
        queues: vec![],
        verdicts: vec![],
        drops: vec![],
    }
}

fn busy() -> Status {
    Status {
        prefixes: vec!["10.1.0.0/24".parse().unwrap()],
        uptime_ms: 200_000_000,
        workers: vec![Worker {
            number: 0,
            cpu: Some(2),
            rx_packets: 30,
            tx_packets: 20,
            packets_straight: 7,
            packets_via_helper: 2,
            sleeps: 4,
        }],
        ports: vec![Port {
            role: PortRole::Underlay,
            interface: "eth0".to_owned(),
            driver: Some("veth".to_owned()),
            mode: XdpAttachment::Native,
            zero_copy: false,
            queues: 1,
            mtu: 1500,
            up: false,
            rx_packets: 10,
            tx_packets: 5,
        }],
        lan: Lan {
            neighbours: 3,
            helped: vec![],
        },
        remotes: vec![Remote {
            isd_as: "1-ff00:0:111".to_owned(),
            gateway: "10.11.0.2:30056".parse().unwrap(),
            session: 0,
            policy_id: 0,
            probing: None,
            prefixes: vec!["10.2.0.0/24".parse().unwrap()],
            paths: vec![StatusPath {
                name: "0".to_owned(),
                fingerprint: String::new(),
                next_hop: "10.10.0.1:30042".parse().unwrap(),
                problem: None,
                next_hop_mac: None,
                mtu: 1472,
                streams: vec![77],
                frames_sent: 5,
                bytes_sent: 5000,
                packets_sent: 20,
            }],
            frames_received: 10,
            frame_bytes_received: 1060,
            packets_received: 9,
            packet_bytes_received: 900,
            sent: Traffic::default(),
        }],
        counters: Counters {
            packets_sent: 20,
            packet_bytes_sent: 2000,
            frames_sent: 5,
            frame_bytes_sent: 2080,
            frames_received: 10,
            frame_bytes_received: 1060,
            packets_received: 9,
            packet_bytes_received: 900,
            packets_straight: 7,
            packets_via_helper: 2,
            frames_held: 2,
            gaps: 1,
        },
        drops: vec![Drop {
            reason: "unknown_remote".to_owned(),
            place: DropPlace::Kernel,
            count: 3,
        }],
        ..idle()
    }
}

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
fn the_document_survives_the_socket() {
    let folder = Folder::new("answer");
    let socket = folder.0.join("west.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let gateway = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(&serde_json::to_vec(&busy()).unwrap())
            .unwrap();
    });
    let document = ask(&socket).unwrap();
    gateway.join().unwrap();
    assert_eq!(serde_json::from_slice::<Status>(&document).unwrap(), busy());
    assert_eq!(only_socket(&folder.0), Ok(socket.clone()));

    // The gateway is gone, its socket is not.
    assert_eq!(
        ask(&socket).unwrap_err(),
        format!(
            "{}: no gateway is listening; start it with \"sig run --config FILE\"",
            socket.display()
        )
    );
}

#[test]
fn no_socket_and_several_sockets_say_what_to_do() {
    let folder = Folder::new("choice");
    let shown = folder.0.display();
    assert_eq!(
        only_socket(&folder.0).unwrap_err(),
        format!(
            "no gateway is running: there is no socket in {shown}; start one with \"sig run \
             --config FILE\", or name its socket with --socket or its configuration with --config"
        )
    );
    for name in ["b.sock", "a.sock", "notes.txt"] {
        std::fs::write(folder.0.join(name), "").unwrap();
    }
    assert_eq!(
        only_socket(&folder.0).unwrap_err(),
        format!(
            "several gateways are here; choose one with --socket: {shown}/a.sock, {shown}/b.sock"
        )
    );
}

/// A folder that is removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sig-status-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl std::ops::Drop for Folder {
    fn drop(&mut self) {
        // A left-over folder is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
