//! `gannet health`: asks a running server whether it is well.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use clap::ArgMatches;
use gannet_get::{Client, GetError, Options, Url};
use gannet_server::config::{ListenAddress, Scheme};
use gannet_server::tls::clients::Demand;

use super::serve::{addresses, outlook};
use super::{check_trust, print, resolve};
use crate::command_line::layers::Origins;
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::command_line::settings::Settings;
use crate::messages::{Exit, Failure, printable};

/// How long the answer may take as a whole: a server gives its workers 0.8 s, and health checks of
/// containers that take longer than a few seconds are killed.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Asks, and prints `ok`. Whatever fails ends with status 1: Docker reserves 2.
///
/// # Errors
/// The server is not well, or there is nothing to ask.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    ask(matches).map_err(|failure| Failure {
        exit: Exit::Failed,
        ..failure
    })?;
    print("ok\n")
}

fn ask(matches: &ArgMatches) -> Result<(), Failure> {
    let mut options = Options {
        is_insecure: matches.get_flag("insecure"),
        cacert: matches.get_one::<OsString>("cacert").map(PathBuf::from),
        ..Options::default()
    };
    check_trust(options.is_insecure, options.cacert.as_ref())?;
    let typed = match matches.get_one::<OsString>("url") {
        Some(url) => url.to_string_lossy().into_owned(),
        None => {
            // The certificate names the site, and it is this machine that is asked.
            options = Options {
                is_insecure: true,
                ..Options::default()
            };
            let (settings, origins) = resolve(SERVE_FLAGS, "", matches)?;
            configured(&settings, &origins)?
        }
    };
    let url = Url::parse(&typed).map_err(|cause| {
        let typed = printable(&typed);
        Failure::usage(format!("the URL '{typed}' cannot be used: {cause}"))
            .help("write it as http://HOST:PORT/PATH")
    })?;
    let (sender, answer) = channel();
    thread::spawn(move || {
        let answer = Client::new(options).measure(&[url], &mut ());
        // The receiver is gone if it took too long.
        let _ = sender.send(answer);
    });
    match answer.recv_timeout(ANSWER_MAX) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(mut error)) => {
            if let GetError::Failed { doing, .. } = &mut error {
                *doing = "ask";
            }
            Err(error.into())
        }
        Err(_) => {
            let late = format!("no answer within {} s", ANSWER_MAX.as_secs());
            Err(Failure::new("ask", typed, late))
        }
    }
}

/// The URL that the server's own configuration names: its metrics', else that of the path for load
/// balancers.
fn configured(settings: &Settings, origins: &Origins) -> Result<String, Failure> {
    if let Some(metrics) = settings.server.metrics {
        return Ok(format!("http://{}/health", of_this_machine(metrics)));
    }
    let Some(path) = &settings.server.content.health else {
        return Err(Failure::usage(
            "nothing to request: neither --metrics nor --health is configured",
        )
        .help(
            "set GANNET_METRICS=127.0.0.1:9100 for the server and the check, or name a URL: \
                 'gannet health http://127.0.0.1:8080/'",
        ));
    };
    let plan = outlook::plan(settings, origins)?;
    // This check has none.
    let is_optional = settings.tls.client_demand == Some(Demand::Optional);
    let needs_certificate = !settings.tls.client_authorities.is_empty() && !is_optional;
    let mut urls = plan
        .addresses
        .iter()
        .filter(|one| !(needs_certificate && one.scheme == Scheme::Https))
        .filter_map(|one| match &one.address {
            ListenAddress::Tcp(address) if one.scheme != Scheme::Redirect && !one.is_proxied => {
                let address = of_this_machine(*address);
                Some(addresses::url(address, one.scheme))
            }
            _ => None,
        });
    match urls.next() {
        Some(url) => Ok(format!("{}{path}", url.trim_end_matches('/'))),
        None => Err(Failure::usage(
            "no address takes requests of this check: over TCP, without a certificate",
        )
        .help("add --metrics 127.0.0.1:9100, which is used instead")),
    }
}

/// A listener at all addresses answers at loopback.
fn of_this_machine(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::arguments::{Form, command};
    use crate::command_line::commands::all_flags;
    use crate::command_line::config_file::parse;
    use crate::command_line::layers;

    fn check(file: &str, expect: Result<&str, &str>) {
        let typed = command(Form::Parsing).try_get_matches_from(["gannet", "health"]);
        let typed = typed.expect("parses");
        let (_, matches) = typed.subcommand().expect("a command");
        let file = parse("site.toml", file, &all_flags()).expect("valid");
        let (settings, origins) =
            layers::resolve(SERVE_FLAGS, "", matches, &Default::default(), &file).expect("valid");
        match (configured(&settings, &origins), expect) {
            (Ok(url), expect) => assert_eq!(Ok(&*url), expect),
            (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{failure}"),
            (Err(failure), Ok(_)) => panic!("{failure}"),
        }
    }

    #[test]
    fn the_configuration_of_the_server_says_what_to_ask() {
        check("", Err("neither --metrics nor --health"));
        check("metrics = '9100'", Ok("http://127.0.0.1:9100/health"));
        check(
            "metrics = '0.0.0.0:1'\nhealth = '/h'",
            Ok("http://127.0.0.1:1/health"),
        );
        check("metrics = '[::]:1'", Ok("http://[::1]:1/health"));
        check("health = '/h'", Ok("http://127.0.0.1:8080/h"));
        check("health = '/h'\nport = 80", Ok("http://127.0.0.1/h"));
        check(
            "health = '/h'\nexpose = true",
            Ok("http://127.0.0.1:8080/h"),
        );
        check(
            "health = '/h'\ntls-cert = ['c.pem']",
            Ok("https://127.0.0.1:8443/h"),
        );
        let clients = "health = '/h'\ntls-cert = ['c.pem']\ntls-client-ca = ['ca.pem']";
        check(clients, Err("no address takes requests"));
        check(
            &format!("{clients}\nlisten = ['http://127.0.0.1:81', 'https://127.0.0.1:82']"),
            Ok("http://127.0.0.1:81/h"),
        );
        let optional = format!("{clients}\ntls-client-auth = 'optional'");
        check(&optional, Ok("https://127.0.0.1:8443/h"));
        let listen = |list: &str, expect| check(&format!("health = '/h'\nlisten = {list}"), expect);
        listen("['unix:/s', '192.0.2.1:81']", Ok("http://192.0.2.1:81/h"));
        listen("['unix:/s']", Err("no address takes requests"));
    }
}
