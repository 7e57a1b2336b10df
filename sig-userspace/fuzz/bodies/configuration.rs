//! Any text as a configuration: either it is refused with problems that point into the file, or
//! what comes out keeps every promise that the gateway relies on.
//!
//! A NUL byte ends the text; what follows is what every path file holds.

use sig::config::{Config, Pin, Problem, check};

/// Takes `data` for a configuration and a path file.
///
/// # Panics
/// If the check breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let (text, file) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let text = String::from_utf8_lossy(text);
    let checked = check(&text, "fuzz.toml", &|_| Ok(file.to_vec()));
    assert_eq!(
        checked,
        check(&text, "fuzz.toml", &|_| Ok(file.to_vec())),
        "the same text, the same result"
    );
    match &checked {
        Ok(config) => {
            assert_problems(config.warnings(), &text);
            assert_usable(config);
        }
        Err(errors) => {
            assert!(!errors.problems().is_empty());
            assert_problems(errors.problems(), &text);
        }
    }
}

fn assert_problems(problems: &[Problem], text: &str) {
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    assert!(problems.is_sorted_by_key(|problem| problem.line));
    for problem in problems {
        assert!((1..=lines).contains(&problem.line), "{problem}");
        let shown = problem.to_string();
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.len() < 1_000, "{shown}");
    }
}

fn assert_usable(config: &Config) {
    let local = config.gateway.data_addr;
    assert!(local.port() != 0);
    // A gateway that asks the daemon finds its address out.
    assert!(config.control.is_some() || !local.ip().is_unspecified());
    let own = &config.gateway.prefixes;
    let theirs = config.remotes.iter().flat_map(|remote| &remote.prefixes);
    for prefix in own.iter().chain(theirs.clone()) {
        assert_eq!(prefix.trunc(), *prefix);
    }
    for prefix in theirs {
        assert!(!own.contains(prefix));
        assert!(prefix.prefix_len() == 0 || !prefix.contains(&local.ip()));
    }
    let dataplane = &config.dataplane;
    assert!(dataplane.ring_size.is_power_of_two() && dataplane.workers > 0);
    if let Pin::Cpus(cpus) = &dataplane.pin {
        assert_eq!(cpus.len(), usize::from(dataplane.workers));
    }
    let names = dataplane.underlay.iter().chain(&dataplane.lan);
    for name in names.chain([&config.tunnel.name]) {
        assert!((1..=15).contains(&name.len()));
    }
    for remote in &config.remotes {
        assert!(!remote.paths.is_empty());
        for path in &remote.paths {
            assert!(remote.frame_len(local.ip(), path) >= 57);
            assert_eq!(path.next_hop.is_ipv4(), local.is_ipv4());
            assert!(path.next_hop.port() != 0 && path.source_port != 0);
            assert!(!path.raw.is_empty() || remote.isd_as == config.gateway.isd_as);
        }
    }
}
