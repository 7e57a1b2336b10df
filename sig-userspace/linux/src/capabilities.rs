//! Capabilities: which ones a program needs and why, which are missing, and giving up the one that only the start needs.

use std::io;

use super::facts::{
    CAP_BPF, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN, Privileges,
};

/// A capability by number and name.
pub type Capability = (u32, &'static str);

/// Those of `sig run`, and what they are for. The unit adds CAP_SYS_NICE, which is optional.
pub const GATEWAY: &[(Capability, &str)] = &[
    (CAP_NET_ADMIN, "interfaces, routes and XDP programs"),
    (CAP_NET_RAW, "AF_XDP sockets"),
    (CAP_BPF, "BPF programs and maps"),
    (CAP_PERFMON, "BPF programs that read packets"),
    (
        CAP_SYS_ADMIN,
        "the private network namespace of the tunnel port; given up once it is made",
    ),
];

/// Those of `sig router run`.
pub const ROUTER: &[(Capability, &str)] = &[
    (CAP_NET_ADMIN, "XDP programs and neighbours"),
    (CAP_BPF, "BPF programs and maps"),
    (CAP_PERFMON, "BPF programs that read packets"),
];

/// What to do where the kernel denies something that takes these: names those that are missing.
#[must_use]
pub fn remedy(needed: &[Capability], granted: &Privileges) -> String {
    let missing = needed.iter().filter(|needed| !granted.has(**needed));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() {
        "all capabilities are present, so a security module, a seccomp filter or kernel lockdown denies it".into()
    } else {
        format!(
            "missing {}; run as root, or add it to AmbientCapabilities= of the systemd unit",
            missing.join(", ")
        )
    }
}

/// For an error of the kernel: [`remedy`], if it is one of rights.
#[must_use]
pub(crate) fn remedy_for(error: &io::Error, needed: &[Capability]) -> Option<String> {
    let denied = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
    denied.then(|| remedy(needed, &Privileges::read()))
}

/// Prepares the rest of this process for life without CAP_SYS_ADMIN: makes the one thing that takes it, a private network
/// namespace, and gives the capability up. To be called before there are other threads: those started later have no more than
/// this one. A namespace that cannot be made is an error of whoever wants it later.
///
/// # Errors
/// The capability cannot be given up.
pub fn settle_for_less() -> io::Result<()> {
    super::netns::PrivateNetns::make_in_advance();
    give_up_sys_admin()
}

/// Gives up CAP_SYS_ADMIN, in the calling thread and in those that it starts from now on. It stays where it stands in for
/// CAP_BPF or CAP_PERFMON, as in units written for older versions.
///
/// # Errors
/// The kernel does not take the sets.
pub fn give_up_sys_admin() -> io::Result<()> {
    let (number, _) = CAP_SYS_ADMIN;
    let held = Privileges::read().capabilities;
    let has = |(number, _): Capability| held & (1 << number) != 0;
    if !(has(CAP_BPF) && has(CAP_PERFMON)) {
        return Ok(());
    }
    // No program started by this process, which starts none, could have it again. Takes CAP_SETPCAP; without that, such a
    // program would have to be set-user-ID.
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut sets = [Sets::default(); 2];
    // SAFETY: both point to what the kernel expects of this version, a header and two parts of each set.
    if unsafe { libc::syscall(libc::SYS_capget, &mut header, sets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The number is below 32, in the first part. The ambient set never holds more than these.
    let keep = !(1 << number);
    sets[0].effective &= keep;
    sets[0].permitted &= keep;
    sets[0].inheritable &= keep;
    // SAFETY: as above; the kernel only reads the sets.
    if unsafe { libc::syscall(libc::SYS_capset, &mut header, sets.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`.
const VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`; process 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Those of [`GATEWAY`] and CAP_IPC_LOCK: what the errors of AF_XDP are about.
pub(crate) const AF_XDP: &[Capability] = &[CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK];

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, since it cannot be undone.
    #[test]
    fn what_is_given_up_is_gone_from_this_thread_and_its_children() {
        let read = || Privileges::read().capabilities & (1 << CAP_SYS_ADMIN.0);
        let before = read();
        let thread = std::thread::spawn(move || {
            give_up_sys_admin().unwrap();
            (read(), std::thread::spawn(read).join().unwrap())
        });
        assert_eq!(thread.join().unwrap(), (0, 0));
        assert_eq!(read(), before);
    }
}
