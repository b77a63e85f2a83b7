//! A client that completes a regular handshake and then sends handmade packets that no library
//! would send.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use gannet_testkit::h3::{take_varint, varint};
use rustls::{ClientConfig, KeyLog};

use crate::link::{Link, Opening, server_address};
use crate::quic_deadlines::connected;
use crate::server::Server;

/// Frames (RFC 9000 section 19).
pub(crate) fn path_challenge(data: u64) -> Vec<u8> {
    [&[0x1a], &data.to_be_bytes()[..]].concat()
}

/// A new connection ID of the client, which retires all older ones.
pub(crate) fn new_connection_id(sequence: u64) -> Vec<u8> {
    let numbers = [vec![0x18], varint(sequence), varint(sequence), vec![8]];
    let id = sequence.to_be_bytes();
    [&numbers.concat()[..], &id[..], &[0; 16]].concat()
}

pub(crate) fn retire_connection_id(sequence: u64) -> Vec<u8> {
    [vec![0x19], varint(sequence)].concat()
}

/// An acknowledgement of one packet.
pub(crate) fn ack(number: u64) -> Vec<u8> {
    [vec![0x02], varint(number), varint(0), varint(0), varint(0)].concat()
}

pub(crate) fn stream(id: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let numbers = [vec![0x0e], varint(id), varint(offset)].concat();
    [numbers, varint(bytes.len() as u64), bytes.to_vec()].concat()
}

pub(crate) fn crypto(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let numbers = [vec![0x06], varint(offset), varint(bytes.len() as u64)];
    [&numbers.concat()[..], bytes].concat()
}

/// A client that sends handmade packets.
pub(crate) struct Forger {
    /// Idle after the handshake: it does not know about the forged packets.
    pub(crate) link: Link,
    ours: Keys,
    theirs: Keys,
    /// The number of the next packet, above all that the library may have used.
    number: u32,
    /// The error code with which the server has closed the connection.
    pub(crate) error: Option<u64>,
}

/// The packet protection keys of one direction (RFC 9001 section 5).
struct Keys {
    /// Where the number is in a short header (RFC 9000 section 17.3.1): behind the connection ID.
    number_at: usize,
    key: LessSafeKey,
    iv: [u8; 12],
    header_key: HeaderProtectionKey,
}

/// The application traffic secrets: the client's and the server's.
#[derive(Debug, Default)]
struct Secrets(Mutex<[Vec<u8>; 2]>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut secrets = self.0.lock().expect("one thread");
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => secrets[0] = secret.to_vec(),
            "SERVER_TRAFFIC_SECRET_0" => secrets[1] = secret.to_vec(),
            _ => {}
        }
    }
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1).
fn expand<const N: usize>(secret: &[u8], label: &str) -> [u8; N] {
    let label = format!("tls13 {label}");
    let lens = [0, N as u8, label.len() as u8];
    let info = [&lens[..], label.as_bytes(), &[0]];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let mut out = [0; N];
    let made = prk.expand(&info, Len(N)).expect("short");
    made.fill(&mut out).expect("of this length");
    out
}

impl Keys {
    fn new(secret: &[u8], id_len: usize) -> Self {
        let key: [u8; 16] = expand(secret, "quic key");
        let header_key: [u8; 16] = expand(secret, "quic hp");
        Self {
            number_at: 1 + id_len,
            key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("16 bytes")),
            iv: expand(secret, "quic iv"),
            header_key: HeaderProtectionKey::new(&AES_128, &header_key).expect("16 bytes"),
        }
    }

    fn nonce(&self, number: u32) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn mask(&self, packet: &[u8]) -> [u8; 5] {
        // The sample for header protection starts after a packet number of maximum length.
        let sample = &packet[self.number_at + 4..self.number_at + 20];
        self.header_key.new_mask(sample).expect("16 bytes")
    }
}

/// The lengths of connection IDs: the server's, the client's.
const ID_LENS: [usize; 2] = [10, 8];

impl Forger {
    /// Connects a client and completes its handshake.
    pub(crate) fn new(server: &mut Server, config: &Arc<ClientConfig>, number: u16) -> Self {
        let mut config = ClientConfig::clone(config);
        let log = Arc::new(Secrets::default());
        config.key_log = Arc::<Secrets>::clone(&log);
        let mut link = connected(server, &Arc::new(config), &Opening::new(number));
        server.pass_while(100, || link.step());
        let secrets = log.0.lock().expect("one thread").clone();
        Self {
            link,
            ours: Keys::new(&secrets[0], ID_LENS[0]),
            theirs: Keys::new(&secrets[1], ID_LENS[1]),
            number: 1_000,
            error: None,
        }
    }

    /// Sends a packet with these frames.
    pub(crate) fn send(&mut self, frames: &[u8]) {
        self.send_as(self.link.socket.address(), frames);
    }

    /// The same as if from another address.
    pub(crate) fn send_as(&mut self, from: SocketAddr, frames: &[u8]) {
        let mut packet = vec![0x43];
        packet.extend_from_slice(&self.link.server_id);
        packet.extend_from_slice(&self.number.to_be_bytes());
        let mut content = frames.to_vec();
        content.resize(frames.len().max(4), 0);
        let (keys, aad) = (&self.ours, Aad::from(&packet));
        let nonce = keys.nonce(self.number);
        let tag = keys
            .key
            .seal_in_place_separate_tag(nonce, aad, &mut content);
        packet.extend(content);
        packet.extend_from_slice(tag.expect("short").as_ref());
        let mask = keys.mask(&packet);
        packet[0] ^= mask[0] & 0x1f;
        for (byte, mask) in packet[keys.number_at..].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
        }
        self.number += 1;
        let to = server_address();
        self.link.socket.send_as(from, to, &packet, 0);
    }

    /// Checks whether the received packets close the connection.
    fn receive(&mut self) {
        while let Some(arrived) = self.link.socket.receive() {
            let error = self.open(arrived.bytes).and_then(|it| close_code(&it));
            self.error = self.error.or(error);
        }
    }

    /// Decrypts the frames of a server packet with a number below 256.
    fn open(&self, mut packet: Vec<u8>) -> Option<Vec<u8>> {
        let number_at = self.theirs.number_at;
        if packet[0] & 0x80 != 0 || packet.len() < number_at + 20 {
            return None;
        }
        let mask = self.theirs.mask(&packet);
        packet[0] ^= mask[0] & 0x1f;
        let len = 1 + usize::from(packet[0] & 3);
        for (byte, mask) in packet[number_at..number_at + len]
            .iter_mut()
            .zip(&mask[1..])
        {
            *byte ^= mask;
        }
        let sent = &packet[number_at..number_at + len];
        let low = sent
            .iter()
            .fold(0, |number, byte| number << 8 | u32::from(*byte));
        let mut content = packet.split_off(number_at + len);
        let (keys, aad) = (&self.theirs, Aad::from(&packet));
        let opened = keys.key.open_in_place(keys.nonce(low), aad, &mut content);
        opened.ok().map(|frames| frames.to_vec())
    }

    /// Sends frames, as many as fit in each packet, and runs the server's turns.
    pub(crate) fn flood(&mut self, server: &mut Server, frames: impl Iterator<Item = Vec<u8>>) {
        let mut packet = Vec::new();
        for frame in frames {
            if packet.len() + frame.len() > 1_150 {
                self.send(&packet);
                packet.clear();
                server.pass_while(1, || self.receive());
            }
            packet.extend(frame);
        }
        self.send(&packet);
        server.pass_while(100, || self.receive());
    }
}

/// The error code of a CONNECTION_CLOSE frame, possibly after acknowledgements.
fn close_code(mut frames: &[u8]) -> Option<u64> {
    loop {
        match take_varint(&mut frames)? {
            0 => {}
            kind @ (2 | 3) => {
                let (_largest, _delay) = (take_varint(&mut frames)?, take_varint(&mut frames)?);
                let ranges = take_varint(&mut frames)?;
                let counts = if kind == 3 { 3 } else { 0 };
                for _ in 0..1 + 2 * ranges + counts {
                    take_varint(&mut frames)?;
                }
            }
            0x1c | 0x1d => return take_varint(&mut frames),
            _ => return None,
        }
    }
}
