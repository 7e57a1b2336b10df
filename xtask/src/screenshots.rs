//! `cargo xtask screenshots`: pictures of the documentation, of a network under load.
//!
//! Beside that it is the test of the live page in a real browser: an error of a script, something that the page's own policy
//! forbids, an empty table, a page wider than its window or text that is read as HTML make it fail.

mod browser;
mod document;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use testbed::{
    Family, Netns, Network, Options,
    iperf::{self, Protocol},
};

use crate::{demo, setup, shell};
use browser::Browser;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use this program, instead of building it
    #[arg(long, value_name = "FILE")]
    sig: Option<PathBuf>,
    /// Put the pictures into this folder
    #[arg(long, value_name = "FOLDER", default_value = "docs/images")]
    folder: PathBuf,
    /// Seconds of traffic before the pictures are taken
    #[arg(long, value_name = "N", default_value_t = 125, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
}

/// Where gateways and routers serve their pages.
const PAGES: &str = "127.0.0.1:30456";

/// Where their live page is.
const LIVE: &str = "http://127.0.0.1:30456/ui";

/// Largest picture, in bytes.
const LARGEST: u64 = 150_000;

/// Where the font of the pictures is, and the Debian package that has it.
const FONT: [&str; 2] = ["/usr/share/fonts/truetype/liberation", "fonts-liberation"];

/// A page that shows everything has come.
const IS_LIVE: &str = "document.querySelector('#live.good') !== null \
    && !document.querySelector('.tiles .main').textContent.startsWith('–')";

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !shell::is_root() {
        bail!("network namespaces need root");
    }
    if !setup::has("chromium") || !Path::new(FONT[0]).exists() {
        println!("installing chromium and {}", FONT[1]);
        setup::update_lists()?;
        setup::install(&mut setup::apt_get(), &["chromium", FONT[1]])?;
    }
    let binary = match &arguments.sig {
        Some(file) => fs::canonicalize(file).with_context(|| file.display().to_string())?,
        None => demo::build()?,
    };
    let folder = shell::root().join(&arguments.folder);
    fs::create_dir_all(&folder)?;
    testbed::sweep();
    let limit = Duration::from_secs(arguments.seconds + 300);
    let _limit = testbed::time_limit("the task", limit);

    let options = Options {
        pages: PAGES,
        ..Options::default()
    };
    let mut network = Network::build(&binary, &options)?;
    network.start_gateways()?;
    let done = AtomicBool::new(false);
    let pictures = thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(&network, &done));
        let pictures = pictures(&network, &binary, &folder, arguments.seconds);
        done.store(true, Ordering::Relaxed);
        let traffic = traffic.join();
        let pictures = pictures?;
        traffic.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok::<_, anyhow::Error>(pictures)
    })?;
    network.a.stop_gateway()?;
    network.b.stop_gateway()?;
    for picture in &pictures {
        let size = fs::metadata(picture)?.len();
        println!("{} ({:.0} kB)", picture.display(), size as f64 / 1e3);
        ensure!(size < LARGEST, "{} is too large", picture.display());
    }
    Ok(())
}

/// Something to see: datagrams at changing rates one way or both, and packets that are dropped.
fn traffic(network: &Network, done: &AtomicBool) -> Result<()> {
    const RATES: [u64; 6] = [40, 90, 60, 130, 100, 70];
    /// No address of a site.
    const STRANGER: &str = "192.0.2.7";
    let (from, to) = (&network.a.client, network.b.client_ip(Family::V4));
    let log = network.folder().join("iperf3.log");
    let _server = iperf::serve(&network.b.client, &log)?;
    let client = network.a.client_ip(Family::V4);
    network
        .b
        .client
        .ip(&format!("address add {STRANGER}/32 dev lo"))?;
    for (round, rate) in RATES.into_iter().cycle().enumerate() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        if round % 3 == 0 {
            // Nothing answers: it fails.
            let ping = format!("ping -q -c 20 -i 0.1 -W 1 -I {STRANGER} {client}");
            let _ = network.b.client.exec(&ping);
        }
        let udp = Protocol::Udp {
            size: 1000,
            rate: rate * 1_000_000,
        };
        if round % 2 == 0 {
            iperf::measure(from, to, udp, iperf::Direction::Forward, 9)?;
        } else {
            iperf::measure_both(from, to, udp, 9)?;
        }
    }
    Ok(())
}

/// Looks at everything; returns the pictures.
fn pictures(network: &Network, binary: &Path, folder: &Path, seconds: u64) -> Result<Vec<PathBuf>> {
    let start = |netns: &Netns, name| Browser::start(netns, network.folder(), name);
    let mut pages = [
        (start(&network.a.gateway, "gateway")?, "gateway"),
        (start(network.a.router_host(), "router")?, "router"),
    ];
    for (browser, _) in &mut pages {
        browser.look(1280, 900, false)?;
        browser.open(LIVE)?;
    }
    let begun = Instant::now();
    let mut taken = Vec::new();
    for (browser, name) in &mut pages {
        browser.wait_for(IS_LIVE)?;
        works(browser).with_context(|| format!("page of the {name}"))?;
    }
    thread::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed()));
    for (browser, name) in &mut pages {
        for (kind, width, is_dark) in [
            ("light", 1280, false),
            ("dark", 1280, true),
            ("narrow", 400, false),
        ] {
            browser.look(width, 900, is_dark)?;
            fits(browser).with_context(|| format!("page of the {name}, {width} pixels wide"))?;
            let file = folder.join(format!("{name}-{kind}.png"));
            browser.picture(&file, 940.0)?;
            taken.push(file);
        }
        is_content(browser).with_context(|| format!("page of the {name}"))?;
    }
    let [(mut browser, _), _] = pages;
    strange(&mut browser).context("page with a made document")?;
    is_content(&mut browser).context("page with a made document")?;
    taken.push(terminal(&mut browser, network, binary, folder)?);
    Ok(taken)
}

/// The browser has nothing to complain of.
fn is_content(browser: &mut Browser) -> Result<()> {
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// The page is not wider than its window.
fn fits(browser: &mut Browser) -> Result<()> {
    let wide = browser.ask("document.documentElement.scrollWidth - innerWidth")?;
    ensure!(
        wide.as_i64().is_some_and(|wide| wide <= 0),
        "the page is {wide} pixels too wide"
    );
    Ok(())
}

/// What there is to do works with the keyboard alone.
fn works(browser: &mut Browser) -> Result<()> {
    let focus = |browser: &mut Browser, what: &str| {
        browser.ask(&format!("document.querySelector({what:?}).focus()"))
    };
    focus(browser, "#pause")?;
    browser.press("Enter")?;
    browser.wait_for("document.querySelector('#live').textContent === 'paused'")?;
    browser.press("Enter")?;
    browser.wait_for(IS_LIVE)?;
    focus(browser, "main thead button")?;
    browser.press("Enter")?;
    browser.wait_for("document.querySelector('main th[aria-sort=ascending]') !== null")?;
    browser.ask("document.activeElement.blur()")?;
    is_content(browser)
}

/// The page with a document that has everything in it, and with names that would like to be HTML.
fn strange(browser: &mut Browser) -> Result<()> {
    browser.look(1280, 900, false)?;
    browser.replace("/status.json", document::feed(document::full()?))?;
    browser.open(LIVE)?;
    browser.wait_for(IS_LIVE)?;
    let text = browser.ask("document.body.innerText")?;
    let text = text.as_str().unwrap_or_default();
    for expected in document::EXPECTED {
        ensure!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    ensure!(
        !text.contains("undefined"),
        "something is missing in\n{text}"
    );
    ensure!(!text.contains("NaN"), "no number in\n{text}");
    fits(browser)?;
    let made = browser.ask("document.querySelectorAll('img, iframe, main script').length")?;
    ensure!(made == 0, "a name has been read as HTML");
    Ok(())
}

/// A picture of what a command prints.
fn terminal(
    browser: &mut Browser,
    network: &Network,
    binary: &Path,
    folder: &Path,
) -> Result<PathBuf> {
    let command = "top";
    let printed = shell::capture(
        Command::new(binary)
            .args([command, "--once", "--config"])
            .arg(network.a.config_file()),
    )?;
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    browser.look(760, 100, true)?;
    browser.open("about:blank")?;
    browser.write(&format!(
        "<!DOCTYPE html><style>body {{ margin: 0; background: #14181d; color: #d8dee6 }} \
         pre {{ margin: 0; padding: 16px 20px; font: 13px/1.4 'Liberation Mono', monospace }}</style>\
         <pre><b>$ sig {command}</b>\n{}</pre>",
        escape(&printed)
    ))?;
    let file = folder.join("top.png");
    browser.picture(&file, 800.0)?;
    Ok(file)
}
