//! Rules of a node between hosts.

use super::net::{
    Line, Node, PATIENCE, assert_pings, assert_silence, frame_of, namespace, socket, wire,
};
use crate::support::netns::wait_until;

const NODE: &str = r#"
[srv6]
source = "fc00:1::1"
locators = ["fc00:22::/48"]
trusted = ["nr", "ns"]
policy = [{ name = "around", segments = ["fc00:33::d4"], mtu = 1800 }]
[[srv6.sid]]
sid = "fc00:22::41"
behavior = "End.AD4"
function = "wall"
[[srv6.function]]
name = "wall"
interface = "i1"
return_interface = "o1"
mac = "02:00:00:00:00:91"
on_failure = "drop"
[[srv6.rule]]
name = "watched"
class = "dst=10.2.0.2/32"
interfaces = ["nr"]
action = "mirror"
mirror = "ids0"
[[srv6.rule]]
name = "trusted"
class = "all(dst=10.2.0.2/32,sid=fc00:22::41/128)"
action = "go-next"
[[srv6.rule]]
name = "led"
class = "all(dst=10.2.0.5/32,protocol=ICMP)"
action = "steer"
policy = "around"
"#;

const DENIED: &str = r#"
[[srv6.rule]]
name = "denied"
class = "dst=10.2.0.4/32"
action = "drop"
"#;

/// A function that swallows everything is passed by, an IDS sees what is inside, and some packets are dropped or led elsewhere.
#[test]
fn packets_meet_rules_where_they_come_in() {
    if !super::net::may_run() {
        return;
    }
    let line = Line::new("rules");
    let wall = namespace("rules", "wall");
    wire((&line.n, "i1", 0x81), (&wall, "f1", 0x91));
    wire((&wall, "g1", 0xa1), (&line.n, "o1", 0xb1));
    wire((&line.n, "ids0", 0xc1), (&wall, "ids1", 0xd1));
    let to = |x| Line::destination(x)[0];
    for x in [2, 3] {
        line.kernel_encapsulates(to(x), "encap", "fc00:22::41,fc00:33::d4");
    }
    let node = Node::start(&line.n, &format!("{NODE}{DENIED}"));
    let ids = socket(&wall, "ids1");

    let through = [("passed by".to_owned(), to(2)), ("led".to_owned(), to(5))];
    assert_pings(&line.a, &through, &node);
    assert_silence(&line.a, [to(3), to(4)].into_iter());
    let status = node.status();
    assert!(status.rule("watched") >= 3, "{status:#?}");
    assert_eq!(status.rule("trusted"), status.rule("watched"));
    assert!(status.rule("led") >= 3 && status.policy("around") == status.rule("led"));
    assert_eq!((status.rule("denied"), status.refused("filtered")), (3, 3));

    let copy = frame_of(&ids, "the IDS sees a copy", |frame| {
        frame[12..14] == [0x08, 0x00]
    });
    // From the device, with the hop limit of what is inside: the packet to b that came in.
    assert_eq!(copy[..12], [2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 0xc1]);
    assert_eq!(copy[26..34], [10, 1, 0, 2, 10, 2, 0, 2]);
    assert_eq!(
        (copy[14], copy[23]),
        (0x45, 1),
        "a ping without any headers"
    );

    // Without the last rule packets go on; the others go on counting.
    node.reload(NODE, "follows the file");
    assert_pings(&line.a, &[("no longer denied".to_owned(), to(4))], &node);
    assert_pings(&line.a, &through, &node);
    wait_until("all are counted", PATIENCE, || {
        node.status().rule("watched") >= status.rule("watched") + 3
    });
}
