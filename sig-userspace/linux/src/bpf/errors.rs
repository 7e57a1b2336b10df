//! Errors of aya, in words that say what to change.

use std::{error::Error as StdError, io};

use aya::{
    EbpfError,
    maps::MapError,
    programs::{ProgramError, TcError, XdpError},
};

use crate::{
    Error,
    capabilities::remedy,
    facts::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, OLDEST_KERNEL, Privileges},
};

/// What to do where the kernel denies something: names the capabilities that are missing.
fn privileges(granted: &Privileges) -> String {
    remedy(&[CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON], granted)
}

/// The object cannot be loaded, or one of its maps cannot be made.
pub(super) fn of_object(error: &EbpfError) -> Error {
    Error::Refused(match errno(error) {
        Some(libc::EPERM | libc::EACCES) => format!(
            "no permission to create BPF maps: {}",
            privileges(&Privileges::read())
        ),
        Some(libc::EMFILE) => too_many_files("make BPF maps"),
        _ => {
            let (major, minor) = OLDEST_KERNEL;
            format!(
                "cannot load the BPF programs: {} (Linux {major}.{minor} or newer with CONFIG_BPF_SYSCALL and \
                 CONFIG_XDP_SOCKETS is needed)",
                chain(error)
            )
        }
    })
}

/// The kernel does not take a program.
pub(super) fn of_program(name: &str, error: &ProgramError) -> Error {
    tracing::debug!(program = name, "rejected by the kernel: {}", chain(error));
    let why = match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => format!("{io_error}{}", last_words(&verifier_log.to_string())),
        other => chain(other),
    };
    program_refused(name, errno(error), &why, &Privileges::read())
}

fn program_refused(name: &str, errno: Option<i32>, why: &str, granted: &Privileges) -> Error {
    let has_all = [CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON].map(|capability| granted.has(capability));
    Error::Refused(match errno {
        Some(libc::EMFILE) => too_many_files("load BPF programs"),
        // The verifier answers with EACCES both to a program that it finds wrong and to one that needs CAP_PERFMON.
        Some(errno @ (libc::EPERM | libc::EACCES))
            if errno == libc::EPERM || has_all.contains(&false) =>
        {
            format!(
                "no permission to load BPF programs: {}",
                privileges(granted)
            )
        }
        _ => {
            let (major, minor) = OLDEST_KERNEL;
            format!(
                "the kernel rejects the program {name} (Linux {major}.{minor} or newer is needed): {why}; log \
                 level debug shows the full verifier output"
            )
        }
    })
}

fn too_many_files(doing: &str) -> String {
    format!(
        "cannot {doing}: too many open files; raise the limit with `ulimit -n 4096` in a shell, or \
         LimitNOFILE=4096 in the systemd unit"
    )
}

/// Of the verifier's words, which can be hundreds of lines, the last that say something.
fn last_words(log: &str) -> String {
    let mut lines = log.lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty() && !line.starts_with("processed "));
    last.map_or(String::new(), |line| format!(": {line}"))
}

/// A program cannot be attached to a device.
pub(super) fn of_attaching(name: &str, ifindex: u32, error: &ProgramError) -> Error {
    let device = device(ifindex);
    Error::Refused(match errno(error) {
        Some(libc::EPERM | libc::EACCES) => {
            let remedy = privileges(&Privileges::read());
            format!("no permission to attach BPF programs to {device}: {remedy}")
        }
        Some(libc::EMFILE) => too_many_files(&format!("attach {name} to {device}")),
        Some(libc::EBUSY | libc::EEXIST) => format!(
            "{device} has an XDP program that sig did not attach: stop its owner, or remove it with \
             `ip link set dev DEVICE xdp off` (and `xdpgeneric off`); `bpftool net` lists programs"
        ),
        Some(libc::ERANGE) => format!(
            "the MTU of {device}, or of the other end of the pair, is larger than its driver allows with XDP: \
             lower it, for example to 3506 for veth (`ip -details link show` shows the limit as maxmtu while a program is attached)"
        ),
        Some(libc::ENODEV) => format!("{device} does not exist in this network namespace"),
        _ => format!("cannot attach {name} to {device}: {}", chain(error)),
    })
}

/// A map operation failed. `doing` continues "cannot".
pub(super) fn of_map(doing: String, error: MapError) -> Error {
    match error {
        MapError::SyscallError(error) => match error.io_error.raw_os_error() {
            Some(libc::E2BIG | libc::ENOSPC) => {
                Error::Refused(format!("cannot {doing}: the BPF map is full"))
            }
            Some(libc::EOPNOTSUPP) => Error::Refused(format!(
                "cannot {doing}: it is not an AF_XDP socket with a receive ring"
            )),
            _ => Error::Kernel {
                doing,
                source: error.io_error,
            },
        },
        other => Error::Refused(format!("cannot {doing}: {}", chain(&other))),
    }
}

/// The error number of the kernel, wherever it is in the chain of causes.
pub(super) fn errno(error: &(dyn StdError + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // In these, aya passes another error through as its own, so it does not appear as a cause.
        let number = if let Some(error) = error.downcast_ref::<io::Error>() {
            error.raw_os_error()
        } else {
            match error.downcast_ref::<ProgramError>() {
                Some(ProgramError::SyscallError(error)) => error.io_error.raw_os_error(),
                Some(ProgramError::LoadError { io_error, .. }) => io_error.raw_os_error(),
                Some(ProgramError::XdpError(XdpError::NetlinkError(error))) => error.raw_os_error(),
                Some(ProgramError::TcError(error)) => tc_errno(error),
                Some(ProgramError::IOError(error)) => error.raw_os_error(),
                Some(ProgramError::NetlinkError(error)) => error.raw_os_error(),
                _ => None,
            }
        };
        if number.is_some() {
            return number;
        }
        cause = error.source();
    }
    None
}

/// The error number of the kernel in an error of TC.
pub(super) fn tc_errno(error: &TcError) -> Option<i32> {
    match error {
        TcError::NetlinkError(error) => error.raw_os_error(),
        TcError::IoError(error) => error.raw_os_error(),
        _ => None,
    }
}

/// The device in words.
pub(super) fn device(ifindex: u32) -> String {
    match super::object::name_of(ifindex) {
        Ok(name) => format!("device {name}"),
        Err(_) => format!("the device with interface index {ifindex}"),
    }
}

/// The error and its causes, without repeating one that only passes the next on.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(capabilities: &[(u32, &str)]) -> Privileges {
        Privileges {
            capabilities: capabilities.iter().fold(0, |set, (bit, _)| set | 1 << bit),
            memlock: None,
        }
    }

    #[test]
    fn a_missing_capability_is_named_without_the_words_of_the_verifier() {
        let granted = with(&[CAP_BPF, CAP_NET_ADMIN]);
        assert_eq!(
            program_refused("sig_lan", Some(libc::EACCES), "", &granted).to_string(),
            "no permission to load BPF programs: missing CAP_PERFMON; run as root, or add it to \
             AmbientCapabilities= of the systemd unit"
        );
        let all = with(&[CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON]);
        let why =
            last_words("0: R1=ctx()\n7: R2 pointer comparison prohibited\nprocessed 8 insns\n");
        assert_eq!(why, ": 7: R2 pointer comparison prohibited");
        let refused = program_refused("sig_lan", Some(libc::EACCES), &why, &all).to_string();
        assert!(
            refused.starts_with(
                "the kernel rejects the program sig_lan (Linux 6.1 or newer is needed): "
            ) && refused.contains("7: R2 pointer comparison prohibited; log level debug"),
            "{refused}"
        );
        let forbidden = program_refused("sig_lan", Some(libc::EPERM), "", &all).to_string();
        assert!(forbidden.contains("kernel lockdown"), "{forbidden}");
    }

    #[test]
    fn too_few_open_files_are_no_question_of_the_kernel() {
        let refused = program_refused("sig_lan", Some(libc::EMFILE), "", &with(&[])).to_string();
        assert!(
            refused.contains("`ulimit -n 4096`") && !refused.contains("Linux"),
            "{refused}"
        );
    }
}
