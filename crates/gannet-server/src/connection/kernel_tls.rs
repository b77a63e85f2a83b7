//! Encryption by the kernel, from a connection's first large body on.
//!
//! ```text
//!   tickets are sent ─▶ keys go to the kernel ─▶ plaintext is sent ─▶ a control record at the end
//!                                                  │          ▲
//!                                                  └─ KeyUpdate, new keys
//! ```
//! Small responses are cheaper to encrypt here than to hand over; large ones then use `sendfile`,
//! as in clear text. There is no way back: the kernel encrypts everything that follows on the
//! connection.

use std::ops::Range;
use std::rc::Rc;

use gannet_io::driver::{Driver, SendList};
use gannet_io::ktls::ControlType;

use super::Active;
use super::secure::TlsState;
use super::sending::list_len;
use crate::ground::token::Kind;
use crate::release::ServedFile;
use crate::release::body::Body;
use crate::tls::alert::Alert;
use crate::tls::kernel::tx_keys;
use crate::tls::session::{KernelNeeds, StaysOurs};

/// A head and a range of a file that follows it.
pub(super) type Slice = (Vec<u8>, Rc<ServedFile>, Range<u64>);

/// Whether a send can be passed to the kernel now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ready {
    Yes,
    /// A new key comes first: its control record is being sent.
    Later,
    /// The connection was ended.
    Never,
}

impl<D: Driver> Active<'_, D> {
    /// Decides whether the kernel should encrypt from here on, because a range of a file is about
    /// to be sent. `None` if something has to be sent first, or if the connection was ended.
    pub(super) fn offer_to_kernel(&mut self, slice: Slice) -> Option<Slice> {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else {
            return Some(slice);
        };
        let TlsState::Open(session) = &mut tls.state else {
            return Some(slice);
        };
        let len = slice.2.end - slice.2.start;
        if !session.is_kernel() {
            let kernel = self.shared.settings.kernel_tls.as_ref();
            let is_wanted = kernel.is_some_and(|kernel| kernel.wants(session.cipher(), len));
            if !is_wanted || tls.stays_ours {
                return Some(slice);
            }
            let mut waiting = Vec::new();
            session.take_waiting(&mut waiting);
            if !waiting.is_empty() {
                self.put_back(slice);
                self.send_raw(waiting);
                return None;
            }
            if !self.hand_over() {
                return Some(slice);
            }
        }
        Some(slice)
    }

    /// Counts a head and `len` bytes of a file that the kernel is about to encrypt. `None` if they
    /// have to wait, or the connection was ended.
    pub(super) fn counted_slice(&mut self, slice: Slice, len: u64) -> Option<Slice> {
        match self.ready(slice.0.len() as u64 + len) {
            Ready::Yes => Some(slice),
            Ready::Later => {
                self.put_back(slice);
                None
            }
            Ready::Never => None,
        }
    }

    /// Keeps a slice for later.
    pub(super) fn put_back(&mut self, (head, file, range): Slice) {
        let work = self.conn.work();
        work.head = head;
        work.parts.push_front(Body::File(file, range));
    }

    /// Passes the keys to the kernel. False if our own record layer keeps encrypting.
    fn hand_over(&mut self) -> bool {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        let TlsState::Open(session) = &mut tls.state else {
            return false;
        };
        let secrets = match session.into_kernel() {
            Ok(secrets) => secrets,
            Err(why) => {
                tls.stays_ours = true;
                self.shared.counters.tls.stays_ours(match why {
                    StaysOurs::Tls12 => "tls12",
                    StaysOurs::Waiting | StaysOurs::Over => "over",
                });
                return false;
            }
        };
        match self
            .shared
            .driver
            .encrypt_in_kernel(conn.socket, &tx_keys(&secrets))
        {
            Ok(()) => {
                self.shared.counters.tls.kernel += 1;
                true
            }
            // The module was available at start: a limit of the container, or no memory.
            Err(_) => {
                session.take_back(secrets);
                tls.stays_ours = true;
                self.shared.counters.tls.stays_ours("refused");
                false
            }
        }
    }

    /// Whether the kernel encrypts the output of this connection.
    pub(super) fn is_kernel(&self) -> bool {
        let tls = self.conn.tls.as_deref();
        tls.is_some_and(|tls| matches!(&tls.state, TlsState::Open(session) if session.is_kernel()))
    }

    /// Counts a list that the kernel is about to encrypt. `None` if it has to wait, or if the
    /// connection was ended.
    pub(super) fn counted_for_kernel(&mut self, list: SendList) -> Option<SendList> {
        match self.ready(list_len(&list)) {
            Ready::Yes => Some(list),
            Ready::Later => {
                if let Some(tls) = &mut self.conn.tls {
                    tls.pending = Some(list);
                }
                None
            }
            Ready::Never => None,
        }
    }

    fn ready(&mut self, bytes: u64) -> Ready {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else {
            return Ready::Yes;
        };
        let TlsState::Open(session) = &mut tls.state else {
            return Ready::Yes;
        };
        match session.kernel_sends(bytes) {
            KernelNeeds::Nothing => Ready::Yes,
            KernelNeeds::End => {
                self.cut_short();
                Ready::Never
            }
            KernelNeeds::KeyUpdate => {
                let kernel = self.shared.settings.kernel_tls.as_ref();
                let next = kernel
                    .filter(|kernel| kernel.can_update_keys())
                    .and_then(|_| session.kernel_update());
                let Some((content, secrets)) = next else {
                    // Linux before 6.14: the next connection gets another key.
                    conn.close_intake();
                    return Ready::Yes;
                };
                tls.next_keys = Some(secrets);
                self.send_control(ControlType::Handshake, &content);
                Ready::Later
            }
        }
    }

    pub(super) fn send_control(&mut self, control: ControlType, content: &[u8]) {
        self.note_send(content.len() as u64);
        let conn = &mut *self.conn;
        let token = conn.id.token(Kind::Send);
        self.shared
            .driver
            .send_control(conn.socket, token, control, content);
    }

    /// Sends an alert as the kernel's last record.
    pub(super) fn send_alert_by_kernel(&mut self, alert: Alert) {
        self.send_control(ControlType::Alert, &alert.content());
    }

    /// After a `KeyUpdate` was sent: installs the new key and continues with the send that waited
    /// for it. False if no `KeyUpdate` was being sent.
    pub(super) fn key_updated(&mut self) -> bool {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        let Some(secrets) = tls.next_keys.take() else {
            return false;
        };
        let pending = tls.pending.take();
        let installed = self
            .shared
            .driver
            .encrypt_in_kernel(conn.socket, &tx_keys(&secrets));
        if installed.is_err() {
            // The peer already expects the new key.
            self.cut_short();
            return true;
        }
        self.shared.counters.tls.kernel_key_updates += 1;
        if let Some(list) = pending {
            self.send_list(list);
        } else {
            self.send_next_part();
        }
        true
    }
}
