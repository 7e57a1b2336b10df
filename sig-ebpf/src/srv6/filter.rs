//! Rules about packets that come in. What they are is described in [`sig_common::srv6::filter`].

use aya_ebpf::{
    bindings::xdp_md,
    helpers,
    macros::map,
    maps::{Array, LpmTrie, PerCpuArray, RingBuf, lpm_trie::Key},
};
use sig_common::{
    srv6::{
        filter::{
            Action, Facts, Head, Kind, MAX_CLASSES, MAX_NOTING, MAX_ROWS, NUMBERS, PrefixKey, Row,
            Tables, WORDS, first, select,
        },
        maps::{COPY_BYTES, COPY_PACKET, Control, Copied, MAX_PREFIXES, Reason},
    },
    wire::ethernet,
};

use super::{Work, count, function, note, whole_ip};
use crate::{
    maps::NO_PREALLOC,
    packet::{self, IP, Packet, opaque},
};

#[map]
static S_CONTROL: Array<u32> = Array::with_max_entries(1, 0);

#[map]
static S_HEADS: Array<Head> = Array::with_max_entries(2, 0);

#[map]
static S_PREFIXES: LpmTrie<[u8; 20], u32> = LpmTrie::with_max_entries(MAX_PREFIXES, NO_PREALLOC);

#[map]
static S_NUMBERS: Array<[u16; 65536]> = Array::with_max_entries(2 * NUMBERS as u32, 0);

#[map]
static S_CLASSES: Array<[u64; WORDS]> = Array::with_max_entries(2 * MAX_CLASSES as u32, 0);

#[map]
static S_ROWS: Array<Row> = Array::with_max_entries(2 * MAX_ROWS as u32, 0);

#[map]
static S_COPIES: RingBuf = RingBuf::with_byte_size(COPY_BYTES, 0);

#[map]
static S_COPY: PerCpuArray<Copy> = PerCpuArray::with_max_entries(1, 0);

/// What is written to the ring of copies, as far as there is a packet.
#[repr(C, align(8))]
struct Copy {
    head: Copied,
    packet: [u8; COPY_PACKET],
}

/// What is known of a packet on its way through the rules.
#[repr(C)]
pub struct Filtering {
    facts: Facts,
    rows: [u64; WORDS],
    generation: u32,
    /// Of `steer`: the number of the policy.
    pub target: u32,
}

/// Bits of [`Control`].
#[inline(always)]
pub fn control() -> u32 {
    match S_CONTROL.get(0) {
        // SAFETY: an aligned word of the map. Volatile: it is read once, and holds for all of a packet's way.
        Some(word) => unsafe { core::ptr::read_volatile(word) },
        None => 0,
    }
}

/// No action: what rules ask about cannot be read.
pub const UNREADABLE: u32 = u32::MAX;

/// What the rules say about the IP packet: the number of an [`Action`] that is not `count` or `mirror`, or [`UNREADABLE`].
#[inline(always)]
pub fn run(ctx: *mut xdp_md, work: &mut Work, control: u32, kind: Kind) -> u32 {
    let filtering = &mut work.filtering;
    filtering.generation = control & Control::GENERATION;
    match read(ctx, filtering, kind as u32) {
        NO_RULES => Action::Accept as u32,
        UNREADABLE => UNREADABLE,
        _ => walk(ctx, filtering),
    }
}

/// Of [`read`]: there are no rules for such a packet.
const NO_RULES: u32 = 0;

/// Reads the packet, and finds the rows that it satisfies. Returns [`NO_RULES`], [`UNREADABLE`] or something else.
#[inline(never)]
fn read(ctx: *mut xdp_md, filtering: &mut Filtering, kind: u32) -> u32 {
    const SID: u32 = Kind::Sid as u32;
    const ARGUMENTS: u32 = Kind::Arguments as u32;
    let frame = Packet::of(ctx, 0);
    let is_v4 = match frame.be16(12) {
        Some(ethernet::ETHERTYPE_IPV4) => true,
        Some(ethernet::ETHERTYPE_IPV6) => false,
        _ => return NO_RULES,
    };
    let kind = match kind {
        SID => Kind::Sid,
        ARGUMENTS => Kind::Arguments,
        _ => Kind::Plain,
    };
    // Neighbour discovery and the like are between neighbours. Of what is sent to others, the kernel would forward it.
    if kind as u32 == Kind::Plain as u32 {
        let is_ordinary = match is_v4 {
            true => function::is_ordinary_v4(&frame),
            false => {
                function::is_routable_v6(&frame)
                    && (!function::is_discovery(&frame) || !super::is_to_this_host(&frame))
            }
        };
        if !is_ordinary {
            return NO_RULES;
        }
    }
    let Some(head) = S_HEADS.get(filtering.generation) else {
        return NO_RULES;
    };
    if !filtering.facts.read(&whole_ip(ctx), is_v4, kind, head.used) {
        return UNREADABLE;
    }
    // SAFETY: the context is of the running program.
    filtering
        .facts
        .came_in_by(unsafe { (*ctx).ingress_ifindex });
    let tables = Maps {
        head,
        generation: filtering.generation,
    };
    for key in &mut filtering.facts.keys {
        key.table[0] = filtering.generation as u8;
    }
    select(&filtering.facts, head.used, &tables, &mut filtering.rows);
    1
}

/// The tables of a generation.
struct Maps<'a> {
    head: &'a Head,
    generation: u32,
}

impl Tables for Maps<'_> {
    #[inline(always)]
    fn of_prefix(&self, key: &PrefixKey) -> Option<u16> {
        // SAFETY: the same bytes: a length, and what it counts the bits of.
        let key = unsafe { &*(&raw const *key).cast::<Key<[u8; 20]>>() };
        S_PREFIXES.get(key).map(|class| *class as u16)
    }

    #[inline(always)]
    fn of_octet(&self, field: usize, value: u8) -> u16 {
        match self.head.octets.get(field) {
            Some(classes) => classes[usize::from(value)],
            None => 0,
        }
    }

    #[inline(always)]
    fn of_number(&self, field: usize, value: u16) -> u16 {
        match S_NUMBERS.get(self.generation * NUMBERS as u32 + field as u32) {
            Some(classes) => classes[usize::from(value)],
            None => 0,
        }
    }

    #[inline(always)]
    fn absent(&self, field: usize) -> u16 {
        self.head.absent.get(field).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn keep(&self, rows: &mut [u64; WORDS], class: u16) {
        if let Some(class) = S_CLASSES.get(self.generation * MAX_CLASSES as u32 + u32::from(class))
        {
            for (row, of) in rows.iter_mut().zip(class) {
                *row &= of;
            }
        }
    }
}

/// Does what the rules say that do not decide; which action decides.
#[inline(never)]
fn walk(ctx: *mut xdp_md, filtering: &mut Filtering) -> u32 {
    const COUNT: u32 = Action::Count as u32;
    const MIRROR: u32 = Action::Mirror as u32;
    let len = packet::whole_len(ctx).wrapping_sub(IP);
    let mut from = 0;
    for _ in 0..=MAX_NOTING {
        let number = next(filtering, from);
        if number >= MAX_ROWS as u32 {
            break;
        }
        let Some(row) = S_ROWS.get(filtering.generation * MAX_ROWS as u32 + number) else {
            break;
        };
        count(row.slot, len);
        match row.action {
            COUNT => {}
            MIRROR => {
                copy(ctx, filtering, row);
            }
            action => {
                filtering.target = row.target;
                return action;
            }
        }
        from = row.end;
    }
    Action::Accept as u32
}

#[inline(never)]
fn next(filtering: &Filtering, from: u32) -> u32 {
    first(&filtering.rows, from)
}

/// Copies what is inside for a mirror.
#[inline(never)]
fn copy(ctx: *mut xdp_md, filtering: &Filtering, row: &Row) -> u32 {
    let Some(copy) = S_COPY.get_ptr_mut(0) else {
        return 0;
    };
    let [at, len] = filtering.facts.inside;
    let is_v4 = filtering.facts.is_v4();
    let ethertype = match is_v4 {
        true => ethernet::ETHERTYPE_IPV4,
        false => ethernet::ETHERTYPE_IPV6,
    };
    let at = IP + usize::from(at);
    let len = opaque(usize::from(len));
    if len == 0 || len > COPY_PACKET {
        note(Reason::MirrorFull);
        return 0;
    }
    // SAFETY: the pointer is to this CPU's element, of which the helper writes no more than its length; the context is of the running
    // program.
    let is_copied = unsafe {
        (&raw mut (*copy).head).write(Copied {
            ifindex: row.target,
            mac: row.mac,
            ethertype: ethertype.to_be_bytes(),
        });
        let packet = (&raw mut (*copy).packet).cast();
        helpers::bpf_xdp_load_bytes(ctx, at as u32, packet, len as u32) == 0 && {
            let bytes = core::slice::from_raw_parts(copy.cast::<u8>(), size_of::<Copied>() + len);
            S_COPIES.output::<[u8]>(bytes, 0).is_ok()
        }
    };
    if !is_copied {
        note(Reason::MirrorFull);
    }
    0
}
