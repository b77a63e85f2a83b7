//! How much memory a nearly idle connection holds; the attacks in `tests/` check the maximum.

use super::*;
use crate::h2::ErrorCode;

#[test]
fn a_connection_is_small_and_begins_with_no_tables() {
    let connection = Connection::new(Time(0), Timeouts::default());
    assert!(
        size_of::<Connection>() <= 512,
        "{}",
        size_of::<Connection>()
    );
    assert!(connection.memory() <= 64, "{}", connection.memory());
}

#[test]
fn an_idle_connection_keeps_little_after_a_hundred_streams() {
    let mut connection = Connection::new(Time(0), Timeouts::default());
    let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in 0..100u8 {
        // GET / with an authority that is not entered into the table.
        input.extend([0, 0, 6, 1, 5, 0, 0, 0, 2 * stream + 1]);
        input.extend([0x82, 0x84, 0x86, 0x01, 1, b'a']);
    }
    let mut scratch = Vec::new();
    let mut at = 0;
    while at < input.len() {
        let received = connection.receive(Time(0), &input[at..], &mut scratch);
        assert!(matches!(received.event, Event::Request { .. }));
        at += received.consumed;
    }
    assert_eq!(connection.stream_count(), 100);
    assert!(connection.memory() > 4096);
    connection.trim();
    assert_eq!(
        connection.stream_count(),
        100,
        "only an idle one is trimmed"
    );
    for stream in 0..100 {
        connection.abort(StreamId(2 * stream + 1), ErrorCode::CANCEL);
    }
    let mut wire = Vec::new();
    assert_eq!(connection.poll_frame(Time(0), u32::MAX, &mut wire), None);
    connection.trim();
    assert!(connection.memory() <= 512, "{}", connection.memory());
}
