//! Kernel TLS in the simulation: the lent encryptor encrypts everything sent, in order, with its
//! keys.

use gannet_io::driver::{
    Completion, Disk, Done, Errno, Listener, Network, SendList, Socket, Started, Token,
};
use gannet_io::ktls::{Cipher, ControlType, TxKeys};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, KernelTlsModel, RecordEncryptor, Sim, SimHandle};

/// Records what it was asked to encrypt: key, sequence number, type and content.
struct Witness {
    key: u8,
    sequence: u64,
}

impl RecordEncryptor for Witness {
    fn encrypt(&mut self, content_type: u8, content: &[u8], out: &mut Vec<u8>) {
        out.extend([self.key, self.sequence as u8, content_type]);
        out.extend((content.len() as u16).to_be_bytes());
        out.extend(content);
        self.sequence += 1;
    }
}

fn model(can_update_keys: bool) -> KernelTlsModel {
    let make = |keys: &TxKeys<'_>| -> Box<dyn RecordEncryptor> {
        Box::new(Witness {
            key: keys.key[0],
            sequence: keys.sequence,
        })
    };
    KernelTlsModel::new(make, can_update_keys)
}

fn keys(key: &[u8; 16], sequence: u64) -> TxKeys<'_> {
    TxKeys {
        cipher: Cipher::Aes128Gcm,
        key,
        iv: [0; 12],
        sequence,
    }
}

struct Table {
    driver: Sim,
    handle: SimHandle,
    client: Client,
    socket: Socket,
    /// What the client received.
    got: Vec<u8>,
}

impl Table {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut driver = Sim::new(seed, 1, &EngineOptions::default(), faults);
        let handle = driver.handle();
        driver.accept(Listener(0), Token(0));
        let client = handle.connect(Listener(0)).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            driver.wait(None, &mut out).unwrap();
        }
        let Ok(Done::Accepted(socket)) = out[0].result else {
            panic!("{out:?}");
        };
        Self {
            driver,
            handle,
            client,
            socket,
            got: Vec::new(),
        }
    }

    /// Waits for the end of the send, while the client reads.
    fn sent(&mut self) -> Result<u64, Errno> {
        let mut out: Vec<Completion> = Vec::new();
        while out.is_empty() {
            self.driver.wait(None, &mut out).unwrap();
            self.got.extend(self.client.read());
        }
        match out.remove(0).result {
            Ok(Done::Sent(count)) => Ok(count),
            Ok(other) => panic!("{other:?}"),
            Err(errno) => Err(errno),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let list = SendList {
            wire: bytes.to_vec(),
            ..SendList::default()
        };
        self.driver.send(self.socket, Token(1), list);
        assert_eq!(self.sent(), Ok(bytes.len() as u64));
    }

    /// The records that the client received: key, sequence number, type, content.
    fn records(&self) -> Vec<(u8, u8, u8, Vec<u8>)> {
        let mut rest = &self.got[..];
        let mut records = Vec::new();
        while let [key, sequence, kind, high, low, after @ ..] = rest {
            let (content, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            records.push((*key, *sequence, *kind, content.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty(), "whole records");
        records
    }
}

/// Without the module, and for a second key without support, the errors are the kernel's.
#[test]
fn refuses_as_a_kernel_does() {
    let mut table = Table::new(1, Faults::default());
    let socket = table.socket;
    let refused = table.driver.encrypt_in_kernel(socket, &keys(&[1; 16], 0));
    assert_eq!(refused, Err(Errno::NOENT));
    table.send(b"clear");
    assert_eq!(table.got, b"clear");
    table.handle.set_kernel_tls(Some(model(false)));
    let first = table.driver.encrypt_in_kernel(socket, &keys(&[1; 16], 0));
    assert_eq!(first, Ok(()));
    let second = table.driver.encrypt_in_kernel(socket, &keys(&[2; 16], 0));
    assert_eq!(second, Err(Errno::BUSY));
    table
        .driver
        .send_control(socket, Token(2), ControlType::Alert, &[1, 0]);
    assert_eq!(table.sent(), Ok(2));
    table.got.drain(..5);
    assert_eq!(table.records(), [(1, 0, 21, vec![1, 0])]);
}

/// Lists, files and control records become records in order, split anywhere by faults, and a new
/// key applies from its record on.
#[test]
fn encrypts_in_order_under_faults() {
    for seed in 0..50 {
        let faults = Faults {
            short_send: 300,
            delay: 200,
            ..Faults::default()
        };
        let mut table = Table::new(seed, faults);
        let content: Vec<u8> = (0..40_000u32).map(|n| (n ^ (n >> 8)) as u8).collect();
        table.handle.put_file("file", content.clone());
        table.handle.set_kernel_tls(Some(model(true)));
        let root = table.handle.root();
        let file = match table.driver.open(&root, b"file", Token(9)) {
            Started::Now(opened) => opened.unwrap().file,
            Started::Pending => panic!("no fault delays it"),
        };
        let socket = table.socket;
        table
            .driver
            .encrypt_in_kernel(socket, &keys(&[1; 16], 5))
            .unwrap();
        table.send(b"list");
        table
            .driver
            .send_file(socket, Token(1), b"head".to_vec(), &file, 0, 40_000);
        assert_eq!(table.sent(), Ok(40_004));
        table
            .driver
            .send_control(socket, Token(1), ControlType::Handshake, &[24, 0, 0, 1, 0]);
        assert_eq!(table.sent(), Ok(5));
        table
            .driver
            .encrypt_in_kernel(socket, &keys(&[2; 16], 0))
            .unwrap();
        table.send(b"after");
        let records = table.records();
        let update = records.iter().position(|record| record.2 == 22).unwrap();
        let join = |range: &[(u8, u8, u8, Vec<u8>)]| -> Vec<u8> {
            range.iter().flat_map(|record| record.3.clone()).collect()
        };
        let expected = [&b"listhead"[..], &content].concat();
        assert!(
            join(&records[..update]) == expected,
            "seed {seed}: wrong bytes"
        );
        assert_eq!(join(&records[update + 1..]), b"after", "seed {seed}");
        let count = |key| records.iter().filter(|record| record.0 == key).count();
        assert_eq!(
            count(1),
            update + 1,
            "seed {seed}: the old key up to its update"
        );
        assert!(
            records
                .iter()
                .take(update + 1)
                .enumerate()
                .all(|(n, record)| { usize::from(record.1) == n + 5 && record.3.len() <= 1 << 14 })
        );
    }
}

/// A control record waits for room in a full socket; the end of the stream follows it.
#[test]
fn control_records_wait_for_room_and_the_end_for_them() {
    let mut table = Table::new(1, Faults::default());
    let socket = table.socket;
    table.handle.set_kernel_tls(Some(model(true)));
    let installed = table.driver.encrypt_in_kernel(socket, &keys(&[1; 16], 0));
    assert_eq!(installed, Ok(()));
    let capacity = 64 << 10;
    let list = SendList {
        wire: vec![7; capacity],
        ..SendList::default()
    };
    let mut out = Vec::new();
    table.driver.send(socket, Token(1), list);
    table.driver.wait(None, &mut out).unwrap();
    assert!(matches!(
        out[..],
        [Completion {
            result: Ok(Done::Sent(_)),
            ..
        }]
    ));
    out.clear();
    table
        .driver
        .send_control(socket, Token(2), ControlType::Alert, &[1, 0]);
    table.driver.shutdown_write(socket);
    for _ in 0..10 {
        let soon = table.handle.now().plus_ms(10);
        table.handle.wake_at(Some(soon));
        table.driver.wait(None, &mut out).unwrap();
    }
    assert!(out.is_empty(), "the socket is full: {out:?}");
    assert_eq!(table.client.end(), End::Open);
    table.got = table.client.read();
    assert_eq!(table.sent(), Ok(2));
    let records = table.records();
    let data: usize = records[..records.len() - 1]
        .iter()
        .map(|it| it.3.len())
        .sum();
    assert_eq!(data, capacity);
    let last = records.last().unwrap();
    assert_eq!((last.2, &last.3[..]), (21, &[1, 0][..]));
    assert_eq!(table.client.end(), End::Finished);
}
