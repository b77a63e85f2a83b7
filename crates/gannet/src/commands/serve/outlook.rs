//! What a start would find, as far as that can be known without changing anything.

use std::io;
use std::net::SocketAddr;

use gannet_io::named_file;
use gannet_server::config::{Config, Content, Hosted, ListenAddress, LogFormat, Scheme};
use gannet_server::tls::watch::CertificateSource;
use gannet_server::{Again, Denied, opened_at_start};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::addresses::{self, ListenPlan};
use super::content::{content, have_hosts, kinds};
use super::effects::{self, Situation};
use super::output::{Terminal, log_file, log_format};
use super::port_owner::{is_listened, port_owner};
use super::process_limits::{self, Budget, Needs, UsedAtStart};
use super::sockets::Sockets;
use super::{confinement, start_failure, tls};
use crate::command_line::layers::Origins;
use crate::command_line::settings::Settings;
use crate::messages::Failure;

/// See the module documentation.
pub(crate) struct Outlook {
    /// What would be opened; empty if the settings do not say.
    pub(crate) contents: Vec<Hosted>,
    /// Every address with its transport, whether the start would bind it, and who has it if not.
    pub(crate) addresses: Vec<Prospect>,
    /// Where certificates would come from.
    pub(crate) certificates: Option<CertificateSource>,
    /// Whether the limits of the process suffice.
    pub(crate) limits: Result<(), Failure>,
    /// Bytes that a start takes.
    pub(crate) memory: u64,
    /// What may be kept in memory besides.
    pub(crate) budget: Budget,
    /// Keys, passwords and logs that confined workers could open, in words.
    pub(crate) within_reach: Vec<String>,
    /// What the user that the server becomes cannot do.
    pub(crate) denied: Vec<Denied>,
    /// What is wrong with the settings.
    pub(crate) refusals: Vec<Failure>,
}

/// An address that a start would bind.
pub(crate) struct Prospect {
    pub(crate) address: ListenAddress,
    pub(crate) is_udp: bool,
    /// The error of binding it, explained.
    pub(crate) refused: Option<Failure>,
    /// The name and number of the process that has it.
    pub(crate) owner: Option<(String, u32)>,
    /// It is all of IPv6, which this machine does not have, beside an address that it has.
    pub(crate) lacks_ipv6: bool,
    /// It is in use, and the next free port is taken.
    pub(crate) moves: bool,
    /// Something listens there.
    pub(crate) is_in_use: bool,
}

impl Outlook {
    /// Looks at the configuration as a start would.
    pub(crate) fn new(settings: &Settings, origins: &Origins) -> Self {
        let used = UsedAtStart::now(settings);
        let mut refusals = Vec::new();
        let mut keep = |failure: Failure| refusals.push(failure);
        let is_said = settings.path.is_some() || !settings.sites.is_empty();
        let contents = match is_said {
            true => content(settings).map_err(&mut keep).unwrap_or_default(),
            false => Vec::new(),
        };
        let plan = plan(settings, origins).map_err(&mut keep).ok();
        let certificates = tls::source(settings).map_err(&mut keep).ok().flatten();
        let opened = opened_at_start(contents.clone(), settings.user.is_some());
        let opened = opened.map_err(|error| keep(start_failure(&error, settings)));
        let opened = opened.unwrap_or_default();
        if let Err((path, error)) = settings.server.content.follow_links.check() {
            keep(Failure::of_system("open", path.display(), &error));
        }
        let run_as = confinement::run_as(settings.user.as_deref());
        let run_as = run_as.map_err(&mut keep).ok().flatten();
        let log = log_file(settings);
        let denied = run_as.map_or(Ok(Vec::new()), |run_as| {
            let again = Again {
                contents: &opened,
                rules: settings.site.routing().rules,
                certificates: certificates.as_ref(),
                passwords: settings.server.passwords.file.as_deref(),
                copies: settings.server.content.copies.as_deref(),
                log: log.as_deref(),
            };
            again.denied_to(&run_as)
        });
        let denied = denied.map_err(|error| keep(start_failure(&error, settings)));
        if let Some(plan) = plan.as_ref().filter(|_| !contents.is_empty())
            && let Err(failure) = check(settings, origins, plan, &contents)
        {
            keep(failure);
        }
        let kinds: Vec<Content> = contents.iter().map(|it| it.content.clone()).collect();
        let listened = plan.as_ref().map_or(0, |plan| plan.addresses.len());
        let count = listened + settings.tls.redirects.len();
        let config: &Config = &settings.server;
        let needs = Needs::of(config, &kinds, count);
        Self {
            addresses: plan
                .as_ref()
                .map_or_else(Vec::new, |plan| prospects(settings, plan)),
            limits: process_limits::check(settings, &needs, used),
            memory: needs.memory_of_start(used),
            budget: Budget::of(settings, &needs, used),
            within_reach: confinement::within_reach(settings, &opened),
            contents: opened,
            certificates,
            denied: denied.unwrap_or_default(),
            refusals,
        }
    }
}

/// The addresses of a start without sockets from a supervisor.
///
/// # Errors
/// As [`addresses::plan`].
pub(crate) fn plan(settings: &Settings, origins: &Origins) -> Result<ListenPlan, Failure> {
    addresses::plan(settings, origins, &Sockets::default())
}

/// Rejects flags without effect, and an address that is named twice.
fn check(
    settings: &Settings,
    origins: &Origins,
    plan: &ListenPlan,
    contents: &[Hosted],
) -> Result<(), Failure> {
    let listening = || plan.addresses.iter();
    let situation = Situation {
        kinds: contents
            .iter()
            .flat_map(|it| kinds(&it.content))
            .copied()
            .collect(),
        has_hosts: have_hosts(settings, contents),
        has_https: listening().any(|it| it.scheme == Scheme::Https),
        has_tcp: listening().any(|it| matches!(it.address, ListenAddress::Tcp(_))),
        has_unix: listening().any(|it| matches!(it.address, ListenAddress::Unix(_))),
        is_logging: log_format(settings, &Terminal::look(settings.colour)) != LogFormat::Off,
    };
    effects::check(settings, origins, &situation)?;
    addresses::check_once(plan, settings)
}

/// All addresses, each tried.
pub(super) fn prospects(settings: &Settings, plan: &ListenPlan) -> Vec<Prospect> {
    prospects_by(settings, plan, try_bind)
}

/// The same, tried by this.
fn prospects_by(settings: &Settings, plan: &ListenPlan, bind: Bind) -> Vec<Prospect> {
    let redirects = addresses::redirects(settings);
    let mut all = prospects_of(settings, plan, bind);
    all.extend(prospects_of(settings, &redirects, bind));
    let metrics = settings.server.metrics.map(ListenAddress::Tcp);
    all.extend(metrics.map(|address| Prospect {
        lacks_ipv6: false,
        ..Prospect::of(&address, false, bind)
    }));
    all
}

/// Those of one list, of which a start leaves out what needs IPv6 if it can bind another one.
fn prospects_of(settings: &Settings, plan: &ListenPlan, bind: Bind) -> Vec<Prospect> {
    let mut all = Vec::new();
    for one in &plan.addresses {
        let mut found = Prospect::of(&one.address, false, bind);
        found.moves = found.is_in_use && plan.movable.is_some();
        found.lacks_ipv6 &= all.iter().any(|it: &Prospect| it.refused.is_none());
        let speaks_quic =
            one.scheme == Scheme::Https && settings.server.http.http3 && !one.is_proxied;
        let is_tcp = matches!(one.address, ListenAddress::Tcp(_));
        let datagrams = (speaks_quic && is_tcp).then(|| Prospect {
            // A server has both.
            owner: found.owner.clone(),
            moves: found.moves,
            lacks_ipv6: found.lacks_ipv6,
            ..Prospect::of(&one.address, true, bind)
        });
        all.push(found);
        all.extend(datagrams);
    }
    all
}

impl Prospect {
    /// Tries an address.
    fn of(address: &ListenAddress, is_udp: bool, bind: Bind) -> Self {
        let tried = match address {
            ListenAddress::Tcp(address) => bind(*address, is_udp),
            ListenAddress::Unix(unix) => named_file::may_make(&unix.path),
        };
        let failed = tried.as_ref().err().map(io::Error::kind);
        let is_in_use = match (failed, address) {
            (Some(io::ErrorKind::AddrInUse), _) => true,
            // The kernel looks at rights first: those of a service whose addresses systemd binds.
            (Some(io::ErrorKind::PermissionDenied), ListenAddress::Tcp(tcp)) => {
                is_listened(tcp.port())
            }
            _ => false,
        };
        let owner = match address {
            ListenAddress::Tcp(tcp) if is_in_use && !is_udp => port_owner(tcp.port()),
            _ => None,
        };
        let no_family = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
        let is_wildcard = |address: &SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
        let lacks_ipv6 = match (address, &tried) {
            (ListenAddress::Tcp(address), Err(error)) => {
                is_wildcard(address)
                    && error
                        .raw_os_error()
                        .is_some_and(|it| no_family.contains(&it))
            }
            _ => false,
        };
        Self {
            address: address.clone(),
            is_udp,
            refused: tried.err().map(|error| addresses::explain(address, &error)),
            owner,
            lacks_ipv6,
            moves: false,
            is_in_use,
        }
    }
}

/// Tries a TCP or UDP (`true`) address.
type Bind = fn(SocketAddr, bool) -> io::Result<()>;

/// Binds and lets go of an address, without listening: no client notices.
fn try_bind(address: SocketAddr, is_udp: bool) -> io::Result<()> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let kind = match is_udp {
        true => SocketType::DGRAM,
        false => SocketType::STREAM,
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if !is_udp {
        // What connections that have ended leave behind is no listener.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(rustix::net::bind(&socket, &address)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use gannet_testkit::process::until;

    use super::*;

    #[test]
    fn an_address_in_use_names_its_owner_and_a_free_one_stays_free() {
        let busy = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = ListenAddress::Tcp(busy.local_addr().expect("bound"));
        let prospect = Prospect::of(&address, false, try_bind);
        assert!(prospect.is_in_use);
        let owner = prospect.owner.map(|(_, pid)| pid);
        assert_eq!(owner, Some(std::process::id()));
        let refused = prospect.refused.expect("it is in use");
        assert!(refused.message.contains("in use"), "{refused}");
        drop(busy);
        // A process that another test starts has it, too, until it runs its own program.
        until("it is free", || {
            Prospect::of(&address, false, try_bind).refused.is_none()
        });
        for is_udp in [false, true] {
            for _ in 0..2 {
                let prospect = Prospect::of(&address, is_udp, try_bind);
                assert!(
                    prospect.refused.is_none() && !prospect.is_in_use,
                    "released"
                );
            }
        }
    }

    /// A start binds the redirecting addresses as a list of their own, which may not become empty.
    #[test]
    fn without_ipv6_an_address_is_left_out_beside_another_one_of_its_list() {
        let bind: Bind = |address, _| match address {
            SocketAddr::V4(_) => Ok(()),
            SocketAddr::V6(_) => Err(Errno::AFNOSUPPORT.into()),
        };
        let left_out = |redirects: &[&str]| {
            let mut settings = Settings::default();
            let parsed = redirects.iter().map(|it| it.parse().expect("an address"));
            settings.tls.redirects = parsed.collect();
            let plan = plan(&settings, &Origins::default()).expect("the default");
            let all = prospects_by(&settings, &plan, bind);
            let last = all.last().expect("a redirect");
            assert!(last.refused.is_some());
            last.lacks_ipv6
        };
        assert!(left_out(&["0.0.0.0:80", "[::]:80"]));
        assert!(!left_out(&["[::]:80"]));
    }
}
