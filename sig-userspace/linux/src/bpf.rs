//! Loading and attaching the XDP and TC programs.
//!
//! [`Programs`] are those of a gateway. All maps belong to one gateway; several gateways on a host load
//! their own. Nothing is pinned: programs leave their devices when the [`Attachment`] is dropped or the
//! process ends in any way.
//!
//! Devices are named by interface index in the network namespace of the *calling thread*: attach to a
//! device of another namespace inside [`super::netns::PrivateNetns::run`].

mod accelerate;
mod errors;
mod fast_path;
mod maps;
mod mirror;
mod names;
mod object;
mod permitted;
mod router;
mod srv6;

pub use accelerate::{AcceleratorPrograms, Attached, Places, Sightings, monotonic_ns};
pub use fast_path::{FastPathMaps, FastPathOptions};
pub use maps::Counters;
pub use mirror::Mirrors;
pub(crate) use object::name_of;
pub use object::{Attachment, Program, ProgramFigures, TcAttachment, TestOutcome, XdpMode};
pub use permitted::permitted;
pub use router::{RouterOptions, RouterPrograms, RouterTables, SlotReasons, SlotTraffic};
pub use srv6::{Copies, Events, Rules, Sr, SrPrograms, address_of};

use std::{future::Future, io};

use aya_log::EbpfLogger;
use tokio::io::{Interest, unix::AsyncFd};

use super::Error;
use maps::Maps;
use object::{Globals, Object};

/// Whether the programs tell about what they do with packets, by the crate `log` at debug level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// No: the calls are not even in the running programs.
    #[default]
    Off,
    /// Drops and other rare events. Costs time per such packet.
    Debug,
}

/// How the programs of a gateway are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// What they tell.
    pub logging: Logging,
    /// Whether they serve VLANs of trunks, see [`Programs::set_vlan`]. Costs time per packet, on all devices.
    pub trunks: bool,
}

impl From<Logging> for LoadOptions {
    fn from(logging: Logging) -> Self {
        LoadOptions {
            logging,
            trunks: false,
        }
    }
}

/// The programs of a gateway and their maps.
pub struct Programs {
    object: Object,
    maps: Maps,
    logger: Option<Logger>,
}

type Logger = EbpfLogger<&'static dyn log::Log>;

impl Programs {
    /// Loads the programs into the kernel, attached to nothing, with empty maps.
    ///
    /// # Errors
    /// Missing privileges (CAP_BPF, CAP_NET_ADMIN), or a kernel that does not take the programs.
    pub fn load(options: impl Into<LoadOptions>) -> Result<Self, Error> {
        let LoadOptions { logging, trunks } = options.into();
        Self::with_globals(&Globals {
            logging,
            trunks,
            ..Globals::default()
        })
    }

    /// As [`Self::load`], with a fast path.
    ///
    /// # Errors
    /// As there, and if the kernel lacks what the fast path needs.
    pub fn load_with_fast_path(
        options: impl Into<LoadOptions>,
        fast_path: FastPathOptions,
    ) -> Result<(Self, FastPathMaps), Error> {
        let LoadOptions { logging, trunks } = options.into();
        let mut programs = Self::with_globals(&Globals {
            logging,
            trunks,
            fast_path: Some(fast_path),
            ..Globals::default()
        })?;
        let maps = FastPathMaps::take(&mut programs.object, fast_path.sockets)?;
        Ok((programs, maps))
    }

    fn with_globals(globals: &Globals) -> Result<Self, Error> {
        let logging = globals.logging;
        let mut object = Object::new(globals)?;
        // Before the programs are loaded, because it takes the log's map out of the object.
        let logger = match logging {
            Logging::Off => None,
            Logging::Debug => Some(object.logger()?),
        };
        object.load(&[
            Program::Underlay,
            Program::Lan,
            Program::Tunnel,
            Program::Inject,
        ])?;
        let mut maps = Maps::take(&mut object)?;
        if globals.trunks {
            object.load(&[Program::Trunk])?;
            maps.set_trunk_programs(&mut object)?;
        }
        Ok(Self {
            object,
            maps,
            logger,
        })
    }

    /// Attaches an XDP program to a device that its packets come in through: SIG frames, packets of the LAN, or those
    /// of the tunnel device. `mode` `None` is native mode if the driver has it, else generic.
    ///
    /// # Errors
    /// No such device, another XDP program on it, missing privileges, or an MTU too large for XDP.
    pub fn attach_xdp(
        &mut self,
        program: Program,
        ifindex: u32,
        mode: Option<XdpMode>,
    ) -> Result<Attachment, Error> {
        self.object.attach_xdp(program, ifindex, mode)
    }

    /// Attaches `sig_inject` to the TC ingress hook of the `sig` device.
    ///
    /// # Errors
    /// No such device, or missing privileges.
    pub fn attach_inject(&mut self, ifindex: u32) -> Result<TcAttachment, Error> {
        self.object.attach_tc(Program::Inject, ifindex)
    }

    /// Runs a program over an Ethernet frame as if it had come in through queue 0 of `lo`, whose interface index is 1.
    ///
    /// # Errors
    /// The kernel does not take the frame: shorter than an Ethernet header, or too long.
    pub fn test_run(&self, program: Program, frame: &[u8]) -> Result<TestOutcome, Error> {
        self.object.test_run(program, frame)
    }

    /// The task that hands messages of the programs to the crate `log`, when they were loaded with
    /// [`Logging::Debug`]; once. It ends with an error of the ring's file descriptor only.
    ///
    /// # Errors
    /// The error it ends with.
    pub fn forward_logs(
        &mut self,
    ) -> Option<impl Future<Output = io::Result<()>> + Send + 'static> {
        let logger = self.logger.take()?;
        Some(async move {
            // SAFETY: the logger owns its file descriptor, always answers with the same one, and is owned by the
            // AsyncFd, which takes it out of the reactor before it drops it.
            let mut logger =
                unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) }?;
            loop {
                let mut ready = logger.readable_mut().await?;
                ready.get_inner_mut().flush();
                ready.clear_ready();
            }
        })
    }
}
