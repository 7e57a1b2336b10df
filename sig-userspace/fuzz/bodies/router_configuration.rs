//! Any texts as the files of a border router: either they are refused with problems that name a file, or what comes out
//! keeps every promise that fast and slow path rely on.
//!
//! A NUL byte ends the own file, another one the topology; what follows is the key.

use std::{collections::HashSet, io, path::Path};

use sig_core::problem::Problem;
use sig_router::{AsModel, Owner, config::check, model::LinkType};

/// Takes `data` for the files.
///
/// # Panics
/// If the check breaks a promise.
pub(crate) fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (own, topology, key) = (String::from_utf8_lossy(part()), part(), part());
    let read = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("topology.json") => Ok(topology.to_vec()),
        Some("master0.key") => Ok(key.to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    match check(&own, "fuzz.toml", &Path::to_path_buf, &read) {
        Ok((settings, warnings)) => {
            assert_problems(&warnings);
            assert!(settings.slow_path || settings.xdp.mode.is_some());
            assert_usable(&settings.model);
        }
        Err(errors) => {
            assert!(!errors.problems().is_empty());
            assert_problems(errors.problems());
        }
    }
}

fn assert_problems(problems: &[Problem]) {
    for problem in problems {
        assert!(problem.line > 0 && !problem.file.is_empty());
        assert!(problem.message.len() < 1_000, "{problem}");
        assert!(!problem.message.contains(char::is_control), "{problem:?}");
        assert!(!problem.key.contains(char::is_control), "{problem:?}");
    }
}

fn assert_usable(model: &AsModel) {
    let mut addresses = HashSet::from([model.internal]);
    for sibling in &model.siblings {
        assert!(addresses.insert(sibling.internal) && sibling.name != model.router);
    }
    for (number, interface) in &model.interfaces {
        assert!(*number > 0 && interface.neighbour != model.isd_as);
        let refused = if model.core {
            LinkType::Parent
        } else {
            LinkType::Core
        };
        assert!(interface.link_type != refused && interface.mtu > 0);
        match interface.owner {
            Owner::Here { local, remote } => {
                assert!(addresses.insert(local) && local != remote);
                assert_eq!(local.is_ipv4(), remote.is_ipv4());
            }
            Owner::Sibling(place) => assert!(place < model.siblings.len()),
        }
    }
    for address in addresses {
        assert!(address.port() > 0 && !address.ip().is_unspecified());
    }
    if let Some(ports) = &model.ports {
        assert!(*ports.start() > 0 && !ports.is_empty());
    }
}
