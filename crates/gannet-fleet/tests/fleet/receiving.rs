//! Receivers, and publishers that bring them releases.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread;

use gannet_fleet::{FleetError, Outcome, PushError, Pushed, Received, Receiver, push};
use gannet_store::{Pointer, Store};

use crate::packed;
use crate::receive_checks::{conversation, small};
use crate::stores::{Fleet, archive, bytes, id_of, now, release};

/// A connection of which one side notes what it reads.
struct Noted {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Read for Noted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buffer)?;
        self.read.extend_from_slice(&buffer[..len]);
        Ok(len)
    }
}

impl Write for Noted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A publisher that says what it says, whatever it hears.
struct Replay<'r> {
    input: &'r [u8],
    said: Vec<u8>,
}

impl Read for Replay<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl Write for Replay<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn converse(
    receiver: &Receiver,
    stream: &mut (impl Read + Write),
    now: u64,
) -> Result<Received, FleetError> {
    let offer = receiver.greet(stream)?;
    receiver.receive(offer, stream, now, &Mutex::default())
}

/// How both sides have ended, and what the publisher has sent.
struct Talk {
    pushed: Result<Pushed, PushError>,
    received: Result<Received, FleetError>,
    sent: Vec<u8>,
}

impl Talk {
    /// The refusal that both sides have seen.
    fn refusal(self) -> String {
        let refused = self.received.unwrap_err().to_string();
        match self.pushed.unwrap_err() {
            PushError::Refused(why) => assert_eq!(why, refused),
            other => panic!("{other:?}"),
        }
        refused
    }
}

/// Brings a release to a receiver, as a publisher does whose file is this one.
fn bring_file(
    receiver: &Receiver,
    text: &str,
    (content, at): (&[u8], u64),
    is_activated: bool,
) -> Talk {
    let folder = gannet_testkit::Folder::new();
    let file = File::open(folder.write("release", content)).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut noted = Noted {
        stream: theirs,
        read: Vec::new(),
    };
    let (text, size) = (text.to_owned(), content.len() as u64);
    let publisher = thread::spawn(move || push(&mut ours, &text, (&file, size), is_activated));
    let received = converse(receiver, &mut noted, at);
    drop(noted.stream);
    Talk {
        pushed: publisher.join().unwrap(),
        received,
        sent: noted.read,
    }
}

fn bring(receiver: &Receiver, fleet: &Fleet, pointer: &Pointer, is_activated: bool) -> Talk {
    let store = Store::open(&fleet.store(), None).unwrap();
    let content = fs::read(store.release_path(pointer.release)).unwrap();
    bring_file(
        receiver,
        &signed(fleet, pointer),
        (&content, now()),
        is_activated,
    )
}

/// The text of a pointer, as it was published.
pub(crate) fn signed(fleet: &Fleet, pointer: &Pointer) -> String {
    let store = Store::open(&fleet.store(), None).unwrap();
    fs::read_to_string(store.log_path(pointer.serial)).unwrap()
}

fn in_force(fleet: &Fleet) -> Option<Pointer> {
    let store = Store::open(&fleet.copy(), None).ok()?;
    store.pointer().ok()
}

#[test]
fn metadata_is_brought_in_its_packed_form() {
    let fleet = Fleet::signed();
    let (archive, metadata) = packed::release(1, &packed::pack);
    let pointer = fleet.publish_with(&archive, now(), |_| {});
    let talk = bring(&fleet.receiver(), &fleet, &pointer, true);
    assert!(talk.received.is_ok() && talk.pushed.is_ok());
    fleet.is_copied();
    let left = archive.len() - metadata.len();
    assert!((left..left + 1000).contains(&talk.sent.len()));
}

#[test]
fn a_release_is_received_and_comes_into_force() {
    let fleet = Fleet::signed();
    let receiver = fleet.receiver();
    let first = fleet.publish(b'a');
    let talk = bring(&receiver, &fleet, &first, true);
    assert_eq!(talk.pushed.unwrap().bytes, talk.received.unwrap().bytes);
    fleet.is_copied();
    let second = fleet.publish(b'b');
    // What the first one has is not sent again.
    let talk = bring(&receiver, &fleet, &second, true);
    let received = talk.received.unwrap();
    assert!(received.outcome == Outcome::Activated && received.pointer == second);
    assert!(received.bytes < second.size / 4, "{} bytes", received.bytes);
    fleet.is_copied();
    // Nor is it wrong to bring it once more.
    assert_eq!(
        bring(&receiver, &fleet, &second, true)
            .pushed
            .unwrap()
            .bytes,
        0
    );
    fleet.is_copied();
}

#[test]
fn a_release_may_be_brought_first_and_come_into_force_later() {
    let fleet = Fleet::signed();
    let receiver = fleet.receiver();
    let pointer = fleet.publish(b'a');
    let received = bring(&receiver, &fleet, &pointer, false).received.unwrap();
    assert_eq!(received.outcome, Outcome::Brought);
    assert_eq!(in_force(&fleet), None);
    let talk = bring(&receiver, &fleet, &pointer, true);
    assert_eq!(talk.pushed.unwrap().bytes, 0);
    assert_eq!(talk.received.unwrap().outcome, Outcome::Activated);
    fleet.is_copied();
    // A file that is brought again is of a release that is in force already.
    let file = format!("releases/{}.gannet", pointer.release);
    fs::remove_file(receiver.folder.join(file)).unwrap();
    let received = bring(&receiver, &fleet, &pointer, false).received.unwrap();
    assert_eq!(received.outcome, Outcome::Activated);
    assert!(received.bytes > pointer.size / 2, "{}", received.bytes);
    fleet.is_copied();
}

#[test]
fn three_changed_files_of_500_send_a_twentieth_at_most() {
    let fleet = Fleet::signed();
    let receiver = fleet.receiver();
    let files = |changed: bool| -> Vec<_> {
        let file = |number: u16| {
            let mut body = bytes((number % 251) as u8, 20_000);
            body[..2].copy_from_slice(&number.to_le_bytes());
            body[2] = u8::from(changed && number % 200 == 50);
            body
        };
        (0..500).map(file).collect()
    };
    let first = fleet.publish_with(&archive(&files(false)), now(), |_| {});
    bring(&receiver, &fleet, &first, true).received.unwrap();
    let second = fleet.publish_with(&archive(&files(true)), now(), |_| {});
    let received = bring(&receiver, &fleet, &second, true).received.unwrap();
    let sent = received.bytes;
    assert!(sent > 60_000 && sent <= second.size / 20, "{sent} bytes");
    fleet.is_copied();
}

/// Bytes between two cuts, in the middle of a conversation: a cut takes several flushes of the disk.
const CUT_EACH: usize = 83;
/// Bytes at either end that are cut after each of them.
const CUT_ALL: usize = 24;
/// Of the cuts, those after which the next conversation is tried.
const RESUMED_EACH: usize = 5;

#[test]
fn a_conversation_that_is_cut_at_any_byte_changes_nothing_and_is_resumed() {
    let fleet = Fleet::signed();
    let receiver = fleet.receiver();
    let first = fleet.publish_with(&small(b'a'), now(), |_| {});
    bring(&receiver, &fleet, &first, true).received.unwrap();
    let second = fleet.publish_with(&small(b'b'), now(), |_| {});
    let path = receiver
        .folder
        .join(format!("releases/{}.gannet", second.release));
    let whole = bring(&receiver, &fleet, &second, false);
    let mut sent = whole.sent;
    fs::remove_file(&path).unwrap();
    let brought = sent.len();
    sent.extend(b"activate\n");
    let text = signed(&fleet, &second);
    let mut resumed = 0;
    let len = sent.len();
    let middle = (CUT_ALL..len - CUT_ALL).step_by(CUT_EACH);
    let cuts = (0..CUT_ALL).chain(middle).chain(len - CUT_ALL..len);
    for (count, cut) in cuts.enumerate() {
        let (input, said) = (&sent[..cut], Vec::new());
        let received = converse(&receiver, &mut Replay { input, said }, now());
        assert!(
            !received.is_ok_and(|it| it.outcome != Outcome::Brought),
            "byte {cut}"
        );
        assert_eq!(in_force(&fleet).as_ref(), Some(&first), "byte {cut}");
        assert!(cut < brought || path.exists(), "byte {cut}");
        if count % RESUMED_EACH > 0 {
            // As if it had not been.
            let part = receiver
                .folder
                .join(format!("releases/.part-{}.gannet", second.release));
            let _ = fs::remove_file(part).or_else(|_| fs::remove_file(&path));
            continue;
        }
        let talk = bring_file(&receiver, &text, (&small(b'b'), now()), false);
        let bytes = talk.pushed.unwrap().bytes;
        resumed += usize::from(bytes < whole.pushed.as_ref().unwrap().bytes);
        assert!(fs::read(&path).unwrap() == small(b'b'), "byte {cut}");
        fs::remove_file(&path).unwrap();
    }
    // Those from superblock and metadata on.
    assert!(resumed >= 2, "{resumed} resumed");
    let (input, said) = (&sent[..], Vec::new());
    let mut replay = Replay { input, said };
    let received = converse(&receiver, &mut replay, now()).unwrap();
    assert_eq!(received.outcome, Outcome::Activated);
    assert!(replay.said.ends_with(b"whole\nactive\n"));
    fleet.is_copied();
}

#[test]
fn what_may_not_come_into_force_is_refused_on_both_sides() {
    let fleet = Fleet::signed();
    let mut receiver = fleet.receiver();
    let first = fleet.publish(b'a');
    let second = fleet.publish_with(&release(b'b'), now(), |next| {
        next.expires = Some(now() + 60)
    });
    let content = release(b'b');
    let check = |receiver: &Receiver, text: &str, content: &[u8], at: u64, expect: &str| {
        let refused = bring_file(receiver, text, (content, at), true).refusal();
        assert!(refused.contains(expect), "{refused}");
        assert_eq!(in_force(&fleet), None);
    };
    let text = signed(&fleet, &second);
    check(&receiver, &text, &content, now() + 61, "expired");
    check(&receiver, &second.to_text(), &content, now(), "not signed");
    check(
        &receiver,
        &Fleet::signed().text(&second),
        &content,
        now(),
        "key",
    );
    check(
        &receiver,
        &text.replace("serial 2", "serial 3"),
        &content,
        now(),
        "signature",
    );
    let mut damaged = content.clone();
    damaged[100_000] ^= 1;
    check(
        &receiver,
        &text,
        &damaged,
        now(),
        "not the file that its pointer names",
    );
    check(&receiver, &text, &vec![0; content.len()], now(), "release");
    receiver.disk_max = second.size - 1;
    check(&receiver, &text, &content, now(), "bytes");
    receiver.disk_max += 1;
    bring(&receiver, &fleet, &second, true).received.unwrap();
    // An older one, which was signed once.
    let refused = bring(&receiver, &fleet, &first, true).refusal();
    assert!(
        refused.contains("serial 2 was in force already"),
        "{refused}"
    );
    assert_eq!(in_force(&fleet), Some(second));
}

#[test]
fn what_is_no_conversation_ends_it_and_holds_nothing() {
    let fleet = Fleet::signed();
    let receiver = fleet.receiver();
    let pointer = fleet.publish_with(&small(b'a'), now(), |_| {});
    bring(&receiver, &fleet, &pointer, true).received.unwrap();
    let endless = vec![b'a'; 1 << 20];
    let huge = format!("gannet publish 1 {}\n", u64::MAX);
    let inputs: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"gannet publish 2 10\n",
        b"gannet publish 1 1025\n",
        huge.as_bytes(),
        &endless,
    ];
    for input in inputs {
        let said = Vec::new();
        let mut replay = Replay { input, said };
        converse(&receiver, &mut replay, now()).unwrap_err();
        assert!(endless.len() - replay.input.len() < 2048 || input.len() < 2048);
    }
    // A receiver that wants more than there is, or again and again, gets none of it.
    let folder = gannet_testkit::Folder::new();
    let file = File::open(folder.write("release", small(b'a'))).unwrap();
    let size = small(b'a').len() as u64;
    let again = format!("send 0 {size}\n").repeat(3);
    for input in [
        format!("send 0 {}\n", size + 1),
        "send 2 1\n".to_owned(),
        // Without an end, though nothing has to be sent.
        "send 0 0\n".repeat(1 << 16),
        "whole\n".repeat(1 << 16),
        again,
        "x\n".into(),
    ] {
        let (input, said) = (input.as_bytes(), Vec::new());
        let mut replay = Replay { input, said };
        let pushed = push(&mut replay, "", (&file, size), true);
        assert!(matches!(pushed, Err(PushError::Words)), "{pushed:?}");
    }
    assert_eq!(id_of(&small(b'a')), pointer.release);
}

#[test]
fn seeds_of_the_fuzz_target_change_nothing_but_by_the_whole_release() {
    let activated = Cell::new(0);
    gannet_testkit::replay_seeds("receive", |seed| {
        let is_activated = conversation(seed) == Some(Outcome::Activated);
        activated.set(activated.get() + u32::from(is_activated));
    });
    assert_eq!(
        activated.get(),
        2,
        "the whole one, and the one with more behind it"
    );
}
