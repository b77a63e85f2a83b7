//! Headless Chromium, controlled over a pair of pipes (the DevTools protocol), and its timings of a
//! page load.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::page::Files;
use super::servers::Protocol;

/// Maximum time for a page load.
const LOAD_MAX: Duration = Duration::from_secs(60);

/// Maximum time for a reply of the browser itself.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Returns the timings once the page was painted and all its resources have arrived.
const FIGURES: &str = "new Promise(done => {
  const look = () => {
    const entry = ({name, startTime, requestStart, responseStart, responseEnd, nextHopProtocol}) =>
      ({name, start: startTime, request: requestStart, first: responseStart, last: responseEnd,
        protocol: nextHopProtocol});
    const [page] = performance.getEntriesByType('navigation');
    const all = [page, ...performance.getEntriesByType('resource')].map(entry);
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    const here = all.filter(it => it.last > 0);
    if (paint && page.loadEventEnd > 0 && here.length >= COUNT)
      done(JSON.stringify({paint: paint.startTime, load: page.loadEventEnd, requests: here}));
    else setTimeout(look, 20);
  };
  look();
})";

/// The times of one request, in milliseconds since the start of the navigation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    /// Its URL.
    pub(crate) name: String,
    /// When the browser scheduled it.
    pub(crate) start: f64,
    /// When the request was sent.
    pub(crate) request: f64,
    /// When the first byte arrived.
    pub(crate) first: f64,
    /// When the last byte arrived.
    pub(crate) last: f64,
    /// Its protocol, by its ALPN name.
    pub(crate) protocol: String,
}

/// The times of a page load, in milliseconds since the start of the navigation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Load {
    /// First contentful paint.
    pub(crate) paint: f64,
    /// The end of the load event.
    pub(crate) load: f64,
    /// The page, then its resources.
    pub(crate) requests: Vec<Request>,
}

impl Load {
    /// When the first byte of the page arrived.
    pub(crate) fn first_byte(&self) -> f64 {
        self.requests.first().map_or(0.0, |page| page.first)
    }

    /// When the last byte of any resource arrived.
    pub(crate) fn last_byte(&self) -> f64 {
        let ends = self.requests.iter().map(|request| request.last);
        ends.fold(0.0, f64::max)
    }
}

/// A running browser that speaks one protocol to servers; ended when dropped.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Events received while waiting for a reply.
    events: Vec<Value>,
    next: u64,
}

/// The settings of a browser.
pub(crate) struct Setting<'s> {
    /// Its program.
    pub(crate) program: &'s Path,
    /// The folder for its profile.
    pub(crate) folder: &'s Path,
    /// Host resolver rules, as `MAP name address, ...`.
    pub(crate) resolve: &'s str,
    /// The hosts to load from over HTTP/3, if that is the protocol.
    pub(crate) hosts: &'s [String],
    /// The hash of the trusted key.
    pub(crate) spki: &'s str,
}

impl Browser {
    /// Starts a browser for this protocol.
    pub(crate) fn start(setting: &Setting<'_>, protocol: Protocol) -> Result<Self> {
        let profile = setting.folder.join(format!("profile-{}", protocol.name()));
        // The browser expects the pipes as descriptors 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"]);
        command.arg(setting.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
        ]);
        command.args([
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
        ]);
        command.args([
            "--disable-sync",
            "--disable-default-apps",
            "--no-proxy-server",
        ]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(format!("--host-resolver-rules={}", setting.resolve));
        command.arg(format!(
            "--ignore-certificate-errors-spki-list={}",
            setting.spki
        ));
        match protocol {
            Protocol::H1 => command.args(["--disable-http2", "--disable-quic"]),
            Protocol::H2 => command.arg("--disable-quic"),
            Protocol::H3 => {
                let origins: Vec<String> = setting
                    .hosts
                    .iter()
                    .map(|host| format!("{host}:443"))
                    .collect();
                command.arg("--enable-quic");
                command.arg(format!("--origin-to-force-quic-on={}", origins.join(",")))
            }
        };
        command.env("HOME", setting.folder);
        let log = std::fs::File::create(setting.folder.join(format!("{}.log", protocol.name())))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start the browser")?;
        let input = child.stdin.take().context("it was piped")?;
        let output = BufReader::new(child.stdout.take().context("it was piped")?);
        let (give, messages) = channel();
        std::thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else {
                    return;
                };
                if give.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            input,
            messages,
            events: Vec::new(),
            next: 0,
        })
    }

    /// Loads a page over a new connection with an empty cache, and compares every byte with
    /// `files`.
    pub(crate) fn load(&mut self, url: &str, protocol: Protocol, files: &Files) -> Result<Load> {
        let context = self.call(None, "Target.createBrowserContext", json!({}))?;
        let context = text(&context, "browserContextId")?;
        let result = self.load_in(&context, url, files);
        let dispose = json!({"browserContextId": context});
        self.call(None, "Target.disposeBrowserContext", dispose)?;
        self.events.clear();
        let load = result?;
        let other = load
            .requests
            .iter()
            .find(|it| it.protocol != protocol.alpn());
        match other {
            None => Ok(load),
            Some(it) => bail!("'{}' was answered by '{}'", it.name, it.protocol),
        }
    }

    fn load_in(&mut self, context: &str, url: &str, files: &Files) -> Result<Load> {
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = text(&self.call(None, "Target.createTarget", target)?, "targetId")?;
        let attach = json!({"targetId": target, "flatten": true});
        let session = self.call(None, "Target.attachToTarget", attach)?;
        let session = Some(text(&session, "sessionId")?);
        let session = session.as_deref();
        self.call(session, "Page.enable", json!({}))?;
        self.call(session, "Network.enable", json!({}))?;
        let navigated = self.call(session, "Page.navigate", json!({"url": url}))?;
        if let Some(error) = navigated["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        let deadline = Instant::now() + LOAD_MAX;
        self.event(session, "Page.loadEventFired", deadline)?;
        // There is no icon; the style sheet requests the fonts.
        let expression = FIGURES.replace("COUNT", &files.len().to_string());
        let evaluate =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let figures = self.call_until(session, "Runtime.evaluate", evaluate, deadline)?;
        let load = figures["result"]["value"].as_str().context("no figures")?;
        let load: Load = serde_json::from_str(load)?;
        ensure!(
            load.requests.len() == files.len(),
            "{} requests for {} files",
            load.requests.len(),
            files.len()
        );
        self.compare(session, url, files)?;
        Ok(load)
    }

    /// Compares the received files.
    fn compare(&mut self, session: Option<&str>, url: &str, files: &Files) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        let received = events.iter().filter(|event| {
            event["method"] == "Network.responseReceived" && event["sessionId"].as_str() == session
        });
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for event in received {
            let parameters = &event["params"];
            let name = text(&parameters["response"], "url")?;
            if let Some(name) = name.strip_prefix(url) {
                ids.insert(name.to_owned(), text(parameters, "requestId")?);
            }
        }
        for (name, content) in files {
            let id = ids.get(name.trim_end_matches("index.html"));
            let id = id.with_context(|| format!("'{name}' was not answered"))?;
            let body = self.call(session, "Network.getResponseBody", json!({"requestId": id}))?;
            let found = text(&body, "body")?;
            let is_right = match body["base64Encoded"].as_bool() {
                Some(true) => digest(found.as_bytes()) == digest(base64(content).as_bytes()),
                _ => digest(found.as_bytes()) == digest(content),
            };
            ensure!(is_right, "'{name}' has other bytes than its file");
        }
        Ok(())
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Result<Value> {
        let deadline = Instant::now() + ANSWER_MAX;
        self.call_until(session, method, parameters, deadline)
    }

    fn call_until(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
        deadline: Instant,
    ) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        self.input
            .write_all(&bytes)
            .context("the browser has ended")?;
        loop {
            let mut message = self.receive(deadline).with_context(|| method.to_owned())?;
            if message["id"] != id {
                self.events.push(message);
                continue;
            }
            if let Some(error) = message["error"]["message"].as_str() {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].take());
        }
    }

    /// Waits for an event, which remains in `events`.
    fn event(&mut self, session: Option<&str>, method: &str, deadline: Instant) -> Result<()> {
        let is_it =
            |event: &Value| event["method"] == method && event["sessionId"].as_str() == session;
        while !self.events.iter().any(is_it) {
            let message = self.receive(deadline).with_context(|| method.to_owned())?;
            self.events.push(message);
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Instant) -> Result<Value> {
        let time = deadline.saturating_duration_since(Instant::now());
        let message = self.messages.recv_timeout(time);
        message.context("the browser says nothing, or has ended")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(value: &Value, name: &str) -> Result<String> {
    let found = value[name].as_str();
    Ok(found
        .with_context(|| format!("no '{name}' in an answer"))?
        .to_owned())
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// RFC 4648 section 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let value = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for at in 0..4 {
            let letter = LETTERS[(value >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= chunk.len() {
                letter.into()
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let found =
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|it| base64(it.as_bytes()));
        let expected = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        assert_eq!(found, expected);
    }
}
