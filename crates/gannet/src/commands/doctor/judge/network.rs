//! Settings of the network, and the addresses.

use gannet_io::limits::{BACKLOG, DATAGRAM_SOCKET_BUFFER};

use super::super::facts::{Address, AddressState, Facts};
use super::super::finding::{Finding, Level};
use crate::commands::serve::start_lines::TRUST_PROXIES;
use crate::quantities::size;

pub(super) fn settings(facts: &Facts) -> Vec<Finding> {
    let network = &facts.network;
    let mut all = Vec::new();
    if let Some(backlog) = network.backlog {
        let wanted = BACKLOG.unsigned_abs().into();
        let text = format!("net.core.somaxconn is {backlog}");
        all.push(match backlog < wanted {
            true => Finding::note("backlog", format!("{text}: bursts of clients wait longer"))
                .help(format!(
                    "sysctl -w net.core.somaxconn={wanted}, and in /etc/sysctl.d"
                )),
            false => Finding::ok("backlog", text),
        });
    }
    if let Some((current, available)) = &network.congestion {
        all.push(Finding::ok(
            "congestion control",
            format!("TCP uses {current} (available: {available})"),
        ));
    }
    if let Some(meaning) = facts.wishes.trusts_every_peer {
        all.push(Finding::note("trust", meaning).help(TRUST_PROXIES));
    }
    if !facts.wishes.http3 {
        return all;
    }
    let wanted = DATAGRAM_SOCKET_BUFFER as u64;
    for (name, bytes) in ["rmem_max", "wmem_max"].into_iter().zip(network.buffers) {
        let Some(bytes) = bytes else { continue };
        let text = format!("net.core.{name} is {}", size(bytes));
        all.push(match bytes < wanted {
            true => Finding::note(
                "UDP buffers",
                format!("{text}: bursts of HTTP/3 lose packets"),
            )
            .help(format!(
                "sysctl -w net.core.{name}={wanted}, and in /etc/sysctl.d"
            )),
            false => Finding::ok("UDP buffers", text),
        });
    }
    all
}

pub(super) fn addresses(facts: &Facts) -> Vec<Finding> {
    let one = |address: &Address| {
        let (subject, name) = ("address", &address.name);
        match &address.state {
            AddressState::Free => Finding::ok(subject, format!("{name} is free")),
            AddressState::WithoutIpv6 => Finding::note(
                subject,
                format!("{name}: this machine has no IPv6; clients connect by IPv4 alone"),
            ),
            AddressState::Ours(owner) => Finding::note(
                subject,
                format!("{name} is in use by {owner}, perhaps this server"),
            )
            .help("if it is another one, stop it or choose another port"),
            AddressState::Moves(lack) => Finding::note(
                subject,
                format!("{}; the next free port is taken", lack.why),
            ),
            AddressState::Refused(lack) => Finding::lacking(Level::Bad, subject, lack),
        }
    };
    facts.addresses.iter().map(one).collect()
}
