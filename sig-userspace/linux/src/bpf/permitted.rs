//! Whether this process may use BPF and AF_XDP at all.

use std::io;

use crate::facts::{self, CAP_BPF, CAP_NET_RAW, CAP_PERFMON, Feature, Privileges};

/// Asks the kernel to take a program that does nothing and to open an AF_XDP socket, and looks at the capabilities that ours need
/// besides.
///
/// # Errors
/// Why not, as a sentence.
pub fn permitted() -> Result<(), String> {
    let privileges = Privileges::read();
    let needed = [CAP_BPF, CAP_PERFMON, CAP_NET_RAW];
    let missing = needed.iter().filter(|needed| !privileges.has(**needed));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if !missing.is_empty() {
        return Err(format!("this process lacks {}", missing.join(" and ")));
    }
    load_nothing().map_err(|error| format!("the kernel takes no BPF programs here ({error})"))?;
    match facts::af_xdp() {
        Feature::Present => Ok(()),
        Feature::Absent => Err("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)".to_owned()),
        Feature::Denied => Err("this process may not open AF_XDP sockets".to_owned()),
        Feature::Unclear(error) => Err(format!("AF_XDP sockets cannot be opened ({error})")),
    }
}

/// `union bpf_attr` of `linux/bpf.h`, as far as loading a program uses it.
#[repr(C)]
struct Attributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log: [u64; 2],
    version_and_flags: [u32; 2],
}

fn load_nothing() -> io::Result<()> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_XDP: u32 = 6;
    // r0 = XDP_PASS; exit
    let instructions: [u64; 2] = [0xb7 | 2 << 32, 0x95].map(u64::to_le);
    let mut attributes = Attributes {
        program_type: BPF_PROG_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 2],
        version_and_flags: [0; 2],
    };
    // SAFETY: the attributes are a live buffer of the size that is passed; what they point to lives as long.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw mut attributes,
            size_of_val(&attributes),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}
