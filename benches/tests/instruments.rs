//! Instruments on real devices: namespaces and veths of their own, root only.

use anyhow::Result;
use benches::throughput::instrument::programs;
use testbed::Netns;

/// Whether this test can run; says so if not.
fn root_or_skip() -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("left out: needs root for network namespaces");
    }
    root
}

#[test]
fn every_forwarder_is_accepted_by_the_verifier_and_attaches() -> Result<()> {
    if !root_or_skip() {
        return Ok(());
    }
    let netns = Netns::new("forward")?;
    netns.ip("link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up")?;
    assert!(
        programs::drop(&netns, "v2").is_err(),
        "there is no device v2"
    );
    for attached in [
        programs::drop(&netns, "v0")?,
        programs::redirect(&netns, "v1", "v0", Some(100))?,
        programs::tc_redirect(&netns, "v0", "v1")?,
    ] {
        attached.seen()?;
    }
    programs::to_socket(&netns, "v0")?.seen()?;
    Ok(())
}
