//! Errors of aya, in words that say what to change.

use std::{error::Error as StdError, io};

use aya::{
    EbpfError,
    maps::MapError,
    programs::{ProgramError, TcError, XdpError},
};

use crate::kernel::Error;

const PRIVILEGES: &str = "run as root or give the process CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (`sig doctor` tells \
                          which one is missing)";

const OPEN_FILES: &str =
    "too many open files: raise the limit (`ulimit -n`, `LimitNOFILE=` in a systemd unit)";

/// The oldest kernel that has all that the programs use.
const OLDEST_KERNEL: &str = "5.15";

/// The object cannot be loaded, or one of its maps cannot be made.
pub(super) fn of_object(error: &EbpfError) -> Error {
    match errno(error) {
        Some(libc::EPERM | libc::EACCES) => Error::Refused(format!(
            "the kernel does not let us make BPF maps: {PRIVILEGES}"
        )),
        Some(libc::EMFILE) => Error::Refused(format!("cannot make BPF maps: {OPEN_FILES}")),
        _ => Error::Refused(format!(
            "cannot load the BPF programs: {} (Linux {OLDEST_KERNEL} or newer with CONFIG_BPF_SYSCALL and \
             CONFIG_XDP_SOCKETS is needed)",
            chain(error)
        )),
    }
}

/// The kernel does not take a program.
pub(super) fn of_program(name: &str, error: &ProgramError) -> Error {
    match errno(error) {
        Some(libc::EPERM) => Error::Refused(format!(
            "the kernel does not let us load BPF programs: {PRIVILEGES}"
        )),
        Some(libc::EMFILE) => {
            Error::Refused(format!("cannot load the program {name}: {OPEN_FILES}"))
        }
        _ => Error::Refused(format!(
            "the kernel refuses the program {name} (Linux {OLDEST_KERNEL} or newer is needed): {}",
            chain(error)
        )),
    }
}

/// A program cannot be attached to a device.
pub(super) fn of_attaching(name: &str, ifindex: u32, error: &ProgramError) -> Error {
    let device = device(ifindex);
    Error::Refused(match errno(error) {
        Some(libc::EPERM | libc::EACCES) => {
            format!("the kernel does not let us attach programs to {device}: {PRIVILEGES}")
        }
        Some(libc::EMFILE) => format!("cannot attach {name} to {device}: {OPEN_FILES}"),
        Some(libc::EBUSY | libc::EEXIST) => format!(
            "{device} has an XDP program of somebody else: stop its owner, or remove it with \
             `ip link set dev DEVICE xdp off` (and `xdpgeneric off`); `bpftool net` lists programs"
        ),
        Some(libc::ERANGE) => format!(
            "the MTU of {device}, or of the other end of the pair, is larger than its driver allows with XDP: lower \
             it, e.g. to 3498 for veth (`ip -details link show` tells the limit as maxmtu while a program is attached)"
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
                "cannot {doing}: it is no AF_XDP socket with a receive ring"
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
