//! A gateway of `[[remote]]` sections that protects its frames under keys that both ends know beforehand: for measurements, since what
//! the real ones need, daemons and control services, is not there. Never to be used otherwise: after a restart, nothing is
//! protected.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use sig::{
    config,
    internals::{host::Host, plan::Plan},
};
use sig_core::protection::Keyring;

fn main() -> Result<()> {
    let file = std::env::args_os().next_back().map(PathBuf::from);
    let config = config::load(&file.context("usage: sig-with-key run --config FILE")?)?;
    let plan = protected(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let host = Host::start(config).await?;
        host.handle().apply(plan).await?;
        host.ready().await;
        println!("gateway is ready");
        println!("the gateway has failed: {}", host.failed().await);
        Ok(())
    })
}

/// The plan of the configuration, with a key for each direction.
fn protected(config: &config::Config) -> Result<Plan> {
    let mut plan = Plan::from_config(config);
    let workers = config.dataplane.workers.into();
    for gateway in &mut plan.gateways {
        let seed = |from: config::IsdAs| from.0;
        let (send, _) = sig_rpc::unagreed_key_of(seed(config.gateway.isd_as), workers)?;
        let (_, receive) = sig_rpc::unagreed_key_of(seed(gateway.isd_as), workers)?;
        let keyring = Keyring::default();
        keyring.set_send(Some(Arc::new(send)));
        keyring.set_receive(vec![Arc::new(receive)]);
        (gateway.keyring, gateway.is_strict) = (Some(Arc::new(keyring)), true);
    }
    for session in &mut plan.sessions {
        let gateway = plan.gateways.get(session.gateway);
        session.keyring = gateway.and_then(|gateway| gateway.keyring.clone());
    }
    Ok(plan)
}
