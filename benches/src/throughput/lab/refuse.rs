//! What cannot be measured, known before anything is set up.

use super::{router, srv6};
use crate::throughput::{
    experiment::{Case, Mix, Size},
    subject::{Refusal, Subject},
};

/// Largest IP packet of the lab's links.
pub(super) const MTU: u16 = 1500;

/// Largest packet of a case.
pub(super) fn longest(size: Size) -> u16 {
    match size {
        Size::Fixed(length) => length,
        Size::Mix(Mix::Imix) => MTU,
    }
}

/// Complains about combinations that make no sense here, beyond what no experiment file may say.
pub(super) fn check(subject: Subject, case: &Case) -> Result<(), Refusal> {
    let not_here = |reason: String| Err(Refusal::NotHere(reason));
    if subject.is_router() {
        let room = router::shortest(case.family);
        match case.size {
            Size::Fixed(length) if length >= room => {}
            Size::Fixed(_) => {
                return not_here(format!("packets for routers have at least {room} bytes"));
            }
            Size::Mix(_) => {
                return not_here("packets for routers are generated in one length".into());
            }
        }
    }
    if subject.is_fast_path() && case.packed {
        return not_here("the fast path has one packet in each frame".into());
    }
    if subject.has_behaviors() {
        srv6::check(subject, case)?;
    }
    let allowed = allowed_cpus();
    for cpu in [case.cpus.tester, case.cpus.device] {
        if !allowed.contains(&cpu) {
            return not_here(format!("CPU {cpu} is not there, or not ours to use"));
        }
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return not_here("network namespaces need root".into());
    }
    Ok(())
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Vec<u16> {
    // SAFETY: a zeroed cpu_set_t is the empty set, large enough for the size given; CPU_ISSET checks
    // its bound.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as u16)
            .filter(|cpu| libc::CPU_ISSET((*cpu).into(), &set))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_path_packs_nothing() {
        let case = Case {
            packed: true,
            ..Case::of(100)
        };
        match check(Subject::DecapsulateFast, &case) {
            Err(Refusal::NotHere(reason)) => assert!(reason.contains("one packet"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn packets_for_routers_need_room_for_headers_and_marker() {
        let case = |size| Case {
            size,
            ..Case::of(100)
        };
        for (size, expected) in [
            (Size::Fixed(123), "124 bytes"),
            (Size::Mix(Mix::Imix), "one length"),
        ] {
            match check(Subject::Router, &case(size)) {
                Err(Refusal::NotHere(reason)) => assert!(reason.contains(expected), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
