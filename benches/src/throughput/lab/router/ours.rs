//! Our border router's XDP program, with maps as `sig router run` fills them.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use sig_linux::bpf::{Attachment, RouterOptions, RouterPrograms, XdpMode};
use sig_router::fast::{Arrival, Port, Slots, Spread, Underlay, UnderlayRoute, tables};

use crate::throughput::{
    experiment::{Case, Family},
    instrument::{
        programs::{self, Usage},
        run::Snapshot,
    },
    lab::{
        device::{UnderTest, add_napi, add_program},
        napi,
        network::{Link, Network},
        refuse::MTU,
    },
};

/// The router's programs on both devices.
pub(in super::super) struct Router {
    // The program leaves the devices before its maps go.
    _attachments: Vec<Attachment>,
    programs: RouterPrograms,
    napi: Vec<u32>,
}

impl Router {
    /// Puts the program on both devices. With two workers packets are spread over both CPUs.
    pub(in super::super) fn start(network: &Network, case: &Case, verifies: bool) -> Result<Self> {
        let mut programs = RouterPrograms::load(RouterOptions {
            forged_hops_pass_for_benchmarks: !verifies,
        })?;
        let netns = &network.device;
        let links = [&network.left, &network.right];
        let devices = [
            programs::index_of(netns, &links[0].device)?,
            programs::index_of(netns, &links[1].device)?,
        ];
        let attachments = netns.run(|| {
            let attach = |device: u32| {
                programs.add_device(device)?;
                programs.attach(device, Some(XdpMode::Native))
            };
            devices
                .into_iter()
                .map(attach)
                .collect::<Result<Vec<_>, _>>()
        })??;
        let cpus: Vec<u32> = match case.workers {
            1 => Vec::new(),
            _ => [case.cpus.device, case.cpus.tester].map(u32::from).into(),
        };
        programs.set_cpus(&cpus)?;
        programs.set_clock(clock_offset()?)?;

        let model = super::model(network, case.family)?;
        let mut slots = Slots::default();
        slots.update(&model);
        let underlay = Lab {
            family: case.family,
            links: [(devices[0], links[0]), (devices[1], links[1])],
        };
        let spread = Spread {
            cpus: cpus.len() as u16,
            seed: 0,
        };
        programs.set(&tables(&model, &underlay, &slots, spread))?;
        let napi = napi::run_first_in_threads(netns, &network.left.device, case.cpus.device)?;
        Ok(Self {
            _attachments: attachments,
            programs,
            // The threads of a CPU map are not known, so with one the time of the others says nothing.
            napi: if cpus.is_empty() { napi } else { Vec::new() },
        })
    }
}

/// The links of the lab.
struct Lab<'a> {
    family: Family,
    /// Interface index of the router's end, and the link.
    links: [(u32, &'a Link); 2],
}

impl Underlay for Lab<'_> {
    fn ports(&self) -> Vec<Port> {
        self.links.iter().map(port).collect()
    }

    fn arrival(&self, local: SocketAddr) -> Arrival {
        let of_address = self
            .links
            .iter()
            .filter(|(_, link)| link.device_ip(self.family) == local.ip());
        Arrival::By(of_address.map(port).collect())
    }

    fn route(&self, _: SocketAddr, remote: SocketAddr) -> Option<UnderlayRoute> {
        let (ifindex, link) = self
            .links
            .iter()
            .find(|(_, link)| link.tester_ip(self.family) == remote.ip())?;
        Some(UnderlayRoute {
            ifindex: *ifindex,
            mtu: MTU,
            tags: [0; 2],
            fragments: false,
            source_mac: link.device_mac,
            destination_mac: link.tester_mac,
        })
    }

    fn is_up(&self, _: u16) -> bool {
        true
    }
}

fn port((ifindex, link): &(u32, &Link)) -> Port {
    Port {
        ifindex: *ifindex,
        tags: [0; 2],
        mac: link.device_mac,
    }
}

/// Nanoseconds from the kernel's boot clock to the time since 1970.
fn clock_offset() -> Result<u64> {
    let mut boot = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut boot) } != 0 {
        return Err(std::io::Error::last_os_error()).context("the boot clock");
    }
    let boot = Duration::new(boot.tv_sec.try_into()?, boot.tv_nsec.try_into()?);
    let now = SystemTime::UNIX_EPOCH.elapsed()?;
    Ok((now - boot).as_nanos() as u64)
}

impl UnderTest for Router {
    fn read(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let mut usage = Usage::default();
        for program in self.programs.figures()? {
            usage.runs = usage.runs.max(program.runs);
            usage.time += program.run_time;
        }
        add_program(snapshot, usage);
        add_napi(snapshot, &self.napi);
        Ok(())
    }
}
