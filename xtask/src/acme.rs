//! Orders certificates from pebble, a small ACME server, by a real gannet: on loopback only.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xtask::process;
use xtask::running::{Running, free_port, until};
use xtask::served::Served;

use crate::program::Program;

/// The modules to install, through the machine's Go module proxy.
const SOURCE: &str = "github.com/letsencrypt/pebble/v2/cmd";

const HELP: &str = "\
cargo xtask acme [--program FILE]

  --program FILE   a gannet that is built already
";

/// Runs all cases; if that is impossible here, prints why.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    let (Some(pebble), Some(names)) = (find("pebble")?, find("pebble-challtestsrv")?) else {
        println!("skipped: pebble is not installed, and neither is Go, which would install it");
        return Ok(());
    };
    for tool in ["openssl", "curl"] {
        process::find_or_install(tool, tool)?;
    }
    let gannet = program.path()?;
    let folder = process::target().join("acme");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("site"))?;
    fs::write(folder.join("site/index.html"), "<p>hello\n")?;
    let data = folder.join("data");
    process::capture(
        Command::new(&gannet)
            .arg("cert")
            .env("XDG_DATA_HOME", &data),
    )?;
    let stage = Stage {
        tls: data.join("gannet/tls"),
        ports: [free_port()?, free_port()?],
        dns: free_port()?,
        gannet,
        folder,
    };
    let mut resolver = Command::new(names);
    let dns = format!("127.0.0.1:{}", stage.dns);
    let management = format!("127.0.0.1:{}", free_port()?);
    resolver.args([
        "-defaultIPv4",
        "127.0.0.1",
        "-defaultIPv6",
        "",
        "-dnsserver",
        &dns,
    ]);
    resolver.args([
        "-management",
        &management,
        "-http01",
        "",
        "-https01",
        "",
        "-tlsalpn01",
        "",
    ]);
    let _resolver = start(resolver.args(["-doh", ""]), &stage.folder.join("dns.log"))?;
    let open = stage.pebble(&pebble, ("open", free_port()?), false)?;
    stage.by_tls(&open)?;
    stage.on_demand(&open)?;
    stage.by_http(&open)?;
    let open = stage.forgotten(&pebble, open)?;
    drop(open);
    let bound = stage.pebble(&pebble, ("bound", free_port()?), true)?;
    stage.bound(&bound)
}

struct Stage {
    gannet: PathBuf,
    folder: PathBuf,
    /// The certificate and the authority of pebble's own address.
    tls: PathBuf,
    /// Where pebble looks for challenges: by HTTP, by TLS.
    ports: [u16; 2],
    dns: u16,
}

/// An ACME server.
struct Pebble {
    _running: Running,
    port: u16,
    url: String,
    management: String,
}

impl Stage {
    /// Starts pebble, which refuses some nonces, as it does by default.
    fn pebble(&self, program: &Path, (name, own): (&str, u16), is_bound: bool) -> Result<Pebble> {
        let pem = self.tls.join("localhost.pem");
        let management = free_port()?;
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{own}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": pem,
            "privateKey": pem,
            "httpPort": self.ports[0],
            "tlsPort": self.ports[1],
            "externalAccountBindingRequired": is_bound,
            "externalAccountMACKeys": { "kid-1": KEY },
            "domainBlocklist": ["blocked.test"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": {
                "default": { "description": "three months", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "six days", "validityPeriod": 518_400 },
            },
        }});
        let file = self.folder.join(format!("{name}.json"));
        fs::write(&file, config.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("-config")
            .arg(file)
            .env("PEBBLE_VA_NOSLEEP", "1");
        command.args(["-dnsserver", &format!("127.0.0.1:{}", self.dns)]);
        let log = self.folder.join(format!("{name}.log"));
        let pebble = Pebble {
            _running: start(&mut command, &log)?,
            url: format!("https://127.0.0.1:{own}/dir"),
            port: own,
            management: format!("https://127.0.0.1:{management}"),
        };
        until("pebble answers", || self.curl(&[&pebble.url]).is_ok())?;
        Ok(pebble)
    }

    fn curl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("curl");
        command.args(["-sSf", "--max-time", "10", "--cacert"]);
        command.arg(self.tls.join("authority.pem"));
        process::capture(command.args(arguments))
    }

    /// `gannet acme`, which trusts pebble.
    fn order(&self, pebble: &Pebble, folder: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.gannet);
        command.args(["acme", "--server", &pebble.url, "--dir"]);
        command.arg(self.folder.join(folder)).args(arguments);
        command.env("SSL_CERT_FILE", self.tls.join("authority.pem"));
        Ok(command.stdin(Stdio::null()).output()?)
    }

    fn ordered(&self, pebble: &Pebble, folder: &str, arguments: &[&str]) -> Result<String> {
        let output = self.order(pebble, folder, arguments)?;
        let (out, err) = texts(&output);
        ensure!(
            output.status.success(),
            "{arguments:?}: {}\n{err}",
            output.status
        );
        Ok(out)
    }

    fn refused(
        &self,
        pebble: &Pebble,
        (folder, arguments): (&str, &[&str]),
        why: &str,
    ) -> Result<()> {
        let output = self.order(pebble, folder, arguments)?;
        let (_, err) = texts(&output);
        ensure!(
            output.status.code() == Some(1),
            "{arguments:?}: {}\n{err}",
            output.status
        );
        ensure!(err.contains(why), "{arguments:?}: not '{why}', but\n{err}");
        Ok(())
    }

    fn serve(&self, flags: &[&str]) -> Result<Served> {
        let mut command = Command::new(&self.gannet);
        command.args(["serve", "--log", "off"]).args(flags);
        command.env("SSL_CERT_FILE", self.tls.join("authority.pem"));
        let served = Served::start(command.arg(self.folder.join("site")))?;
        served.context("it does not serve")
    }

    /// A configuration with this text, in place of the last one.
    fn config(&self, text: &str) -> Result<String> {
        let file = self.folder.join("gannet.toml");
        fs::write(&file, text)?;
        Ok(file.to_str().context("UTF-8")?.to_owned())
    }

    /// The end and the issuer of the certificate that is served for a name.
    fn shown(&self, port: &str, name: &str) -> Result<String> {
        let connect = format!("127.0.0.1:{port}");
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &connect, "-servername", name]);
        let output = client.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        let mut reader = Command::new("openssl")
            .args(["x509", "-noout", "-serial", "-enddate", "-issuer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        reader
            .stdin
            .take()
            .context("piped")?
            .write_all(&output.stdout)?;
        let read = reader.wait_with_output()?;
        let text = String::from_utf8_lossy(&read.stdout).into_owned();
        ensure!(
            text.contains("Pebble"),
            "no certificate of pebble for {name}: {text}"
        );
        Ok(text)
    }

    /// All that a new user types: the server orders by a process beside it.
    fn by_tls(&self, pebble: &Pebble) -> Result<()> {
        let listen = format!("https://127.0.0.1:{}", self.ports[1]);
        let state = self.folder.join("beside");
        let state = state.to_str().context("UTF-8")?;
        let served = self.serve(&[
            "--acme",
            "one.test",
            "--acme",
            "two.test",
            "--acme-dir",
            state,
            "--acme-server",
            &pebble.url,
            "--listen",
            &listen,
            "--metrics",
            "127.0.0.1:0",
        ])?;
        for name in ["one.test", "two.test"] {
            until("the certificate is served", || {
                self.shown(&served.port, name).is_ok()
            })?;
        }
        println!("TLS-ALPN-01: a server has ordered certificates for two names by itself");
        Ok(())
    }

    /// A folder of hosts, none of which is named: each gets its certificate when it is asked for.
    fn on_demand(&self, pebble: &Pebble) -> Result<()> {
        let hosts = ["one.hosts.test", "two.hosts.test", "three.hosts.test"];
        let sites = self.folder.join("sites");
        for host in hosts {
            fs::create_dir_all(sites.join(host))?;
            fs::write(sites.join(host).join("index.html"), host)?;
        }
        let listen = format!("https://127.0.0.1:{}", self.ports[1]);
        let state = self.folder.join("on-demand");
        let state = state.to_str().context("UTF-8")?;
        let flags = ["--hosts", "--acme", "on-demand", "--acme-dir", state];
        let more = ["--acme-server", &pebble.url, "--listen", &listen];
        let flags = [&flags[..], &more].concat();
        let serve = || {
            let mut command = Command::new(&self.gannet);
            command.args(["serve", "--log", "off"]).args(&flags);
            command.env("SSL_CERT_FILE", self.tls.join("authority.pem"));
            let served = Served::start(command.arg(&sites))?;
            served.context("it does not serve")
        };
        let served = serve()?;
        let get = |host: &str| {
            let resolve = format!("{host}:{}:127.0.0.1", served.port);
            let page = format!("https://{host}:{}/", served.port);
            // No system trusts the certificates of pebble.
            self.curl(&[
                "--insecure",
                "--max-time",
                "40",
                "--resolve",
                &resolve,
                &page,
            ])
        };
        for host in hosts {
            let begun = Instant::now();
            let page = get(host)?;
            ensure!(page == host, "{host}: {page}");
            self.shown(&served.port, host)?;
            let took = begun.elapsed().as_secs_f64();
            println!("on demand: the first request for {host} was answered in {took:.1} s");
        }
        // No site has it: no order, and the certificate of another host.
        let _ = get("four.hosts.test");
        let names = fs::read_dir(self.folder.join("on-demand/certificates"))?;
        let count = names
            .flatten()
            .filter(|it| it.path().extension() == Some("pem".as_ref()));
        ensure!(count.count() == hosts.len(), "one for each host");
        drop(served);
        let served = serve()?;
        for host in hosts {
            self.shown(&served.port, host)?;
        }
        println!("on demand: after a restart all are served at once");
        Ok(())
    }

    /// A fleet: one process orders, servers answer.
    fn by_http(&self, pebble: &Pebble) -> Result<()> {
        let thumbprint = self.ordered(pebble, "fleet", &[])?;
        let thumbprint = thumbprint.trim();
        let redirect = format!("127.0.0.1:{}", self.ports[0]);
        let file = self.folder.join("fleet/certificates/fleet.test.pem");
        let cert = file.to_str().context("UTF-8")?.to_owned();
        let once = |host: &'static str| ["--once", host];
        // Nothing listens.
        self.refused(
            pebble,
            ("fleet", &once("fleet.test")),
            "cannot get a certificate",
        )?;
        let config = self.config(&format!("acme.thumbprint = '{thumbprint}'"))?;
        let served = self.serve(&[
            "--config",
            &config,
            "--tls-cert",
            &cert,
            "--http-redirect",
            &redirect,
            "--listen",
            "https://127.0.0.1:0",
        ])?;
        self.ordered(pebble, "fleet", &once("fleet.test"))?;
        until("the certificate is served", || {
            self.shown(&served.port, "fleet.test").is_ok()
        })?;
        println!("HTTP-01: a server answers for an account, without state");
        let before = fs::read(&file)?;
        self.ordered(pebble, "fleet", &once("fleet.test"))?;
        ensure!(fs::read(&file)? == before, "it was not due");
        self.ordered(
            pebble,
            "fleet",
            &["--once", "127.0.0.1", "--profile", "shortlived"],
        )?;
        let of_address = fs::read(self.folder.join("fleet/certificates/127.0.0.1.pem"))?;
        ensure!(!of_address.is_empty());
        println!("an IP address has a certificate, of a profile");
        self.refused(
            pebble,
            ("fleet", &once("blocked.test")),
            "rejectedIdentifier",
        )?;
        let profile = ["--once", "other.test", "--profile", "none-such"];
        self.refused(pebble, ("fleet", &profile), "cannot get a certificate")?;
        println!("refused names and profiles are said");
        self.by_a_wrong_clock(pebble)?;
        self.renewed_under_load(pebble, &served, &file)
    }

    /// The ACME server starts anew, and knows neither account nor orders: both are made anew, with the same
    /// key, so that servers go on answering.
    fn forgotten(&self, program: &Path, pebble: Pebble) -> Result<Pebble> {
        let thumbprint = self.ordered(&pebble, "fleet", &[])?;
        let port = pebble.port;
        drop(pebble);
        let pebble = self.pebble(program, ("forgotten", port), false)?;
        let redirect = format!("127.0.0.1:{}", self.ports[0]);
        let config = self.config(&format!("acme.thumbprint = '{}'", thumbprint.trim()))?;
        let served = self.serve(&["--config", &config, "--listen", &redirect])?;
        let output = self.order(&pebble, "fleet", &["--once", "forgotten.test"])?;
        let (_, err) = texts(&output);
        ensure!(output.status.success(), "{}\n{err}", output.status);
        let why = "no longer knew the account";
        ensure!(err.contains(why), "not '{why}', but\n{err}");
        ensure!(
            self.ordered(&pebble, "fleet", &[])? == thumbprint,
            "another key"
        );
        drop(served);
        println!("an account that was lost is made anew, with the same key");
        Ok(pebble)
    }

    /// A clock that is weeks ahead: the certificate is there, and none is ordered again and again.
    fn by_a_wrong_clock(&self, pebble: &Pebble) -> Result<()> {
        let Ok(faketime) = process::find_or_install("faketime", "faketime") else {
            println!("skipped: a wrong clock, which takes faketime");
            return Ok(());
        };
        let mut command = Command::new(faketime);
        command.arg("+30 days").arg(&self.gannet);
        command.args([
            "acme",
            "--server",
            &pebble.url,
            "--once",
            "clock.test",
            "--dir",
        ]);
        command.args([
            self.folder.join("fleet").as_os_str(),
            "--profile".as_ref(),
            "shortlived".as_ref(),
        ]);
        command.env("SSL_CERT_FILE", self.tls.join("authority.pem"));
        let output = command.stdin(Stdio::null()).output()?;
        let (_, err) = texts(&output);
        ensure!(output.status.code() == Some(1), "{}\n{err}", output.status);
        let why = "is the clock of this machine right?";
        ensure!(err.contains(why), "not '{why}', but\n{err}");
        let file = self.folder.join("fleet/certificates/clock.test.pem");
        ensure!(file.is_file(), "the certificate is kept");
        println!("a wrong clock is said");
        Ok(())
    }

    /// The ACME server wants a certificate renewed at once, while clients come and go.
    fn renewed_under_load(&self, pebble: &Pebble, served: &Served, file: &Path) -> Result<()> {
        let text = fs::read_to_string(file)?;
        let begin = text
            .find("-----BEGIN CERTIFICATE")
            .context("a certificate")?;
        const END: &str = "-----END CERTIFICATE-----";
        let end = text.find(END).context("its end")? + END.len();
        let window = serde_json::json!({ "suggestedWindow": {
            "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z",
        }});
        let body = serde_json::json!({
            "Certificate": text[begin..end],
            "ARIResponse": window.to_string(),
        });
        let url = format!("{}/set-renewal-info/", pebble.management);
        self.curl(&["-X", "POST", "-d", &body.to_string(), &url])?;
        let before = self.shown(&served.port, "fleet.test")?;
        let is_over = AtomicBool::new(false);
        let resolve = format!("fleet.test:{}:127.0.0.1", served.port);
        let page = format!("https://fleet.test:{}/", served.port);
        let count = thread::scope(|scope| -> Result<u64> {
            let load = || -> Result<u64> {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    self.curl(&["--insecure", "--resolve", &resolve, &page])?;
                    count += 1;
                }
                Ok(count)
            };
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
            let renewed = self.ordered(pebble, "fleet", &["--once", "fleet.test"]);
            let renewed = renewed.and_then(|_| {
                let is_new = || {
                    self.shown(&served.port, "fleet.test")
                        .is_ok_and(|it| it != before)
                };
                until("the new certificate is served", is_new)
            });
            thread::sleep(Duration::from_secs(1));
            is_over.store(true, Ordering::Relaxed);
            let mut count = 0;
            for client in clients {
                count += client.join().expect("no panic")?;
            }
            renewed.map(|()| count)
        })?;
        println!("renewal information: renewed under load, {count} handshakes, none failed");
        Ok(())
    }

    /// The ACME server asks for an account elsewhere.
    fn bound(&self, pebble: &Pebble) -> Result<()> {
        self.refused(pebble, ("bound", &[]), "externalAccountRequired")?;
        let file = self.folder.join("eab.key");
        fs::write(&file, format!("{KEY}\n"))?;
        let file = file.to_str().context("UTF-8")?;
        let thumbprint =
            self.ordered(pebble, "bound", &["--eab-kid", "kid-1", "--eab-key", file])?;
        ensure!(thumbprint.trim().len() == 43, "{thumbprint}");
        println!("External Account Binding: an account is made with a key, and not without");
        let listen = format!("https://127.0.0.1:{}", self.ports[1]);
        let state = self.folder.join("bound-beside");
        let state = state.to_str().context("UTF-8")?;
        let config = self.config(&format!(
            "[acme]\nhosts = 'bound.test'\nprofile = 'shortlived'\neab-kid = 'kid-1'\neab-key = '{file}'"
        ))?;
        let flags = [
            &["--config", &config, "--acme-dir", state][..],
            &["--acme-server", &pebble.url, "--listen", &listen],
        ];
        let served = self.serve(&flags.concat())?;
        until("the certificate is served", || {
            self.shown(&served.port, "bound.test").is_ok()
        })?;
        let certificate = self.folder.join("bound-beside/certificates/bound.test.pem");
        // A week from now, one of six days has ended.
        let mut client = Command::new("openssl");
        client.args(["x509", "-noout", "-checkend", "604800", "-in"]);
        let output = client.arg(certificate).output()?;
        ensure!(
            output.status.code() == Some(1),
            "not of the profile that was named"
        );
        println!("the same, with a profile, by a server that orders by itself");
        Ok(())
    }
}

/// The key of an account elsewhere, as pebble's own tests have it in length.
const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";

/// Starts a program that writes its output to this file.
fn start(command: &mut Command, log: &Path) -> Result<Running> {
    let log = fs::File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    Running::start(command.stderr(log))
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The program of pebble's, installed by Go if it is missing.
pub(crate) fn find(name: &str) -> Result<Option<PathBuf>> {
    if let Some(path) = process::find(name) {
        return Ok(Some(path));
    }
    let Ok(folder) = process::output("go", &["env", "GOPATH"]) else {
        return Ok(None);
    };
    let path = Path::new(&folder).join("bin").join(name);
    if !path.is_file() {
        let source = format!("{SOURCE}/{name}@latest");
        process::output("go", &["install", &source])?;
    }
    Ok(Some(path))
}
