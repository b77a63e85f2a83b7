//! Tests caches in front of gannet with the configurations of the manual: what they store, and what
//! they must not store; then again with a server in between that requires a password; then with lifetimes of
//! a day, purged exactly.
//!
//! nginx, Varnish, Apache, squid and Traffic Server are installed if possible; those that are unavailable are
//! skipped with the reason.

mod exact;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use xtask::answer::{Answer, ask};
use xtask::other_server::{self, OtherServer};
use xtask::process;
use xtask::running::{PATIENCE, free_port};
use xtask::served::Served;

/// The page of the manual whose configurations are tested.
const PAGE: &str = "docs/manual/proxies.md";

/// Length of the film in bytes: more than a cache stores in one piece.
const FILM: usize = 20 << 20;

/// A cache: its name, its program, Debian's package, and the function that starts it.
type Cache = (&'static str, &'static str, &'static str, Start);
type Start = fn(&Path, &Setting<'_>) -> Result<Command>;

const CACHES: [Cache; 5] = [
    ("nginx", "nginx", "nginx-light", nginx),
    ("Varnish", "varnishd", "varnish", varnish),
    ("Apache", "apache2", "apache2-bin", apache),
    ("squid", "squid", "squid", squid),
    (
        "Traffic Server",
        "traffic_manager",
        "trafficserver",
        |program, setting| traffic_server(program, setting, &[]),
    ),
];

/// The environment of a cache.
struct Setting<'s> {
    /// The text of the manual.
    page: &'s str,
    folder: &'s Path,
    port: u16,
    /// Port of the server behind it.
    upstream: &'s str,
}

/// Runs all tests.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    if let Some(argument) = parser.next()? {
        return Err(argument.unexpected().into());
    }
    let page = fs::read_to_string(process::root().join(PAGE))?;
    let gannet = process::build(&["-p", "gannet"], "dev")?;
    let folder = std::env::temp_dir().join(format!("gannet-caches-{}", std::process::id()));
    let result =
        try_all(&page, &gannet, &folder).and_then(|()| exact::all(&page, &gannet, &folder));
    fs::remove_dir_all(&folder)?;
    result
}

fn try_all(page: &str, gannet: &Path, folder: &Path) -> Result<()> {
    for (name, program, package, start) in CACHES {
        let program = match process::find_or_install(program, package) {
            Ok(program) => program,
            Err(error) => {
                println!("{name}: skipped: {error:#}");
                continue;
            }
        };
        // A name without a space, which Traffic Server does not take in a path.
        let folder = folder.join(package);
        let site = write_site(&folder)?;
        let mut server = Command::new(gannet);
        server.args(["serve", "--listen", "127.0.0.1:0", "--log", "off", "--spa"]);
        server.args(["--workers", "1", "--metrics", "127.0.0.1:0"]);
        let server = Served::start(server.arg(&site))?.context("gannet does not start")?;
        let setting = Setting {
            page,
            folder: &folder.join("open"),
            port: free_port()?,
            upstream: &server.port,
        };
        let trial = Trial {
            name,
            port: setting.port,
            server: &server,
            site: &site,
            folder: setting.folder,
        };
        with_cache(start, &program, &setting, || trial.all()).context(name)?;
        println!("{name}: stores, revalidates, cuts ranges, keeps codings apart, spares errors");
        let guard = match process::find_or_install("nginx", "nginx-light") {
            Ok(nginx) => Guard::start(&nginx, &folder, &server.port)?,
            Err(error) => {
                println!("{name} before a password: skipped: {error:#}");
                continue;
            }
        };
        let setting = Setting {
            folder: &folder.join("closed"),
            port: free_port()?,
            upstream: &guard.port.to_string(),
            ..setting
        };
        let protects = || protects(setting.port);
        with_cache(start, &program, &setting, protects).context(name)?;
        println!("{name}: stores nothing that needs a password");
    }
    Ok(())
}

/// Runs a cache for the duration of `trial`.
fn with_cache(
    start: impl Fn(&Path, &Setting<'_>) -> Result<Command>,
    program: &Path,
    setting: &Setting<'_>,
    trial: impl FnOnce() -> Result<()>,
) -> Result<()> {
    make_open(setting.folder)?;
    let cache = start_logged(start(program, setting)?, setting.folder, setting.port);
    let result = cache.and_then(|_cache| trial());
    if result.is_err() {
        let log = fs::read_to_string(setting.folder.join("log")).unwrap_or_default();
        eprintln!("{log}");
    }
    result
}

/// Starts a server whose output goes to a file in the folder.
fn start_logged(mut command: Command, folder: &Path, port: u16) -> Result<OtherServer> {
    let log = fs::File::create(folder.join("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    OtherServer::start(command.stderr(log), port)
}

/// nginx, which requires a password before it forwards.
struct Guard {
    port: u16,
    _running: OtherServer,
}

impl Guard {
    fn start(program: &Path, folder: &Path, upstream: &str) -> Result<Self> {
        let folder = folder.join("guard");
        fs::create_dir_all(&folder)?;
        let users = folder.join("users");
        fs::write(&users, "u:{PLAIN}pw\n")?;
        let port = free_port()?;
        let text = format!(
            "server {{\nlisten 127.0.0.1:{port};\nauth_basic site;\n\
             auth_basic_user_file {};\n\
             location / {{ proxy_pass http://127.0.0.1:{upstream}; }}\n}}",
            users.display()
        );
        let nginx = other_server::nginx(program, &folder, &text)?;
        let running = start_logged(nginx, &folder, port).context("nginx with a password")?;
        Ok(Self {
            port,
            _running: running,
        })
    }
}

/// Answers sent to a client with the password must not be sent to others.
fn protects(port: u16) -> Result<()> {
    let password = ["Authorization: Basic dTpwdw=="];
    for path in ["/", "/_astro/app.js"] {
        for _ in 0..2 {
            let got = ask(port, "GET", path, &password)?;
            ensure!(got.status == 200, "{path}: {}", got.head);
        }
        let got = ask(port, "GET", path, &[])?;
        ensure!(
            got.status == 401,
            "{path} without the password: {}",
            got.head
        );
    }
    Ok(())
}

/// The configuration in the manual after this mark.
fn configuration(setting: &Setting<'_>, mark: &str) -> Result<String> {
    let (_, rest) = setting
        .page
        .split_once(&format!("<!-- {mark} -->\n"))
        .with_context(|| format!("the page has no '{mark}'"))?;
    let (_, rest) = rest.split_once('\n').context("a fence")?;
    let (text, _) = rest.split_once("```").context("the end of the fence")?;
    let cache = setting.folder.join("cache");
    Ok(text
        .replace("UPSTREAM_HOST", "127.0.0.1")
        .replace("UPSTREAM_PORT", setting.upstream)
        .replace("UPSTREAM", &format!("127.0.0.1:{}", setting.upstream))
        .replace("CACHE", &cache.display().to_string())
        .replace("PORT", &format!("127.0.0.1:{}", setting.port)))
}

fn nginx(program: &Path, setting: &Setting<'_>) -> Result<Command> {
    let own = configuration(setting, "nginx.conf")?;
    other_server::nginx(program, setting.folder, &own)
}

fn varnish(program: &Path, setting: &Setting<'_>) -> Result<Command> {
    varnish_with(program, setting, &configuration(setting, "site.vcl")?)
}

fn varnish_with(program: &Path, setting: &Setting<'_>, own: &str) -> Result<Command> {
    let path = setting.folder.join("site.vcl");
    fs::write(&path, own)?;
    let mut command = Command::new(program);
    command.args(["-F", "-a", &format!("127.0.0.1:{}", setting.port), "-f"]);
    command
        .arg(path)
        .arg("-n")
        .arg(setting.folder.join("varnish"));
    command.args(["-s", "malloc,128m"]);
    Ok(command)
}

fn apache(program: &Path, setting: &Setting<'_>) -> Result<Command> {
    let folder = setting.folder.display();
    let modules = [
        "mpm_event",
        "authz_core",
        "proxy",
        "proxy_http",
        "cache",
        "cache_disk",
    ];
    let load =
        |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let user = match rustix::process::geteuid().is_root() {
        true => "User www-data\nGroup www-data\n",
        false => "",
    };
    let text = format!(
        "ServerName localhost\nServerRoot {folder}\nPidFile {folder}/pid\nErrorLog {folder}/error\n\
         DefaultRuntimeDir {folder}\nListen 127.0.0.1:{}\n{}{user}CacheLockPath {folder}/lock\n\
         CacheMaxFileSize 100000000\n{}",
        setting.port,
        modules.map(load).concat(),
        configuration(setting, "apache.conf")?
    );
    let path = setting.folder.join("apache.conf");
    fs::write(&path, text)?;
    let mut command = Command::new(program);
    command.args(["-X", "-f"]).arg(path);
    Ok(command)
}

fn squid(program: &Path, setting: &Setting<'_>) -> Result<Command> {
    let folder = setting.folder.display();
    let text = format!(
        "{}pid_filename {folder}/pid\naccess_log none\ncache_log {folder}/lock/log\ncoredump_dir {folder}\n\
         pinger_enable off\nshutdown_lifetime 1 seconds\n",
        configuration(setting, "squid.conf")?
    );
    let path = setting.folder.join("squid.conf");
    fs::write(&path, text)?;
    let mut command = Command::new(program);
    command.args(["-N", "-f"]).arg(path);
    Ok(command)
}

/// With further files of its configuration. All that it writes is in the folder.
fn traffic_server(
    program: &Path,
    setting: &Setting<'_>,
    more: &[(&str, String)],
) -> Result<Command> {
    let folder = setting.folder.display();
    let own = setting.folder.join("etc");
    let records = format!(
        "{}CONFIG proxy.config.http.server_ports STRING {}:ip-in=127.0.0.1\n\
         CONFIG proxy.config.admin.user_id STRING #-1\nCONFIG proxy.config.crash_log_helper STRING NULL\n\
         CONFIG proxy.config.log.logging_enabled INT 0\n",
        configuration(setting, "records.config")?,
        setting.port
    );
    // As Debian's, for this machine alone.
    let allowed = "ip_allow:\n  - {apply: in, ip_addrs: 127.0.0.1, action: allow, methods: ALL}\n";
    let folders = format!(
        "prefix: {folder}\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\n\
         sysconfdir: {folder}/etc\ndatadir: {folder}\nincludedir: /usr/include\nlibdir: /usr/lib\n\
         libexecdir: /usr/lib/trafficserver/modules\nlocalstatedir: {folder}/lock\n\
         runtimedir: {folder}/lock\nlogdir: {folder}/lock\ncachedir: {folder}/cache\n"
    );
    fs::create_dir_all(&own)?;
    let files = [
        ("records.config", records),
        ("storage.config", configuration(setting, "storage.config")?),
        ("remap.config", configuration(setting, "remap.config")?),
        ("ip_allow.yaml", allowed.to_owned()),
        ("runroot.yaml", folders),
    ];
    for (name, text) in files.iter().chain(more) {
        fs::write(own.join(name), text)?;
    }
    let mut command = Command::new(program);
    command.arg("--nosyslog");
    command.env("TS_RUNROOT", own.join("runroot.yaml"));
    Ok(command)
}

/// Creates folders that the cache's user can write to.
fn make_open(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for open in ["cache", "lock"] {
        fs::create_dir_all(folder.join(open))?;
        fs::set_permissions(folder.join(open), fs::Permissions::from_mode(0o777))?;
    }
    Ok(())
}

fn write_site(folder: &Path) -> Result<PathBuf> {
    let site = folder.join("site");
    fs::create_dir_all(site.join("_astro"))?;
    fs::write(site.join("index.html"), "<p>first")?;
    fs::write(site.join("_astro/app.js"), "1")?;
    fs::write(site.join("film.bin"), film())?;
    let text = "body { color: red }\n".repeat(500);
    fs::write(site.join("style.css"), &text)?;
    let mut gzip = Command::new("gzip");
    process::run(gzip.args(["-9", "-k", "-n"]).arg(site.join("style.css")))?;
    Ok(site)
}

fn film() -> Vec<u8> {
    (0..FILM).map(|at| (at / 7 % 251) as u8).collect()
}

/// A cache with a server behind it.
struct Trial<'t> {
    name: &'t str,
    port: u16,
    server: &'t Served,
    site: &'t Path,
    folder: &'t Path,
}

impl Trial<'_> {
    fn all(&self) -> Result<()> {
        self.stores_and_revalidates().context("storing")?;
        self.cuts_ranges().context("ranges")?;
        self.keeps_codings_apart().context("codings")?;
        self.spares_errors().context("errors")?;
        self.spares_pictures().context("pages for pictures")?;
        self.purges().context("purging")
    }

    fn ask(&self, method: &str, path: &str, fields: &[&str]) -> Result<Answer> {
        ask(self.port, method, path, fields)
    }

    /// The number of 304 answers that gannet has sent.
    fn count(&self) -> Result<u64> {
        self.server
            .metric("gannet_worker_responses_total{worker=\"0\"}")
    }

    fn not_modified(&self) -> Result<u64> {
        // The metric does not exist before the first.
        let found = self.server.metric("gannet_responses_total{status=\"304\"}");
        Ok(found.unwrap_or(0))
    }

    /// Within a second, the second request is answered from the cache. Repeated, since a busy
    /// machine may take longer for both.
    fn stores_and_revalidates(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let first = self.ask("GET", "/", &[])?;
            let count = self.count()?;
            let second = self.ask("GET", "/", &[])?;
            ensure!(
                first.status == 200 && second.body == first.body,
                "{}",
                second.head
            );
            if self.count()? == count {
                break;
            }
            ensure!(start.elapsed() < PATIENCE, "never a hit");
        }
        let before = self.not_modified()?;
        while self.not_modified()? == before {
            let again = self.ask("GET", "/", &[])?;
            ensure!(
                again.status == 200 && again.body == b"<p>first",
                "{}",
                again.head
            );
            ensure!(start.elapsed() < PATIENCE, "it is never revalidated");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn cuts_ranges(&self) -> Result<()> {
        let film = film();
        let early = self.ask("GET", "/film.bin", &["Range: bytes=5-14"])?;
        let whole = self.ask("GET", "/film.bin", &[])?;
        ensure!(whole.status == 200 && whole.body == film, "{}", whole.head);
        let late = self.ask("GET", "/film.bin", &["Range: bytes=19000000-19000999"])?;
        for (got, range) in [(early, 5..15), (late, 19_000_000..19_001_000)] {
            ensure!(got.status == 206, "{}", got.head);
            ensure!(got.body == film[range], "other bytes");
        }
        Ok(())
    }

    fn keeps_codings_apart(&self) -> Result<()> {
        let plain = fs::read(self.site.join("style.css"))?;
        let coded = fs::read(self.site.join("style.css.gz"))?;
        for _ in 0..2 {
            let got = self.ask("GET", "/style.css", &["Accept-Encoding: gzip"])?;
            ensure!(
                got.field("content-encoding") == Some("gzip"),
                "{}",
                got.head
            );
            ensure!(got.body == coded, "other bytes than the stored gzip");
            let got = self.ask("GET", "/style.css", &[])?;
            ensure!(got.field("content-encoding").is_none(), "{}", got.head);
            ensure!(got.body == plain, "other bytes than the file");
        }
        Ok(())
    }

    /// A script requested too early is found as soon as it exists.
    fn spares_errors(&self) -> Result<()> {
        let missing = self.ask("GET", "/chunk.js", &[])?;
        ensure!(missing.status == 404, "{}", missing.head);
        fs::write(self.site.join("chunk.js"), "1")?;
        let found = self.ask("GET", "/chunk.js", &[])?;
        ensure!(found.status == 200 && found.body == b"1", "{}", found.head);
        Ok(())
    }

    /// A page served for navigation is not sent for an image of that name.
    fn spares_pictures(&self) -> Result<()> {
        let picture = ["Accept: image/avif,*/*;q=0.8"];
        let modes = [
            (picture, 404),
            (["Sec-Fetch-Mode: navigate"], 200),
            (picture, 404),
            (["Accept: text/html,*/*;q=0.8"], 200),
            (picture, 404),
        ];
        for (field, status) in modes {
            let got = self.ask("GET", "/logo-v2.png", &field)?;
            ensure!(got.status == status, "{field:?}: {}", got.head);
        }
        Ok(())
    }

    fn purges(&self) -> Result<()> {
        fs::write(self.site.join("new.html"), "<p>second")?;
        fs::rename(self.site.join("new.html"), self.site.join("index.html"))?;
        let upstream = &self.server.port;
        let start = Instant::now();
        while ask(upstream, "GET", "/", &[])?.body != b"<p>second" {
            ensure!(start.elapsed() < PATIENCE, "gannet does not see the change");
            std::thread::sleep(Duration::from_millis(50));
        }
        match self.name {
            "Varnish" | "Traffic Server" => {
                let purged = self.ask("PURGE", "/", &[])?;
                ensure!(purged.status == 200, "{}", purged.head);
            }
            "nginx" | "Apache" => {
                for item in fs::read_dir(self.folder.join("cache"))? {
                    let path = item?.path();
                    match path.is_dir() {
                        true => fs::remove_dir_all(path)?,
                        false => fs::remove_file(path)?,
                    }
                }
            }
            // The next revalidation has it.
            _ => {
                while self.ask("GET", "/", &[])?.body != b"<p>second" {
                    ensure!(start.elapsed() < PATIENCE, "the change does not show");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        let got = self.ask("GET", "/", &[])?;
        ensure!(got.body == b"<p>second", "{}", got.head);
        Ok(())
    }
}
