//! Two gateways that find each other: over the daemons, control services and routers of a simulated SCION network, with
//! the configuration files of the reference. Needs root.

mod bed;
mod failover;
mod flows;
mod hostile;
mod outages;
mod protection;
mod reload;
mod restart;
mod status;
mod tunnel;
