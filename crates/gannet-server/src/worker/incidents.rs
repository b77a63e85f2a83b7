//! What a worker reports of incidents: see [`observe::incidents`](crate::observe::incidents).

use std::borrow::Cow;
use std::hash::Hash;
use std::net::IpAddr;

use gannet_io::cause::{cause, next_step, printable};
use gannet_io::driver::{Driver, Errno, Peer};
use gannet_io::user;

use super::Worker;
use crate::clients::ClientKey;
use crate::exchange::shared::Shared;
use crate::observe::incidents::{IncidentKind, IncidentText, PeerText};
use crate::release::ServedFile;
use crate::release::directory::DirectorySite;

impl<D: Driver> Worker<D> {
    /// Reports incidents that were only counted, if a minute of them is over.
    pub(super) fn sum_up_incidents(&mut self) {
        let incidents = &self.shared.settings.incidents;
        if let Some(due) = incidents.due() {
            let now = self.shared.driver.now();
            if due <= now {
                incidents.sum_up(now);
            }
        }
    }
}

impl<D: Driver> Shared<D> {
    /// Reports that nothing can be read at this path below the root of a site, or that a link there leads out
    /// of it. `host` is what the request names; it is only shown, as the peer chooses it.
    #[cold]
    pub(crate) fn note_unreadable(
        &self,
        (site, path): (&DirectorySite, &[u8]),
        errno: Errno,
        host: Option<&[u8]>,
    ) {
        let error = errno.into();
        let place = || {
            let path = if path.is_empty() { b"." } else { path };
            match host {
                Some(host) => format!("'{}' (host '{}')", PeerText(path), PeerText(host)),
                None => format!("'{}'", PeerText(path)),
            }
        };
        let object = (site.shared_address(), path);
        if matches!(errno, Errno::XDEV | Errno::LOOP) {
            return self.note(IncidentKind::LeadsOut, object, || {
                let what = match errno {
                    Errno::LOOP => "its symbolic links form a loop",
                    _ => "a symbolic link leads out of the site",
                };
                IncidentText {
                    line: format!("gannet: cannot serve {}: {what}", place()),
                    help: "links are followed inside the folder that is served, and into folders that \
                           --follow-links names: see 'namei -l'"
                        .into(),
                }
            });
        }
        self.note(IncidentKind::Unreadable, object, || {
            let help = match errno {
                Errno::ACCESS | Errno::PERM => Cow::Owned(format!(
                    "user {}, as which gannet runs, has to have the right to read it, and to search \
                     the folders that it is in: see 'namei -l'",
                    user::effective()
                )),
                _ => next_step(&error).unwrap_or("see 'dmesg'").into(),
            };
            let line = format!("gannet: cannot read {}: {}", place(), cause(&error));
            IncidentText { line, help }
        });
    }

    /// Reports that a file could not be read on while a response was sent from it.
    #[cold]
    pub(crate) fn note_cut_short(&self, file: Option<&ServedFile>, errno: Errno) {
        let place = file.and_then(ServedFile::place);
        self.note(IncidentKind::Unreadable, place, || {
            let error = errno.into();
            let (name, find) = match place {
                Some((_, Some(archive))) => (
                    format!("archive '{}'", printable(&archive.to_string_lossy())),
                    "",
                ),
                Some((inode, None)) => (
                    format!("a file (inode {inode})"),
                    "; 'find FOLDER -inum INODE' finds the file in the folder of its site",
                ),
                None => ("a file".to_owned(), ""),
            };
            let help = next_step(&error).unwrap_or("see 'dmesg'");
            IncidentText {
                line: format!(
                    "gannet: cannot read the rest of {name}: {}: an answer was cut short",
                    cause(&error)
                ),
                help: format!("{help}{find}").into(),
            }
        });
    }

    /// Reports that a client may not connect by TCP.
    #[cold]
    pub(crate) fn note_denied(&self, peer: Peer) {
        self.denied(peer, "its connection was closed");
    }

    /// Reports that a client may not connect by QUIC. It has only sent a packet so far.
    #[cold]
    pub(crate) fn note_denied_packet(&self, peer: Peer) {
        self.denied(
            peer,
            "its QUIC packet, whose address may be forged, was not answered",
        );
    }

    fn denied(&self, peer: Peer, done: &str) {
        self.note(IncidentKind::Denied, (), || {
            let name = match peer {
                Peer::Unknown => "an unknown client".into(),
                peer => self.named(peer),
            };
            IncidentText {
                line: format!("gannet: {name} is not allowed to connect: {done}"),
                help: "--allow and --deny say who may connect".into(),
            }
        });
    }

    /// Reports that a client has as many connections as one may have.
    #[cold]
    pub(crate) fn note_too_many(&self, peer: Peer, counted_as: Option<ClientKey>) {
        self.note(IncidentKind::TooMany, counted_as, || IncidentText {
            line: format!(
                "gannet: {} has as many connections as one client may: another one was closed",
                self.named(peer)
            ),
            help:
                "client.connections is the limit; if it is a proxy of many clients, name it with --trust"
                    .into(),
        });
    }

    /// Reports that a peer connects to an address for proxies that is none.
    #[cold]
    pub(crate) fn note_untrusted(&self, peer: Peer, address: u16) {
        self.note(IncidentKind::Untrusted, (host_of(peer), address), || {
            IncidentText {
                line: format!(
                    "gannet: {} is not in --trust: its connection to {} was closed",
                    self.named(peer),
                    self.address(address)
                ),
                help:
                    "that address is for proxies alone: if it is one, name it with --trust; other \
                   clients need an address without ',proxy'"
                        .into(),
            }
        });
    }

    /// Reports that a trusted proxy did not start with a header.
    #[cold]
    pub(crate) fn note_no_header(&self, peer: Peer, address: u16) {
        self.note(IncidentKind::NoHeader, (host_of(peer), address), || {
            IncidentText {
            line: format!(
                "gannet: {} sent no header of the PROXY protocol: its connection to {} was closed",
                self.named(peer),
                self.address(address)
            ),
            help: "have the proxy send one (haproxy: send-proxy-v2; nginx: proxy_protocol on), or \
                   connect to an address without ',proxy'"
                .into(),
        }
        });
    }

    fn note(&self, kind: IncidentKind, object: impl Hash, message: impl FnOnce() -> IncidentText) {
        let now = self.driver.now();
        self.settings.incidents.report(kind, now, object, message);
    }

    fn named(&self, peer: Peer) -> String {
        let name = match host_of(peer) {
            Some(address) => address.to_string(),
            None => peer.to_string(),
        };
        self.log.shown(&name).into_owned()
    }

    fn address(&self, address: u16) -> &str {
        let addresses = &self.settings.addresses;
        addresses
            .get(usize::from(address))
            .map_or("-", String::as_str)
    }
}

/// A peer's address without its port.
fn host_of(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Ip(address) => Some(address.ip().to_canonical()),
        Peer::Unix | Peer::Unknown => None,
    }
}
