//! What a worker tells of incidents: see [`observe::incidents`](crate::observe::incidents).

use std::borrow::Cow;

use gannet_io::cause::{cause, next_step};
use gannet_io::driver::{Driver, Errno, Peer};
use gannet_io::user;

use super::Worker;
use super::shared::Shared;
use crate::clients::Client;
use crate::observe::incidents::{Kind, Named};

impl<D: Driver> Worker<D> {
    /// Tells of incidents that were only counted, if a minute of them is over.
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
    /// Tells that nothing can be read at this path below the root, or that a link there leads out of
    /// it. `host` is what the request names.
    #[cold]
    pub(crate) fn tell_unreadable(&self, path: &[u8], errno: Errno, host: Option<&[u8]>) {
        let error = errno.into();
        let place = || {
            let path = if path.is_empty() { b"." } else { path };
            match host {
                Some(host) => format!("'{}' (host '{}')", Named(path), Named(host)),
                None => format!("'{}'", Named(path)),
            }
        };
        if matches!(errno, Errno::XDEV | Errno::LOOP) {
            return self.tell(Kind::LeadsOut, || {
                let what = match errno {
                    Errno::LOOP => "its symbolic links form a loop",
                    _ => "a symbolic link leads out of the site, or is absolute",
                };
                format!(
                    "gannet: cannot serve {}: {what}\n\
                     help: links are followed only inside the folder that is served, and only \
                     relative ones: see 'namei -l'",
                    place()
                )
            });
        }
        self.tell(Kind::Unreadable, || {
            let help = match errno {
                Errno::ACCESS | Errno::PERM => Cow::Owned(format!(
                    "user {}, as which gannet runs, has to have the right to read it, and to search \
                     the folders that it is in: see 'namei -l'",
                    user::effective()
                )),
                _ => next_step(&error).unwrap_or("see 'dmesg'").into(),
            };
            format!(
                "gannet: cannot read {}: {}\nhelp: {help}",
                place(),
                cause(&error)
            )
        });
    }

    /// Tells that a client may not connect.
    #[cold]
    pub(crate) fn tell_denied(&self, client: &Client) {
        self.tell(Kind::Denied, || {
            let name = match client.is_hidden() {
                true => "a client that is not known".into(),
                false => self.log.shown(Client::named(Some(client)).address),
            };
            format!(
                "gannet: {name} is not allowed to connect: its connection was closed\n\
                 help: --allow and --deny say who may connect"
            )
        });
    }

    /// Tells that a peer connects to an address for proxies that is none.
    #[cold]
    pub(crate) fn tell_untrusted(&self, peer: Peer, address: u16) {
        self.tell(Kind::Untrusted, || {
            format!(
                "gannet: {} is not in --trust: its connection to {} was closed\n\
                 help: that address is for proxies alone: if it is one, name it with --trust; other \
                 clients need an address without ',proxy'",
                self.named(peer),
                self.address(address)
            )
        });
    }

    /// Tells that a trusted proxy did not begin with a header.
    #[cold]
    pub(crate) fn tell_no_header(&self, peer: Peer, address: u16) {
        self.tell(Kind::NoHeader, || {
            format!(
                "gannet: {} sent no header of the PROXY protocol: its connection to {} was closed\n\
                 help: have the proxy send one (haproxy: send-proxy-v2; nginx: proxy_protocol on), \
                 or connect to an address without ',proxy'",
                self.named(peer),
                self.address(address)
            )
        });
    }

    fn tell(&self, kind: Kind, message: impl FnOnce() -> String) {
        let now = self.driver.now();
        self.settings.incidents.tell(kind, now, message);
    }

    fn named(&self, peer: Peer) -> String {
        let name = match peer {
            Peer::Ip(address) => address.ip().to_canonical().to_string(),
            Peer::Unix | Peer::Unknown => peer.to_string(),
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
