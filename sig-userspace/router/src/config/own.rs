//! The own file: what it says without the topology.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use sig_common::router::maps::MAX_CPU_NUMBERS;

use super::{Buffers, RateLimits, Settings, Texts, limits};
use crate::{AsModel, Bfd};
use sig_core::{
    document::{
        common::{self, Log, Observe, XdpMode, file_name, socket_path},
        section::{Checked, List, Number, Text, Words},
        toml::{Item, Section, or},
        values,
    },
    section,
};

/// The own file.
pub(super) struct Own {
    /// Name of the router in the topology.
    pub(super) id: String,
    /// BFD where a link has no values of its own, and with siblings.
    pub(super) bfd: Bfd,
    /// Dispatched ports, if not those of the topology.
    pub(super) ports: Option<Option<RangeInclusive<u16>>>,
    log: Log,
    observe: Observe,
    status_socket: PathBuf,
    xdp: Xdp,
    slow_path: bool,
    buffers: Buffers,
}

impl Own {
    pub(super) fn settings(self, model: AsModel, texts: Texts) -> Settings {
        Settings {
            model,
            log: self.log,
            observe: self.observe,
            status_socket: self.status_socket,
            xdp: self.xdp,
            slow_path: self.slow_path,
            buffers: self.buffers,
            texts,
        }
    }
}

/// Everything but the folder of the other files.
pub(super) fn read(root: &Section<'_>) -> Option<Own> {
    let id = root
        .section("general")
        .require(
            "id",
            "the name of this router in the topology, for example id = \"br-1\"",
        )
        .and_then(|item| file_name(&item, "\"br-1\""));
    let log = common::log(root);
    let observe = common::observe(root);
    let router = root.section("router");
    let bfd = bfd(&router.section("bfd"));
    let ports = ports(&router);
    let buffers = buffers(&router);
    without_effect(root);
    let section = root.section("xdp");
    let socket = section.get("status_socket");
    let socket = socket.map(|item| socket_path(&item, "\"/run/sig/br-1.sock\""));
    let rate_limits = limits::read(&section.section("rate_limits"));
    let xdp = Xdp::read(&section, rate_limits);
    let slow_path = or(&section, "slow_path", true, Item::boolean);
    if let (Some(Xdp { mode: None, .. }), Some(false)) = (&xdp, slow_path)
        && let Some(item) = section.get("slow_path")
    {
        item.place.error(
            "together with mode = \"off\", nothing is forwarded; write another mode, or slow_path = true",
        );
    }
    let id = id?;
    let status_socket = match socket {
        Some(path) => path?,
        None => PathBuf::from(format!("/run/sig/{id}.sock")),
    };
    Some(Own {
        id,
        bfd: bfd?,
        ports: ports?,
        log: log?,
        observe: observe?,
        status_socket,
        xdp: xdp?,
        slow_path: slow_path?,
        buffers: buffers?,
    })
}

/// `[general] config_dir`.
pub(super) fn config_dir<'a>(root: &Section<'a>) -> Option<&'a Path> {
    let item = root.section("general").get("config_dir");
    item.map_or(Some(""), |item| item.text("\".\""))
        .map(Path::new)
}

/// `[router.bfd]`. As in the reference, 0 stands for the default.
fn bfd(section: &Section<'_>) -> Option<Bfd> {
    let default = Bfd::default();
    let disabled = or(section, "disable", default.disabled, Item::boolean);
    let detect_mult = or(section, "detect_mult", default.detect_mult, |item| {
        let value = item.number(0..=u8::MAX)?;
        Some(if value == 0 {
            default.detect_mult
        } else {
            value
        })
    });
    let interval = |key, default: Duration| {
        or(section, key, default, |item| {
            let value = item.parse("\"200ms\"", Bfd::interval)?;
            Some(value.unwrap_or(default))
        })
    };
    let desired_min_tx = interval("desired_min_tx_interval", default.desired_min_tx);
    let required_min_rx = interval("required_min_rx_interval", default.required_min_rx);
    Some(Bfd {
        disabled: disabled?,
        detect_mult: detect_mult?,
        desired_min_tx: desired_min_tx?,
        required_min_rx: required_min_rx?,
    })
}

/// Dispatched ports that override those of the topology: both ends, or neither.
fn ports(router: &Section<'_>) -> Option<Option<Option<RangeInclusive<u16>>>> {
    let (first, last) = (
        router.get("dispatched_port_start"),
        router.get("dispatched_port_end"),
    );
    let (first, last) = match (first, last) {
        (None, None) => return Some(None),
        (Some(first), Some(last)) => (first, last),
        (Some(item), None) | (None, Some(item)) => {
            item.place.error(
                "the range is incomplete; write dispatched_port_start and dispatched_port_end, or neither",
            );
            return None;
        }
    };
    let (start, end): (Option<u16>, Option<u16>) =
        (first.number(0..=u16::MAX), last.number(0..=u16::MAX));
    let (start, end) = (start?, end?);
    if start > end {
        last.place.error(format!(
            "{end} is before dispatched_port_start; write {start} or more"
        ));
        return None;
    }
    Some(Some((end != 0).then_some(start.max(1)..=end)))
}

fn buffers(router: &Section<'_>) -> Option<Buffers> {
    let size = |key| {
        or(router, key, None, |item| {
            let size: u32 = item.number(0..=1 << 30)?;
            Some((size != 0).then_some(size))
        })
    };
    let (receive, send) = (size("receive_buffer_size"), size("send_buffer_size"));
    Some(Buffers {
        receive: receive?,
        send: send?,
    })
}

const DEVICES: List<Text<String>> =
    List("[\"eth0\", \"eth1\"]", Text("\"eth0\"", values::interface));

section! {
    /// `[xdp]`: the XDP programs that forward most packets.
    pub struct Xdp {
        /// How much they leave to the slow path.
        pub rate_limits: RateLimits,
    }

    /// How they are attached; `None`: not at all, the slow path forwards everything.
    mode: Option<XdpMode> = Some(XdpMode::Auto), Words(&[
        ("auto", Some(XdpMode::Auto)),
        ("native", Some(XdpMode::Native)),
        ("generic", Some(XdpMode::Generic)),
        ("off", None),
    ]);
    /// CPUs that packets are spread over; none: each is handled on the CPU that receives it.
    cpus: Vec<u32> = Vec::new(), Checked(List("[2, 3]", Number(0..=8191)), each_once);
    /// The only devices that get the programs; none: those that packets to the router come in by, and those that lead
    /// to its neighbours and siblings.
    devices: Vec<String> = Vec::new(), DEVICES;
    /// Devices that do not get them all the same.
    exclude: Vec<String> = Vec::new(), DEVICES;
    /// Devices of the inside beside the one with the internal address.
    internal_devices: Vec<String> = Vec::new(), DEVICES;
    /// Devices that packets of links come in by, beside those with our addresses and those that lead to the neighbours.
    link_devices: Vec<String> = Vec::new(), DEVICES;
}

fn each_once(cpus: Vec<u32>) -> Result<Vec<u32>, String> {
    if cpus.len() > MAX_CPU_NUMBERS as usize {
        let count = cpus.len();
        return Err(format!(
            "{count} CPUs are too many; write up to {MAX_CPU_NUMBERS}"
        ));
    }
    for (i, cpu) in cpus.iter().enumerate() {
        if cpus.iter().take(i).any(|earlier| earlier == cpu) {
            return Err(format!("CPU {cpu} is listed twice; list each once"));
        }
    }
    Ok(cpus)
}

/// Keys of the reference that are read, so that its files work, and named in the warnings.
fn without_effect(root: &Section<'_>) {
    let router = root.section("router");
    for key in ["num_processors", "num_slow_processors", "batch_size"] {
        if let Some(item) = router.get(key)
            && item.number(0..=u32::MAX).is_some()
        {
            item.place.warn(
                "ignored: the router has no configurable number or batch size of packet processors",
            );
        }
    }
    let features = root.section("features");
    for key in [
        "appropriate_digest_algorithm",
        "experimental_scmp_authentication",
    ] {
        if let Some(item) = features.get(key)
            && item.boolean() == Some(true)
        {
            item.place
                .warn("ignored: this router does not have this feature");
        }
    }
}
