//! gannet behind other programs' proxies: haproxy, nginx and Caddy, configured as in the manual.
//!
//! A client at an address of its own (127.0.0.7) asks through each proxy (at 127.0.0.1), and claims to
//! be another one. The log has to name its address, and --hsts to follow its scheme. Programs that are
//! not installed are left out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use xtask::certificate::{Certificate, ECDSA_P256};
use xtask::other_server::OtherServer;
use xtask::process;
use xtask::running::{PATIENCE, free_port};
use xtask::served::Served;

/// The client's address, and the one that it claims to have, also as the host.
const CLIENT: &str = "127.0.0.7";
const CLAIMED: &str = "203.0.113.66";

/// A way through a proxy.
struct Way {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Its configuration, in which `PORT` is its own port and `UPSTREAM` one of gannet's.
    config: &'static str,
    upstream: Upstream,
}

/// The address of gannet that a proxy connects to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Upstream {
    /// Requests with fields of the proxy.
    Plain,
    /// The same by a proxy that speaks TLS with the client.
    BehindTls,
    /// Connections with a PROXY header.
    Proxied,
    /// The same before TLS, which the client speaks.
    ProxiedTls,
}

const HAPROXY: &[&str] = &["-db", "-f", "CONFIG"];
const TIMES: &str = "timeout connect 5s\n timeout client 5s\n timeout server 5s\n";
const NGINX: &[&str] = &["-p", "FOLDER", "-c", "CONFIG", "-g", "daemon off;"];

const WAYS: [Way; 7] = [
    Way {
        name: "haproxy, PROXY protocol 1",
        program: "haproxy",
        arguments: HAPROXY,
        config: "listen site\n mode tcp\n TIMES bind 127.0.0.1:PORT\n \
                 server gannet 127.0.0.1:UPSTREAM send-proxy\n",
        upstream: Upstream::Proxied,
    },
    Way {
        name: "haproxy, PROXY protocol 2 before TLS, with a checksum",
        program: "haproxy",
        arguments: HAPROXY,
        config: "listen site\n mode tcp\n TIMES bind 127.0.0.1:PORT\n \
                 server gannet 127.0.0.1:UPSTREAM send-proxy-v2 proxy-v2-options crc32c,unique-id\n",
        upstream: Upstream::ProxiedTls,
    },
    Way {
        name: "haproxy, X-Forwarded-For",
        program: "haproxy",
        arguments: HAPROXY,
        config: "listen site\n mode http\n TIMES bind 127.0.0.1:PORT\n \
                 http-request del-header Forwarded\n option forwardfor\n \
                 http-request set-header X-Forwarded-Proto https if { ssl_fc }\n \
                 http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n \
                 server gannet 127.0.0.1:UPSTREAM\n",
        upstream: Upstream::Plain,
    },
    Way {
        name: "haproxy that ends TLS",
        program: "haproxy",
        arguments: HAPROXY,
        config: "listen site\n mode http\n TIMES bind 127.0.0.1:PORT ssl crt FOLDER/both.pem\n \
                 http-request del-header Forwarded\n option forwardfor\n \
                 http-request set-header X-Forwarded-Proto https if { ssl_fc }\n \
                 http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n \
                 server gannet 127.0.0.1:UPSTREAM\n",
        upstream: Upstream::BehindTls,
    },
    Way {
        name: "nginx, X-Forwarded-For",
        program: "nginx",
        arguments: NGINX,
        config: "pid FOLDER/pid;\nerror_log FOLDER/error.log;\nevents {}\nhttp {\n access_log off;\n \
                 server {\n listen 127.0.0.1:PORT;\n location / {\n \
                 proxy_pass http://127.0.0.1:UPSTREAM;\n proxy_set_header Host $host;\n \
                 proxy_set_header Forwarded \"\";\n \
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n \
                 proxy_set_header X-Forwarded-Proto $scheme;\n }\n }\n}\n",
        upstream: Upstream::Plain,
    },
    Way {
        name: "nginx that ends TLS",
        program: "nginx",
        arguments: NGINX,
        config: "pid FOLDER/pid;\nerror_log FOLDER/error.log;\nevents {}\nhttp {\n access_log off;\n \
                 server {\n listen 127.0.0.1:PORT ssl;\n ssl_certificate FOLDER/both.pem;\n \
                 ssl_certificate_key FOLDER/both.pem;\n location / {\n \
                 proxy_pass http://127.0.0.1:UPSTREAM;\n proxy_set_header Host $host;\n \
                 proxy_set_header Forwarded \"\";\n \
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n \
                 proxy_set_header X-Forwarded-Proto $scheme;\n }\n }\n}\n",
        upstream: Upstream::BehindTls,
    },
    Way {
        name: "Caddy, X-Forwarded-For",
        program: "caddy",
        arguments: &["run", "--adapter", "caddyfile", "--config", "CONFIG"],
        config: "{\n admin off\n}\nhttp://127.0.0.1:PORT {\n reverse_proxy 127.0.0.1:UPSTREAM {\n \
                 header_up -Forwarded\n }\n}\n",
        upstream: Upstream::Plain,
    },
];

/// Goes all ways.
pub(crate) fn main() -> Result<()> {
    ensure!(process::find("curl").is_some(), "curl is not installed");
    let gannet = process::build(&["-p", "gannet"], "dev")?;
    let folder = std::env::temp_dir().join(format!("gannet-proxies-{}", std::process::id()));
    fs::create_dir_all(folder.join("site"))?;
    fs::write(folder.join("site/index.html"), "hello\n")?;
    let certificate = Certificate::create(ECDSA_P256, &folder)?;
    let both = fs::read_to_string(&certificate.chain)? + &fs::read_to_string(&certificate.key)?;
    fs::write(folder.join("both.pem"), both)?;
    let result = WAYS.iter().try_for_each(|way| {
        if process::find(way.program).is_none() {
            ensure!(!process::is_ci(), "{} is not installed", way.program);
            println!("left out: {}: not installed", way.name);
            return Ok(());
        }
        go(way, &gannet, &folder).context(way.name)
    });
    fs::remove_dir_all(&folder)?;
    result
}

fn go(way: &Way, gannet: &Path, folder: &Path) -> Result<()> {
    let log = folder.join("log");
    let _ = fs::remove_file(&log);
    let mut command = Command::new(gannet);
    command.env("XDG_DATA_HOME", folder.join("data"));
    command.args([
        "serve",
        "--trust",
        "127.0.0.1",
        "--log",
        "json",
        "--log-file",
    ]);
    command.arg(&log);
    command.args(match way.upstream {
        Upstream::Plain | Upstream::BehindTls => &["--hsts", "--listen", "127.0.0.1:0"][..],
        Upstream::Proxied => &["--listen", "127.0.0.1:0,proxy"],
        Upstream::ProxiedTls => &["--tls", "--listen", "https://127.0.0.1:0,proxy"],
    });
    let server = Served::start(command.arg(folder.join("site")))?;
    let server = server.context("gannet does not start")?;
    let port = free_port()?;
    let config = folder.join("config");
    let folder = folder.to_str().context("a path in UTF-8")?;
    let text = way
        .config
        .replace("TIMES ", TIMES)
        .replace("FOLDER", folder);
    let text = text.replace("PORT", &port.to_string());
    fs::write(&config, text.replace("UPSTREAM", &server.port))?;
    let config = config.to_str().context("a path in UTF-8")?;
    let arguments = way.arguments.iter().map(|argument| match *argument {
        "CONFIG" => config,
        "FOLDER" => folder,
        other => other,
    });
    let mut command = Command::new(way.program);
    command.args(arguments).env("XDG_DATA_HOME", folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _proxy = OtherServer::start(&mut command, port)?;
    let url = match way.upstream {
        Upstream::ProxiedTls | Upstream::BehindTls => format!("https://127.0.0.1:{port}/"),
        Upstream::Plain | Upstream::Proxied => format!("http://127.0.0.1:{port}/"),
    };
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--fail",
        "--insecure",
        "--interface",
        CLIENT,
    ]);
    if matches!(way.upstream, Upstream::Plain | Upstream::BehindTls) {
        curl.args(["--header", &format!("X-Forwarded-For: {CLAIMED}")]);
        curl.args(["--header", &format!("Forwarded: for={CLAIMED}")]);
        curl.args(["--header", &format!("X-Forwarded-Host: {CLAIMED}")]);
    }
    let answer = process::capture(curl.args(["--include"]).arg(url))?;
    let (head, content) = answer.split_once("\r\n\r\n").context("no head")?;
    ensure!(content == "hello", "other content: {content}");
    // The scheme is the client's.
    let has_hsts = head.to_lowercase().contains("\nstrict-transport-security:");
    let is_due = way.upstream == Upstream::BehindTls;
    ensure!(has_hsts == is_due, "--hsts: {head}");
    let logged = line(&log)?;
    ensure!(
        logged.contains(&format!("\"peer\":\"{CLIENT}")),
        "the client is another one: {logged}"
    );
    ensure!(!logged.contains(CLAIMED), "what it claims: {logged}");
    println!("{}: the client is logged", way.name);
    Ok(())
}

/// The line of the log, once it is written.
fn line(log: &Path) -> Result<String> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let text = fs::read_to_string(log)?;
        if let Some((line, _)) = text.split_once('\n') {
            return Ok(line.to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("nothing is logged")
}
