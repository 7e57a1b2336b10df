//! The generator: run over live frames (`BPF_PROG_TEST_RUN`), it fills each from a template and sends it.

use aya_ebpf::{
    bindings::{
        xdp_action::{XDP_ABORTED, XDP_DROP},
        xdp_md,
    },
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_xdp_adjust_tail, bpf_xdp_get_buff_len, bpf_xdp_store_bytes},
    },
    macros::{map, xdp},
    maps::{Array, DevMap},
    programs::XdpContext,
};
use sig_common::wire::Store;

use crate::layout::{MAX_FRAME, MAX_TEMPLATES, Progress, Setup, Template, patch};

/// What to do.
#[map]
static SETUP: Array<Setup> = Array::with_max_entries(1, 0);

/// How far it got.
#[map]
static PROGRESS: Array<Progress> = Array::with_max_entries(1, 0);

/// The frames that take turns.
#[map]
static TEMPLATES: Array<Template> = Array::with_max_entries(MAX_TEMPLATES, 0);

/// The device to send through.
#[map]
static GENERATE_TO: DevMap = DevMap::with_max_entries(1, 0);

/// Sends the next frame if it is due. A dropped frame only means that its page is used again.
///
/// Every header is written each time: pages are recycled with whatever their receivers wrote.
#[xdp]
pub fn generate(ctx: XdpContext) -> u32 {
    next(&ctx).unwrap_or(XDP_ABORTED)
}

#[inline(always)]
fn next(ctx: &XdpContext) -> Option<u32> {
    let setup = SETUP.get(0)?;
    // SAFETY: the element lives as long as the program, which only one thread runs. User space writes
    // it while the program does not run.
    let progress = unsafe { &mut *PROGRESS.get_ptr_mut(0)? };
    let template = TEMPLATES.get(progress.template)?;
    // SAFETY: takes no pointer.
    let now = unsafe { bpf_ktime_get_ns() };
    if !setup.take_turn(progress, now, template.packets.into()) {
        return Some(XDP_DROP);
    }
    // SAFETY: the context is the one this program was called with. The helper, because the verifier
    // forbids arithmetic with the difference of two pointers.
    let surplus = unsafe { bpf_xdp_get_buff_len(ctx.ctx) } as i32 - template.len as i32;
    if surplus != 0 {
        // SAFETY: as above.
        unsafe { bpf_xdp_adjust_tail(ctx.ctx, -surplus) };
    }
    let written = template.written;
    if written == 0 || written > MAX_FRAME as u32 {
        return None;
    }
    // SAFETY: the buffer has MAX_FRAME bytes, and the helper checks the frame's bounds.
    let failed = unsafe {
        bpf_xdp_store_bytes(
            ctx.ctx,
            0,
            template.bytes.as_ptr().cast_mut().cast(),
            written,
        )
    };
    if failed != 0 {
        return None;
    }
    patch(&mut Frame(ctx.ctx), template, setup, progress, now)?;
    progress.step(setup);
    GENERATE_TO.redirect(0, 0).ok()
}

/// Writes by the helper: LLVM turns comparisons in a loop into what the verifier forbids.
struct Frame(*mut xdp_md);

impl Store for Frame {
    #[inline(always)]
    fn store<const N: usize>(&mut self, offset: usize, mut bytes: [u8; N]) -> Option<()> {
        let buffer = bytes.as_mut_ptr().cast();
        // SAFETY: the context is that of the running program, and the buffer has N bytes.
        let failed = unsafe { bpf_xdp_store_bytes(self.0, offset as u32, buffer, N as u32) };
        (failed == 0).then_some(())
    }
}
