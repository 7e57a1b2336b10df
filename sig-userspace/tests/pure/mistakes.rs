//! Mistakes in files: what the checks say. Each message names file, line and key, and what to write instead.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

/// A file, the text in it that is replaced (`None`: all of it), what is written instead (`None`: the file is removed), and
/// what the check of the file says.
type Mistake = (
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
    &'static str,
);

/// Files without a mistake.
const FILES: [(&str, &str); 9] = [
    (
        "traffic",
        r#"{"ASes": {"1-ff00:0:111": {"Nets": ["192.168.11.0/24"]}}}
"#,
    ),
    (
        "routing",
        r#"advertise 1-ff00:0:110 1-ff00:0:111 192.168.10.0/24
"#,
    ),
    (
        "gateway.toml",
        r#"[gateway]
isd_as = "1-ff00:0:110"
ctrl_addr = "10.10.0.2:30256"
traffic_policy_file = "traffic"
ip_routing_policy_file = "routing"
[dataplane]
lan = ["lan0"]
"#,
    ),
    (
        "static.toml",
        r#"[gateway]
isd_as = "1-ff00:0:110"
data_addr = "10.10.0.2:30056"
prefixes = ["192.168.10.0/24"]
[dataplane]
lan = ["lan0"]
[[remote]]
isd_as = "1-ff00:0:111"
gateway = "10.11.0.2:30056"
prefixes = ["192.168.11.0/24"]
[[remote.path]]
raw = "000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"
next_hop = "10.10.0.1:30042"
mtu = 1472
"#,
    ),
    (
        "router.toml",
        r#"[general]
id = "br-1"
[metrics]
prometheus = "127.0.0.1:30442"
[router.bfd]
detect_mult = 3
[xdp]
mode = "auto"
"#,
    ),
    (
        "topology.json",
        r#"{
  "isd_as": "1-ff00:0:110",
  "mtu": 1472,
  "dispatched_ports": "31000-32767",
  "border_routers": {
    "br-1": {
      "internal_addr": "10.0.0.1:30042",
      "interfaces": {
        "1": {
          "underlay": {"local": "192.0.2.1:50000", "remote": "192.0.2.2:50000"},
          "isd_as": "1-ff00:0:111",
          "link_to": "child",
          "mtu": 1472
        }
      }
    }
  }
}
"#,
    ),
    (
        "keys/master0.key",
        r#"AAECAwQFBgcICQoLDA0ODw==
"#,
    ),
    (
        "network.toml",
        r#"[[as]]
isd_as = "1-ff00:0:110"
core = true
mtu = 1472
master_key = "AAECAwQFBgcICQoLDA0ODw=="
[[as]]
isd_as = "1-ff00:0:111"
mtu = 1472
master_key = "AAECAwQFBgcICQoLDA0ODw=="
[[link]]
a = "1-ff00:0:110#1"
b = "1-ff00:0:111#41"
type = "child"
mtu = 1472
"#,
    ),
    (
        "node.toml",
        r#"[general]
id = "sr-1"
[srv6]
source = "2001:db8:a::1"
locators = ["2001:db8:a::/48"]
untrusted = ["eth0"]
[[srv6.sid]]
sid = "2001:db8:a::100"
behavior = "End"
"#,
    ),
];

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    ("gateway.toml", None, Some(""),
     r#"gateway.toml:1: gateway.traffic_policy_file: "/etc/scion/traffic.policy" cannot be read: No such file or directory (os error 2); correct the name, or start with "sig config sample traffic-policy > FILE""#),
    ("gateway.toml", None, Some(r#"hello
"#),
     "gateway.toml:1: not TOML: key with no value, expected `=`"),
    ("gateway.toml", Some(r#""lan0""#), Some(r#""lan0"#),
     r#"gateway.toml:7: not TOML: unclosed array, expected `]`
gateway.toml:7: not TOML: invalid basic string, expected `"`"#),
    ("gateway.toml", Some("[dataplane]"), Some("[dataplane"),
     "gateway.toml:6: not TOML: unclosed table, expected `]`"),
    ("gateway.toml", Some("[dataplane]"), Some(r#"isd_as = "1-1"
[dataplane]"#),
     r#"gateway.toml:6: not TOML: duplicate key "isd_as"; remove one of the two"#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[gateway]
[dataplane]"#),
     r#"gateway.toml:6: not TOML: duplicate key "gateway"; remove one of the two"#),
    ("gateway.toml", Some("lan ="), Some("lans ="),
     r#"gateway.toml:7: dataplane.lans: unknown key; did you mean "lan"?"#),
    ("gateway.toml", Some("[dataplane]"), Some("[datplane]"),
     r#"gateway.toml:6: datplane: unknown key; did you mean "dataplane"?"#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[xdp]
mode = "off"
[dataplane]"#),
     r#"gateway.toml:6: xdp: unknown key; it belongs in the configuration of a border router, which "sig router check FILE" checks"#),
    ("gateway.toml", Some("1-ff00:0:110"), Some("1-ff00:0"),
     r#"gateway.toml:2: gateway.isd_as: "1-ff00:0" is not an ISD-AS number; write for example "1-ff00:0:110" or "1-64512""#),
    ("gateway.toml", Some("1-ff00:0:110"), Some("0-0"),
     r#"gateway.toml:2: gateway.isd_as: 0-0 is a wildcard; write the number of one AS, for example "1-ff00:0:110""#),
    ("gateway.toml", Some(r#""1-ff00:0:110""#), Some("110"),
     r#"gateway.toml:2: gateway.isd_as: the number 110 found; write a string, for example "1-ff00:0:110""#),
    ("gateway.toml", Some("10.10.0.2:30256"), Some("10.10.0.300:30256"),
     r#"gateway.toml:3: gateway.ctrl_addr: "10.10.0.300:30256" is not an address; write IP:port, for example "192.0.2.10:30256" or "[2001:db8::10]:30256""#),
    ("gateway.toml", Some("10.10.0.2:30256"), Some("gw.example:30256"),
     r#"gateway.toml:3: gateway.ctrl_addr: "gw.example" is a host name, which is not supported; write its IP address"#),
    ("gateway.toml", Some("10.10.0.2:30256"), Some("224.0.0.1:30256"),
     "gateway.toml:3: gateway.ctrl_addr: 224.0.0.1 is a multicast address; write the address of one host"),
    ("gateway.toml", Some("10.10.0.2:30256"), Some("0.0.0.0:30256"),
     "gateway.toml:3: gateway.ctrl_addr: 0.0.0.0 is the unspecified address; write the address of one host"),
    ("gateway.toml", Some("ctrl_addr"), Some(r#"data_addr = "10.10.0.2:30256"
ctrl_addr"#),
     "gateway.toml:4: gateway.ctrl_addr: 10.10.0.2:30256 is already used by data_addr; write another port"),
    ("gateway.toml", Some(r#""traffic""#), Some(r#""nowhere""#),
     r#"gateway.toml:4: gateway.traffic_policy_file: "nowhere" cannot be read: No such file or directory (os error 2); correct the name, or start with "sig config sample traffic-policy > FILE""#),
    ("gateway.toml", Some(r#""routing""#), Some(r#""nowhere""#),
     r#"gateway.toml:5: gateway.ip_routing_policy_file: "nowhere" cannot be read: No such file or directory (os error 2); correct the name, or start with "sig config sample routing-policy > FILE""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"rules_file = "nowhere"
[dataplane]"#),
     r#"nowhere:1: cannot be read: No such file or directory (os error 2); [gateway] rules_file names it, and "sig config sample rules" prints one to start from"#),
    ("gateway.toml", Some(r#"["lan0"]"#), Some(r#""lan0""#),
     r#"gateway.toml:7: dataplane.lan: the string "lan0" found; write an array, for example ["eth1"]"#),
    ("gateway.toml", Some(r#"["lan0"]"#), Some(r#"["lan0", "lan0"]"#),
     r#"gateway.toml:7: dataplane.lan: "lan0" is listed twice; remove one"#),
    ("gateway.toml", Some("lan0"), Some(""),
     r#"gateway.toml:7: dataplane.lan[0]: an interface name is empty; write a name, for example "eth0""#),
    ("gateway.toml", Some("lan0"), Some("averyveryverylongname"),
     r#"gateway.toml:7: dataplane.lan[0]: "averyveryverylongname" is longer than the 15 bytes of an interface name; shorten it, for example "averyveryverylo""#),
    ("gateway.toml", Some("lan0"), Some("a/b"),
     r#"gateway.toml:7: dataplane.lan[0]: "a/b" is not an interface name; use no slash, colon or space"#),
    ("gateway.toml", Some("lan ="), Some(r#"underlay = "lan0"
lan ="#),
     r#"gateway.toml:8: dataplane.lan: "lan0" is also the underlay interface; write the interface towards the IP hosts"#),
    ("gateway.toml", Some("lan ="), Some(r#"workers = 0
lan ="#),
     "gateway.toml:7: dataplane.workers: 0 is out of range; write a number from 1 to 64"),
    ("gateway.toml", Some("lan ="), Some(r#"workers = "2"
lan ="#),
     r#"gateway.toml:7: dataplane.workers: the string "2" found; write a number from 1 to 64"#),
    ("gateway.toml", Some("lan ="), Some(r#"ring_size = 100
lan ="#),
     "gateway.toml:7: dataplane.ring_size: 100 is not a power of two; write 64 or 128"),
    ("gateway.toml", Some("lan ="), Some(r#"mode = "fast"
lan ="#),
     r#"gateway.toml:7: dataplane.mode: "fast" is unknown; write "auto", "native" or "generic""#),
    ("gateway.toml", Some("lan ="), Some(r#"zero_copy = true
lan ="#),
     r#"gateway.toml:7: dataplane.zero_copy: true found; write "auto", "never" or "require""#),
    ("gateway.toml", Some("lan ="), Some(r#"chunks = 5
lan ="#),
     "gateway.toml:7: dataplane.chunks: 5 is out of range; write a number from 1024 to 1048576"),
    ("gateway.toml", Some("lan ="), Some(r#"pin = [0, 1, 2]
lan ="#),
     "gateway.toml:7: dataplane.pin: 3 CPUs for 1 worker; write one CPU for each worker"),
    ("gateway.toml", Some("lan ="), Some(r#"underlay_sources = "some"
lan ="#),
     r#"gateway.toml:7: dataplane.underlay_sources: the string "some" found; write an array, for example ["10.0.0.1/32"], or "routers" or "any""#),
    ("gateway.toml", Some("lan ="), Some(r#"huge_pages = "yes"
lan ="#),
     r#"gateway.toml:7: dataplane.huge_pages: "yes" is unknown; write "auto", "never" or "require""#),
    ("gateway.toml", Some("lan ="), Some(r#"lan_transmit = "direct"
lan ="#),
     r#"gateway.toml:7: dataplane.lan_transmit: "direct" is unknown; write "auto", "helper" or "kernel""#),
    ("gateway.toml", Some("lan ="), Some(r#"fast_path = 1
lan ="#),
     r#"gateway.toml:7: dataplane.fast_path: the number 1 found; write "auto", "on" or "off""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
mtu = 100
[dataplane]"#),
     "gateway.toml:7: tunnel.mtu: 100 is out of range; write a number from 1280 to 9216"),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
table = "other"
[dataplane]"#),
     r#"gateway.toml:7: tunnel.table: the string "other" found; write a number from 1 to 4294967295"#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
table = 255
[dataplane]"#),
     r#"gateway.toml:7: tunnel.table: table 255 is the kernel's local table; write another one, or "main""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
name = "a/b"
[dataplane]"#),
     r#"gateway.toml:7: tunnel.name: "a/b" is not an interface name; use no slash, colon or space"#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
name = "lan0"
[dataplane]"#),
     r#"gateway.toml:7: tunnel.name: "lan0" is also an interface of [dataplane], but the tunnel device is created at start; write another name"#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[tunnel]
src_ipv4 = "fd00::1"
[dataplane]"#),
     "warning: gateway.toml:7: tunnel.src_ipv4: ignored: fd00::1 is of the other address family; set src_ipv6 to it"),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[control]
probe_interval = "200"
[dataplane]"#),
     r#"gateway.toml:7: control.probe_interval: "200" is not a duration; write a whole number with one unit of y, w, d, h, m, s, ms, us, ns, for example "500ms""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[control]
probe_interval = "-1s"
[dataplane]"#),
     r#"gateway.toml:7: control.probe_interval: "-1s" is not a duration; write a whole number with one unit of y, w, d, h, m, s, ms, us, ns, for example "500ms""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[control]
probe_interval = "0s"
[dataplane]"#),
     r#"gateway.toml:7: control.probe_interval: "0s" is out of range; write a duration from "20ms" to "10s""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[control]
endhost_port = "mine"
[dataplane]"#),
     r#"gateway.toml:7: control.endhost_port: "mine" is unknown; write "auto", "own" or "shared""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[control.limits]
gateways_per_as = -1
[dataplane]"#),
     "gateway.toml:7: control.limits.gateways_per_as: -1 is out of range; write a number from 1 to 256"),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[metrics]
prometheus = "30456"
[dataplane]"#),
     r#"gateway.toml:7: metrics.prometheus: "30456" is not an address with a port; write host:port, for example "127.0.0.1:30456""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"[log.console]
level = "verbose"
[dataplane]"#),
     r#"gateway.toml:7: log.console.level: "verbose" is unknown; write "error", "warn", "info", "debug" or "trace""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"prefixes = ["192.168.10.7/24"]
[dataplane]"#),
     r#"gateway.toml:6: gateway.prefixes[0]: "192.168.10.7/24" has host bits set; write "192.168.10.0/24""#),
    ("gateway.toml", Some("[dataplane]"), Some(r#"prefixes = ["192.168.10.0/33"]
[dataplane]"#),
     r#"gateway.toml:6: gateway.prefixes[0]: "192.168.10.0/33" is not an IP prefix; write address/length, for example "10.2.0.0/24" or "2001:db8:2::/64""#),
    ("static.toml", Some(r#"raw = "000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33""#), Some(""),
     r#"static.toml:11: remote[0].path[0].raw: missing; write the path header in hexadecimal, raw = "00002000…", or a file with it, file = "a.path", or a network description to make it from, network = "network.toml""#),
    ("static.toml", Some("000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"), Some("000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df3"),
     "static.toml:12: remote[0].path[0].raw: 71 hexadecimal digits are not a whole number of bytes; a digit is missing or extra"),
    ("static.toml", Some("000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"), Some("zz0020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"),
     r#"static.toml:12: remote[0].path[0].raw: "z" at position 1 is not a hexadecimal digit; write only 0-9 and a-f"#),
    ("static.toml", Some("000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"), Some("000020000100ff956b0a7eba003f000000015678"),
     "static.toml:12: remote[0].path[0].raw: 20 bytes found, but 1 segment with 2 hop fields take 36; the path is truncated or has trailing bytes"),
    ("static.toml", Some("mtu = 1472"), Some("mtu = 100"),
     "static.toml:14: remote[0].path[0].mtu: 100 leaves no room for a frame: this path's headers take 80 bytes and a frame at least 57; write 137 or more"),
    ("static.toml", Some("mtu = 1472"), Some("mtu = 70000"),
     "static.toml:14: remote[0].path[0].mtu: 70000 is out of range; write a number from 1 to 9188"),
    ("static.toml", Some("mtu = 1472"), Some(""),
     "static.toml:11: remote[0].path[0].mtu: missing; write the largest SCION packet of this path in bytes, for example mtu = 1472"),
    ("static.toml", Some("10.10.0.1:30042"), Some("10.10.0.2:30056"),
     "static.toml:13: remote[0].path[0].next_hop: 10.10.0.2:30056 is this gateway's own address; write the border router's"),
    ("static.toml", Some("10.10.0.1:30042"), Some("[fd00::1]:30042"),
     "static.toml:13: remote[0].path[0].next_hop: [fd00::1]:30042 is IPv6 but data_addr 10.10.0.2:30056 is IPv4; write a router address of the same family"),
    ("static.toml", Some("10.10.0.1:30042"), Some("10.10.0.1"),
     r#"static.toml:13: remote[0].path[0].next_hop: no port; write the port of the router too, for example "10.10.0.1:30042""#),
    ("static.toml", Some("192.168.11.0/24"), Some("10.0.0.0/8"),
     "static.toml:10: remote[0].prefixes[0]: 10.0.0.0/8 contains this gateway's address 10.10.0.2: frames would be sent into the tunnel itself; write prefixes without it"),
    ("static.toml", Some("[[remote]]"), Some(r#"[[remote]]
isd_as = "1-ff00:0:112"
gateway = "10.11.0.3:30056"
prefixes = ["192.168.11.0/24"]
[[remote.path]]
raw = "000020000100ff956b0a7eba003f0000000156782864f33b003f0029000076dd9a73df33"
next_hop = "10.10.0.1:30042"
mtu = 1472
[[remote]]"#),
     "static.toml:18: remote[1].prefixes[0]: 192.168.11.0/24 is already listed as remote[0].prefixes[0]; list each prefix once"),
    ("static.toml", Some(r#"gateway = "10.11"#), Some(r#"data_addr = "10.11"#),
     r#"static.toml:7: remote[0].gateway: missing; write the SCION host address of the remote gateway, for example gateway = "10.11.0.2:30056"
static.toml:9: remote[0].data_addr: unknown key here; it belongs in [gateway]"#),
    ("router.toml", None, None,
     r#"router.toml:1: cannot be read: No such file or directory (os error 2); "sig router sample" prints one to start from"#),
    ("router.toml", Some("br-1"), Some("br-9"),
     r#"router.toml:2: general.id: the topology has no such router; write one of: "br-1""#),
    ("router.toml", Some(r#"id = "br-1"
"#), Some(""),
     r#"router.toml:1: general.id: missing; write the name of this router in the topology, for example id = "br-1""#),
    ("router.toml", Some("[general]"), Some("[general"),
     "router.toml:1: not TOML: unclosed table, expected `]`"),
    ("router.toml", Some("[xdp]"), Some("[xdpp]"),
     r#"router.toml:7: xdpp: unknown key; did you mean "xdp"?"#),
    ("router.toml", Some("detect_mult = 3"), Some("detect_mult = 256"),
     "router.toml:6: router.bfd.detect_mult: 256 is out of range; write a number from 0 to 255"),
    ("router.toml", Some("detect_mult = 3"), Some(r#"desired_min_tx_interval = "5ns""#),
     r#"router.toml:6: router.bfd.desired_min_tx_interval: "5ns" is out of range; write a duration from "1ms" to "4294s", or "0s" for the default"#),
    ("router.toml", Some(r#"mode = "auto""#), Some(r#"mode = "fast""#),
     r#"router.toml:8: xdp.mode: "fast" is unknown; write "auto", "native", "generic" or "off""#),
    ("router.toml", Some(r#"mode = "auto""#), Some("cpus = [9999]"),
     "router.toml:8: xdp.cpus[0]: 9999 is out of range; write a number from 0 to 8191"),
    ("router.toml", Some(r#"mode = "auto""#), Some(r#"devices = ["averyveryverylongname"]"#),
     r#"router.toml:8: xdp.devices[0]: "averyveryverylongname" is longer than the 15 bytes of an interface name; shorten it, for example "averyveryverylo""#),
    ("router.toml", Some("127.0.0.1:30442"), Some("nowhere"),
     r#"router.toml:4: metrics.prometheus: "nowhere" is not an address with a port; write host:port, for example "127.0.0.1:30456""#),
    ("router.toml", Some("[general]"), Some(r#"[dataplane]
lan = ["eth1"]
[general]"#),
     r#"router.toml:1: dataplane: unknown key; it belongs in the configuration of a gateway, which "sig config check FILE" checks"#),
    ("router.toml", Some(r#"mode = "auto""#), Some(r#"[xdp.rate_limits]
bfd = -1"#),
     "router.toml:9: xdp.rate_limits.bfd: -1 is out of range; write a number from 0 to 100000000"),
    ("router.toml", Some("[router.bfd]"), Some(r#"[router]
dispatched_port_start = 32000
dispatched_port_end = 31000
[router.bfd]"#),
     "router.toml:7: router.dispatched_port_end: 31000 is before dispatched_port_start; write 32000 or more"),
    ("topology.json", None, None,
     "topology.json:1: cannot be read: No such file or directory (os error 2); check [general] config_dir, the folder it is read from"),
    ("topology.json", None, Some(""),
     "topology.json:1: not JSON: the file ends before a string, array or object is closed"),
    ("topology.json", None, Some("[]"),
     "topology.json:1: an array found; write an object: {…}"),
    ("topology.json", Some(r#""mtu": 1472
        }"#), Some(r#""mtu": 1472
        "#),
     "topology.json:19: not JSON: the file ends before a string, array or object is closed"),
    ("topology.json", Some(r#""mtu": 1472,"#), Some(r#""mtu": 1472"#),
     "topology.json:4: not JSON, column 3: expected `,` or `}`"),
    ("topology.json", Some("1-ff00:0:110"), Some("1-zz"),
     r#"topology.json:2: isd_as: "1-zz" is not an ISD-AS number; write for example "1-ff00:0:110" or "1-64512""#),
    ("topology.json", Some(r#""mtu": 1472,"#), Some(r#""mtu": 0,"#),
     "topology.json:3: mtu: 0 found; write a whole number from 576 to 65535"),
    ("topology.json", Some(r#"      "internal_addr": "10.0.0.1:30042",
"#), Some(""),
     r#"topology.json:6: border_routers.br-1.internal_addr: missing; write the address on which the router receives packets from hosts, for example "10.10.0.1:30042""#),
    ("topology.json", Some(r#""1": {"#), Some(r#""0": {"#),
     "topology.json:9: border_routers.br-1.interfaces.0: an interface is a number from 1 to 65535"),
    ("topology.json", Some("link_to"), Some("linkto"),
     r#"topology.json:9: border_routers.br-1.interfaces.1.link_to: missing; write "core", "parent", "child" or "peer"
topology.json:12: border_routers.br-1.interfaces.1.linkto: unknown key, which has no effect; did you mean "link_to"?"#),
    ("topology.json", Some("child"), Some("UP"),
     r#"topology.json:12: border_routers.br-1.interfaces.1.link_to: "UP" is unknown; write "core", "parent", "child" or "peer""#),
    ("topology.json", Some("1-ff00:0:111"), Some("1-ff00:0:110"),
     "topology.json:11: border_routers.br-1.interfaces.1.isd_as: 1-ff00:0:110 is this AS; write the AS at the other end"),
    ("topology.json", Some("31000-32767"), Some("5-1"),
     r#"topology.json:4: dispatched_ports: 5 is after 1; write "1-5""#),
    ("keys/master0.key", None, None,
     "keys/master0.key:1: cannot be read: No such file or directory (os error 2); check [general] config_dir, the folder it is read from"),
    ("keys/master0.key", None, Some(""),
     "keys/master0.key:1: the key is empty; write the master key of the AS in base64"),
    ("keys/master0.key", None, Some(r#"hello world!
"#),
     r#"keys/master0.key:1: "!" is not a digit of base64; write the master key of the AS in base64"#),
    ("keys/master0.key", None, Some(r#"AAAAAA==
"#),
     r#"warning: keys/master0.key:1: the key has 4 bytes, which is too short to be secure; "sig router key --new" prints one of 16"#),
    ("traffic", None, Some(""),
     "traffic:1: not JSON: the file ends before a string, array or object is closed"),
    ("traffic", Some("}}}"), Some("}}"),
     "traffic:2: not JSON: the file ends before a string, array or object is closed"),
    ("traffic", Some("1-ff00:0:111"), Some("1-ff00"),
     r#"traffic:1: ASes.1-ff00: not an ISD-AS; write for example "1-ff00:0:111""#),
    ("traffic", Some(r#"["192.168.11.0/24"]"#), Some(r#""192.168.11.0/24""#),
     r#"traffic:1: ASes.1-ff00:0:111.Nets: the string "192.168.11.0/24" found; write an array, for example ["10.2.0.0/24"]"#),
    ("traffic", Some("192.168.11.0/24"), Some("192.168.11.7/24"),
     r#"traffic:1: ASes.1-ff00:0:111.Nets[0]: "192.168.11.7/24" has host bits set; write "192.168.11.0/24""#),
    ("traffic", Some(r#""Nets""#), Some(r#""Netz""#),
     r#"warning: traffic:1: ASes.1-ff00:0:111.Netz: unknown key, which has no effect; did you mean "Nets"?"#),
    ("traffic", Some("}}}"), Some(r#"}, "1-ff00:0:112": {"Nets": ["192.168.11.0/24"]}}}"#),
     "warning: traffic:1: ASes.1-ff00:0:112: 192.168.11.0/24 is also in Nets of 1-ff00:0:111: packets go to the AS with the higher number, and to the other one while that is unreachable"),
    ("traffic", Some(r#""Nets""#), Some(r#""Policies": [{"TrafficClass": "voice"}], "Nets""#),
     r#"traffic:1: ASes.1-ff00:0:111.Policies[0].TrafficClass: there is no traffic class "voice"; add it to TrafficClasses"#),
    ("routing", Some("advertise"), Some("permit"),
     r#"routing:1: action: "permit" is unknown; write accept, reject, advertise or redistribute-bgp"#),
    ("routing", Some(" 192.168.10.0/24"), Some(""),
     r#"routing:1: too few columns; write ACTION FROM TO PREFIXES, for example "accept 1-ff00:0:111 1-ff00:0:110 10.2.0.0/16""#),
    ("routing", Some("192.168.10.0"), Some("192.168.10.3"),
     r#"warning: routing:1: prefixes: "192.168.10.3/24" has host bits set, which are ignored; write "192.168.10.0/24""#),
    ("routing", Some("1-ff00:0:110"), Some("1-ff00:0:112"),
     "warning: routing:1: from: no advertise rule matches 1-ff00:0:110, the local AS: nothing is announced"),
    ("routing", Some("1-ff00:0:110"), Some("1-ff"),
     r#"routing:1: from: "1-ff" is not an ISD-AS; write for example 1-ff00:0:110, 1-0 for all of ISD 1, 0-0 for all, or !1-ff00:0:110 for all others"#),
    ("network.toml", None, None,
     r#"network.toml:1: cannot be read: No such file or directory (os error 2); "sig path make --help" shows what one holds"#),
    ("network.toml", None, Some(""),
     "network.toml:1: no AS; write one [[as]] section each"),
    ("network.toml", Some("[[as]]"), Some("[[as]"),
     "network.toml:1: not TOML: unclosed array table, expected `]`"),
    ("network.toml", Some("type"), Some("typ"),
     r#"network.toml:10: link[0].type: missing; write the link type, what b is to a, for example type = "child"
network.toml:13: link[0].typ: unknown key; did you mean "type"?"#),
    ("network.toml", Some("child"), Some("friend"),
     r#"network.toml:13: link[0].type: "friend" is unknown; write "core", "child", "parent" or "peer""#),
    ("network.toml", Some("111#41"), Some("119#41"),
     "network.toml:10: link[0]: 1-ff00:0:119 is not an AS of this network; add it"),
    ("network.toml", Some("#41"), Some(""),
     r#"network.toml:12: link[0].b: "1-ff00:0:111" has no interface; write for example "1-ff00:0:110#1""#),
    ("network.toml", Some(r#"isd_as = "1-ff00:0:111""#), Some(r#"isd_as = "1-ff00:0:110""#),
     r#"network.toml:6: as[1]: 1-ff00:0:110 is listed twice; remove one
network.toml:10: link[0]: 1-ff00:0:111 is not an AS of this network; add it"#),
    ("network.toml", Some("mtu = 1472"), Some("mtu = 0"),
     "network.toml:4: as[0].mtu: 0 is out of range; write a number from 1 to 65535"),
    ("network.toml", Some(r#"master_key = "AAECAwQFBgcICQoLDA0ODw=="
"#), Some(""),
     r#"network.toml:1: as[0].master_key: missing; write the master key of the AS in base64, or name a file with it, master_key_file = "master0.key""#),
    ("network.toml", Some(r#"master_key = "AAECAwQFBgcICQoLDA0ODw==""#), Some(r#"master_key_file = "nowhere""#),
     r#"network.toml:5: as[0].master_key_file: "nowhere" cannot be read: No such file or directory (os error 2); write a name relative to this file"#),
    ("node.toml", None, None,
     r#"node.toml:1: cannot be read: No such file or directory (os error 2); "sig srv6 sample" prints one to start from"#),
    ("node.toml", Some(r#"2001:db8:a::1""#), Some(r#"fd00::zz""#),
     r#"node.toml:4: srv6.source: "fd00::zz" is not an IPv6 address; write for example "2001:db8:a::1""#),
    ("node.toml", Some(r#""End""#), Some(r#""Begin""#),
     r#"node.toml:9: srv6.sid[0].behavior: "Begin" is unknown; write "End", "End.X", "End.T", "End.DX2", "End.DX4", "End.DX6", "End.DT4", "End.DT6", "End.DT46", "End.AS", "End.AD4", "End.AD6", "End.AM" or "End.AN""#),
    ("node.toml", Some("sid ="), Some("sids ="),
     r#"node.toml:7: srv6.sid[0].sid: missing; write the address, for example sid = "2001:db8:a::d6"
node.toml:8: srv6.sid[0].sids: unknown key; did you mean "sid"?"#),
    ("node.toml", Some("2001:db8:a::100"), Some("10.0.0.1"),
     r#"node.toml:8: srv6.sid[0].sid: "10.0.0.1" is not an IPv6 address; write for example "2001:db8:a::1""#),
];

/// When the path in these files was made, in hexadecimal seconds since 1970: it would expire.
const MADE_AT: &str = "6b0a7eba";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A left-over folder is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn check(folder: &Path, file: &str) -> (i32, String) {
    let arguments: &[&str] = match file {
        "static.toml" => &["config", "check", "static.toml"],
        "gateway.toml" | "traffic" | "routing" => &["config", "check", "gateway.toml"],
        "router.toml" | "topology.json" | "keys/master0.key" => &["router", "check", "router.toml"],
        "node.toml" => &["srv6", "check", "node.toml"],
        "network.toml" => &[
            "path",
            "make",
            "--from",
            "1-ff00:0:110",
            "--to",
            "1-ff00:0:111",
            "network.toml",
        ],
        other => panic!("{other}"),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_sig"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let said = String::from_utf8(output.stderr).expect("text");
    (
        output.status.code().expect("no signal"),
        said.trim_end().to_owned(),
    )
}

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("mine");
}

#[test]
fn mistakes_are_told_with_file_line_key_and_remedy() {
    let folder = std::env::temp_dir().join(format!("sig-mistakes-{}", std::process::id()));
    let folder = Folder(folder);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = format!("{:08x}", now.expect("after 1970").as_secs());
    let fresh = |text: &str| text.replace(MADE_AT, &now);
    for (file, text) in FILES {
        write(&folder.0, file, &fresh(text));
    }
    for (file, _) in FILES {
        assert_eq!(check(&folder.0, file), (0, String::new()), "{file}");
    }
    for (file, instead, text, says) in MISTAKES {
        let right = FILES.iter().find(|(name, _)| name == file);
        let right = fresh(right.expect("one of the files").1);
        match (instead.map(fresh), text.map(fresh)) {
            (Some(instead), Some(text)) => {
                assert!(right.contains(&instead), "{file}: {instead}");
                write(&folder.0, file, &right.replacen(&instead, &text, 1));
            }
            (_, Some(text)) => write(&folder.0, file, &text),
            (_, None) => fs::remove_file(folder.0.join(file)).expect("it is there"),
        }
        let code = if says.starts_with("warning: ") { 0 } else { 2 };
        let what = format!("{file}: {instead:?} -> {text:?}");
        assert_eq!(check(&folder.0, file), (code, (*says).to_owned()), "{what}");
        write(&folder.0, file, &right);
    }
}
