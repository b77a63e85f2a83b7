//! The servers to load pages from: how each is found, configured and started. They all run at once
//! in the server's namespace, each at its own address, on port 443.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use xtask::process;
use xtask::running::Running;

use super::certificate::Chain;
use super::namespaces;

/// Maximum time until a server listens.
const START_MAX: Duration = Duration::from_secs(30);

/// The protocol of a page load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// HTTP/1.1 over TLS.
    H1,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/3.
    H3,
}

impl Protocol {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::H1, Self::H2, Self::H3];

    /// Its short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::H3 => "h3",
        }
    }

    /// Its name in the ALPN registry.
    pub(crate) fn alpn(self) -> &'static str {
        match self {
            Self::H1 => "http/1.1",
            Self::H2 => "h2",
            Self::H3 => "h3",
        }
    }
}

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// gannet with the page's directory.
    Gannet,
    /// nginx.
    Nginx,
    /// Caddy.
    Caddy,
    /// h2o.
    H2o,
}

impl Kind {
    /// All of them; gannet is the first.
    pub(crate) const ALL: [Self; 4] = [Self::Gannet, Self::Nginx, Self::Caddy, Self::H2o];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gannet => "gannet",
            Self::Nginx => "nginx",
            Self::Caddy => "caddy",
            Self::H2o => "h2o",
        }
    }

    /// Its host name.
    pub(crate) fn host(self) -> String {
        format!("{}.link.test", self.name())
    }

    /// The address on which it listens.
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 1, self as u8 + 1)
    }
}

/// The result of looking for a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Found {
    /// Its name.
    pub(crate) name: String,
    /// The program, or why it is left out.
    pub(crate) program: Result<Program, String>,
}

/// The program of a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Program {
    path: PathBuf,
    /// The version that it reports.
    pub(crate) version: String,
    /// Whether it supports HTTP/3.
    pub(crate) has_h3: bool,
}

/// Looks for a server; `gannet` is the path of gannet.
pub(crate) fn find(kind: Kind, gannet: &Path) -> Result<Program> {
    let path = match kind {
        Kind::Gannet => gannet.canonicalize()?,
        Kind::Nginx | Kind::Caddy | Kind::H2o => super::find(kind.name())?,
    };
    let says = |argument: &str| process::output(&path.to_string_lossy(), &[argument]);
    let (version, has_h3) = match kind {
        Kind::Gannet => (says("--version")?, says("--help-all")?.contains("http3")),
        Kind::Nginx => {
            let text = says("-V")?;
            let has_h3 = text.contains("http_v3_module");
            (
                text.trim_start_matches("nginx version: ").to_owned(),
                has_h3,
            )
        }
        Kind::Caddy => (format!("caddy {}", says("version")?), true),
        // Its settings show whether it was built with HTTP/3: the binary contains their names.
        Kind::H2o => {
            let name = b"http3-idle-timeout";
            let has_h3 = memchr::memmem::find(&fs::read(&path)?, name).is_some();
            (says("--version")?, has_h3)
        }
    };
    let version = version.lines().next().unwrap_or_default().to_owned();
    Ok(Program {
        path,
        version,
        has_h3,
    })
}

/// The inputs of a server.
pub(crate) struct Task<'t> {
    /// The folder of the page.
    pub(crate) site: &'t Path,
    /// Certificate and key.
    pub(crate) chain: &'t Chain,
    /// The folder for its configuration, output and state.
    pub(crate) folder: &'t Path,
}

/// Starts it, and waits until it listens.
pub(crate) fn start(kind: Kind, program: &Program, task: &Task<'_>) -> Result<Running> {
    let folder = task.folder.join(kind.name());
    fs::create_dir_all(&folder)?;
    let mut command = namespaces::in_server(&program.path)?;
    configure(kind, program, task, &folder, &mut command)?;
    let log = folder.join("log");
    let out = File::create(&log)?;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    let mut running = Running::start(&mut command)?;
    let address = SocketAddr::from((kind.address(), 443));
    let start = Instant::now();
    while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        if let Some(status) = running.0.try_wait()? {
            let said = fs::read_to_string(&log).unwrap_or_default();
            bail!("{} ended ({status}): {}", kind.name(), said.trim());
        }
        ensure!(
            start.elapsed() < START_MAX,
            "{} does not listen",
            kind.name()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

fn configure(
    kind: Kind,
    program: &Program,
    task: &Task<'_>,
    folder: &Path,
    command: &mut Command,
) -> Result<()> {
    let address = kind.address();
    let (site, here) = (task.site.display(), folder.display());
    let (chain, key) = (task.chain.chain.display(), task.chain.key.display());
    let write = |name: &str, text: String| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    match kind {
        Kind::Gannet => {
            command.args(["serve", "--workers", "1", "--log", "off", "--listen"]);
            command.arg(format!("{address}:443"));
            command.arg("--tls-cert").arg(&task.chain.chain);
            command.arg("--tls-key").arg(&task.chain.key);
            let help = process::output(&program.path.to_string_lossy(), &["--help-all"])?;
            // Builds differ in whether HTTP/3 is enabled by default.
            if help.contains("--http3") && !help.contains("--no-http3") {
                command.arg("--http3");
            }
            command.arg(task.site);
        }
        Kind::Nginx => {
            // Since 1.25.1, HTTP/2 has its own directive.
            let (quic, own, old) = match program.has_h3 {
                true => (format!("listen {address}:443 quic;"), "http2 on;", ""),
                false => (String::new(), "", " http2"),
            };
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|it| format!("{it}_temp_path {here}/{it};\n"))
                .concat();
            let path = write(
                "nginx.conf",
                format!(
                    "user root;\ndaemon off;\nworker_processes 1;\npid {here}/pid;\n\
                     error_log stderr crit;\nevents {{}}\nhttp {{\naccess_log off;\n\
                     types {{ text/html html; text/css css; text/javascript js; \
                     image/bmp bmp; font/woff2 woff2; }}\n{temporary}\
                     sendfile on;\ntcp_nopush on;\n\
                     server {{\nlisten {address}:443 ssl{old};\n{quic}\n{own}\n\
                     ssl_certificate {chain};\nssl_certificate_key {key};\n\
                     ssl_protocols TLSv1.2 TLSv1.3;\nroot {site};\n}}\n}}\n"
                ),
            )?;
            command.arg("-p").arg(folder).arg("-c").arg(path);
            command.args(["-e", "stderr"]);
        }
        Kind::Caddy => {
            let path = write(
                "Caddyfile",
                format!(
                    "{{\nadmin off\nauto_https off\nservers {{\nprotocols h1 h2 h3\n}}\n}}\n\
                     https://{} {{\nbind {address}\nroot * {site}\nfile_server\n\
                     tls {chain} {key}\n}}\n",
                    kind.host()
                ),
            )?;
            command
                .args(["run", "--adapter", "caddyfile", "--config"])
                .arg(path);
            // Keeps its state out of the user's home.
            command
                .env("XDG_DATA_HOME", folder)
                .env("XDG_CONFIG_HOME", folder);
        }
        Kind::H2o => {
            let tls = format!(
                "  ssl:\n    certificate-file: {chain}\n    key-file: {key}\n    \
                 minimum-version: TLSv1.2\n"
            );
            let quic = match program.has_h3 {
                true => format!("listen:\n  type: quic\n  host: {address}\n  port: 443\n{tls}"),
                false => String::new(),
            };
            let path = write(
                "h2o.conf",
                format!(
                    "user: root\nnum-threads: 1\n{quic}listen:\n  host: {address}\n  port: 443\n\
                     {tls}hosts:\n  default:\n    paths:\n      \"/\":\n        file.dir: {site}\n"
                ),
            )?;
            command.arg("-c").arg(path);
        }
    }
    Ok(())
}
