//! `sig reload`: has a running gateway read its files again.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::Failure;
use super::socket::{Choice, Kind, ask, expect};

/// Files are read, names resolved, routes and tables changed within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a gateway may take us for a client that wants the status, because we were slow.
const ATTEMPTS: u32 = 5;

/// Make a running gateway reload its configuration and policy files, and show what changed.
///
/// What did not change keeps running. If a file has errors, they are shown, nothing changes, and the exit
/// code is 1.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    gateway: Choice,
    /// Print the changes as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    show(&args.gateway.socket()?, Kind::Gateway, args.json, out)
}

/// Makes the process at `socket` reload, and prints its answer.
pub(super) fn show(
    socket: &Path,
    kind: Kind,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    expect(socket, kind, "reload").map_err(Failure::Failed)?;
    let text = reload(socket, kind).map_err(Failure::Failed)?;
    if json {
        let changes: Vec<&str> = text.lines().collect();
        writeln!(out, "{}", serde_json::json!({ "changes": changes }))?;
        return Ok(());
    }
    out.write_all(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        writeln!(out)?;
    }
    Ok(())
}

fn reload(socket: &Path, kind: Kind) -> Result<String, String> {
    for _ in 0..ATTEMPTS {
        let answer = ask(socket, "reload\n", PATIENCE, kind)?;
        let answer = String::from_utf8_lossy(&answer);
        match answer.split_once('\n') {
            Some(("ok", "")) => return Ok("nothing changed".to_owned()),
            Some(("ok", text)) => return Ok(text.to_owned()),
            Some(("error", text)) => return Err(text.trim_end().to_owned()),
            _ => {}
        }
    }
    let shown = socket.display();
    Err(format!(
        "{shown}: the gateway is too old to reload; restart it"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::super::socket::tests::Folder;
    use super::*;

    /// What `reload` makes of these answers, one per connection.
    fn after(name: &str, answers: &[&'static str]) -> Result<String, String> {
        let folder = Folder::new(name);
        let socket = folder.0.join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = answers.to_vec();
        let gateway = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                stream.read_to_string(&mut line).unwrap();
                assert_eq!(line, "reload\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let result = reload(&socket, Kind::Gateway);
        gateway.join().unwrap();
        result
    }

    #[test]
    fn what_changed_is_shown() {
        let changed = after("changed", &["ok\nremote 1-ff00:0:112: new\n"]);
        assert_eq!(changed, Ok("remote 1-ff00:0:112: new\n".to_owned()));
        assert_eq!(after("same", &["ok\n"]), Ok("nothing changed".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_a_failure() {
        let wrong = after("wrong", &["error\na.toml:1: wrong\na.toml:2: wrong\n"]);
        assert_eq!(wrong, Err("a.toml:1: wrong\na.toml:2: wrong".to_owned()));
    }

    #[test]
    fn a_gateway_that_took_us_for_silent_is_asked_again() {
        let changed = after("again", &["{\"version\":\"0.1.0\"}", "ok\nyes"]);
        assert_eq!(changed, Ok("yes".to_owned()));
        let answers = ["{\"version\":\"0.0.1\"}"; ATTEMPTS as usize];
        let error = after("older", &answers).unwrap_err();
        assert!(error.contains("too old"), "{error}");
    }
}
