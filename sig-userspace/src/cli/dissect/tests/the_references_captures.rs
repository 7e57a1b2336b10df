//! Traffic of the reference gateway.

use super::*;

fn counts(name: &str) -> (usize, usize) {
    let out = File::new();
    let text = good(&[&captured(name), "--format", "json", "--inner", &out.0]);
    let frames: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let completed: u64 = frames
        .iter()
        .map(|f| f["completed"].as_u64().unwrap())
        .sum();
    let inner = packets(&out);
    assert_eq!(inner.len() as u64, completed);
    for (_, packet) in &inner {
        let view = ipv4::View::new_checked(packet).unwrap();
        assert_eq!(usize::from(view.total_len()), packet.len());
        assert!(view.checksum_is_valid());
    }
    assert!(
        frames
            .iter()
            .all(|f| f["checksum_ok"] == true && f["discarded"].is_null())
    );
    (frames.len(), inner.len())
}

#[test]
fn hold_the_frames_and_inner_packets_that_their_readme_states() {
    assert_eq!(counts("data-single-v4"), (40, 40));
    assert_eq!(counts("data-fragmented-v4"), (60, 30));
    assert_eq!(counts("data-aggregated-v4"), (100, 523));
    assert_eq!(counts("control-gateway-startup"), (0, 0));
    assert_eq!(counts("control-steady-state"), (0, 0));
    assert_eq!(counts("control-interas-startup"), (0, 0));
}

#[test]
fn give_inner_packets_the_time_of_the_frame_that_completed_them() {
    let out = File::new();
    let text = good(&[
        &captured("data-fragmented-v4"),
        "--format",
        "json",
        "--inner",
        &out.0,
    ]);
    let completing: Vec<f64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|frame| frame["completed"] == 1)
        .map(|frame| frame["time"].as_f64().unwrap())
        .collect();
    let times: Vec<f64> = packets(&out)
        .iter()
        .map(|(time, _)| time.as_micros() as f64 / 1e6)
        .collect();
    assert_eq!(times, completing);
}

#[test]
fn read_as_one_object_per_frame() {
    let text = good(&[&captured("data-fragmented-v4"), "--format", "json"]);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "{\"time\":1795252798.99273,\"packet\":2,\
         \"src_isd_as\":\"1-ff00:0:110\",\"dst_isd_as\":\"1-ff00:0:111\",\
         \"src\":\"10.10.0.2\",\"dst\":\"10.11.0.2\",\"src_port\":65533,\"dst_port\":30056,\
         \"session\":0,\"stream\":6737,\"sequence\":112,\"index\":65535,\"payload_len\":136,\
         \"checksum_ok\":true,\"held\":false,\"completed\":1,\"discarded\":null}"
    );
}

#[test]
fn read_as_one_line_per_frame_with_sums() {
    let file = captured("data-fragmented-v4");
    let text = good(&[&file]);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "     2     0.000070  1-ff00:0:110,10.10.0.2:65533 > 1-ff00:0:111,10.11.0.2:30056  \
         session 0 stream 6737 seq 112 index - payload 136 completed 1"
    );
    assert!(text.ends_with(&format!(
        "
{file}
                 count
  packets           60
  SCION packets     60
  SIG frames        60  45000 bytes of payload
  streams            2
  inner packets     30  completed, 45000 bytes
"
    )));
}

#[test]
fn name_the_ports_that_are_there_instead() {
    let text = good(&[&captured("control-steady-state")]);
    assert!(text.ends_with(
        "No SIG frames to UDP/SCION port 30056. UDP/SCION ports in the capture: 30856 (33), \
         65532 (33), 65535 (21), 30256 (15), 30252 (12). Choose the data port of the gateways \
         with --port.\n"
    ));
}

#[test]
fn show_all_other_scion_packets_on_demand() {
    let text = good(&[&captured("control-interas-startup"), "--all"]);
    assert_eq!(
        text.lines().take(4).collect::<Vec<_>>(),
        [
            "     1     0.000000  1-ff00:0:111,10.11.0.2 > 1-ff00:0:110,10.10.0.2  \
             UDP 65532 > 30856, 2 bytes",
            "     2     0.006633  1-ff00:0:111,10.11.0.2 > 1-ff00:0:110,None  \
             SCMP traceroute request, 24 bytes",
            "     3     0.006723  1-ff00:0:110,10.10.0.1 > 1-ff00:0:111,10.11.0.2  \
             SCMP traceroute reply, 24 bytes",
            "     4     0.080073  1-ff00:0:110,10.99.0.1 > 1-ff00:0:111,10.99.0.2  \
             BFD, 24 bytes",
        ]
    );
}
