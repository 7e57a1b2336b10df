//! The reference implementation: its routers and control services, with its gateways, with one of them, or
//! without.

mod configuration;
mod scion;

use std::{fs, path::PathBuf, thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use testbed::{Netns, Network, Options, Process, wait_until};

use super::{Chain, End, links, wait_loss_free};
use crate::throughput::{
    binary::gateway_binary,
    experiment::Case,
    reference::Programs,
    subject::{Refusal, Subject},
};

pub(super) use scion::Scion;

/// Time until each AS knows a path to the other.
const PATHS: Duration = Duration::from_secs(60);
/// Time from then until packets cross the gateways.
const READY: Duration = Duration::from_secs(60);
/// Time for a killed process to go.
const GONE: Duration = Duration::from_secs(5);
/// How long programs are interrupted. Routers give a neighbour up after 600 ms.
const INTERRUPTION: Duration = Duration::from_millis(60);
/// Where the daemon answers, in the gateway's namespace.
const DAEMON: &str = "127.0.0.1:30255";

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
    fn build(cpus: Option<[u16; 2]>) -> Result<Self, Refusal> {
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
        for end in End::ALL {
            for program in ["router", "control", "daemon", "dispatcher"] {
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
            "router" | "control" => &site.router,
            _ => &site.gateway,
        };
        let cpu = self.cpus.map(|cpus| cpus[end as usize]);
        let mut command = match program {
            SIG => netns.command_on(cpu, gateway_binary()?),
            _ => netns.command_on(cpu, self.programs.path(program)),
        };
        if program == SIG {
            command.arg("run");
        }
        command
            .arg("--config")
            .arg(format!("{program}.toml"))
            .current_dir(&self.folders[end as usize]);
        if cpu.is_some() {
            command.env("GOMAXPROCS", "1");
        }
        self.started += 1;
        let log = format!("{program}-{}.log", self.started);
        Process::spawn(command, &self.network.folder().join(log))
            .with_context(|| format!("`{program}` in the chain of the reference"))
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

/// The chain with the reference gateway at both ends, or at A alone and sig at B.
pub(super) struct Reference {
    /// Of A and B; none only while one is being restarted.
    gateways: [Option<Process>; 2],
    /// Their programs.
    programs: [&'static str; 2],
    base: Base,
}

impl Reference {
    /// As the reference is by default, or tuned: everything of an AS on one CPU, with one Go thread per process.
    pub(super) fn build(subject: Subject, case: &Case) -> Result<Self, Refusal> {
        let is_tuned = subject == Subject::ChainReferenceTuned;
        let base = Base::build(is_tuned.then_some([case.cpus.device, case.cpus.tester]))?;
        let is_mixed = subject == Subject::ChainMixed;
        if is_mixed {
            base.write_sig_configuration(End::B)?;
        }
        let mut chain = Self {
            gateways: [None, None],
            programs: ["gateway", if is_mixed { SIG } else { "gateway" }],
            base,
        };
        for end in End::ALL {
            chain.start(end)?;
        }
        if let Err(error) = wait_loss_free(&chain, READY) {
            // That one of them has ended says more.
            alive(chain.gateways.iter_mut().flatten())?;
            alive(&mut chain.base.processes)?;
            return Err(error.into());
        }
        Ok(chain)
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
        self.gateways.iter().flatten().map(Process::id).collect()
    }

    fn restart(&mut self, end: End) -> Result<(), Refusal> {
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
                "a program of the reference ended ({status}); the end of {}: {last}",
                process.log_file().display()
            );
        }
    }
    Ok(())
}
