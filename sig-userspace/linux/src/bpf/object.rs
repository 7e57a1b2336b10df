//! The BPF object: its programs in the kernel and on devices.

use std::{
    ffi::CStr,
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader, TestRun as _, TestRunOptions,
    maps::{Map, MapError},
    programs::{
        self, ProgramError, ProgramFd, SchedClassifier, TcAttachType, Xdp,
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, qdisc_add_clsact},
        xdp::XdpLink,
    },
};
use aya_log::EbpfLogger;

use sig_common::router::maps::{
    BUCKETS, CPU_NUMBERS, CPUS, DEVICES, ENDPOINTS, INTERFACES, LIMITS, PORTS, REASONS, SENDERS,
    SERVICES, SIBLINGS, TRAFFIC,
};
use sig_common::{accelerate, fast_path, srv6};

use super::{Logger, Logging, errors, fast_path::FastPathOptions, names::Named};
use crate::Error;

/// Maps of the border router that hold much.
const ROUTER_MAPS: [&str; 13] = [
    BUCKETS,
    CPU_NUMBERS,
    CPUS,
    DEVICES,
    ENDPOINTS,
    INTERFACES,
    LIMITS,
    PORTS,
    REASONS,
    SENDERS,
    SERVICES,
    SIBLINGS,
    TRAFFIC,
];

/// Maps of the gateway's fast path that hold much.
const FAST_PATH_MAPS: [&str; 10] = [
    fast_path::FLOWS,
    fast_path::PAIRS,
    fast_path::STREAMS,
    fast_path::STREAM_SLOTS,
    fast_path::TICKETS,
    fast_path::PATHS,
    fast_path::SENDERS,
    fast_path::HOPS,
    fast_path::SENT,
    fast_path::DELIVERED,
];

/// Maps of the accelerator that hold much.
const ACCELERATOR_MAPS: [&str; 16] = [
    accelerate::FLOWS,
    accelerate::PATHS,
    accelerate::FRAMES,
    accelerate::WAYS,
    accelerate::PROBES,
    accelerate::SEQUENCES,
    accelerate::SENT,
    accelerate::REMOTES,
    accelerate::LOCALS,
    accelerate::ENTRANCES,
    accelerate::TARGETS,
    accelerate::DELIVERED,
    accelerate::OUTBOUND,
    accelerate::INBOUND,
    accelerate::PAIRS,
    "A_SCRATCH",
];

/// Maps of the SR node that hold much.
const SR_NODE_MAPS: [&str; 10] = [
    srv6::maps::CACHES,
    srv6::maps::CLASSES,
    srv6::maps::FLOWS,
    srv6::maps::FUNCTIONS,
    srv6::maps::NUMBERS,
    srv6::maps::PORTS,
    srv6::maps::ROWS,
    srv6::maps::DEVICES,
    srv6::maps::TRAFFIC,
    srv6::maps::SIDS,
];

/// How often a program is loaded at most. The verifier gives up with `EAGAIN` when a signal is pending; libbpf tries
/// as often.
const LOAD_ATTEMPTS: u32 = 5;

/// The object with all programs, built by the build script.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sig-ebpf"));

/// A program of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// XDP of underlay devices: takes SIG frames.
    Underlay,
    /// XDP of LAN devices: takes packets to prefixes of remotes.
    Lan,
    /// XDP of devices below VLAN devices: goes on with one of the two above.
    Trunk,
    /// XDP of the tunnel port: takes packets the kernel routed into the tunnel.
    Tunnel,
    /// TC ingress of the `sig` device: forwards decapsulated packets.
    Inject,
    /// XDP of a border router's devices.
    Router,
    /// XDP of the CPU map that a border router spreads packets over.
    RouterCpu,
    /// TC egress of a foreign gateway's tunnel device.
    AccTunnel,
    /// TC ingress of the segmenter's far end.
    AccMirror,
    /// TC ingress of the segmenter.
    AccEncap,
    /// TC egress of the underlay device beside a foreign gateway.
    AccFrames,
    /// TC ingress of the underlay device beside a foreign gateway.
    AccDecap,
    /// TC ingress of a foreign gateway's tunnel device.
    AccBehind,
    /// XDP of an SR node's devices.
    Srv6,
    /// The same, for packets with several SIDs of the node in a row.
    Srv6Again,
    /// The same, for packets whose HMAC is verified first.
    Srv6Verify,
    /// XDP of the device behind which an SR node's functions in the process are.
    Srv6Process,
}

impl Program {
    /// Its name in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Underlay => "sig_underlay",
            Self::Lan => "sig_lan",
            Self::Trunk => "sig_trunk",
            Self::Tunnel => "sig_tunnel",
            Self::Inject => "sig_inject",
            Self::Router => "sig_router",
            Self::RouterCpu => "sig_router_cpu",
            Self::AccTunnel => "sig_acc_tunnel",
            Self::AccMirror => "sig_acc_mirror",
            Self::AccEncap => "sig_acc_encap",
            Self::AccFrames => "sig_acc_frames",
            Self::AccDecap => "sig_acc_decap",
            Self::AccBehind => "sig_acc_behind",
            Self::Srv6 => "sig_srv6",
            Self::Srv6Again => "sig_srv6_again",
            Self::Srv6Verify => "sig_srv6_verify",
            Self::Srv6Process => "sig_srv6_process",
        }
    }

    /// Whether it is a TC program.
    const fn is_tc(self) -> bool {
        !matches!(
            self,
            Self::Underlay
                | Self::Lan
                | Self::Trunk
                | Self::Tunnel
                | Self::Router
                | Self::RouterCpu
                | Self::Srv6
                | Self::Srv6Again
                | Self::Srv6Verify
                | Self::Srv6Process
        )
    }
}

/// Who runs an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver, before it makes a socket buffer.
    Native,
    /// The kernel's stack, for any device; slower.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// An XDP program on a device. It leaves the device when this is dropped.
#[derive(Debug)]
#[must_use = "the program leaves the device when this is dropped"]
pub struct Attachment {
    mode: XdpMode,
    no_native: Option<io::Error>,
    _link: XdpLink,
}

impl Attachment {
    /// The mode the program runs in.
    #[must_use]
    pub const fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Why it does not run in native mode though that was tried.
    #[must_use]
    pub const fn no_native(&self) -> Option<&io::Error> {
        self.no_native.as_ref()
    }
}

/// A TC program on a device. It leaves the device when this is dropped.
#[derive(Debug)]
#[must_use = "the program leaves the device when this is dropped"]
pub struct TcAttachment {
    _link: SchedClassifierLink,
}

/// What a program made of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestOutcome {
    /// The number it returned: an XDP or TC action.
    pub action: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
}

/// What the kernel tells of a program that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramFigures {
    /// Its name.
    pub name: &'static str,
    /// Instructions that the verifier looked at, over all ways through the program; 0 before Linux 5.16.
    pub verified: u32,
    /// Instructions in the kernel, of eight bytes each.
    pub instructions: u32,
    /// Bytes of machine code.
    pub machine_code: u32,
    /// How often it ran while the kernel kept statistics (`kernel.bpf_stats_enabled`).
    pub runs: u64,
    /// For how long, altogether.
    pub run_time: Duration,
}

/// What is decided when the object is loaded.
#[derive(Debug, Default)]
pub(super) struct Globals {
    /// The fast path of the gateway, if there is one.
    pub(super) fast_path: Option<FastPathOptions>,
    /// Whether the gateway's programs serve VLANs of trunks.
    pub(super) trunks: bool,
    /// Messages.
    pub(super) logging: Logging,
    /// The border router does not verify hop fields.
    pub(super) forged_hops_pass: bool,
    /// What an SR node's probes through functions are known by.
    pub(super) token: u64,
    /// Whose maps are needed.
    pub(super) user: User,
}

/// Whose programs run. Maps of the others are made with a single entry: they take no memory worth a word, and no kernel
/// refuses them for their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum User {
    #[default]
    Gateway,
    /// On a machine with CPU numbers below this.
    Router {
        cpus: u32,
    },
    Accelerator,
    SrNode,
}

/// The object, loaded.
#[derive(Debug)]
pub(super) struct Object {
    ebpf: Ebpf,
}

impl Object {
    /// Makes the maps; programs are not in the kernel yet.
    pub(super) fn new(globals: &Globals) -> Result<Self, Error> {
        let level: u8 = match globals.logging {
            Logging::Off => 0,
            Logging::Debug => aya_log::Level::Debug as u8,
        };
        let forged_hops_pass = u8::from(globals.forged_hops_pass);
        let mut loader = EbpfLoader::new();
        loader
            .override_global(aya_log::LEVEL, &level, true)
            .override_global(srv6::maps::TOKEN, &globals.token, true)
            .override_global("R_FORGED_HOPS_PASS_FOR_BENCHMARKS", &forged_hops_pass, true);
        let fast_path = globals.fast_path.unwrap_or_default();
        let flags = [
            u8::from(globals.fast_path.is_some()),
            u8::from(fast_path.clamp_mss),
            u8::from(fast_path.verify_checksums),
            u8::from(globals.trunks),
        ];
        for (name, flag) in ["FAST_PATH", "CLAMP_MSS", "VERIFY_CHECKSUMS", "HAS_TRUNKS"]
            .iter()
            .zip(&flags)
        {
            loader.override_global(name, flag, true);
        }
        match globals.fast_path {
            Some(FastPathOptions { sockets, .. }) => {
                let senders = sockets.saturating_mul(fast_path::MAX_PATHS);
                loader.map_max_entries(fast_path::SENDERS, senders);
            }
            None => {
                for map in FAST_PATH_MAPS {
                    loader.map_max_entries(map, 1);
                }
            }
        }
        match globals.user {
            User::Router { cpus } => {
                loader.map_max_entries(CPUS, cpus);
            }
            User::Gateway | User::Accelerator | User::SrNode => {
                for map in ROUTER_MAPS {
                    loader.map_max_entries(map, 1);
                }
            }
        }
        // Its keys are random, and so is what it makes of nothing.
        let seed: u64 = RandomState::new().build_hasher().finish();
        loader.override_global("A_SEED", &seed, true);
        if globals.user != User::Accelerator {
            for map in ACCELERATOR_MAPS {
                loader.map_max_entries(map, 1);
            }
            // A ring buffer is whole pages.
            loader.map_max_entries(accelerate::SIGHTINGS, 1 << 16);
        }
        if globals.user != User::SrNode {
            for map in SR_NODE_MAPS {
                loader.map_max_entries(map, 1);
            }
            for ring in [srv6::maps::EVENTS, srv6::maps::COPIES] {
                loader.map_max_entries(ring, 1 << 16);
            }
        }
        let ebpf = loader.load(OBJECT).map_err(|e| errors::of_object(&e))?;
        Ok(Self { ebpf })
    }

    /// The reader of messages.
    pub(super) fn logger(&mut self) -> Result<Logger, Error> {
        EbpfLogger::init_with_logger(&mut self.ebpf, &Named as &dyn log::Log)
            .map_err(|e| Error::Refused(format!("cannot read messages of the BPF programs: {e}")))
    }

    /// Puts programs into the kernel.
    pub(super) fn load(&mut self, wanted: &[Program]) -> Result<(), Error> {
        for program in wanted {
            let mut attempts = 1..LOAD_ATTEMPTS;
            loop {
                let loaded = match program.is_tc() {
                    true => self.tc(*program).and_then(SchedClassifier::load),
                    false => self.xdp(*program).and_then(Xdp::load),
                };
                match loaded {
                    Ok(()) => {
                        let figures = self.figures(*program);
                        let verified = figures.map_or(0, |figures| figures.verified);
                        tracing::debug!(
                            program = program.name(),
                            verified,
                            "the kernel has verified a BPF program"
                        );
                        break;
                    }
                    Err(e)
                        if errors::errno(&e) == Some(libc::EAGAIN) && attempts.next().is_some() => {
                    }
                    Err(e) => return Err(errors::of_program(program.name(), &e)),
                }
            }
        }
        Ok(())
    }

    /// Takes a map out, as it is.
    pub(super) fn raw_map(&mut self, name: &str) -> Result<Map, Error> {
        self.ebpf
            .take_map(name)
            .ok_or_else(|| Error::Refused(format!("the BPF object has no map {name}")))
    }

    /// Takes a map out, with the type it is declared with.
    pub(super) fn map<M: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &str,
    ) -> Result<M, Error> {
        let map = self.raw_map(name)?;
        M::try_from(map).map_err(|e| errors::of_map(format!("use the BPF map {name}"), e))
    }

    /// Attaches an XDP program.
    pub(super) fn attach_xdp(
        &mut self,
        program: Program,
        ifindex: u32,
        mode: Option<XdpMode>,
    ) -> Result<Attachment, Error> {
        let failed = |e: ProgramError| errors::of_attaching(program.name(), ifindex, &e);
        if let Some(mode) = mode {
            let link = self.link_xdp(program, ifindex, mode).map_err(failed)?;
            return Ok(Attachment {
                mode,
                no_native: None,
                _link: link,
            });
        }
        let error = match self.link_xdp(program, ifindex, XdpMode::Native) {
            Ok(link) => {
                return Ok(Attachment {
                    mode: XdpMode::Native,
                    no_native: None,
                    _link: link,
                });
            }
            Err(error) => error,
        };
        // Only when the driver cannot: nothing else would be cured by generic mode. Drivers also say so when they have
        // too few queues or no memory for more.
        let Some(number @ (libc::EOPNOTSUPP | libc::EINVAL | libc::ENOMEM | libc::ENOSPC)) =
            errors::errno(&error)
        else {
            return Err(failed(error));
        };
        let link = self
            .link_xdp(program, ifindex, XdpMode::Generic)
            .map_err(failed)?;
        Ok(Attachment {
            mode: XdpMode::Generic,
            no_native: Some(io::Error::from_raw_os_error(number)),
            _link: link,
        })
    }

    fn link_xdp(
        &mut self,
        program: Program,
        ifindex: u32,
        mode: XdpMode,
    ) -> Result<XdpLink, ProgramError> {
        let mode = match mode {
            XdpMode::Native => programs::XdpMode::Driver,
            XdpMode::Generic => programs::XdpMode::Skb,
        };
        let program = self.xdp(program)?;
        let id = program.attach_to_if_index(ifindex, mode)?;
        program.take_link(id)
    }

    /// Attaches a TC program to ingress.
    pub(super) fn attach_tc(
        &mut self,
        program: Program,
        ifindex: u32,
    ) -> Result<TcAttachment, Error> {
        let failed = |e: ProgramError| errors::of_attaching(program.name(), ifindex, &e);
        let name = name_of(ifindex).map_err(|e| failed(ProgramError::IOError(e)))?;
        let link = match self.link_tc(
            program,
            &name,
            TcAttachType::Ingress,
            TcAttachOptions::TcxOrder(Default::default()),
        ) {
            // Before Linux 6.6 there is only the hook of a queueing discipline. It goes with the device.
            Err(e) if errors::errno(&e) == Some(libc::EINVAL) => {
                match qdisc_add_clsact(&name) {
                    Err(e) if errors::tc_errno(&e) != Some(libc::EEXIST) => {
                        return Err(failed(e.into()));
                    }
                    _ => {}
                }
                self.link_tc(
                    program,
                    &name,
                    TcAttachType::Ingress,
                    TcAttachOptions::Netlink(NlOptions::default()),
                )
            }
            result => result,
        };
        Ok(TcAttachment {
            _link: link.map_err(failed)?,
        })
    }

    /// Attaches a TC program so that it leaves the device with this process, however that ends.
    pub(super) fn attach_tcx(
        &mut self,
        program: Program,
        ifindex: u32,
        hook: TcAttachType,
    ) -> Result<TcAttachment, Error> {
        let failed = |e: ProgramError| match errors::errno(&e) {
            Some(libc::EINVAL) => Error::Refused(format!(
                "cannot attach {} to {}: this needs Linux 6.6 or newer (TCX)",
                program.name(),
                errors::device(ifindex)
            )),
            _ => errors::of_attaching(program.name(), ifindex, &e),
        };
        let name = name_of(ifindex).map_err(|e| failed(ProgramError::IOError(e)))?;
        let options = TcAttachOptions::TcxOrder(Default::default());
        let link = self
            .link_tc(program, &name, hook, options)
            .map_err(failed)?;
        Ok(TcAttachment { _link: link })
    }

    fn link_tc(
        &mut self,
        program: Program,
        device: &str,
        hook: TcAttachType,
        options: TcAttachOptions,
    ) -> Result<SchedClassifierLink, ProgramError> {
        let program = self.tc(program)?;
        let id = program.attach_with_options(device, hook, options)?;
        program.take_link(id)
    }

    /// A descriptor of an XDP program, for maps that hold programs.
    pub(super) fn program_fd(&mut self, program: Program) -> Result<ProgramFd, Error> {
        self.xdp(program)
            .and_then(|xdp| xdp.fd()?.try_clone().map_err(ProgramError::IOError))
            .map_err(|e| errors::of_program(program.name(), &e))
    }

    /// What the kernel tells of a program.
    pub(super) fn figures(&self, program: Program) -> Result<ProgramFigures, Error> {
        let info = match self.ebpf.program(program.name()) {
            Some(programs::Program::Xdp(program)) => program.info(),
            Some(programs::Program::SchedClassifier(program)) => program.info(),
            _ => Err(ProgramError::NotLoaded),
        };
        let info = info.map_err(|e| errors::of_program(program.name(), &e))?;
        Ok(ProgramFigures {
            name: program.name(),
            verified: info.verified_instruction_count().unwrap_or(0),
            instructions: info.size_translated().unwrap_or(0) / 8,
            machine_code: info.size_jitted(),
            runs: info.run_count(),
            run_time: info.run_time(),
        })
    }

    /// Runs a program over a frame.
    pub(super) fn test_run(&self, program: Program, frame: &[u8]) -> Result<TestOutcome, Error> {
        self.test_run_on(program, frame, None)
    }

    /// Runs an XDP program over a frame that came in through a device.
    pub(super) fn test_run_on(
        &self,
        program: Program,
        frame: &[u8],
        ifindex: Option<u32>,
    ) -> Result<TestOutcome, Error> {
        let mut out = vec![0; frame.len() + 256];
        // `struct xdp_md` of the kernel: start, end, metadata, interface, queue and outgoing interface.
        let context = ifindex.map(|ifindex| {
            let words = [0, frame.len() as u32, 0, ifindex, 0, 0];
            words.map(u32::to_ne_bytes).concat()
        });
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: context.as_deref(),
            ..TestRunOptions::new()
        };
        let result = match self.ebpf.program(program.name()) {
            Some(programs::Program::Xdp(program)) => program.test_run(options),
            Some(programs::Program::SchedClassifier(program)) => program.test_run(options),
            _ => Err(ProgramError::NotLoaded),
        };
        let result =
            result.map_err(|e| Error::Refused(format!("cannot run {}: {e}", program.name())))?;
        out.truncate(result.data_size_out as usize);
        Ok(TestOutcome {
            action: result.return_value,
            frame: out,
        })
    }

    fn xdp(&mut self, program: Program) -> Result<&mut Xdp, ProgramError> {
        self.ebpf
            .program_mut(program.name())
            .ok_or(ProgramError::NotLoaded)?
            .try_into()
    }

    fn tc(&mut self, program: Program) -> Result<&mut SchedClassifier, ProgramError> {
        self.ebpf
            .program_mut(program.name())
            .ok_or(ProgramError::NotLoaded)?
            .try_into()
    }
}

/// The name of a device of the calling thread's network namespace.
pub(crate) fn name_of(ifindex: u32) -> io::Result<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the function asks for.
    if unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr()) }.is_null() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: on success the function wrote a string with its end mark into the buffer.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }
        .to_string_lossy()
        .into_owned())
}
