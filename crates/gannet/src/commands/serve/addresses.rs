//! Binds sockets as configured: the default port moves if it is busy, a given one never does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use gannet_io::user::is_root;
use gannet_server::Bound;
use gannet_server::config::{ListenAddress, Scheme};

use rustix::io::Errno;

use crate::command_line::layers::{Origin, Origins};
use crate::command_line::settings::{Listen, Settings};
use crate::commands::serve::binding::{Binding, Failed, with_port};
use crate::commands::serve::port_owner::port_owner;
use crate::commands::serve::sockets::Sockets;
use crate::messages::{Failure, cause, next_step};

/// The port when none is given.
pub const PORT: u16 = 8080;

/// The same with HTTPS.
pub const TLS_PORT: u16 = 8443;

/// How many ports are tried, counting the default one. Trying more would hide a real problem.
const PORTS_TRIED: u16 = 20;

/// Where to listen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListenPlan {
    /// Addresses with their schemes, in the order in which they are bound and printed.
    pub addresses: Vec<WantedAddress>,
    /// The default port, if all addresses have it: it may move.
    pub movable: Option<u16>,
}

/// An address to bind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedAddress {
    /// The address.
    pub address: ListenAddress,
    /// The protocol there.
    pub scheme: Scheme,
    /// Connections start with a header of the PROXY protocol.
    pub is_proxied: bool,
}

/// What was bound.
#[derive(Debug)]
pub struct Listening {
    /// In the order of [`ListenPlan::addresses`].
    pub bound: Vec<Bound>,
    /// A note for the user, if this differs from the expected addresses.
    pub note: Option<String>,
}

/// Decides where to listen.
///
/// `--listen` names complete addresses, `--port` and `--expose` compose them. The higher layer
/// wins. In the same layer the two ways contradict each other, unless `--listen` names Unix sockets
/// only: then all of them are bound. Without any of these, they are the addresses of the service
/// manager's sockets, if it has passed any.
///
/// # Errors
/// The flags contradict each other, or HTTPS has no certificate.
pub fn plan(
    settings: &Settings,
    origins: &Origins,
    sockets: &Sockets,
) -> Result<ListenPlan, Failure> {
    let origin = |name: &str| origins.get(name).copied();
    let listen = origin("listen").filter(|_| !settings.listen.is_empty());
    let expose = origin("expose").filter(|_| settings.expose);
    let is_unix = |it: &Listen| matches!(it.address, ListenAddress::Unix(_));
    // A Unix socket has no port, so a port adds an address.
    let has_only_unix = settings.listen.iter().all(is_unix);
    for (name, other) in [("--port", origin("port")), ("--expose", expose)] {
        if listen.is_some() && other == listen && !has_only_unix {
            let message = format!("{name} and --listen contradict each other");
            return Err(
                Failure::usage(message).help("name every address with --listen ADDR:PORT, or none")
            );
        }
    }
    let made_up: Option<Origin> = origin("port").max(expose);
    if listen.is_some() && listen > made_up {
        return Ok(ListenPlan {
            addresses: named(settings)?,
            movable: None,
        });
    }
    let passed = sockets.addresses(&settings.tls);
    if listen.is_none() && made_up.is_none() && !passed.is_empty() {
        check_schemes(settings, &passed)?;
        return Ok(ListenPlan {
            addresses: passed,
            movable: None,
        });
    }
    if listen.is_none() && made_up.is_none() && settings.tls.acme.is_wanted() {
        return Ok(ListenPlan {
            addresses: public(settings),
            movable: None,
        });
    }
    let default = match super::tls::is_wanted(&settings.tls) {
        true => TLS_PORT,
        false => PORT,
    };
    let port = settings.port.unwrap_or(default);
    let tcp = |address: IpAddr| {
        let address = ListenAddress::Tcp(SocketAddr::new(address, port));
        let scheme = super::tls::scheme(&settings.tls, &address);
        WantedAddress {
            address,
            scheme,
            is_proxied: false,
        }
    };
    let mut addresses = if settings.expose {
        vec![
            tcp(Ipv4Addr::UNSPECIFIED.into()),
            tcp(Ipv6Addr::UNSPECIFIED.into()),
        ]
    } else {
        vec![tcp(Ipv4Addr::LOCALHOST.into())]
    };
    if listen.is_some() && listen == made_up {
        addresses.extend(named(settings)?);
    }
    Ok(ListenPlan {
        addresses,
        movable: settings.port.is_none().then_some(default),
    })
}

/// Where clients and ACME servers look for a site of a public name: HTTPS, and a redirect to it unless
/// that has an address.
fn public(settings: &Settings) -> Vec<WantedAddress> {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let at = |port, scheme| {
        all.map(|address| WantedAddress {
            address: ListenAddress::Tcp(SocketAddr::new(address, port)),
            scheme,
            is_proxied: false,
        })
    };
    let mut addresses = at(443, Scheme::Https).to_vec();
    if settings.tls.redirects.is_empty() {
        addresses.extend(at(80, Scheme::Redirect));
    }
    addresses
}

/// The addresses of `--http-redirect`.
pub(super) fn redirects(settings: &Settings) -> ListenPlan {
    let clear = |address: &SocketAddr| WantedAddress {
        address: ListenAddress::Tcp(*address),
        scheme: Scheme::Redirect,
        is_proxied: false,
    };
    ListenPlan {
        addresses: settings.tls.redirects.iter().map(clear).collect(),
        movable: None,
    }
}

/// The addresses of `--listen`, with their schemes.
fn named(settings: &Settings) -> Result<Vec<WantedAddress>, Failure> {
    let scheme = |listen: &Listen| {
        let usual = || super::tls::scheme(&settings.tls, &listen.address);
        listen.scheme.unwrap_or_else(usual)
    };
    let named: Vec<_> = settings
        .listen
        .iter()
        .map(|listen| WantedAddress {
            address: listen.address.clone(),
            scheme: scheme(listen),
            is_proxied: listen.is_proxied,
        })
        .collect();
    let is_open =
        |it: &&WantedAddress| it.is_proxied && matches!(it.address, ListenAddress::Tcp(_));
    if let Some(open) = named.iter().find(is_open)
        && settings.server.clients.trust.is_empty()
    {
        let message = format!("--listen {},proxy needs --trust", open.address);
        return Err(Failure::usage(message)
            .help("name the proxy's address with --trust CIDR: no other peer may name clients"));
    }
    check_schemes(settings, &named)?;
    Ok(named)
}

/// Refuses HTTPS without a certificate, and a redirect to HTTPS without HTTPS.
fn check_schemes(settings: &Settings, addresses: &[WantedAddress]) -> Result<(), Failure> {
    let has = |wanted| addresses.iter().any(|it| it.scheme == wanted);
    let has_https = has(Scheme::Https);
    if has(Scheme::Redirect) && !has_https {
        return Err(Failure::usage(
            "a socket named 'redirect' makes no sense if no address speaks HTTPS",
        )
        .help("name it 'http', or add a socket named 'https' and --tls-cert FILE"));
    }
    let has_certificate = super::tls::is_wanted(&settings.tls);
    if has_https && !has_certificate {
        return Err(Failure::usage(
            "--listen https://ADDR:PORT makes no sense without a certificate",
        )
        .help("add --tls-cert FILE, or --tls"));
    }
    if !settings.tls.redirects.is_empty() && has_certificate && !has_https {
        return Err(
            Failure::usage("--http-redirect makes no sense if no address speaks HTTPS")
                .help("add --listen https://ADDR:PORT"),
        );
    }
    Ok(())
}

/// Rejects duplicate addresses. The address of the metrics is checked here, but the server binds
/// it.
///
/// # Errors
/// Names the address and the flags that use it.
pub(super) fn check_once(plan: &ListenPlan, settings: &Settings) -> Result<(), Failure> {
    let listened = plan.addresses.iter();
    let mut all: Vec<_> = listened
        .map(|wanted| (wanted.address.clone(), "--listen"))
        .collect();
    let redirects = settings.tls.redirects.iter();
    let redirects = redirects.map(|address| (*address, "--http-redirect"));
    let metrics = settings.server.metrics.map(|it| (it, "--metrics"));
    let receive = settings.receive.map(|it| (it, "--receive"));
    let further = redirects.chain(metrics).chain(receive);
    all.extend(further.map(|(address, flag)| (ListenAddress::Tcp(address), flag)));
    for (at, (address, flag)) in all.iter().enumerate() {
        let is_same = |(other, _): &&(ListenAddress, &str)| match (other, address) {
            // Port 0 is a different free port each time.
            (ListenAddress::Tcp(other), ListenAddress::Tcp(address)) => {
                other == address && address.port() != 0
            }
            (ListenAddress::Unix(other), ListenAddress::Unix(address)) => {
                other.path == address.path
            }
            _ => false,
        };
        let Some((_, first)) = all[..at].iter().find(is_same) else {
            continue;
        };
        let message = match first == flag {
            true => format!("{flag} names '{address}' twice"),
            false => format!("{first} and {flag} name the same address '{address}'"),
        };
        let failure = Failure::usage(message);
        return Err(match first == flag {
            true => failure.help("leave one of them out"),
            false => failure.help("choose another port for one of them"),
        });
    }
    Ok(())
}

/// Binds all addresses, or none.
///
/// # Errors
/// An address is unavailable; the message names the next step.
pub fn bind(plan: &ListenPlan, workers: usize, sockets: &Sockets) -> Result<Listening, Failure> {
    let binding = Binding {
        workers,
        sockets,
        is_movable: plan.movable.is_some(),
    };
    let first = match binding.patiently(&plan.addresses) {
        Ok(bound) => return Ok(Listening { bound, note: None }),
        Err(failed) => failed,
    };
    let port = match plan.movable {
        Some(port) if first.error.kind() == io::ErrorKind::AddrInUse => port,
        _ => return Err(explain(&first.address, &first.error)),
    };
    move_on(plan, port, &first, &binding)
}

/// Binds the next free port after the default one.
fn move_on(
    plan: &ListenPlan,
    default: u16,
    first: &Failed,
    binding: &Binding<'_>,
) -> Result<Listening, Failure> {
    for port in default + 1..default + PORTS_TRIED {
        let moved: Vec<_> = plan
            .addresses
            .iter()
            .map(|wanted| WantedAddress {
                address: with_port(&wanted.address, port),
                ..wanted.clone()
            })
            .collect();
        match binding.all(&moved) {
            Ok(bound) => {
                let owner = owner_text(&first.address);
                let note = format!("port {default} is busy{owner}; using {port}");
                return Ok(Listening {
                    bound,
                    note: Some(note),
                });
            }
            Err(failed) if failed.error.kind() == io::ErrorKind::AddrInUse => {}
            Err(failed) => return Err(explain(&failed.address, &failed.error)),
        }
    }
    let last = default + PORTS_TRIED - 1;
    let message = format!("cannot listen on any port from {default} to {last}: all are busy");
    Err(Failure {
        exit: crate::messages::Exit::Failed,
        ..Failure::usage(message)
    }
    .help("choose one with --port N; --port 0 takes any free one"))
}

/// Explains why an address cannot be bound, with the next step.
pub(crate) fn explain(address: &ListenAddress, error: &io::Error) -> Failure {
    let failure = Failure::new("listen on", address, cause(error));
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, ListenAddress::Tcp(_)) => {
            let owner = owner_text(address);
            let who = if owner.is_empty() && !is_root() {
                " (as root, 'ss -ltnp' names it)"
            } else {
                ""
            };
            Failure {
                message: format!("{}{owner}", failure.message),
                ..failure
            }
            .help(format!(
                "stop what uses it{who}, or choose another port; --port 0 takes any free one"
            ))
        }
        (io::ErrorKind::AddrInUse, ListenAddress::Unix(_)) => {
            failure.help("stop the server that uses it, or remove the file if it is not a socket")
        }
        (io::ErrorKind::PermissionDenied, ListenAddress::Tcp(address)) if address.port() < 1024 => {
            failure.help("ports below 1024 need CAP_NET_BIND_SERVICE; try --port 8080")
        }
        (io::ErrorKind::PermissionDenied, ListenAddress::Unix(unix)) => {
            failure.help(match (&unix.access.group, error.raw_os_error()) {
                (Some(group), Some(code)) if code == Errno::PERM.raw_os_error() => format!(
                    "only root and members of the group '{group}' can assign it to a file; add \
                     gannet's user to the group"
                ),
                _ => "make its folder writable for gannet's user".into(),
            })
        }
        // Unknown group: not an error of the system.
        (io::ErrorKind::InvalidInput, ListenAddress::Unix(unix))
            if unix.access.group.is_some() && error.raw_os_error().is_none() =>
        {
            failure.help("name an existing group, or its number: 'getent group' lists them")
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            failure.help("no interface has this address; see 'ip address', or use --expose")
        }
        (io::ErrorKind::NotFound, ListenAddress::Unix(_)) => {
            failure.help("make the socket's directory first")
        }
        _ => Failure {
            help: next_step(error).map(Into::into),
            ..failure
        },
    }
}

/// ` (used by nginx, process 812)`, if the owner can be found.
pub(super) fn owner_text(address: &ListenAddress) -> String {
    let ListenAddress::Tcp(address) = address else {
        return String::new();
    };
    match port_owner(address.port()) {
        Some((_, pid)) if pid == std::process::id() => " (used by this server itself)".into(),
        Some((name, pid)) => format!(" (used by {name}, process {pid})"),
        None => String::new(),
    }
}

/// The URLs that reach a bound address, with a remark for each.
#[must_use]
pub fn urls(
    address: &ListenAddress,
    scheme: Scheme,
    interfaces: &[IpAddr],
) -> Vec<(String, &'static str)> {
    let ListenAddress::Tcp(bound) = address else {
        return vec![(address.to_string(), "")];
    };
    let url = |ip| url(SocketAddr::new(ip, bound.port()), scheme);
    if scheme == Scheme::Redirect {
        return vec![(url(bound.ip()), "redirects to HTTPS")];
    }
    if !bound.ip().is_unspecified() {
        return vec![(url(bound.ip()), "")];
    }
    let loopback: IpAddr = match bound.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let mut urls = vec![(url(loopback), "this machine")];
    for interface in interfaces.iter().filter(|i| i.is_ipv4() == bound.is_ipv4()) {
        urls.push((url(*interface), "network"));
    }
    urls
}

/// The URLs by which the hosts of `--acme` reach an address that others can reach; none if it is not
/// one of those.
#[must_use]
pub fn public_urls(address: &ListenAddress, scheme: Scheme, hosts: &[String]) -> Vec<String> {
    let port = match address {
        ListenAddress::Tcp(bound) if scheme == Scheme::Https && !bound.ip().is_loopback() => {
            bound.port()
        }
        _ => return Vec::new(),
    };
    let url_of = |host: &String| match (host.parse(), port) {
        (Ok(ip), _) => url(SocketAddr::new(ip, port), scheme),
        (Err(_), 443) => format!("https://{host}/"),
        (Err(_), _) => format!("https://{host}:{port}/"),
    };
    hosts.iter().map(url_of).collect()
}

/// The URL of an address.
pub(crate) fn url(address: SocketAddr, scheme: Scheme) -> String {
    let (name, default) = match scheme {
        Scheme::Http | Scheme::Redirect => ("http", 80),
        Scheme::Https => ("https", 443),
    };
    match address.ip() {
        IpAddr::V4(ip) if address.port() == default => format!("{name}://{ip}/"),
        IpAddr::V6(ip) if address.port() == default => format!("{name}://[{ip}]/"),
        _ => format!("{name}://{address}/"),
    }
}

/// The addresses of the network interfaces, except loopback and link-local ones, which browsers do
/// not accept.
#[must_use]
pub fn interface_addresses() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .iter()
        .filter(|interface| !interface.is_loopback() && !interface.is_link_local())
        .map(if_addrs::Interface::ip)
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        listen: Option<(&str, Origin)>,
        port: Option<(u16, Origin)>,
        expose: Option<Origin>,
        expect: Result<(&[&str], bool), &str>,
    ) {
        let mut settings = Settings::default();
        let mut origins = Origins::new();
        if let Some((address, origin)) = listen {
            let address = crate::command_line::values::listen(&address.into());
            settings.listen = vec![address.expect("valid")];
            origins.insert("listen", origin);
        }
        if let Some((port, origin)) = port {
            settings.port = Some(port);
            origins.insert("port", origin);
        }
        if let Some(origin) = expose {
            settings.expose = true;
            origins.insert("expose", origin);
        }
        let got = plan(&settings, &origins, &Sockets::default());
        match (got, expect) {
            (Ok(wanted), Ok((addresses, is_movable))) => {
                let got: Vec<String> = wanted
                    .addresses
                    .iter()
                    .map(|wanted| wanted.address.to_string())
                    .collect();
                assert_eq!(
                    (got.as_slice(), wanted.movable.is_some()),
                    (
                        addresses
                            .iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>()
                            .as_slice(),
                        is_movable,
                    )
                );
            }
            (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{failure}"),
            (got, _) => panic!("{got:?}"),
        }
    }

    #[test]
    fn addresses_follow_from_listen_port_and_expose() {
        use Origin::{CommandLine, Environment, File};
        check(None, None, None, Ok((&["127.0.0.1:8080"], true)));
        check(None, Some((80, File)), None, Ok((&["127.0.0.1:80"], false)));
        check(
            None,
            None,
            Some(CommandLine),
            Ok((&["0.0.0.0:8080", "[::]:8080"], true)),
        );
        check(
            None,
            Some((9, File)),
            Some(CommandLine),
            Ok((&["0.0.0.0:9", "[::]:9"], false)),
        );
        check(
            Some(("unix:/s", File)),
            None,
            None,
            Ok((&["unix:/s"], false)),
        );
        // A port in a higher layer wins over addresses in a lower one, and vice versa.
        check(
            Some((":80", File)),
            Some((81, CommandLine)),
            None,
            Ok((&["127.0.0.1:81"], false)),
        );
        check(
            Some((":80", CommandLine)),
            Some((81, Environment)),
            None,
            Ok((&["127.0.0.1:80"], false)),
        );
        check(
            Some((":80", CommandLine)),
            Some((81, CommandLine)),
            None,
            Err("--port and --listen"),
        );
        check(
            Some((":80", File)),
            None,
            Some(File),
            Err("--expose and --listen"),
        );
    }

    #[test]
    fn hosts_with_certificates_are_named_where_others_can_connect() {
        let hosts = ["example.org", "192.0.2.7", "2001:db8::7"].map(String::from);
        let check = |address: &str, scheme: Scheme, expect: &[&str]| {
            let address = ListenAddress::Tcp(address.parse().expect("valid"));
            assert_eq!(public_urls(&address, scheme, &hosts), expect);
        };
        let plain = [
            "https://example.org/",
            "https://192.0.2.7/",
            "https://[2001:db8::7]/",
        ];
        check("[::]:443", Scheme::Https, &plain);
        let with_port = [
            "https://example.org:8443/",
            "https://192.0.2.7:8443/",
            "https://[2001:db8::7]:8443/",
        ];
        check("192.0.2.9:8443", Scheme::Https, &with_port);
        check("127.0.0.1:443", Scheme::Https, &[]);
        check("[::]:80", Scheme::Http, &[]);
        check("[::]:80", Scheme::Redirect, &[]);
        let none = public_urls(
            &ListenAddress::Tcp("[::]:443".parse().expect("valid")),
            Scheme::Https,
            &[],
        );
        assert!(none.is_empty());
    }

    #[test]
    fn urls_are_what_a_browser_takes() {
        let interfaces: Vec<IpAddr> = ["192.0.2.7", "2001:db8::7"]
            .iter()
            .map(|ip| ip.parse().expect("valid"))
            .collect();
        let check_scheme = |address: &str, scheme: Scheme, expect: &[&str]| {
            let address = ListenAddress::Tcp(address.parse().expect("valid"));
            let urls = urls(&address, scheme, &interfaces);
            assert_eq!(
                urls.iter().map(|(url, _)| url.as_str()).collect::<Vec<_>>(),
                expect
            );
        };
        let check = |address, expect| check_scheme(address, Scheme::Http, expect);
        check("127.0.0.1:8080", &["http://127.0.0.1:8080/"]);
        check_scheme("127.0.0.1:443", Scheme::Https, &["https://127.0.0.1/"]);
        check_scheme("[::1]:80", Scheme::Https, &["https://[::1]:80/"]);
        check_scheme("0.0.0.0:80", Scheme::Redirect, &["http://0.0.0.0/"]);
        check("[::1]:80", &["http://[::1]/"]);
        check("0.0.0.0:80", &["http://127.0.0.1/", "http://192.0.2.7/"]);
        check(
            "[::]:8080",
            &["http://[::1]:8080/", "http://[2001:db8::7]:8080/"],
        );
    }
}
