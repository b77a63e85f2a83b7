//! HTTP/3 with other implementations' clients: each downloads a whole site, from a directory and
//! from an archive, on each engine.
//!
//! aioquic and quic-go are installed below the build directory; curl and Chromium are used if they
//! are installed and support HTTP/3. Clients left out are listed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use xtask::process;
use xtask::served::Served;

/// The packages to install with pip and with Go.
const AIOQUIC: &str = "aioquic>=1.2,<2";
const QUIC_GO: &str = "github.com/quic-go/quic-go@latest";

const CLIENT_PY: &str = include_str!("h3_interop/client.py");
const CLIENT_GO: &str = include_str!("h3_interop/client.go");

/// Files of the site: 1 byte to 3 MB, each three times as long as the one before.
const FILES: u32 = 14;

/// A client.
struct Client {
    name: &'static str,
    /// Builds the command that fetches paths of an authority into a folder, with the arguments of
    /// `client.py`.
    command: Box<dyn Fn(&Fetch<'_>) -> Command>,
}

/// The task of a client.
struct Fetch<'a> {
    authority: &'a str,
    cacert: &'a Path,
    folder: &'a Path,
    paths: &'a [String],
}

impl Fetch<'_> {
    fn arguments(&self, command: &mut Command) {
        command.arg(self.authority).arg(self.cacert);
        command.arg(self.folder).args(self.paths);
    }
}

/// Runs all clients; reports which are left out.
pub(crate) fn main() -> Result<()> {
    let tools = process::target().join("h3-interop");
    fs::create_dir_all(&tools)?;
    let mut clients = Vec::new();
    for (name, made) in [
        ("aioquic", aioquic(&tools)),
        ("quic-go", quic_go(&tools)),
        ("curl", curl()),
    ] {
        match made {
            Ok(client) => clients.push(client),
            Err(error) => println!("{name} is left out: {error:#}"),
        }
    }
    let gannet = process::build(&["-p", "gannet"], "dev")?;
    let folder = std::env::temp_dir().join(format!("gannet-h3-{}", std::process::id()));
    let result = run_all(&gannet, &clients, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn run_all(gannet: &Path, clients: &[Client], folder: &Path) -> Result<()> {
    let site = folder.join("site");
    let files = write_site(&site)?;
    let archive = folder.join("site.gannet");
    let mut pack = Command::new(gannet);
    pack.args(["pack", "--quiet", "--fast"]).arg(&site);
    process::run(pack.arg("-o").arg(&archive))?;
    let data = folder.join("data");
    let cacert = folder.join("authority.pem");
    let mut cert = Command::new(gannet);
    let authority = process::capture(cert.arg("cert").env("XDG_DATA_HOME", &data))?;
    fs::write(&cacert, authority + "\n")?;
    for engine in ["uring", "epoll"] {
        for content in [&site, &archive] {
            let mut command = Command::new(gannet);
            command.args(["serve", "--tls", "--listen", "127.0.0.1:0", "--log", "off"]);
            command.args(["--engine", engine, "--metrics", "127.0.0.1:0"]);
            command.env("XDG_DATA_HOME", &data).arg(content);
            let server = Served::start(&mut command)?.context("the server does not start")?;
            let mut asked = 0;
            for client in clients {
                let what = format!("{}, {engine}, {}", client.name, content.display());
                fetch_all(client, &server, &cacert, folder, &files).context(what)?;
                asked += files.len() as u64;
                let requests = server.metric("gannet_h3_requests_total")?;
                ensure!(requests == asked, "{}: {requests} requests", client.name);
                println!("{}, {engine}: {} files are right", client.name, files.len());
            }
            if let Some(chromium) = process::find("chromium") {
                show(&chromium, &server, folder)?;
                println!("Chromium, {engine}: the page came over HTTP/3");
            } else if engine == "epoll" {
                println!("Chromium is left out: it is not installed");
            }
        }
    }
    Ok(())
}

/// Writes the site; returns the path and content of each file.
fn write_site(site: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    fs::create_dir_all(site)?;
    fs::write(site.join("index.html"), "<!doctype html><p>a page</p>\n")?;
    let mut files = Vec::new();
    for number in 0..FILES {
        let len = 3_usize.pow(number);
        let byte = |at: usize| (at * 7 + at / 251 + number as usize) as u8;
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        fs::write(site.join(format!("{len}.bin")), &bytes)?;
        files.push((format!("/{len}.bin"), bytes));
    }
    Ok(files)
}

fn fetch_all(
    client: &Client,
    server: &Served,
    cacert: &Path,
    folder: &Path,
    files: &[(String, Vec<u8>)],
) -> Result<()> {
    let got = folder.join("got");
    fs::create_dir_all(&got)?;
    let paths: Vec<_> = files.iter().map(|(path, _)| path.clone()).collect();
    process::run(&mut (client.command)(&Fetch {
        authority: &format!("localhost:{}", server.port),
        cacert,
        folder: &got,
        paths: &paths,
    }))?;
    for (number, (path, expect)) in files.iter().enumerate() {
        let bytes = fs::read(got.join(number.to_string()))?;
        ensure!(bytes == *expect, "{path}: {} other bytes", bytes.len());
    }
    fs::remove_dir_all(got)?;
    Ok(())
}

fn aioquic(tools: &Path) -> Result<Client> {
    let script = tools.join("client.py");
    fs::write(&script, CLIENT_PY)?;
    let python = tools.join("venv/bin/python");
    let has_it = || process::capture(Command::new(&python).args(["-c", "import aioquic"])).is_ok();
    if !has_it() {
        process::capture(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(tools.join("venv")),
        )?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", AIOQUIC]);
        process::capture(&mut install)?;
    }
    Ok(Client {
        name: "aioquic",
        command: Box::new(move |fetch| {
            let mut command = Command::new(&python);
            fetch.arguments(command.arg(&script));
            command
        }),
    })
}

fn quic_go(tools: &Path) -> Result<Client> {
    let module = tools.join("quic-go");
    let program = module.join("client");
    if !program.is_file() {
        fs::create_dir_all(&module)?;
        fs::write(module.join("main.go"), CLIENT_GO)?;
        fs::write(module.join("go.mod"), "module client\n\ngo 1.24\n")?;
        for arguments in [
            &["get", QUIC_GO][..],
            &["mod", "tidy"],
            &["build", "-o", "client"],
        ] {
            let mut go = Command::new("go");
            process::capture(go.args(arguments).current_dir(&module))?;
        }
    }
    Ok(Client {
        name: "quic-go",
        command: Box::new(move |fetch| {
            let mut command = Command::new(&program);
            fetch.arguments(&mut command);
            command
        }),
    })
}

fn curl() -> Result<Client> {
    let features = process::output("curl", &["--version"])?;
    if !features.contains("HTTP3") {
        bail!("this one does not speak HTTP/3");
    }
    Ok(Client {
        name: "curl",
        command: Box::new(|fetch| {
            let mut command = Command::new("curl");
            command.args(["--http3-only", "--silent", "--show-error", "--fail"]);
            command.arg("--parallel").arg("--cacert").arg(fetch.cacert);
            for (number, path) in fetch.paths.iter().enumerate() {
                command.arg(format!("https://{}{path}", fetch.authority));
                command.arg("-o").arg(fetch.folder.join(number.to_string()));
            }
            command
        }),
    })
}

/// Loads the page in Chromium over HTTP/3 only. For QUIC, Chromium refuses certificates of private
/// authorities unless their keys are listed.
fn show(chromium: &Path, server: &Served, folder: &Path) -> Result<()> {
    let before = server.metric("gannet_h3_requests_total")?;
    let authority = format!("localhost:{}", server.port);
    let mut browser: Command = crate::browser::headless(chromium, &folder.join("browser"));
    // With QUIC forced, it cannot fall back to TCP.
    browser.args([
        "--enable-quic",
        "--no-proxy-server",
        "--host-resolver-rules=MAP localhost 127.0.0.1",
    ]);
    browser.arg(format!("--origin-to-force-quic-on={authority}"));
    browser.arg(format!(
        "--ignore-certificate-errors-spki-list={}",
        spki(server)?
    ));
    browser
        .arg("--dump-dom")
        .arg(format!("https://{authority}/"));
    let page = process::capture(browser.stdin(Stdio::null()).stderr(Stdio::null()))?;
    ensure!(
        page.contains("<p>a page</p>"),
        "the page is another one: {page}"
    );
    let requests = server.metric("gannet_h3_requests_total")? - before;
    ensure!(requests > 0, "the page came by another version");
    Ok(())
}

/// SHA-256 of the server's public key, in Base64.
fn spki(server: &Served) -> Result<String> {
    const SCRIPT: &str = "openssl s_client -connect localhost:$0 </dev/null 2>/dev/null \
        | openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER \
        | openssl dgst -sha256 -binary | openssl base64";
    let port = server.port.to_string();
    process::capture(Command::new("sh").args(["-c", SCRIPT, &port]))
}
