//! The reference implementation: its routers, or those of sig, and its control services, with its gateways, with one of
//! them, or without.

mod accelerator;
mod configuration;
mod scion;

use std::{fs, path::PathBuf, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use testbed::{Netns, Network, Options, Process, wait_until};

use super::{Chain, End, links, wait_for_fast_path, wait_loss_free};
use crate::throughput::{
    binary::gateway_binary,
    experiment::Case,
    reference::Programs,
    subject::{Refusal, Subject},
};

use accelerator::Accelerator;
pub(super) use scion::Scion;

/// Time until each AS knows a path to the other.
const PATHS: Duration = Duration::from_secs(60);
/// Time from then until packets cross the gateways.
const READY: Duration = Duration::from_secs(60);
/// Time for a killed process to go.
const GONE: Duration = Duration::from_secs(5);
/// How long programs are interrupted. Routers give a neighbour up after 600 ms.
const INTERRUPTION: Duration = Duration::from_millis(60);
/// Time from an accelerator's word that it is ready until packets take it.
const ACCELERATED: Duration = Duration::from_secs(10);
/// Where the daemon answers, in the gateway's namespace.
const DAEMON: &str = "127.0.0.1:30255";

/// Whose border routers are between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routers {
    /// The reference's.
    Reference,
    /// Those of sig, with the same files and keys.
    Sig,
}

/// The network of the reference, up to the routers. Hosts find paths in it.
struct Base {
    // Processes end before their namespaces go.
    processes: Vec<Process>,
    network: Network,
    programs: Programs,
    folders: [PathBuf; 2],
    /// CPUs of A and B if everything of an AS runs on one, with one Go thread per process.
    cpus: Option<[u16; 2]>,
    started: u32,
}

impl Base {
    fn build(routers: Routers, cpus: Option<[u16; 2]>) -> Result<Self, Refusal> {
        let programs = Programs::find()?;
        let network = Network::links(&Options::default())?;
        links::prepare(&network)?;
        let folders = configuration::write(&network, &programs)?;
        let mut base = Self {
            processes: Vec::new(),
            network,
            programs,
            folders,
            cpus,
            started: 0,
        };
        let router = match routers {
            Routers::Reference => "router",
            Routers::Sig => SIG_ROUTER,
        };
        for end in End::ALL {
            if routers == Routers::Sig {
                base.write_router_configuration(end)?;
                // A veth device takes what the router's XDP program redirects to its peer only where NAPI runs. Of what goes to
                // sockets, as all does here, nothing is merged.
                let gateway = &end.site(&base.network).gateway;
                gateway.exec("ethtool -K underlay gro on")?;
            }
            for program in [router, "control", "daemon", "dispatcher"] {
                let process = base.start(end, program)?;
                base.processes.push(process);
            }
        }
        base.wait_for_paths()?;
        Ok(base)
    }

    /// Starts one of the programs that have a configuration file of the same name.
    fn start(&mut self, end: End, program: &str) -> Result<Process> {
        let site = end.site(&self.network);
        let netns = match program {
            "router" | "control" | SIG_ROUTER => &site.router,
            _ => &site.gateway,
        };
        let cpu = self.cpus.map(|cpus| cpus[end as usize]);
        let (binary, words) = match program {
            SIG => (gateway_binary()?.to_owned(), &["run"][..]),
            SIG_ROUTER => (gateway_binary()?.to_owned(), &["router", "run"][..]),
            _ => (self.programs.path(program), &[][..]),
        };
        let mut command = netns.command_on(cpu, binary);
        command.args(words);
        command
            .arg("--config")
            .arg(format!("{program}.toml"))
            .current_dir(&self.folders[end as usize]);
        if cpu.is_some() {
            command.env("GOMAXPROCS", "1");
        }
        let log = self.log(program);
        Process::spawn(command, &log)
            .with_context(|| format!("`{program}` in the chain of the reference"))
    }

    /// A new log of a program.
    fn log(&mut self, program: &str) -> PathBuf {
        self.started += 1;
        let name = format!("{program}-{}.log", self.started);
        self.network.folder().join(name)
    }

    /// Writes the configuration of a router of sig: that of the reference's, and what makes veth devices send.
    fn write_router_configuration(&self, end: End) -> Result<()> {
        let folder = &self.folders[end as usize];
        let reference = fs::read_to_string(folder.join("router.toml"))?;
        let socket = folder.join("router.sock");
        // Each side of a veth pair sends only once the other one has a native program: a router that is to choose
        // itself would not begin.
        let xdp = format!(
            "\n[xdp]\nmode = \"native\"\nstatus_socket = \"{}\"\n",
            socket.display()
        );
        fs::write(folder.join(format!("{SIG_ROUTER}.toml")), reference + &xdp)?;
        Ok(())
    }

    /// Writes the configuration of sig: that of the reference gateway, and which device leads to the LAN.
    fn write_sig_configuration(&self, end: End) -> Result<()> {
        let folder = &self.folders[end as usize];
        let reference = fs::read_to_string(folder.join("gateway.toml"))?;
        let socket = self.network.folder().join("sig.sock");
        let text = reference.replacen(
            "[gateway]\n",
            &format!("[gateway]\nstatus_socket = \"{}\"\n", socket.display()),
            1,
        );
        let dataplane = "\n[dataplane]\nlan = [\"lan\"]\nworkers = 1\n";
        fs::write(folder.join(format!("{SIG}.toml")), text + dataplane)?;
        Ok(())
    }

    /// See [`Chain::interrupt`].
    fn interrupt(&self, gateways: &[Option<Process>; 2]) {
        let all = || self.processes.iter().chain(gateways.iter().flatten());
        all().for_each(|process| process.signal(libc::SIGSTOP));
        thread::sleep(INTERRUPTION);
        all().for_each(|process| process.signal(libc::SIGCONT));
    }

    fn wait_for_paths(&mut self) -> Result<()> {
        wait_until("the reference finds paths", PATHS, || {
            alive(&mut self.processes)?;
            let (a, b) = (&self.network.a, &self.network.b);
            Ok(self.has_path(&a.gateway, b.isd_as())? && self.has_path(&b.gateway, a.isd_as())?)
        })
        .map(drop)
    }

    fn has_path(&self, from: &Netns, to: &str) -> Result<bool> {
        let output = from
            .command(self.programs.path("scion"))
            .args(["showpaths", to, "--no-probe", "--sciond", DAEMON])
            .output()
            .context("`scion` of the reference does not start")?;
        Ok(output.status.success())
    }
}

/// sig, among the programs of the reference.
const SIG: &str = "sig";
/// Its border router.
const SIG_ROUTER: &str = "sig-router";

/// The chain with the reference gateway at both ends, accelerated or not, or at A alone and sig at B.
pub(super) struct Reference {
    /// Beside gateways, in the order of these.
    accelerators: Vec<Accelerator>,
    /// Of A and B; none only while one is being restarted.
    gateways: [Option<Process>; 2],
    /// Their programs.
    programs: [&'static str; 2],
    base: Base,
}

impl Reference {
    /// As the reference is by default, tuned: everything of an AS on one CPU, with one Go thread per process, or
    /// accelerated.
    pub(super) fn build(subject: Subject, case: &Case) -> Result<Self, Refusal> {
        let is_tuned = subject == Subject::ChainReferenceTuned;
        let accelerated = match subject {
            Subject::ChainAccelerated => &End::ALL[..],
            Subject::ChainAcceleratedOne => &[End::A],
            _ => &[],
        };
        let routers = match subject {
            Subject::ChainReferenceOverSigRouters => Routers::Sig,
            _ if !accelerated.is_empty() => Routers::Sig,
            _ => Routers::Reference,
        };
        let cpus = is_tuned.then_some([case.cpus.device, case.cpus.tester]);
        let base = Base::build(routers, cpus)?;
        let is_mixed = subject == Subject::ChainMixed;
        if is_mixed {
            base.write_sig_configuration(End::B)?;
        }
        let mut chain = Self {
            accelerators: Vec::new(),
            gateways: [None, None],
            programs: ["gateway", if is_mixed { SIG } else { "gateway" }],
            base,
        };
        for end in End::ALL {
            chain.start(end)?;
        }
        if let Err(error) = chain.wait(accelerated) {
            // That one of them has ended says more.
            alive(chain.accelerators.iter_mut().map(|one| &mut one.process))?;
            alive(chain.gateways.iter_mut().flatten())?;
            alive(&mut chain.base.processes)?;
            return Err(error.into());
        }
        Ok(chain)
    }

    /// Waits until packets cross, accelerated at these ends.
    fn wait(&mut self, accelerated: &[End]) -> Result<()> {
        // Before that the gateways' tunnel devices may not be there.
        wait_loss_free(self, READY)?;
        if accelerated.is_empty() {
            return Ok(());
        }
        for &end in accelerated {
            let log = self.base.log("sig-accelerate");
            let netns = &end.site(&self.base.network).gateway;
            let socket = log.with_extension("sock");
            self.accelerators
                .push(Accelerator::start(netns, socket, &log)?);
        }
        wait_for_fast_path(self, ACCELERATED, |chain| {
            let mut all = chain.accelerators.iter();
            all.try_fold(true, |so_far, one| Ok(so_far && one.takes_packets()?))
        })?;
        wait_loss_free(self, ACCELERATED)
    }

    fn start(&mut self, end: End) -> Result<()> {
        let process = self.base.start(end, self.programs[end as usize])?;
        self.gateways[end as usize] = Some(process);
        Ok(())
    }
}

impl Chain for Reference {
    fn network(&self) -> &Network {
        &self.base.network
    }

    fn interrupt(&self) {
        self.base.interrupt(&self.gateways);
    }

    fn gateways(&self) -> Vec<u32> {
        let accelerators = self.accelerators.iter().map(|one| &one.process);
        let gateways = self.gateways.iter().flatten();
        gateways.chain(accelerators).map(Process::id).collect()
    }

    fn restart(&mut self, end: End) -> Result<(), Refusal> {
        if !self.accelerators.is_empty() {
            return Err(Refusal::NotHere(
                "who restarts a gateway with an accelerator restarts both, and that has to wait for the tunnel device".into(),
            ));
        }
        let slot = &mut self.gateways[end as usize];
        let mut process = slot.take().context("the gateway does not run")?;
        process.signal(libc::SIGKILL);
        process.wait(GONE)?;
        Ok(self.start(end)?)
    }
}

/// An error with what it said last if one of the processes has ended.
fn alive<'a>(processes: impl IntoIterator<Item = &'a mut Process>) -> Result<()> {
    for process in processes {
        if let Some(status) = process.ended()? {
            let log = process.log();
            let last = log.lines().next_back().unwrap_or_default();
            bail!(
                "a program of the chain ended ({status}); the end of {}: {last}",
                process.log_file().display()
            );
        }
    }
    Ok(())
}
