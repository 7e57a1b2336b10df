//! `sig trace`: what a running gateway would do with a packet.

use std::{
    io::{self, Write},
    net::IpAddr,
    time::Duration,
};

use sig_common::{
    addr::IsdAs,
    wire::{PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP},
};
use sig_core::{
    policy::class::{protocol_name, protocol_number},
    trace::{Outcome, Question, Trace, Verdict},
};

use super::{
    Failure,
    socket::{Choice, answer, expect_gateway},
};

/// A gateway answers within this time, even while it applies a change.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show what a running gateway would do with a packet, without sending one: rules, route, traffic class, session, path, next hop, frames; or
/// why it is dropped, and what to do.
///
/// The workers' own tables answer. Nothing is counted, and no flow is moved.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Source address.
    source: IpAddr,
    /// Destination address.
    destination: IpAddr,
    /// Protocol: a name such as tcp, udp or icmp, or a number.
    #[arg(default_value = "icmp", value_parser = protocol)]
    protocol: Protocol,
    /// Destination port of TCP, UDP or SCTP.
    #[arg(default_value_t = 0)]
    port: u16,
    /// Source port. Where flows are spread over several paths, it decides as well.
    #[arg(long, value_name = "PORT", default_value_t = 49152)]
    source_port: u16,
    /// Differentiated services code point, 0 to 63.
    #[arg(long, value_name = "DSCP", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..64))]
    dscp: u8,
    /// Bytes of the packet.
    #[arg(long, value_name = "BYTES", default_value_t = 1280)]
    length: u16,
    /// The packet comes from a gateway of this AS, not from the LAN.
    #[arg(long, value_name = "ISD-AS")]
    from_remote: Option<IsdAs>,
    #[command(flatten)]
    gateway: Choice,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// ICMP is another one in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Icmp,
    Number(u8),
}

fn protocol(text: &str) -> Result<Protocol, String> {
    if text.eq_ignore_ascii_case("icmp") {
        return Ok(Protocol::Icmp);
    }
    protocol_number(text).map(Protocol::Number).ok_or_else(|| {
        "write a name such as tcp, udp or icmp, or a number from 0 to 255".to_owned()
    })
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let question = question(args).map_err(Failure::Refused)?;
    let socket = args.gateway.socket()?;
    expect_gateway(&socket, "trace").map_err(Failure::Failed)?;
    let shown = socket.display();
    let line = serde_json::to_string(&question)
        .map_err(|error| Failure::Failed(format!("cannot write the question: {error}")))?;
    let document = answer(&socket, &format!("trace {line}\n"), PATIENCE)?;
    if args.json {
        out.write_all(document.trim_ascii_end())?;
        writeln!(out)?;
        return Ok(());
    }
    let trace: Trace = serde_json::from_slice(&document).map_err(|error| {
        Failure::Failed(format!(
            "{shown}: not an answer that this version understands: {error}"
        ))
    })?;
    Ok(write(&trace, out)?)
}

fn question(args: &Args) -> Result<Question, String> {
    let (source, destination) = (args.source, args.destination);
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(format!(
            "{source} and {destination} are of different IP versions"
        ));
    }
    let protocol = match args.protocol {
        Protocol::Icmp if source.is_ipv4() => PROTO_ICMP,
        Protocol::Icmp => PROTO_ICMPV6,
        Protocol::Number(number) => number,
    };
    let has_ports = matches!(protocol, PROTO_TCP | PROTO_UDP | PROTO_SCTP);
    if !has_ports && args.port != 0 {
        return Err("a port belongs to tcp, udp and sctp; leave it out".to_owned());
    }
    Ok(Question {
        source,
        destination,
        protocol,
        source_port: if has_ports { args.source_port } else { 0 },
        destination_port: args.port,
        tos: args.dscp << 2,
        ttl: 64,
        length: args.length,
        from_remote: args.from_remote.map(|isd_as| isd_as.to_string()),
    })
}

fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let packet = &trace.packet;
    let name = protocol_name(packet.protocol);
    let protocol = name.map_or_else(|| format!("protocol {}", packet.protocol), str::to_owned);
    let (source, destination) = (packet.source, packet.destination);
    let ports = match packet.protocol {
        PROTO_TCP | PROTO_UDP | PROTO_SCTP => {
            format!(" {} -> {}", packet.source_port, packet.destination_port)
        }
        _ => String::new(),
    };
    let from = match &packet.from_remote {
        Some(isd_as) => isd_as.as_str(),
        None => "the LAN",
    };
    writeln!(
        out,
        "{source} -> {destination}, {protocol}{ports}, {} bytes, from {from}",
        packet.length
    )?;
    let width = trace.steps.iter().map(|step| step.step.chars().count());
    let width = width.max().unwrap_or(0);
    for step in &trace.steps {
        let mark = match step.outcome {
            Outcome::Pass => ' ',
            Outcome::Warning => '!',
            Outcome::Stop => 'x',
        };
        writeln!(out, "{mark} {:width$}  {}", step.step, step.text)?;
    }
    let verdict = match trace.verdict {
        Verdict::Sent => "sent",
        Verdict::Delivered => "delivered",
        Verdict::Chain => "into the service chain",
        Verdict::NotTaken => "not taken by the gateway",
        Verdict::Dropped => "dropped",
    };
    match (&trace.reason, &trace.meaning) {
        (Some(reason), Some(meaning)) => writeln!(out, "{verdict}: {reason}. {meaning}")?,
        _ => writeln!(out, "{verdict}")?,
    }
    match &trace.remedy {
        Some(remedy) => writeln!(out, "  {remedy}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sig_core::trace::Step;

    fn trace() -> Trace {
        let step = |step: &str, outcome, text: &str| Step {
            step: step.to_owned(),
            outcome,
            text: text.to_owned(),
        };
        Trace {
            packet: Question {
                source: [10, 1, 0, 5].into(),
                destination: [10, 2, 0, 7].into(),
                protocol: PROTO_TCP,
                source_port: 49152,
                destination_port: 443,
                tos: 0,
                ttl: 64,
                length: 1280,
                from_remote: None,
            },
            steps: vec![
                step("scope", Outcome::Pass, "both addresses may cross"),
                step("source", Outcome::Warning, "10.1.0.5 is in no prefix"),
                step("path", Outcome::Stop, "the session has none"),
            ],
            verdict: Verdict::Dropped,
            reason: Some("no_path".to_owned()),
            meaning: Some("The remote currently has no usable path.".to_owned()),
            remedy: Some("see the log".to_owned()),
            remote: Some("1-ff00:0:111".to_owned()),
            session: Some(1),
            bucket: None,
            path: None,
            fingerprint: None,
            next_hop: None,
            frames: None,
            frame_bytes: None,
            fast_path: None,
        }
    }

    fn text(trace: &Trace) -> String {
        let mut out = Vec::new();
        write(trace, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn steps_are_marked_and_the_reason_comes_with_a_remedy() {
        assert_eq!(
            text(&trace()),
            "10.1.0.5 -> 10.2.0.7, TCP 49152 -> 443, 1280 bytes, from the LAN
  scope   both addresses may cross
! source  10.1.0.5 is in no prefix
x path    the session has none
dropped: no_path. The remote currently has no usable path.
  see the log
"
        );
    }

    #[test]
    fn what_is_sent_has_no_reason() {
        let mut trace = trace();
        trace.steps.truncate(1);
        trace.verdict = Verdict::Sent;
        (trace.reason, trace.meaning, trace.remedy) = (None, None, None);
        trace.packet.protocol = 58;
        trace.packet.from_remote = Some("1-ff00:0:111".to_owned());
        assert_eq!(
            text(&trace),
            "10.1.0.5 -> 10.2.0.7, ICMPv6, 1280 bytes, from 1-ff00:0:111
  scope  both addresses may cross
sent
"
        );
    }

    #[test]
    fn protocols_have_names_and_numbers() {
        assert_eq!(protocol("ICMP"), Ok(Protocol::Icmp));
        assert_eq!(protocol("tcp"), Ok(Protocol::Number(6)));
        assert_eq!(protocol("47"), Ok(Protocol::Number(47)));
        assert!(protocol("none").is_err());
        assert!(protocol("256").is_err());
    }
}
