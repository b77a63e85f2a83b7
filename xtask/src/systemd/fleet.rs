//! What runs beside a server: followers of a store, and who orders certificates.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use xtask::process;
use xtask::running::{Running, until};

use super::clients::get;
use super::machine::{Machine, PAGE, PROGRAM, Trial};

/// See the module documentation.
pub(super) const TRIALS: &[Trial] = &[
    (
        "follower: a copy is made and kept, and served by the service",
        follows,
    ),
    ("follower: killed, it comes back", follower_comes_back),
    ("follower: a server that follows by itself", serves_a_url),
    ("acme: gannet-acme orders for the service", orders),
    (
        "acme: a server that orders by itself, reloaded",
        orders_by_itself,
    ),
    ("acme: remove", is_removed),
];

/// The store of which copies are made; the folder above it is served at [`STORE_PORT`].
const STORE: &str = "/srv/releases/site";
const STORE_PORT: u16 = 8090;
/// Where pebble finds what it validates: as if a name server said so.
const HOST: &str = "gannet.test";
const DIRECTORY: &str = "https://127.0.0.1:14000/dir";

fn publish(machine: &Machine, page: &str) -> Result<()> {
    fs::create_dir_all("/srv/source")?;
    fs::create_dir_all("/srv/releases")?;
    fs::write("/srv/source/index.html", page)?;
    machine
        .run(&format!(
            "{PROGRAM} publish /srv/source {STORE} --fast --quiet"
        ))
        .map(drop)
}

fn serves(page: &str) -> Result<()> {
    until(&format!("'{page}' is served"), || {
        get(80, "/").is_ok_and(|answer| answer.ends_with(page))
    })
}

fn follows(machine: &Machine) -> Result<()> {
    publish(machine, "first")?;
    // As the administrator of another machine has it.
    machine.run(&format!(
        "systemd-run --unit=trial-store --quiet {PROGRAM} serve /srv/releases --port {STORE_PORT}"
    ))?;
    machine.run(&format!("{PROGRAM} install && systemctl daemon-reload"))?;
    machine.run("useradd --system --shell /usr/sbin/nologin gannet-follow")?;
    let unit = "gannet-follow@.service";
    fs::copy(
        machine.shared(unit),
        Path::new("/etc/systemd/system").join(unit),
    )?;
    fs::write(
        "/etc/gannet/follow-site.env",
        format!("URL=http://127.0.0.1:{STORE_PORT}/site\nOPTIONS=--interval 1s\n"),
    )?;
    machine.run("systemctl daemon-reload && systemctl enable --now gannet-follow@site")?;
    until("the copy is there", || {
        Path::new("/var/lib/gannet-follow/site/current").exists()
    })?;
    let configured = "/etc/gannet/gannet.toml";
    let text = fs::read_to_string(configured)?;
    fs::write(
        configured,
        text.replace("/srv/www", "/var/lib/gannet-follow/site"),
    )?;
    machine.run("systemctl enable --now gannet")?;
    serves("first")?;
    publish(machine, "second")?;
    serves("second")
}

fn follower_comes_back(machine: &Machine) -> Result<()> {
    let unit = "gannet-follow@site.service";
    let old = machine.property(unit, "MainPID")?;
    machine.run(&format!("kill -KILL {old}"))?;
    until("another follower runs", || {
        machine
            .property(unit, "MainPID")
            .is_ok_and(|new| new != old && new != "0")
    })?;
    publish(machine, "third")?;
    serves("third")?;
    machine
        .run(&format!("systemctl disable --now {unit}"))
        .map(drop)
}

/// The follower is a process of the service, which ends with it.
fn serves_a_url(machine: &Machine) -> Result<()> {
    let configured = "/etc/gannet/gannet.toml";
    let text = fs::read_to_string(configured)?;
    let url = format!("http://127.0.0.1:{STORE_PORT}/site");
    fs::write(
        configured,
        text.replace("/var/lib/gannet-follow/site", &url),
    )?;
    machine.run("systemctl reload gannet")?;
    serves("third")?;
    publish(machine, "fourth")?;
    serves("fourth")?;
    machine.run("systemctl stop gannet trial-store")?;
    machine.nothing_runs()?;
    fs::remove_file(configured)?;
    machine.run(&format!("{PROGRAM} install")).map(drop)
}

/// Pebble at its usual port, which validates at 80 and 443; `None` where it could not be had.
fn pebble(machine: &Machine) -> Result<Option<Running>> {
    let program = machine.shared("pebble");
    if !program.exists() {
        println!("        left out: there is no pebble, and no Go to install it");
        return Ok(None);
    }
    let hosts = fs::read_to_string("/etc/hosts")?;
    fs::write("/etc/hosts", format!("{hosts}\n127.0.0.1 {HOST}\n"))?;
    machine.run(&format!("XDG_DATA_HOME=/srv/authority {PROGRAM} cert"))?;
    let tls = "/srv/authority/gannet/tls";
    machine.run("chmod -R a+rX /srv/authority")?;
    let config = serde_json::json!({ "pebble": {
        "listenAddress": "127.0.0.1:14000",
        "managementListenAddress": "127.0.0.1:15000",
        "certificate": format!("{tls}/localhost.pem"),
        "privateKey": format!("{tls}/localhost.pem"),
        "httpPort": 80,
        "tlsPort": 443,
        "retryAfter": { "authz": 1, "order": 1 },
        "keyAlgorithm": "ecdsa",
        "profiles": { "default": { "description": "", "validityPeriod": 7_776_000 } },
    }});
    fs::write("/srv/pebble.json", config.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["-config", "/srv/pebble.json"])
        .env("PEBBLE_VA_NOSLEEP", "1");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(&mut command)?;
    until("pebble listens", || {
        TcpStream::connect("127.0.0.1:14000").is_ok()
    })?;
    Ok(Some(running))
}

/// What trusts pebble, in the environment of a service.
const TRUST: &str = "SSL_CERT_FILE=/srv/authority/gannet/tls/authority.pem";

fn orders(machine: &Machine) -> Result<()> {
    let Some(_pebble) = pebble(machine)? else {
        return Ok(());
    };
    machine.make_site()?;
    fs::write(
        "/etc/gannet/acme.env",
        format!("HOSTS={HOST}\nOPTIONS=--server {DIRECTORY}\n{TRUST}\n"),
    )?;
    machine.run("systemctl start gannet && systemctl enable --now gannet-acme")?;
    machine.says("gannet-acme.service", "thumbprint")?;
    let journal = machine.journal("gannet-acme.service", 30)?;
    let thumbprint = journal
        .split(|letter: char| !(letter.is_ascii_alphanumeric() || "-_".contains(letter)))
        .find(|word| word.len() == 43);
    let thumbprint = thumbprint.unwrap_or_default();
    machine.configure(&format!("acme.thumbprint = \"{thumbprint}\""))?;
    machine.run("systemctl reload gannet && systemctl restart gannet-acme")?;
    let certificate = format!("/var/lib/gannet/acme/certificates/{HOST}.pem");
    until("there is a certificate", || {
        Path::new(&certificate).exists()
    })?;
    machine.run("systemctl disable --now gannet-acme").map(drop)
}

/// A reload ends one process that orders, and begins another.
fn orders_by_itself(machine: &Machine) -> Result<()> {
    let Some(_pebble) = pebble(machine)? else {
        return Ok(());
    };
    let drop_in = "/etc/systemd/system/gannet.service.d";
    fs::create_dir_all(drop_in)?;
    fs::write(
        Path::new(drop_in).join("trust.conf"),
        format!("[Service]\nEnvironment={TRUST}\n"),
    )?;
    machine.run("systemctl daemon-reload")?;
    let text = format!(
        "path = \"/srv/www\"\nacme = [\"{HOST}\"]\nacme-server = \"{DIRECTORY}\"\n\
         log-file = \"/var/log/gannet/access.log\"\n"
    );
    fs::write("/etc/gannet/gannet.toml", &text)?;
    machine.run("systemctl restart gannet")?;
    let page = || {
        let url = format!("https://{HOST}/");
        process::capture(Command::new("curl").args(["-sSfk", "--noproxy", "*", &url]))
    };
    until("the certificate is served", || {
        page().is_ok_and(|page| page.trim() == PAGE.trim())
    })?;
    let old = machine.main_process()?;
    fs::write(
        "/etc/gannet/gannet.toml",
        text + "metrics = \"127.0.0.1:9100\"\n",
    )?;
    machine.run("systemctl reload gannet")?;
    get(9100, "/metrics")?;
    ensure!(machine.main_process()? != old, "the same process");
    page()?;
    // The old process has ended, and what it ran with it.
    until("one process orders", || {
        machine
            .run("ps -u gannet -o args= | grep -c ' acme '")
            .is_ok_and(|it| it == "1")
    })?;
    fs::remove_dir_all(drop_in)?;
    machine.run("systemctl daemon-reload && systemctl stop gannet")?;
    machine.nothing_runs()
}

fn is_removed(machine: &Machine) -> Result<()> {
    machine.run("systemctl disable --now gannet; systemctl disable --now gannet-acme")?;
    for own in [
        "gannet.toml",
        "gannet.toml.installed",
        "acme.env",
        "follow-site.env",
    ] {
        let _ = fs::remove_file(Path::new("/etc/gannet").join(own));
    }
    machine.run("rm -f /etc/systemd/system/gannet-follow@.service")?;
    machine.make_site()?;
    machine.is_removed()
}
