//! What a running router shows over HTTP, at the paths of the reference.

use std::sync::Arc;

use serde::Serialize;
use sig_common::router::Reason;
use sig_core::{document::common::Listen, notation::show_duration};
use sig_observe::{
    http::{JSON, PLAIN, Server, Text, openapi, ui},
    metrics::CONTENT_TYPE,
    pages::{info, log_level, pretty},
    process::Process,
};

use super::{Running, report};
use crate::{AsModel, Bfd, Owner, metrics, remedy, status::Status};

/// What the API has beside that of every service.
const OPENAPI: &str = include_str!("openapi.json");

/// The server of metrics and status pages.
pub(super) async fn status(running: &Arc<Running>, listen: Listen) -> Result<Server, String> {
    let pages = vec![
        page(running, "/metrics", METRICS, CONTENT_TYPE, |running| {
            metrics::render(&running.status(), &Process::read())
        }),
        page(running, "/status", "the status document", JSON, document),
        page(running, ui::STATUS, LIVE, JSON, document),
        page(running, ui::REASONS, REASONS, JSON, |_| {
            let drops = Reason::ALL
                .map(|reason| (reason.name(), reason.describe(), remedy::remedy(reason)));
            ui::reasons([("drops", drops.into())])
        }),
        page(running, "/info", INFO, PLAIN, show_info),
        page(running, "/config", CONFIG, PLAIN, show_config),
        page(
            running,
            "/topology",
            "topology file as it was last read",
            JSON,
            |running| running.parts().settings.texts.topology.clone(),
        ),
        log_level_page(running, "/log/level"),
    ];
    let id = running.parts().model.router.clone();
    let server = Server::texts("[metrics] prometheus", listen, &id, pages).await;
    server.map_err(|error| error.to_string())
}

/// The server of the management API.
pub(super) async fn api(running: &Arc<Running>, listen: Listen) -> Result<Server, String> {
    let pages = vec![
        page(running, "/api/v1/info", INFO, PLAIN, show_info),
        page(running, "/api/v1/config", CONFIG, PLAIN, show_config),
        log_level_page(running, "/api/v1/log/level"),
        page(running, "/api/v1/interfaces", LINKS, JSON, |running| {
            let parts = running.parts();
            pretty(&Interfaces::new(
                &parts.model,
                &report::status(running, &parts),
            ))
        }),
    ];
    let title = "Management API of the SCION border router";
    let server = Server::api("[api] addr", listen, title, openapi(OPENAPI), pages).await;
    server.map_err(|error| error.to_string())
}

const METRICS: &str = "metrics for Prometheus";
const LIVE: &str = "the status document, for the live page";
const REASONS: &str = "what drop reasons mean";
const INFO: &str = "version and process";
const CONFIG: &str = "configuration file as it was last read";
const LINKS: &str = "links of this router and of its siblings";

fn page(
    running: &Arc<Running>,
    path: &'static str,
    about: &'static str,
    content_type: &'static str,
    text: impl Fn(&Running) -> String + Send + Sync + 'static,
) -> Text {
    let running = running.clone();
    Text {
        path,
        about,
        content_type,
        text: Arc::new(move || text(&running)),
        set_level: None,
    }
}

fn log_level_page(running: &Arc<Running>, path: &'static str) -> Text {
    let told = running.clone();
    Text {
        set_level: Some(Arc::new(move |level| told.log.set(level))),
        ..page(
            running,
            path,
            "logging level (supports PUT)",
            JSON,
            |running| log_level(running.log.level()),
        )
    }
}

fn document(running: &Running) -> String {
    // Nothing in a status can fail to be written.
    serde_json::to_string(&running.status()).unwrap_or_default()
}

fn show_info(_: &Running) -> String {
    info(env!("CARGO_PKG_VERSION"), &Process::read())
}

fn show_config(running: &Running) -> String {
    running.parts().settings.texts.own.clone()
}

/// `/api/v1/interfaces`, in the reference's shape.
#[derive(Default, Serialize)]
struct Interfaces {
    /// Links of this router.
    interfaces: Vec<Link>,
    /// Links of the other routers of the AS.
    sibling_interfaces: Vec<Link>,
}

/// A link; of a sibling's, neither BFD nor the address of the neighbour is told.
#[derive(Serialize)]
struct Link {
    #[serde(skip_serializing_if = "Option::is_none")]
    bfd: Option<LinkBfd>,
    interface_id: u16,
    /// Internal address of the router that has it.
    internal_interface: String,
    neighbor: Neighbour,
    relationship: &'static str,
    /// Largest SCION packet, bytes.
    scion_mtu: u16,
    /// `up` or `down`; of a sibling's, whether the sibling is reachable.
    state: &'static str,
}

/// Times with a unit, such as `200ms`.
#[derive(Serialize)]
struct LinkBfd {
    desired_minimum_tx_interval: String,
    detection_multiplier: u8,
    enabled: bool,
    required_minimum_receive: String,
}

#[derive(Serialize)]
struct Neighbour {
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    isd_as: String,
}

impl Interfaces {
    fn new(model: &AsModel, status: &Status) -> Self {
        let mut all = Interfaces::default();
        for (number, interface) in &model.interfaces {
            let (links, bfd, address, internal, is_up) = match interface.owner {
                Owner::Here { remote, .. } => {
                    let mut known = status.interfaces.iter();
                    (
                        &mut all.interfaces,
                        Some(LinkBfd::new(&interface.bfd)),
                        Some(remote.to_string()),
                        Some(model.internal),
                        known.any(|known| known.interface == *number && known.up),
                    )
                }
                Owner::Sibling(place) => {
                    let sibling = status.siblings.get(place);
                    (
                        &mut all.sibling_interfaces,
                        None,
                        None,
                        sibling.map(|sibling| sibling.internal),
                        sibling.is_some_and(|sibling| sibling.up),
                    )
                }
            };
            links.push(Link {
                bfd,
                interface_id: *number,
                internal_interface: internal.map(|at| at.to_string()).unwrap_or_default(),
                neighbor: Neighbour {
                    address,
                    isd_as: interface.neighbour.to_string(),
                },
                relationship: interface.link_type.name(),
                scion_mtu: interface.mtu,
                state: if is_up { "up" } else { "down" },
            });
        }
        all
    }
}

impl LinkBfd {
    fn new(bfd: &Bfd) -> Self {
        LinkBfd {
            desired_minimum_tx_interval: show_duration(bfd.desired_min_tx),
            detection_multiplier: bfd.detect_mult,
            enabled: !bfd.disabled,
            required_minimum_receive: show_duration(bfd.required_min_rx),
        }
    }
}
