//! Pointers as text: one text for each, and anything else refused with its line.

mod sample;

use gannet_archive::signature::{PublicKey, SignatureError};
use gannet_store::limits::{
    DURATION_MAX_S, KEEP_MAX, NOTE_LEN_MAX, POINTER_LEN_MAX, PUBLISHER_LEN_MAX, SERIAL_MAX,
    STAGES_MAX, TIME_MAX, VOID_MAX,
};
use gannet_store::{Keep, Pointer, ReleaseId, Stage};
use gannet_testkit::replay_seeds;
use minisign::KeyPair;
use proptest::prelude::*;
use sample::FULL;

fn full() -> Pointer {
    Pointer::parse(FULL.as_bytes()).expect("it is a pointer")
}

fn signed(text: &str, keys: &KeyPair) -> String {
    let comment = Some("serial 999999999999");
    let untrusted = Some("gannet pointer");
    let signature = minisign::sign(None, &keys.sk, text.as_bytes(), comment, untrusted);
    format!("{text}{}", signature.unwrap().to_string())
}

#[test]
fn every_key_is_read() {
    let pointer = full();
    assert_eq!((pointer.serial, pointer.replaces), (12, Some(11)));
    assert_eq!(pointer.release.short(), "3f0a9c21");
    assert_eq!((pointer.size, pointer.digest[0]), (81_920, 0x8d));
    assert_eq!(pointer.published, 1_795_422_600);
    assert_eq!(pointer.publisher, "ann@build");
    assert_eq!(pointer.activate, Some(1_795_422_630));
    assert_eq!(pointer.stages.len(), 3);
    assert_eq!(pointer.keep.bytes, Some(10 << 30));
    assert_eq!(pointer.void.len(), 2);
    assert_eq!(pointer.note, "new front page");
    assert!(pointer.is_expired(1_798_014_600) && !pointer.is_expired(1_798_014_599));
}

#[test]
fn anything_else_is_refused_with_its_line() {
    let check = |from: &str, to: &str, expect: &str| {
        assert!(FULL.contains(from), "{from:?}");
        let text = FULL.replacen(from, to, 1);
        let error = Pointer::parse(text.as_bytes()).expect_err(to).to_string();
        assert_eq!(error, expect, "{to:?}");
    };
    let newer = "line 1: not 'gannet pointer 1': not a pointer, or a newer format";
    check("pointer 1", "pointer 2", newer);
    check(
        "serial 12\n",
        "serial 012\n",
        "line 2: not a number from 1 to 999999999999",
    );
    check(
        "serial 12\n",
        "serial 0\n",
        "line 2: not a number from 1 to 999999999999",
    );
    check("serial 12\n", "", "line 2: 'serial' is missing");
    check(
        "serial 12\n",
        "serial 12\nserial 12\n",
        "line 3: a second 'serial'",
    );
    check(
        "replaces 11",
        "replaces 12",
        "line 3: not below its own serial",
    );
    check(
        "release 3f",
        "release 3F",
        "line 4: not the id of a release",
    );
    check(
        "release 3f",
        "release 3f3f",
        "line 4: not the id of a release",
    );
    check("size 8", "size -8", "line 5: not a length");
    check(
        "size 8",
        "size 99999999999999999999",
        "line 5: not a length",
    );
    check(
        "blake3 8d",
        "blake3 8",
        "line 6: not a digest of 64 hexadecimal digits",
    );
    check(" by ann", "", "line 7: not of the form TIME by NAME");
    let time = "line 7: not a time of the form 2026-11-23T08:30:00Z";
    check("11-23T08:30:00Z by", "11-31T08:30:00Z by", time);
    check(
        "T08:30:00Z by",
        "T08:29:60Z by",
        "line 7: expected 'published \
        2026-11-23T08:30:00Z by ann@build'",
    );
    check(
        "stages 5%",
        "stages 0%",
        "line 9: not a list such as '5% +0s, 100% +30m'",
    );
    check(
        "keep 7d",
        "keep 168h",
        "line 10: expected 'keep 7d 3..20 10GiB'",
    );
    check("keep 7d 3..20 10GiB\n", "", "line 10: 'keep' is missing");
    check(
        "void 00ff",
        "void 00ff ",
        "line 11: not the id of a release",
    );
    check(
        "note new",
        "note \u{1b}[31mnew",
        "line 12: a control character",
    );
    check(
        "note new",
        "note  new",
        "line 12: empty, too long, or with a space at its end",
    );
    check(
        "note new front page",
        "note",
        "line 12: empty, too long, or with a space at its end",
    );
    check("note new", "mode new", "line 12: an unknown key");
    check("note new", "\nnote new", "line 12: an unknown key");
    check(
        "12-23T08:30:00Z\n",
        "12-23T08:30:00Z",
        "its last line has no end",
    );
    check(
        "12-23T08:30:00Z\n",
        "12-23T08:30:00Z\r\n",
        "line 13: a control character",
    );
    check(
        "12-23T08:30:00Z\n",
        "12-23T08:30:00Z\n\n",
        "line 14: an unknown key",
    );
    check(
        "12-23T08:30:00Z\n",
        "12-23T08:30:00Z\nsize 1\n",
        "line 14: 'size' in a wrong place",
    );
    assert!(Pointer::parse(&[FULL.as_bytes(), &[0xff]].concat()).is_err());
    let void = full().release.to_string();
    check(
        "void 00ff10203040506070809a0b0c0d0e0f",
        &format!("void {void}"),
        "line 11: more than 6 releases, or the one in force",
    );
}

/// A text that is cut off anywhere, or in which any byte is another one, is refused, or means
/// something else under a signature that no longer fits.
#[test]
fn a_signature_is_of_the_whole_text() {
    let keys = KeyPair::generate_unencrypted_keypair().unwrap();
    let public = PublicKey::parse(&keys.pk.to_base64()).unwrap();
    let text = signed(FULL, &keys);
    assert_eq!(Pointer::parse(text.as_bytes()).unwrap(), full());
    Pointer::verify(text.as_bytes(), &public).unwrap();
    let unsigned = Pointer::verify(FULL.as_bytes(), &public);
    assert!(matches!(unsigned, Err(SignatureError::Missing)));
    let others = KeyPair::generate_unencrypted_keypair().unwrap();
    let by_other = Pointer::verify(signed(FULL, &others).as_bytes(), &public);
    assert!(matches!(by_other, Err(SignatureError::OtherKey)));

    let is_good =
        |text: &[u8]| Pointer::parse(text).is_ok() && Pointer::verify(text, &public).is_ok();
    for len in 0..text.len() {
        assert!(!is_good(&text.as_bytes()[..len]), "cut off at {len}");
    }
    let untrusted = text.find("untrusted comment: ").unwrap() + "untrusted comment: ".len();
    let untrusted = untrusted..untrusted + "gannet pointer".len();
    for at in (0..text.len()).filter(|at| !untrusted.contains(at)) {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        assert!(!is_good(&bytes), "changed at {at}");
    }
    for rubbish in ["\n", "x", "note x\n", "untrusted comment: x\n"] {
        assert!(
            !is_good(format!("{text}{rubbish}").as_bytes()),
            "{rubbish:?}"
        );
    }
}

/// The longest value of every key, and a signature, fit into the bound.
#[test]
fn the_longest_pointer_fits() {
    let stage = |index: u8| Stage {
        percent: 97 + index,
        after_s: DURATION_MAX_S - 4 + u64::from(index),
    };
    let pointer = Pointer {
        serial: SERIAL_MAX,
        replaces: Some(SERIAL_MAX - 1),
        size: u64::MAX,
        publisher: "p".repeat(PUBLISHER_LEN_MAX),
        activate: Some(TIME_MAX),
        stages: (0..STAGES_MAX as u8).map(stage).collect(),
        keep: Keep {
            age_s: DURATION_MAX_S - 1,
            least: KEEP_MAX,
            most: KEEP_MAX,
            bytes: Some(u64::MAX),
        },
        void: vec![ReleaseId::of_build_id(&[0xff; 32]); VOID_MAX],
        note: "n".repeat(NOTE_LEN_MAX),
        expires: Some(TIME_MAX),
        ..full()
    };
    let keys = KeyPair::generate_unencrypted_keypair().unwrap();
    let text = signed(&pointer.to_text(), &keys);
    assert!(text.len() <= POINTER_LEN_MAX, "{} bytes", text.len());
    assert_eq!(Pointer::parse(text.as_bytes()).unwrap(), pointer);
}

/// Which nodes come first is part of the format.
#[test]
fn a_node_activates_with_the_first_stage_that_has_it() {
    let pointer = full();
    let base = pointer.activate.unwrap();
    let mut counts = [0; 3];
    for node in 0..1000 {
        let after_s = pointer.activation(&format!("node-{node}")) - base;
        let stage = [0, 600, 1800].iter().position(|it| *it == after_s).unwrap();
        counts[stage] += 1;
    }
    assert!(
        counts[0] < 100 && counts[1] > 350 && counts[2] > 400,
        "{counts:?}"
    );
    assert_eq!(pointer.settled(), base + 1800);
    let at_once = Pointer {
        activate: None,
        stages: Vec::new(),
        ..full()
    };
    assert_eq!(at_once.activation("node"), 0);
    assert_eq!(at_once.settled(), at_once.published);
    let staged = Pointer {
        activate: None,
        ..full()
    };
    assert_eq!(staged.settled(), staged.published + 1800);
}

fn pointers() -> impl Strategy<Value = Pointer> {
    let numbers = (
        2..=SERIAL_MAX,
        any::<u64>(),
        any::<[u8; 32]>(),
        0..=TIME_MAX,
    );
    let optional = (
        proptest::option::of(0..=TIME_MAX),
        proptest::option::of(0..=TIME_MAX),
        proptest::option::of(any::<u64>()),
    );
    let void = proptest::collection::vec(any::<[u8; 32]>(), 0..=VOID_MAX);
    let stages = proptest::sample::subsequence((1_u8..=100).collect::<Vec<_>>(), 0..STAGES_MAX);
    let texts = ("[!-~]{1,32}", "([!-~é][ -~]{0,90}[!-~])?");
    let keep = (0..=DURATION_MAX_S, 0..=KEEP_MAX, 0..=KEEP_MAX);
    let all = (numbers, optional, void, stages, texts, keep);
    all.prop_map(|(numbers, optional, void, stages, texts, keep)| {
        let (serial, size, digest, published) = numbers;
        let (activate, expires, bytes) = optional;
        let stage = |percent: u8| Stage {
            percent,
            after_s: u64::from(percent) * 7,
        };
        let mut stages: Vec<_> = stages.into_iter().map(stage).collect();
        if stages.last().is_some_and(|last| last.percent < 100) {
            stages.push(stage(100));
        }
        Pointer {
            serial,
            replaces: (size % 2 == 0).then_some(serial - 1),
            release: ReleaseId::of_build_id(&digest),
            size,
            digest,
            published,
            publisher: texts.0,
            activate,
            stages,
            keep: Keep {
                age_s: keep.0,
                least: keep.1.min(keep.2),
                most: keep.1.max(keep.2),
                bytes,
            },
            void: void.iter().map(ReleaseId::of_build_id).collect(),
            note: texts.1,
            expires,
        }
    })
}

proptest! {
    /// What is written is read as what it was.
    #[test]
    fn every_pointer_is_read_as_it_was_written(pointer in pointers()) {
        let text = pointer.to_text();
        prop_assert_eq!(Pointer::parse(text.as_bytes()), Ok(pointer));
    }

    /// Lines of pointers in any order and number, with any change.
    #[test]
    fn whatever_is_read_has_one_text(
        order in proptest::collection::vec(0_usize..13, 0..16),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3),
    ) {
        let lines: Vec<_> = FULL.split_inclusive('\n').collect();
        let mut bytes: Vec<u8> = order.iter().flat_map(|it| lines[*it].bytes()).collect();
        for (at, byte) in changes {
            if let Some(len) = std::num::NonZeroUsize::new(bytes.len()) {
                bytes[usize::from(at) % len] = byte;
            }
        }
        sample::read(&bytes);
    }
}

/// The seeds of the fuzz target, and each of their prefixes.
#[test]
fn the_seeds_are_read() {
    replay_seeds("pointer", |bytes| {
        Pointer::parse(bytes).unwrap();
        for len in 0..=bytes.len() {
            sample::read(&bytes[..len]);
        }
    });
}
