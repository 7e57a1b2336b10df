//! An emulated machine.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use testbed::card_mac;

/// Links of the network, with a card at each end.
const LINKS: u8 = 6;

/// What a machine is made of.
pub(super) struct Machine<'a> {
    /// The kernel.
    pub(super) kernel: &'a Path,
    /// What it starts from.
    pub(super) archive: &'a Path,
    /// QEMU's device for a card, with options.
    pub(super) device: &'a str,
    /// When it is switched off.
    pub(super) limit: Duration,
    /// Whether what it prints is shown.
    pub(super) verbose: bool,
}

impl Machine<'_> {
    /// Runs it until it ends; returns what it printed.
    pub(super) fn run(&self, scenarios: &str) -> Result<String> {
        let mut command = Command::new("nice");
        command
            .args(["qemu-system-x86_64", "-machine", "q35,kernel-irqchip=split"])
            // A machine that is itself virtual need not be able to help with others.
            .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
            .args(["-m", "3072", "-smp", "2", "-display", "none", "-no-reboot"])
            .args(["-serial", "stdio", "-monitor", "none", "-nic", "none"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.archive)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 scenarios={scenarios}"
            ));
        for link in 0..LINKS {
            for end in 0..2 {
                let slot = 1 + 2 * link + end;
                let mac = card_mac(link, end)
                    .map(|byte| format!("{byte:02x}"))
                    .join(":");
                let mut card = String::new();
                write!(
                    card,
                    "{},bus=port{slot},netdev=net{slot},mac={mac}",
                    self.device
                )?;
                command
                    .args([
                        "-device",
                        &format!("pcie-root-port,id=port{slot},chassis={slot},slot={slot}"),
                    ])
                    .args(["-netdev", &format!("hubport,id=net{slot},hubid={link}")])
                    .args(["-device", &card]);
            }
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("qemu-system-x86_64 does not start")?;
        let output = child.stdout.take().context("its output")?;
        let verbose = self.verbose;
        let reader = thread::spawn(move || {
            let mut printed = String::new();
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                if verbose {
                    println!("{line}");
                }
                printed.push_str(line.trim_end_matches('\r'));
                printed.push('\n');
            }
            printed
        });
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > self.limit {
                child.kill()?;
                child.wait()?;
            }
            thread::sleep(Duration::from_millis(200));
        }
        let mut printed = reader.join().unwrap_or_default();
        writeln!(
            printed,
            "switched off after {} s",
            start.elapsed().as_secs()
        )?;
        Ok(printed)
    }
}
