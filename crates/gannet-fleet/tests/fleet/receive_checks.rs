//! What holds of a receiver whatever a publisher sends: shared with the fuzz target.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread;

use gannet_fleet::{Outcome, opening, push};
use gannet_store::Pointer;
use gannet_testkit::Folder;

use crate::stores::{Fleet, archive, bytes, now};

/// How an input begins that follows a good pointer. Others are all that a publisher sends.
const KNOWN: &[u8] = b"!";

/// A store with one release, and a pointer that it has not received.
struct Sample {
    fleet: Fleet,
    first: Pointer,
    second: Pointer,
    greeting: Vec<u8>,
}

thread_local! {
    static SAMPLE: Sample = Sample::new();
}

/// An archive of two short files, of which the second is that of its letter.
pub(crate) fn small(letter: u8) -> Vec<u8> {
    archive(&[bytes(1, 700), bytes(letter, 700)])
}

impl Sample {
    fn new() -> Self {
        let fleet = Fleet::signed();
        let first = fleet.publish_with(&small(b'a'), now(), |_| {});
        let greeting = |text: &str| format!("gannet publish 1 {}\n{text}", text.len()).into_bytes();
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let text = fleet.text(&first);
        let publisher = thread::spawn(move || {
            let folder = Folder::new();
            let file = File::open(folder.write("release", small(b'a'))).expect("written");
            push(&mut ours, &text, (&file, small(b'a').len() as u64), true)
        });
        let receiver = fleet.receiver();
        let offer = receiver.greet(&mut theirs).expect("it is signed");
        receiver
            .receive(offer, &mut theirs, now(), &Mutex::default())
            .expect("it is whole");
        publisher.join().expect("it ends").expect("it is received");
        let second = fleet.publish_with(&small(b'b'), now(), |_| {});
        Self {
            greeting: greeting(&fleet.text(&second)),
            fleet,
            first,
            second,
        }
    }

    /// Has a conversation in which the publisher sends this, and expects no answers.
    fn converse(&self, input: &[u8]) -> Option<Outcome> {
        let mut stream = Deaf(input);
        let receiver = self.fleet.receiver();
        let offer = receiver.greet(&mut stream).ok()?;
        let received = receiver
            .receive(offer, &mut stream, now(), &Mutex::default())
            .ok()?;
        Some(received.outcome)
    }

    /// One of the two pointers is in force, with its release as it was made, and the second one only if that
    /// was said.
    fn check(&self, outcome: Option<Outcome>) {
        let copy = self.fleet.copy();
        let in_force = fs::read(copy.join("current")).expect("one is in force");
        let in_force = Pointer::parse(&in_force).expect("it is a pointer");
        let (expect, letter) = match outcome {
            Some(Outcome::Activated) => (&self.second, b'b'),
            _ => (&self.first, b'a'),
        };
        assert_eq!(&in_force, expect);
        let file = fs::read(copy.join(format!("releases/{}.gannet", expect.release)));
        assert!(file.expect("it is there") == small(letter));
        let second = copy.join(format!("releases/{}.gannet", self.second.release));
        assert!(fs::read(second).map_or(true, |it| it == small(b'b')));
    }

    /// As if there had been no conversation.
    fn reset(&self) {
        let copy = self.fleet.copy();
        let id = self.second.release;
        for name in [
            format!("releases/{id}.gannet"),
            format!("releases/.part-{id}.gannet"),
            format!("log/{}", self.second.serial),
        ] {
            let _ = fs::remove_file(copy.join(name));
        }
        fs::write(copy.join("current"), self.fleet.text(&self.first)).expect("written");
    }
}

/// A publisher that says what it says, whatever it hears.
struct Deaf<'i>(&'i [u8]);

impl Read for Deaf<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Deaf<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever is sent, the pointer in force is the one before or the next, with its release, byte by byte.
/// Returns what was said of it.
pub(crate) fn conversation(bytes: &[u8]) -> Option<Outcome> {
    SAMPLE.with(|sample| {
        let outcome = match bytes.strip_prefix(KNOWN) {
            Some(rest) => sample.converse(&[&sample.greeting, rest].concat()),
            None => {
                let mut stream = Deaf(bytes);
                let opened = opening::accept(&mut stream);
                opened.ok().and_then(|()| sample.converse(stream.0))
            }
        };
        sample.check(outcome);
        sample.reset();
        outcome
    })
}
