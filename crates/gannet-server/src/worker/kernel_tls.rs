//! The kernel seals what a connection sends, from its first large body on.
//!
//! ```text
//!   tickets are sent ─▶ keys go to the kernel ─▶ plaintext is sent ─▶ a control record at the end
//!                                                  │          ▲
//!                                                  └─ KeyUpdate, new keys
//! ```
//! Small answers are cheaper to seal here than to hand over; a large one then goes by `sendfile`,
//! as over clear text. There is no way back: what follows on the connection is sealed by the kernel
//! too.

use std::ops::Range;
use std::rc::Rc;

use gannet_io::driver::{Driver, SendList};
use gannet_io::ktls::ControlType;

use super::sending::list_len;
use super::{Kind, Worker, token};
use crate::conn::Part;
use crate::limits::SLICE_MAX;
use crate::secure::State;
use crate::site::ServedFile;
use crate::tls::alert::Alert;
use crate::tls::kernel::tx_keys;
use crate::tls::session::{KernelNeeds, StaysOurs};

/// A head and a range of a file that follows it.
pub(super) type Slice = (Vec<u8>, Rc<ServedFile>, Range<u64>);

/// Whether a send can be given to the kernel now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ready {
    Yes,
    /// A new key first: its control record is under way.
    Later,
    /// The connection was ended.
    Never,
}

impl<D: Driver> Worker<D> {
    /// Looks whether the kernel should seal from here on, since a range of a file is about to be
    /// sent. `None` if something has to be sent before it, or if the connection was ended.
    pub(super) fn offer_to_kernel(&mut self, slot: u32, slice: Slice) -> Option<Slice> {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else {
            return Some(slice);
        };
        let State::Open(session) = &mut tls.state else {
            return Some(slice);
        };
        let len = slice.2.end - slice.2.start;
        if !session.is_kernel() {
            let kernel = self.settings.kernel_tls.as_ref();
            let is_wanted = kernel.is_some_and(|kernel| kernel.wants(session.cipher(), len));
            if !is_wanted || tls.stays_ours {
                return Some(slice);
            }
            let mut waiting = Vec::new();
            session.take_waiting(&mut waiting);
            if !waiting.is_empty() {
                self.put_back(slot, slice);
                self.send_raw(slot, waiting);
                return None;
            }
            if !self.hand_over(slot) {
                return Some(slice);
            }
        }
        let bytes = slice.0.len() as u64 + len.min(SLICE_MAX);
        match self.ready(slot, bytes) {
            Ready::Yes => Some(slice),
            Ready::Later => {
                self.put_back(slot, slice);
                None
            }
            Ready::Never => None,
        }
    }

    fn put_back(&mut self, slot: u32, (head, file, range): Slice) {
        let work = self.conns.at(slot).work();
        work.head = head;
        work.parts.push_front(Part::File(file, range));
    }

    /// Gives the kernel the keys. False if the connection stays with our own record layer.
    fn hand_over(&mut self, slot: u32) -> bool {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        let State::Open(session) = &mut tls.state else {
            return false;
        };
        let secrets = match session.into_kernel() {
            Ok(secrets) => secrets,
            Err(why) => {
                tls.stays_ours = true;
                self.counters.tls.stays_ours(match why {
                    StaysOurs::Tls12 => "tls12",
                    StaysOurs::Waiting | StaysOurs::Over => "over",
                });
                return false;
            }
        };
        match self.driver.seal_in_kernel(conn.socket, &tx_keys(&secrets)) {
            Ok(()) => {
                self.counters.tls.kernel += 1;
                true
            }
            // The module was there at the start: a limit of the container, or no memory.
            Err(_) => {
                session.take_back(secrets);
                tls.stays_ours = true;
                self.counters.tls.stays_ours("refused");
                false
            }
        }
    }

    /// Whether the kernel seals what this connection sends.
    pub(super) fn is_kernel(&mut self, slot: u32) -> bool {
        let tls = self.conns.at(slot).tls.as_deref();
        tls.is_some_and(|tls| matches!(&tls.state, State::Open(session) if session.is_kernel()))
    }

    /// Counts a list that the kernel is about to seal. `None` if it has to wait, or the connection
    /// was ended.
    pub(super) fn counted_for_kernel(&mut self, slot: u32, list: SendList) -> Option<SendList> {
        match self.ready(slot, list_len(&list)) {
            Ready::Yes => Some(list),
            Ready::Later => {
                if let Some(tls) = &mut self.conns.at(slot).tls {
                    tls.pending = Some(list);
                }
                None
            }
            Ready::Never => None,
        }
    }

    fn ready(&mut self, slot: u32, bytes: u64) -> Ready {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else {
            return Ready::Yes;
        };
        let State::Open(session) = &mut tls.state else {
            return Ready::Yes;
        };
        match session.kernel_sends(bytes) {
            KernelNeeds::Nothing => Ready::Yes,
            KernelNeeds::End => {
                self.cut_short(slot);
                Ready::Never
            }
            KernelNeeds::KeyUpdate => {
                let kernel = self.settings.kernel_tls.as_ref();
                let next = kernel
                    .filter(|kernel| kernel.can_update_keys())
                    .and_then(|_| session.kernel_update());
                let Some((content, secrets)) = next else {
                    // Linux before 6.14: another connection will have another key.
                    conn.closing = true;
                    return Ready::Yes;
                };
                tls.next_keys = Some(secrets);
                self.send_control(slot, ControlType::Handshake, &content);
                Ready::Later
            }
        }
    }

    pub(super) fn send_control(&mut self, slot: u32, control: ControlType, content: &[u8]) {
        let conn = self.conns.at(slot);
        conn.expected = content.len() as u64;
        let asker = token(Kind::Send, slot, conn.generation);
        self.driver
            .send_control(conn.socket, asker, control, content);
    }

    /// Sends an alert as the kernel's last record.
    pub(super) fn send_alert_by_kernel(&mut self, slot: u32, alert: Alert) {
        self.send_control(slot, ControlType::Alert, &alert.content());
    }

    /// If a `KeyUpdate` was what has just been sent: installs the new key and goes on with what
    /// waited for it. False if it was something else.
    pub(super) fn key_updated(&mut self, slot: u32) -> bool {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        let Some(secrets) = tls.next_keys.take() else {
            return false;
        };
        let pending = tls.pending.take();
        let installed = self.driver.seal_in_kernel(conn.socket, &tx_keys(&secrets));
        if installed.is_err() {
            // The peer expects the new key already.
            self.cut_short(slot);
            return true;
        }
        self.counters.tls.kernel_key_updates += 1;
        if let Some(list) = pending {
            self.send_list(slot, list);
        } else {
            self.send_next_part(slot);
        }
        true
    }
}
