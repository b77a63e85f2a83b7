//! Kernel TLS: what the kernel encrypted is decrypted at the peer and compared. Where the running
//! kernel does not support it, these tests are left out and the refusal is tested.

mod desk;
mod records;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use desk::{Desk, Folder, each, each_with_send_buffer, pattern};
use gannet_io::driver::{Errno, File, Piece, SendList, Socket, Token};
use gannet_io::ktls::{self, Cipher, ControlType, Support};
use gannet_io::memory::{Memory, sealed_copy};
use gannet_testkit::left_out;
use records::{ALERT, DATA, HANDSHAKE, Keys, open};

const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What this kernel supports; `None` if nothing, and the test is left out.
fn support() -> Option<Support> {
    let support = ktls::probe().unwrap();
    match support.unavailable() {
        None => Some(support),
        Some(why) => {
            left_out("kernel TLS", why);
            None
        }
    }
}

/// A client with a small window, which a thread reads to the end.
fn reading_client(desk: &mut Desk) -> (thread::JoinHandle<Vec<u8>>, Socket) {
    let (client, socket) = desk.connect();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 20_000).unwrap();
    (reader(client), socket)
}

fn reader(mut client: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Sends close_notify, closes, and decrypts what the client received: data joined, then control
/// records.
fn finish(
    desk: &mut Desk,
    socket: Socket,
    reader: thread::JoinHandle<Vec<u8>>,
    keys: &[Keys],
) -> Vec<u8> {
    desk.driver
        .send_control(socket, Token(99), ControlType::Alert, &CLOSE_NOTIFY);
    assert_eq!(desk.sent(Token(99)), Ok(2));
    desk.driver.close(socket);
    desk.settle();
    let mut records = open(&reader.join().unwrap(), keys);
    assert_eq!(records.pop(), Some((ALERT, CLOSE_NOTIFY.to_vec())));
    let mut data = Vec::new();
    for (kind, content) in records {
        match kind {
            DATA => data.extend(content),
            HANDSHAKE => assert_eq!(content, KEY_UPDATE),
            other => panic!("{}: a record of type {other}", desk.engine),
        }
    }
    data
}

fn list(bytes: &[u8], more: bool) -> SendList {
    SendList {
        wire: bytes.to_vec(),
        pieces: Vec::new(),
        more,
    }
}

/// A kernel without support says why, and sending continues in the clear.
#[test]
fn a_refusal_changes_nothing() {
    let support = ktls::probe().unwrap();
    let Some(why) = support.unavailable().cloned() else {
        left_out("a kernel without kernel TLS", "this one has it");
        return;
    };
    each(|mut desk| {
        let (reader, socket) = reading_client(&mut desk);
        for _ in 0..2 {
            let keys = Keys::new(Cipher::Aes128Gcm, 1);
            let refused = desk.driver.encrypt_in_kernel(socket, &keys.tx());
            assert_eq!(refused, Err(why.errno), "{}: {why}", desk.engine);
        }
        desk.driver
            .send(socket, Token(1), list(b"in the clear", false));
        assert_eq!(desk.sent(Token(1)), Ok(12));
        desk.driver.close(socket);
        desk.settle();
        assert_eq!(reader.join().unwrap(), b"in the clear");
    });
}

/// Bytes of all kinds and file ranges, through a narrow window, with every cipher; bytes sent
/// before the keys are installed go in the clear.
#[test]
fn encrypts_everything_in_order() {
    let Some(support) = support() else { return };
    let folder = Folder::new("ktls-order");
    let content = pattern(3 << 20);
    let path = folder.file("content", &content);
    let opened = std::fs::File::open(&path).unwrap();
    let sealed = sealed_copy(&opened, 3 << 20).unwrap();
    let mapped = Arc::new(Memory::map_sealed(&sealed).unwrap());
    for cipher in [
        Cipher::Aes128Gcm,
        Cipher::Aes256Gcm,
        Cipher::ChaCha20Poly1305,
    ] {
        if !support.has(cipher) {
            left_out("kernel TLS", format_args!("{cipher:?} is not known"));
            continue;
        }
        each(|mut desk| {
            let file = File::from(opened.try_clone().unwrap());
            let (mut client, socket) = desk.connect();
            desk.driver.send(socket, Token(0), list(b"clear", false));
            assert_eq!(desk.sent(Token(0)), Ok(5));
            let mut clear = [0; 5];
            client.read_exact(&mut clear).unwrap();
            let reader = reader(client);
            let keys = Keys::new(cipher, 7);
            desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
            let head = list(b"head", true);
            desk.driver.send(socket, Token(1), head);
            assert_eq!(desk.sent(Token(1)), Ok(4));
            let pieces = vec![
                Piece::Wire(0..2),
                Piece::Memory(Arc::clone(&mapped), 5..3 << 20),
                Piece::Wire(2..4),
            ];
            let gathered = SendList {
                wire: b"<<>>".to_vec(),
                pieces,
                more: false,
            };
            desk.driver.send(socket, Token(2), gathered);
            assert_eq!(desk.sent(Token(2)), Ok((3 << 20) - 1));
            desk.driver
                .send_file(socket, Token(3), b"file".to_vec(), &file, 100, 2 << 20);
            assert_eq!(desk.sent(Token(3)), Ok((2 << 20) + 4));
            let expected = [
                &b"head<<"[..],
                &content[5..],
                b">>file",
                &content[100..100 + (2 << 20)],
            ]
            .concat();
            let got = finish(&mut desk, socket, reader, &[keys]);
            assert!(got == expected, "{} {cipher:?}: wrong bytes", desk.engine);
        });
    }
}

/// Receiving is not the kernel's: bytes from the peer arrive as they are.
#[test]
fn receives_what_the_peer_sends() {
    if support().is_none() {
        return;
    }
    each(|mut desk| {
        let (mut client, socket) = desk.connect();
        let keys = Keys::new(Cipher::Aes128Gcm, 1);
        desk.driver.receive(socket, Token(1));
        desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
        client.write_all(b"as it is").unwrap();
        assert_eq!(desk.received_whole(Token(1), 8), b"as it is");
        desk.driver.send(socket, Token(2), list(b"answer", false));
        client.write_all(b" and more").unwrap();
        assert_eq!(desk.sent(Token(2)), Ok(6));
        assert_eq!(desk.received_whole(Token(1), 9), b" and more");
        let reader = reader(client);
        assert_eq!(finish(&mut desk, socket, reader, &[keys]), b"answer");
    });
}

/// No sent byte waits for later ones: the client has them all before anything follows.
#[test]
fn the_last_piece_leaves_at_once() {
    if support().is_none() {
        return;
    }
    let folder = Folder::new("ktls-at-once");
    let content = pattern(100_000);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (mut client, socket) = desk.connect();
        let keys = Keys::new(Cipher::Aes128Gcm, 1);
        desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
        desk.driver
            .send_file(socket, Token(1), b"head".to_vec(), &file, 0, 100_000);
        assert_eq!(desk.sent(Token(1)), Ok(100_004));
        let mut bytes = Vec::new();
        let mut step = [0; 4096];
        // If a byte were held back, the client's time limit would end this.
        loop {
            let data: usize = open(&bytes, std::slice::from_ref(&keys))
                .iter()
                .map(|(_, content)| content.len())
                .sum();
            if data == 100_004 {
                break;
            }
            let count = client.read(&mut step).unwrap();
            bytes.extend_from_slice(&step[..count]);
        }
        desk.driver.close(socket);
    });
}

/// Data that waits for room, and a control record after it.
#[test]
fn data_waits_for_room() {
    if support().is_none() {
        return;
    }
    each(|mut desk| {
        let (client, socket) = desk.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, 20_000).unwrap();
        let keys = Keys::new(Cipher::Aes128Gcm, 1);
        desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
        let content = pattern(100_000);
        let mut sent = 0;
        let waiting = loop {
            desk.driver.send(socket, Token(sent), list(&content, false));
            if desk.settle().is_empty() {
                break sent;
            }
            sent += 1;
        };
        let reader = reader(client);
        assert_eq!(desk.sent(Token(waiting)), Ok(100_000));
        let got = finish(&mut desk, socket, reader, &[keys]);
        assert!(
            got == content.repeat(waiting as usize + 1),
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// Sends control records of this content until one has to wait: then the socket is full. Returns
/// how many there are, including the waiting one, which has this token.
fn fill_with_control(
    desk: &mut Desk,
    socket: Socket,
    control: ControlType,
    content: &[u8],
    token: Token,
) -> usize {
    for count in 1.. {
        desk.driver.send_control(socket, token, control, content);
        let ended = desk.settle();
        if ended.is_empty() {
            return count;
        }
        let [ended] = &ended[..] else {
            panic!("{}: {ended:?}", desk.engine);
        };
        assert_eq!(ended.token, token, "{ended:?}");
    }
    unreachable!("sockets are finite")
}

/// A control record that finds the socket full waits for room. What follows is sent in order: a new
/// key if the kernel can replace one, and data.
#[test]
fn a_control_record_waits_for_room() {
    const CANCELED: [u8; 2] = [1, 90];
    let Some(support) = support() else { return };
    each_with_send_buffer(4096, |mut desk| {
        let (client, socket) = desk.connect();
        rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
        let mut keys = vec![Keys::new(Cipher::Aes128Gcm, 1)];
        desk.driver
            .encrypt_in_kernel(socket, &keys[0].tx())
            .unwrap();
        let (alert, content) = (ControlType::Alert, &CANCELED);
        let count = fill_with_control(&mut desk, socket, alert, content, Token(1));
        let reader = reader(client);
        assert_eq!(desk.sent(Token(1)), Ok(2), "{}", desk.engine);
        if support.can_update_keys {
            desk.driver
                .send_control(socket, Token(2), ControlType::Handshake, &KEY_UPDATE);
            assert_eq!(desk.sent(Token(2)), Ok(5));
            keys.push(Keys::new(Cipher::Aes128Gcm, 0));
            desk.driver
                .encrypt_in_kernel(socket, &keys[1].tx())
                .unwrap();
        }
        desk.driver
            .send(socket, Token(3), list(b"behind it", false));
        assert_eq!(desk.sent(Token(3)), Ok(9));
        desk.driver.shutdown_write(socket);
        let records = open(&reader.join().unwrap(), &keys);
        let alerts = records
            .iter()
            .filter(|it| **it == (ALERT, CANCELED.to_vec()));
        assert_eq!(alerts.count(), count, "{}", desk.engine);
        assert_eq!(records.len(), count + keys.len(), "{}", desk.engine);
        assert_eq!(records.last(), Some(&(DATA, b"behind it".to_vec())));
        desk.driver.close(socket);
        desk.settle();
    });
}

/// A close_notify that finds the socket full waits, and the end of the stream waits for it: without
/// it the peer would take an orderly end for a truncation.
#[test]
fn the_end_waits_for_a_goodbye_that_waits_for_room() {
    /// What was sent last may be on its way when a record finds no room, and makes some when it arrives.
    const TRIES: usize = 20;
    if support().is_none() {
        return;
    }
    each_with_send_buffer(4096, |mut desk| {
        let waits = (0..TRIES).any(|_| {
            let (client, socket) = desk.connect();
            rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
            let keys = Keys::new(Cipher::Aes128Gcm, 1);
            desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
            let (alert, content) = (ControlType::Alert, &CLOSE_NOTIFY);
            let count = fill_with_control(&mut desk, socket, alert, content, Token(1));
            desk.driver.shutdown_write(socket);
            let still_waits = desk.settle().is_empty();
            let reader = reader(client);
            if still_waits {
                assert_eq!(desk.sent(Token(1)), Ok(2), "{}", desk.engine);
            }
            // The peer reads to the end, which arrives although nothing was closed.
            let records = open(&reader.join().unwrap(), &[keys]);
            assert_eq!(records.len(), count, "{}", desk.engine);
            assert!(
                records
                    .iter()
                    .all(|it| *it == (ALERT, CLOSE_NOTIFY.to_vec()))
            );
            desk.driver.close(socket);
            desk.settle();
            still_waits
        });
        assert!(waits, "{}: each had room at once", desk.engine);
    });
}

/// A new key after its `KeyUpdate`, in the middle of a file; a kernel without support returns
/// `EBUSY` and continues with the old key.
#[test]
fn keys_are_replaced_between_sends() {
    let Some(support) = support() else { return };
    let folder = Folder::new("ktls-update");
    let content = pattern(2 << 20);
    let path = folder.file("content", &content);
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (reader, socket) = reading_client(&mut desk);
        let (old, new) = (
            Keys::new(Cipher::Aes128Gcm, 3),
            Keys::new(Cipher::Aes128Gcm, 0),
        );
        desk.driver.encrypt_in_kernel(socket, &old.tx()).unwrap();
        desk.driver
            .send_file(socket, Token(1), Vec::new(), &file, 0, 1 << 20);
        assert_eq!(desk.sent(Token(1)), Ok(1 << 20));
        let keys = if support.can_update_keys {
            desk.driver
                .send_control(socket, Token(2), ControlType::Handshake, &KEY_UPDATE);
            assert_eq!(desk.sent(Token(2)), Ok(5));
            desk.driver.encrypt_in_kernel(socket, &new.tx()).unwrap();
            vec![old, new]
        } else {
            eprintln!("this kernel cannot replace keys: the refusal is tested");
            let refused = desk.driver.encrypt_in_kernel(socket, &new.tx());
            assert_eq!(refused, Err(Errno::BUSY));
            vec![old]
        };
        desk.driver
            .send_file(socket, Token(3), Vec::new(), &file, 1 << 20, 1 << 20);
        assert_eq!(desk.sent(Token(3)), Ok(1 << 20));
        let got = finish(&mut desk, socket, reader, &keys);
        assert!(got == content, "{}: wrong bytes", desk.engine);
    });
}

/// A file that ends before the range does: fewer bytes, reported as such, and all of them correct.
#[test]
fn tells_of_a_short_file() {
    if support().is_none() {
        return;
    }
    let folder = Folder::new("ktls-short");
    each(|mut desk| {
        let content = pattern(300_000);
        let file = folder.cut_file(&content, 200_000);
        let (reader, socket) = reading_client(&mut desk);
        let keys = Keys::new(Cipher::Aes128Gcm, 1);
        desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
        desk.driver
            .send_file(socket, Token(1), b"head".to_vec(), &file, 0, 300_000);
        assert_eq!(desk.sent(Token(1)), Ok(200_004));
        let got = finish(&mut desk, socket, reader, &[keys]);
        assert!(
            got[4..] == content[..200_000],
            "{}: wrong bytes",
            desk.engine
        );
    });
}

/// The peer disappears halfway: an error, and no signal.
#[test]
fn reports_a_gone_peer() {
    if support().is_none() {
        return;
    }
    let folder = Folder::new("ktls-gone");
    let path = folder.file("content", &pattern(16 << 20));
    each(|mut desk| {
        let file = File::from(std::fs::File::open(&path).unwrap());
        let (client, socket) = desk.connect();
        let keys = Keys::new(Cipher::Aes128Gcm, 1);
        desk.driver.encrypt_in_kernel(socket, &keys.tx()).unwrap();
        desk.driver
            .send_file(socket, Token(1), Vec::new(), &file, 0, 16 << 20);
        assert!(
            desk.settle().is_empty(),
            "the socket holds less than the file"
        );
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let errno = desk.sent(Token(1)).unwrap_err();
        assert!(matches!(errno, Errno::CONNRESET | Errno::PIPE), "{errno:?}");
        desk.driver.close(socket);
    });
}
