//! How rules are checked: a script of input, the record of events, and input split everywhere.

use gannet_testkit::h3::{control, frame, request};

use super::h3_checks::peer::{Given, Peer};
use super::h3_checks::record_in_pieces;

/// Streams of a client.
pub(super) const CONTROL: u64 = 2;
pub(super) const SECOND: u64 = 6;
pub(super) const THIRD: u64 = 10;

/// A valid request, and its record.
pub(super) const GET: [&str; 2] = ["request 0 GET / test", "answer 0 200 2"];

pub(super) fn get() -> Vec<u8> {
    request("GET", "/", &[])
}

pub(super) fn on(stream: u64, bytes: impl AsRef<[u8]>) -> Given {
    Given::bytes(stream, bytes.as_ref())
}

pub(super) fn end(stream: u64, bytes: impl AsRef<[u8]>) -> Given {
    Given::end(stream, bytes.as_ref())
}

/// Checks that the script produces this record, however its bytes are split.
pub(super) fn check(name: &str, script: &[Given], expect: &[&str]) {
    for piece_len in [usize::MAX, 1, 2, 3] {
        let found = record_in_pieces(script, piece_len);
        assert_eq!(
            found, expect,
            "{name}, in pieces of {piece_len}: {script:x?}"
        );
    }
    for (index, given) in script.iter().enumerate() {
        let Given::Bytes(stream, bytes, is_fin) = given else {
            continue;
        };
        // Long pieces are split only near their ends.
        let cuts = (0..=bytes.len()).filter(|cut| *cut < 300 || bytes.len() - cut < 20);
        for cut in cuts {
            let mut peer = Peer::new();
            script[..index].iter().for_each(|given| peer.give(given));
            peer.give(&on(*stream, &bytes[..cut]));
            peer.give(&Given::Bytes(*stream, bytes[cut..].to_vec(), *is_fin));
            script[index + 1..]
                .iter()
                .for_each(|given| peer.give(given));
            assert_eq!(peer.record, expect, "{name}, cut at {cut} of {given:x?}");
        }
    }
}

/// Checks how bytes on the control stream after valid settings end.
pub(super) fn check_control(name: &str, bytes: &[u8], expect: &[&str]) {
    check(
        name,
        &[on(CONTROL, [&control(&[]), bytes].concat())],
        expect,
    );
}

/// Checks how bytes on a request stream end.
pub(super) fn check_request(name: &str, stream: &[u8], expect: &[&str]) {
    check(name, &[on(CONTROL, control(&[])), end(0, stream)], expect);
}

/// A valid request, followed by these bytes on the same stream.
pub(super) fn check_behind(name: &str, behind: &[u8], expect: &str) {
    check_request(name, &[&get(), behind].concat(), &[GET[0], GET[1], expect]);
}

/// Frames with a payload that is valid for each type.
pub(super) fn bare(kind: u64) -> Vec<u8> {
    frame(kind, &[0])
}
