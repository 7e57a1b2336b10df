//! Functions in the process: this test is the program that embeds the node.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use sig::srv6::{InPlace, Node, Verdict};
use testbed::Folder;
use tokio::sync::oneshot;

use super::net::{Line, PATIENCE, status_at};
use crate::support::netns::wait_until;

const CONFIG: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
sid = [
    { sid = "fc00:22::1", behavior = "End.AN", function = "marker" },
    { sid = "fc00:22::2", behavior = "End.AN", function = "watchdog" },
    { sid = "fc00:22::3", behavior = "End.AN", function = "nobody" },
]
[[srv6.function]]
name = "marker"
in_process = true
on_failure = "drop"
[[srv6.function]]
name = "watchdog"
in_process = true
on_failure = "bypass"
[[srv6.function]]
name = "nobody"
in_process = true
on_failure = "drop"
"#;

#[test]
fn functions_in_the_process_see_packets_in_place() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("within");
    let folder = Folder::new("within-folder").unwrap();
    let (file, socket) = (folder.path().join("node.toml"), folder.path().join("sock"));
    let general = format!(
        "[general]\nid = \"within\"\nstatus_socket = \"{}\"\n",
        socket.display()
    );
    fs::write(&file, general + CONFIG).unwrap();
    let [v4, v6] = Line::destination(20);
    let [through_nobody, _] = Line::destination(21);
    line.kernel_encapsulates(v4, "encap", "fc00:22::1,fc00:22::2,fc00:33::d4");
    line.kernel_encapsulates(v6, "encap", "fc00:22::1,fc00:22::2,fc00:33::d6");
    line.kernel_encapsulates(through_nobody, "encap", "fc00:22::3,fc00:33::d4");

    // Takes from echo requests their last 8 bytes, drops those of 100 bytes or more, and counts.
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let marker = move |packet: &mut InPlace<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
        let is_whole = packet.headers().len() >= 40 + 8 + 3 * 16
            && packet.headers()[40 + 3] == 1
            && matches!(
                (packet.next_header(), packet.payload()[0] >> 4),
                (4, 4) | (41, 6)
            );
        assert!(is_whole, "{:x?}", packet.headers());
        match packet.payload().len() {
            ..200 => Verdict::Forward,
            _ => Verdict::Drop,
        }
    };
    // Ends with the packet that it does not like.
    let watchdog = |packet: &mut InPlace<'_>| {
        let len = packet.payload().len();
        assert_ne!(len, 20 + 8 + 77, "this one it does not like");
        // Longer and back again.
        assert!(packet.resize(len + 8) && packet.payload().ends_with(&[0; 8]));
        assert!(packet.resize(len) && !packet.resize(9000) && !packet.resize(19));
        Verdict::Forward
    };
    let (end, ended) = oneshot::channel::<()>();
    let node = line
        .n
        .run(|| Node::load(&file))
        .unwrap()
        .unwrap()
        .function("marker", marker)
        .function("watchdog", watchdog);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            line.n
                .run(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    runtime.block_on(node.run(async move {
                        let _ = ended.await;
                    }))
                })
                .unwrap()
        });
        wait_until("it runs", PATIENCE, || {
            socket.exists() || running.is_finished()
        });
        assert!(!running.is_finished(), "{:?}", running.join());
        wait_until("the functions are up", PATIENCE, || {
            let status = status_at(&socket);
            status.is_up("marker") && status.is_up("watchdog")
        });
        let ping = |to: std::net::IpAddr, size: u32| {
            let command = format!("ping -q -n -c3 -i0.02 -W0.3 -s{size} {to}");
            line.a.exec(&command).is_ok()
        };
        for to in [v4, v6] {
            wait_until("answers", PATIENCE, || ping(to, 56));
        }
        assert!(!ping(v4, 400), "the marker drops what is long");
        assert!(!ping(through_nobody, 56), "it is not there");
        let status = status_at(&socket);
        assert!(status.why_down("nobody").contains("process"), "{status:#?}");
        assert_eq!(status.returned("nobody"), 0);
        assert!(status.returned("watchdog") >= 6, "{status:#?}");
        let counted = seen.load(Ordering::Relaxed);
        assert!(
            counted >= status.returned("marker") + 3,
            "{counted} {status:#?}"
        );

        // A panic is the end of a function, and of nothing else: packets go on without it.
        ping(v4, 77);
        wait_until("it is down", PATIENCE, || {
            !status_at(&socket).is_up("watchdog")
        });
        assert!(status_at(&socket).is_up("marker"));
        wait_until("they go on", PATIENCE, || ping(v4, 77) && ping(v6, 56));
        end.send(()).unwrap();
        running.join().unwrap().unwrap();
    });
    wait_until("nothing is left", PATIENCE, || {
        line.n.exec("ip link show sig-functions").is_err()
    });
}
