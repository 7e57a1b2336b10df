//! A browser without a window, in a network namespace, told what to do over the DevTools protocol.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testbed::Netns;

/// It does nothing but what it is told, and asks nobody anything.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "about:blank",
];

/// The browser reads what it is told from descriptor 3, and answers at 4.
const START: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    profile: PathBuf,
    calls: u64,
    /// Of the page.
    session: Option<String>,
    /// Answers to requests of the page that do not come from the server.
    replaced: Option<Replaced>,
    complaints: Vec<String>,
}

/// Makes the answers to requests for this place.
struct Replaced {
    place: &'static str,
    make: Box<dyn FnMut() -> String>,
}

impl Browser {
    /// Starts one in `netns`; its files are in `folder`, under `name`.
    pub(super) fn start(netns: &Netns, folder: &Path, name: &str) -> Result<Self> {
        let profile = folder.join(format!("{name}-profile"));
        let log = File::create(folder.join(format!("{name}-browser.log")))?;
        let mut child = netns
            .command("sh")
            .args(["-c", START, "sh", "chromium"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(ARGUMENTS)
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("the browser does not start")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("pipes to the browser")?;
        let mut browser = Self {
            child,
            input,
            output: BufReader::new(output),
            profile,
            calls: 0,
            session: None,
            replaced: None,
            complaints: Vec::new(),
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Opens an address.
    pub(super) fn open(&mut self, url: &str) -> Result<()> {
        let answer = self.call("Page.navigate", json!({ "url": url }))?;
        if let Some(error) = answer["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        self.wait_for("document.readyState === 'complete'")
    }

    /// Shows this text as a page.
    pub(super) fn write(&mut self, html: &str) -> Result<()> {
        let tree = self.call("Page.getFrameTree", json!({}))?;
        let frame = &tree["frameTree"]["frame"]["id"];
        self.call(
            "Page.setDocumentContent",
            json!({ "frameId": frame, "html": html }),
        )
        .map(drop)
    }

    /// From now on, requests for what ends with `place` get what `make` makes, in JSON.
    pub(super) fn replace(
        &mut self,
        place: &'static str,
        make: impl FnMut() -> String + 'static,
    ) -> Result<()> {
        self.replaced = Some(Replaced {
            place,
            make: Box::new(make),
        });
        let patterns = json!([{ "urlPattern": format!("*{place}") }]);
        self.call("Fetch.enable", json!({ "patterns": patterns }))
            .map(drop)
    }

    /// Size of the window, and whether colours are dark.
    pub(super) fn look(&mut self, width: u32, height: u32, is_dark: bool) -> Result<()> {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        )?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        )
        .map(drop)
    }

    /// What a piece of script says.
    pub(super) fn ask(&mut self, script: &str) -> Result<Value> {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": script, "returnByValue": true, "awaitPromise": true }),
        )?;
        if answer.get("exceptionDetails").is_some() {
            bail!("{script}: {}", answer["exceptionDetails"]);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until a piece of script is true.
    pub(super) fn wait_for(&mut self, script: &str) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let start = Instant::now();
        while self.ask(script)? != Value::Bool(true) {
            if start.elapsed() > PATIENCE {
                let text = self.ask("document.body.innerText")?;
                bail!("`{script}` does not become true on this page:\n{text}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Presses a key.
    pub(super) fn press(&mut self, key: &str) -> Result<()> {
        let text = if key == "Enter" { "\r" } else { "" };
        let down = json!({ "type": "keyDown", "key": key, "code": key, "text": text });
        self.call("Input.dispatchKeyEvent", down)?;
        let up = json!({ "type": "keyUp", "key": key, "code": key });
        self.call("Input.dispatchKeyEvent", up).map(drop)
    }

    /// Takes a picture of the page from its top, at most `height` pixels of it.
    pub(super) fn picture(&mut self, file: &Path, height: f64) -> Result<()> {
        let layout = self.call("Page.getLayoutMetrics", json!({}))?;
        let size = &layout["cssContentSize"];
        let whole = size["height"].as_f64().unwrap_or(height);
        let clip = json!({
            "x": 0, "y": 0, "width": size["width"], "height": whole.min(height), "scale": 1,
        });
        let answer = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "clip": clip, "captureBeyondViewport": true, "optimizeForSpeed": false }),
        )?;
        let picture = answer["data"].as_str().context("a picture")?;
        fs::write(file, STANDARD.decode(picture)?).with_context(|| file.display().to_string())
    }

    /// Errors of scripts and whatever else the page made the browser complain of.
    pub(super) fn complaints(&mut self) -> Result<Vec<String>> {
        // An answer comes after all that happened before.
        self.call("Runtime.evaluate", json!({ "expression": "0" }))?;
        Ok(std::mem::take(&mut self.complaints))
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let id = self.send(method, parameters)?;
        loop {
            let mut message = Vec::new();
            self.output.read_until(0, &mut message)?;
            if message.pop() != Some(0) {
                bail!("the browser has ended");
            }
            let message: Value = serde_json::from_slice(&message)?;
            if message["id"] == json!(id) {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].clone());
            }
            self.hear(&message)?;
        }
    }

    fn send(&mut self, method: &str, parameters: Value) -> Result<u64> {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut text = call.to_string().into_bytes();
        text.push(0);
        self.input.write_all(&text)?;
        Ok(self.calls)
    }

    fn hear(&mut self, message: &Value) -> Result<()> {
        let told = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(told["exceptionDetails"].to_string());
            }
            Some("Runtime.consoleAPICalled") if told["type"] != "log" => {
                self.complaints.push(told["args"].to_string());
            }
            Some("Log.entryAdded") => self.complaints.push(told["entry"].to_string()),
            Some("Fetch.requestPaused") => {
                let request = &told["requestId"];
                let url = told["request"]["url"].as_str().unwrap_or_default();
                match &mut self.replaced {
                    Some(replaced) if url.ends_with(replaced.place) => {
                        let body = STANDARD.encode((replaced.make)());
                        self.send(
                            "Fetch.fulfillRequest",
                            json!({ "requestId": request, "responseCode": 200, "body": body }),
                        )?;
                    }
                    _ => {
                        self.send("Fetch.continueRequest", json!({ "requestId": request }))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when nobody can tell it anything any more; at the latest now.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
