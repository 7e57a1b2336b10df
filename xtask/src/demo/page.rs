//! A web page behind the tunnel.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use testbed::Netns;

/// Long enough for many packets.
const LINES: usize = 2000;

/// The page that is served.
pub(super) struct Page {
    text: String,
    port: u16,
}

/// Serves the page on this port of `netns`, for as long as this process lives.
pub(super) fn serve(netns: &Netns, port: u16) -> Result<Page> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    // The socket takes IPv4 connections as well, as the kernel has it by default.
    let listener = netns
        .run(|| TcpListener::bind(address))?
        .with_context(|| format!("port {port}"))?;
    let mut text = String::from("<!doctype html><title>sig</title><pre>\n");
    for line in 0..LINES {
        text += &format!("{line:>4} This page came through a SCION tunnel.\n");
    }
    text += "</pre>\n";
    let served = text.clone();
    thread::Builder::new().name("page".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away is its own business.
            let _ = answer(stream, &served);
        }
    })?;
    Ok(Page { text, port })
}

fn answer(mut stream: TcpStream, page: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    for line in BufReader::new(&stream).lines() {
        if line?.is_empty() {
            break;
        }
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{page}",
        page.len()
    )
}

impl Page {
    /// Fetches the page with curl, which asks for `path`, and returns its size in bytes.
    pub(super) fn fetch(&self, from: &Netns, host: IpAddr, path: &str) -> Result<usize> {
        let output = from
            .command("curl")
            .args([
                "--silent",
                "--show-error",
                "--fail",
                "--connect-timeout",
                "2",
                "--max-time",
                "10",
                "--noproxy",
                "*",
            ])
            .arg(format!("http://{}{path}", SocketAddr::new(host, self.port)))
            .output()
            .context("curl does not start")?;
        if !output.status.success() {
            bail!("curl: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        if output.stdout != self.text.as_bytes() {
            bail!(
                "curl got another page than the one served ({} bytes)",
                output.stdout.len()
            );
        }
        Ok(output.stdout.len())
    }
}
