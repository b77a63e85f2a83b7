use gannet_io::driver::FileKind;
use gannet_io::memory::sealed_copy;

use super::*;
use crate::bounds::ledger::Ledger;

fn meta(inode: u64) -> Meta {
    Meta {
        kind: FileKind::Regular,
        len: 10_000,
        mtime_ns: 1,
        ctime_ns: 1,
        identity: (1, inode),
        links: 1,
    }
}

fn cached(content: Vec<u8>) -> FileBytes {
    let len = content.len();
    FileBytes::Memory(Arc::new(Memory::from_vec(content)), 0..len)
}

fn text() -> FileBytes {
    cached(vec![b'a'; 10_000])
}

/// What a worker asks for that has this content in its cache.
fn asked(ledger: &Ledger, content: &FileBytes) -> CodingRequest {
    let len = content.bytes().map_or(0, <[u8]>::len);
    CodingRequest {
        coding: Coding::Gzip,
        content: content.clone(),
        charge: ledger.charge(len as u64),
    }
}

#[test]
fn a_version_is_coded_once_for_all_workers() {
    let (coder, ledger, text) = (Coder::default(), Ledger::new(0, 1, 0), text());
    let first = coder.codings_of(&meta(1)).expect("the lock is free");
    let second = coder.codings_of(&meta(1)).expect("the lock is free");
    assert!(Arc::ptr_eq(&first, &second));
    let known = coder.known(&meta(1)).expect("the lock is free");
    assert!(Arc::ptr_eq(&first, &known) && coder.known(&meta(2)).is_none());
    drop(known);
    assert!(coder.ask(&first, asked(&ledger, &text)));
    assert!(!coder.ask(&second, asked(&ledger, &text)));
    assert_eq!(first.weight(10_000), 10_000, "until it is made");
    assert_eq!(ledger.copies(), 10_000);
    assert!(first.made(Coding::Gzip).is_none());
    assert!(coder.code_next() && !coder.code_next());
    let made = second.made(Coding::Gzip).expect("it was made");
    let len = made.content.len() as u64;
    assert!((20..200).contains(&len));
    assert_eq!((second.weight(10_000), ledger.copies()), (len, len));
    drop((first, second));
    assert_eq!(ledger.copies(), 0, "no other owner keeps it");
    let again = coder.codings_of(&meta(1)).expect("the lock is free");
    assert!(again.made(Coding::Gzip).is_none());
}

/// A queued job keeps no content: what the caches have dropped is not coded, and may be asked for
/// again.
#[test]
fn content_that_is_dropped_is_not_coded() {
    let ledger = Ledger::new(0, 1, 0);
    let source = std::fs::File::open("/dev/zero").expect("zeros");
    let copy = sealed_copy(source, 10_000).expect("a sealed copy");
    let copy = File::from(std::fs::File::from(copy));
    for content in [text(), FileBytes::Copy(copy)] {
        let coder = Coder::default();
        let codings = Arc::new(Codings::default());
        assert!(coder.ask(&codings, asked(&ledger, &content)));
        let again = content.clone();
        drop(content);
        assert!(coder.code_next() && codings.made(Coding::Gzip).is_some());

        let codings = Arc::new(Codings::default());
        assert!(coder.ask(&codings, asked(&ledger, &again)));
        drop(again);
        assert!(coder.code_next() && codings.made(Coding::Gzip).is_none());
        assert!(!codings.is_asked(Coding::Gzip));
        assert!(coder.ask(&codings, asked(&ledger, &text())));
    }
}

#[test]
fn what_nobody_has_any_more_is_not_coded() {
    let (coder, ledger, text) = (Coder::default(), Ledger::new(0, 1, 0), text());
    let codings = Arc::new(Codings::default());
    assert!(coder.ask(&codings, asked(&ledger, &text)));
    drop(codings);
    assert!(coder.code_next());
    assert_eq!((coder.counts().dropped, coder.counts().made), (1, 0));
    assert_eq!(ledger.copies(), 0);
}

#[test]
fn what_saves_nothing_is_not_kept() {
    let (coder, ledger) = (Coder::default(), Ledger::new(0, 1, 0));
    let codings = Arc::new(Codings::default());
    let mut noise = vec![0; 10_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let content = cached(noise);
    assert!(coder.ask(&codings, asked(&ledger, &content)));
    assert!(coder.code_next());
    assert!(codings.is_asked(Coding::Gzip) && codings.made(Coding::Gzip).is_none());
    assert_eq!((codings.weight(10_000), ledger.copies()), (0, 0));
}

/// A flood of distinct files fills the queue, and no further.
#[test]
fn the_queue_is_bounded() {
    let (coder, ledger, text) = (Coder::default(), Ledger::new(0, 1, 0), text());
    let mut all = Vec::new();
    for number in 0..CODER_QUEUE_MAX as u64 + 10 {
        let codings = coder.codings_of(&meta(number)).expect("the lock is free");
        let is_queued = coder.ask(&codings, asked(&ledger, &text));
        assert_eq!(is_queued, number < CODER_QUEUE_MAX as u64, "{number}");
        assert_eq!(codings.is_asked(Coding::Gzip), is_queued);
        all.push(codings);
    }
    let counts = coder.counts();
    assert_eq!(counts.queued, CODER_QUEUE_MAX as u64);
    assert_eq!(counts.refused, 10);
    coder.end();
    assert_eq!(ledger.copies(), 0);
}

/// The table of shared files forgets those that no worker has any more.
#[test]
fn files_that_are_gone_are_forgotten() {
    let (coder, ledger, text) = (Coder::default(), Ledger::new(0, 1, 0), text());
    for number in 0..3 * FILES_SPARE as u64 {
        let codings = coder.codings_of(&meta(number)).expect("the lock is free");
        assert!(coder.ask(&codings, asked(&ledger, &text)));
        drop(codings);
        assert!(coder.code_next());
    }
    assert!(coder.lock().files.len() <= FILES_SPARE + 1);
}

#[test]
fn threads_code_what_is_asked_for_and_end() {
    let (coder, ledger) = (Arc::new(Coder::default()), Ledger::new(0, 1, 0));
    let text = text();
    let threads = CoderThreads::start(Arc::clone(&coder)).expect("a thread");
    let codings = Arc::new(Codings::default());
    while !coder.ask(&codings, asked(&ledger, &text)) {
        thread::yield_now();
    }
    while codings.made(Coding::Gzip).is_none() {
        thread::yield_now();
    }
    drop(threads);
    while Arc::strong_count(&coder) > 1 {
        thread::yield_now();
    }
}
