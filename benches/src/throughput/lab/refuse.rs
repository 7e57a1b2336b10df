//! What cannot be measured, known before anything is set up.

use super::router;
use crate::throughput::{
    experiment::{Case, Family, Mix, Size},
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

/// Smallest packet of a case.
fn shortest(size: Size) -> u16 {
    match size {
        Size::Fixed(length) => length,
        Size::Mix(Mix::Imix) => 44,
    }
}

/// Complains about combinations that make no sense.
///
/// # Errors
///
/// Why.
pub(super) fn check(subject: Subject, case: &Case) -> Result<(), Refusal> {
    let not_here = |reason: String| Err(Refusal::NotHere(reason));
    let room = match case.family {
        family if subject.is_router() => router::shortest(family),
        Family::Ipv4 => 44,
        Family::Ipv6 => 64,
    };
    if shortest(case.size) < room {
        return not_here(format!(
            "a packet with sequence number and time has at least {room} bytes"
        ));
    }
    if subject.is_router() && !matches!(case.size, Size::Fixed(_)) {
        return not_here("packets for routers are generated in one length".into());
    }
    if longest(case.size) > MTU {
        return not_here(format!(
            "packets of more than {MTU} bytes do not fit the links"
        ));
    }
    if case.flows == 0 || case.workers == 0 {
        return not_here("without flows or workers nothing can be measured".into());
    }
    if case.workers > 1 && !subject.has_workers() {
        return not_here(format!("{subject} has no workers"));
    }
    if case.workers > 2 {
        return not_here("the lab has CPUs for one or two workers".into());
    }
    if case.cpus.tester == case.cpus.device {
        return not_here("generator and device under test need a CPU each".into());
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
    use crate::throughput::experiment::Cpus;

    fn reason(subject: Subject, case: &Case) -> String {
        match check(subject, case) {
            Err(Refusal::NotHere(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn packets_without_room_for_the_marker_are_refused() {
        let mut case = Case {
            size: Size::Fixed(60),
            family: Family::Ipv6,
            ..Case::of(100)
        };
        assert!(reason(Subject::XdpDrop, &case).contains("64"));
        case.family = Family::Ipv4;
        case.size = Size::Fixed(43);
        assert!(reason(Subject::XdpDrop, &case).contains("44"));
        case.size = Size::Fixed(1501);
        assert!(reason(Subject::XdpDrop, &case).contains("1500"));
    }

    #[test]
    fn only_those_with_workers_have_two() {
        let two = Case {
            workers: 2,
            ..Case::of(100)
        };
        assert!(reason(Subject::KernelForward, &two).contains("no workers"));
        let three = Case {
            workers: 3,
            ..Case::of(100)
        };
        assert!(reason(Subject::Encapsulate, &three).contains("one or two"));
    }

    #[test]
    fn the_tester_needs_a_cpu_of_its_own() {
        let shared = Case {
            cpus: Cpus {
                tester: 0,
                device: 0,
            },
            ..Case::of(100)
        };
        assert!(reason(Subject::XdpDrop, &shared).contains("each"));
    }
}
