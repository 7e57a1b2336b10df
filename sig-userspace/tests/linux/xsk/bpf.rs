use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use super::ETHERTYPE;
use crate::support::netns::Netns;

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// It takes packets in several buffers.
const HAS_FRAGS: u32 = 1 << 5;

/// An XDP program that sends frames of [`ETHERTYPE`] to the socket whose slot their first byte names,
/// and passes everything else.
pub(crate) struct Redirect {
    map: OwnedFd,
    program: OwnedFd,
    links: Vec<OwnedFd>,
}

fn bpf(command: i32, attributes: &mut [u64; 18]) -> io::Result<i32> {
    // SAFETY: the attributes are of the size given and the pointers within are live at every caller.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as i32)
}

fn owned(fd: io::Result<i32>) -> OwnedFd {
    let fd = fd.expect("the kernel accepts it");
    // SAFETY: made just now, owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Two 32-bit values as they lie in memory.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

const fn instruction(code: u8, dst: u8, src: u8, offset: i16, value: i32) -> u64 {
    (code as u64)
        | ((src as u64) << 4 | dst as u64) << 8
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

impl Redirect {
    pub(crate) fn load(slots: u32) -> Self {
        let mut create = [0; 18];
        create[0] = pair(XSKMAP, 4);
        create[1] = pair(4, slots);
        let map = owned(bpf(MAP_CREATE, &mut create));

        let ethertype = i32::from(ETHERTYPE.to_be());
        let code = [
            instruction(0x61, 2, 1, 0, 0),               // r2 = data
            instruction(0x61, 3, 1, 4, 0),               // r3 = data_end
            instruction(0xbf, 4, 2, 0, 0),               // r4 = r2
            instruction(0x07, 4, 0, 0, 15),              // r4 += 15
            instruction(0x2d, 4, 3, 8, 0),               // if r4 > r3 goto pass
            instruction(0x69, 5, 2, 12, 0),              // r5 = EtherType
            instruction(0x55, 5, 0, 6, ethertype),       // if r5 != ours goto pass
            instruction(0x71, 2, 2, 14, 0),              // r2 = slot
            instruction(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = map
            instruction(0, 0, 0, 0, 0),
            instruction(0xb7, 3, 0, 0, 1), // r3 = XDP_DROP, if the slot is empty
            instruction(0x85, 0, 0, 0, 51), // call redirect_map
            instruction(0x95, 0, 0, 0, 0), // exit
            instruction(0xb7, 0, 0, 0, 2), // pass: r0 = XDP_PASS
            instruction(0x95, 0, 0, 0, 0), // exit
        ];
        let license = CString::new("GPL").expect("no zero bytes");
        let mut load = [0; 18];
        load[0] = pair(PROG_TYPE_XDP, code.len() as u32);
        load[1] = code.as_ptr() as u64;
        load[2] = license.as_ptr() as u64;
        load[5] = pair(0, HAS_FRAGS);
        let program = owned(bpf(PROG_LOAD, &mut load));
        Redirect {
            map,
            program,
            links: Vec::new(),
        }
    }

    /// Attaches the program to an interface, as long as this value lives.
    pub(crate) fn attach(&mut self, namespace: &Netns, interface: &str) {
        let program = self.program.as_raw_fd() as u32;
        let link = namespace.run(|| {
            let name = CString::new(interface).expect("no zero bytes");
            // SAFETY: a valid C string.
            let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let mut create = [0; 18];
            create[0] = pair(program, ifindex);
            create[1] = pair(ATTACH_XDP, 0);
            owned(bpf(LINK_CREATE, &mut create))
        });
        self.links.push(link);
    }

    /// Puts a socket into a slot.
    pub(crate) fn set(&self, slot: u32, socket: RawFd) {
        let mut update = [0; 18];
        update[0] = pair(self.map.as_raw_fd() as u32, 0);
        update[1] = (&raw const slot) as u64;
        update[2] = (&raw const socket) as u64;
        bpf(MAP_UPDATE, &mut update).expect("the map takes the socket");
    }
}
