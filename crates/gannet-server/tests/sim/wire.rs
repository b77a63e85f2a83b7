//! The transport of a client's bytes: clear text, or TLS.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::sync::Arc;

use gannet_io::driver::Listener;
use gannet_io::sim::{End, SimHandle};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection};

use crate::tls_support::{Abilities, Authority, connect};

/// A client's connection.
pub(crate) enum Wire {
    Clear(gannet_io::sim::Client),
    Secure(gannet_io::sim::Client, Box<RefCell<Tls>>),
}

/// The client's side of TLS.
pub(crate) struct Tls {
    connection: ClientConnection,
    /// Decrypted and not read yet.
    plain: Vec<u8>,
    /// The fault of a record, if any.
    fault: Option<String>,
    has_ended: bool,
    /// Requests a key update after this many bytes.
    updates_after: usize,
    opened: usize,
    /// Bytes received of the current record, header included.
    record: usize,
    header: [u8; 5],
    /// Lengths of the records received so far, headers included.
    record_lens: Vec<usize>,
}

/// The TLS configuration of all clients.
pub(crate) fn config(authority: &Authority, early_data: bool) -> Arc<ClientConfig> {
    // Lengths are the same in every run, so that a seed determines the run.
    authority.client(Abilities {
        groups: vec![aws_lc_rs::kx_group::X25519],
        suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        early_data,
        ..Abilities::default()
    })
}

impl Wire {
    pub(crate) fn connect(
        disk: &SimHandle,
        tls: Option<&Arc<ClientConfig>>,
        updates_after: usize,
    ) -> Option<Self> {
        let wire = Self::open(disk, tls, updates_after)?;
        wire.flush();
        Some(wire)
    }

    /// A connection on which nothing was sent, not even a ClientHello.
    pub(crate) fn unsent(disk: &SimHandle, tls: Option<&Arc<ClientConfig>>) -> Option<Self> {
        Self::open(disk, tls, usize::MAX)
    }

    /// A connection that sends `bytes` as early data, and its part of the handshake when it reads.
    pub(crate) fn early(
        disk: &SimHandle,
        tls: Option<&Arc<ClientConfig>>,
        bytes: &[u8],
    ) -> Option<Self> {
        let wire = Self::open(disk, tls, usize::MAX)?;
        if let Self::Secure(_, tls) = &wire {
            let mut tls = tls.borrow_mut();
            let mut early = tls.connection.early_data().expect("a session allows it");
            early.write_all(bytes).expect("it is short");
        }
        wire.flush();
        Some(wire)
    }

    fn open(
        disk: &SimHandle,
        tls: Option<&Arc<ClientConfig>>,
        updates_after: usize,
    ) -> Option<Self> {
        let client = disk.connect(Listener(0))?;
        let Some(config) = tls else {
            return Some(Self::Clear(client));
        };
        let tls = Tls {
            connection: connect(config, "localhost"),
            plain: Vec::new(),
            fault: None,
            has_ended: false,
            updates_after,
            opened: 0,
            record: 0,
            header: [0; 5],
            record_lens: Vec::new(),
        };
        Some(Self::Secure(client, Box::new(RefCell::new(tls))))
    }

    /// Sends pending TLS output.
    fn flush(&self) {
        let Self::Secure(client, tls) = self else {
            return;
        };
        let mut bytes = Vec::new();
        let mut tls = tls.borrow_mut();
        while tls.connection.wants_write() {
            tls.connection.write_tls(&mut bytes).expect("into memory");
        }
        if !bytes.is_empty() && client.end() == End::Open {
            client.write(&bytes);
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        match self {
            Self::Clear(client) => client.write(bytes),
            Self::Secure(_, tls) => {
                let mut writer = tls.borrow_mut();
                writer
                    .connection
                    .writer()
                    .write_all(bytes)
                    .expect("into memory");
                drop(writer);
                self.flush();
            }
        }
    }

    /// Reads up to about `max` bytes.
    pub(crate) fn read_at_most(&self, max: usize) -> Result<Vec<u8>, String> {
        let Self::Secure(client, tls) = self else {
            let Self::Clear(client) = self else {
                return Ok(Vec::new());
            };
            return Ok(client.read_at_most(max));
        };
        let encrypted = client.read_at_most(max);
        tls.borrow_mut().open(&encrypted);
        self.flush();
        let mut tls = tls.borrow_mut();
        if let Some(fault) = tls.fault.take() {
            return Err(fault);
        }
        Ok(std::mem::take(&mut tls.plain))
    }

    /// The state of the connection. An end without `close_notify` counts as a reset: the client
    /// knows that data may be missing.
    pub(crate) fn end(&self) -> End {
        match self {
            Self::Clear(client) => client.end(),
            Self::Secure(client, tls) => match client.end() {
                End::Finished if !tls.borrow().has_ended => End::Reset,
                end => end,
            },
        }
    }

    pub(crate) fn is_closed_by_server(&self) -> bool {
        self.client().is_closed_by_server()
    }

    pub(crate) fn shutdown_write(&self) {
        if let Self::Secure(_, tls) = self {
            // Data that waits for the handshake would be lost.
            if tls.borrow().connection.is_handshaking() {
                return;
            }
            // Nothing may follow it, not even a key update.
            tls.borrow_mut().updates_after = usize::MAX;
            tls.borrow_mut().connection.send_close_notify();
            self.flush();
        }
        self.client().shutdown_write();
    }

    pub(crate) fn reset(&self) {
        self.client().reset();
    }

    /// Whether the handshake is incomplete. Never in clear text.
    pub(crate) fn is_shaking(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Secure(_, tls) => tls.borrow().connection.is_handshaking(),
        }
    }

    /// Session tickets received so far.
    pub(crate) fn tickets(&self) -> u32 {
        match self {
            Self::Clear(_) => 0,
            Self::Secure(_, tls) => tls.borrow().connection.tls13_tickets_received(),
        }
    }

    /// Takes the lengths of the records received since the last call, headers included.
    pub(crate) fn take_record_lens(&self) -> Vec<usize> {
        match self {
            Self::Clear(_) => Vec::new(),
            Self::Secure(_, tls) => std::mem::take(&mut tls.borrow_mut().record_lens),
        }
    }

    /// The connection below TLS.
    pub(crate) fn client(&self) -> &gannet_io::sim::Client {
        match self {
            Self::Clear(client) | Self::Secure(client, _) => client,
        }
    }
}

impl Tls {
    fn note_records(&mut self, encrypted: &[u8]) {
        for &byte in encrypted {
            if let Some(place) = self.header.get_mut(self.record) {
                *place = byte;
            }
            self.record += 1;
            let len = 5 + usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            if self.record >= 5 && self.record == len {
                self.record_lens.push(len);
                self.record = 0;
            }
        }
    }

    fn open(&mut self, mut encrypted: &[u8]) {
        self.note_records(encrypted);
        while !encrypted.is_empty() {
            if self.connection.read_tls(&mut encrypted).is_err() {
                return;
            }
            match self.connection.process_new_packets() {
                Ok(state) => self.has_ended |= state.peer_has_closed(),
                Err(error) => {
                    self.fault.get_or_insert(error.to_string());
                    return;
                }
            }
            let before = self.plain.len();
            // "Would block" and "closed" both mean that no more is available.
            let _ = self.connection.reader().read_to_end(&mut self.plain);
            self.opened += self.plain.len() - before;
            if self.opened > self.updates_after {
                self.updates_after = usize::MAX;
                self.connection.refresh_traffic_keys().expect("TLS 1.3");
            }
        }
    }
}
