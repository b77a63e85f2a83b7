//! Short files that are read before their metadata, in folders of short files: what is sent and kept is
//! one version.

use crate::budget::{server, status};
use crate::server::{Server, get};

const LEN: usize = 3_000;

/// Short files in a row after which others are read ahead, and a few more.
const SEEN: usize = 12;

/// A server that knows a folder of short files, with one more that was not requested.
fn knowing_server() -> Server {
    let mut server = server();
    for number in 0..SEEN {
        server.disk.put_file(&format!("d/{number}.html"), "short");
    }
    server.disk.put_file("d/file.html", vec![b'a'; LEN]);
    server.disk.age_files(100_000);
    for number in 0..SEEN {
        let client = server.connect();
        client.write(&get(&format!("d/{number}.html")));
        assert_eq!(status(&mut server, &client).0, 200);
    }
    server
}

/// Requests the file: its entity tag and its bytes.
fn ask(server: &mut Server) -> (String, Vec<u8>) {
    let client = server.connect();
    client.write(&get("d/file.html"));
    let (status, mut got) = status(server, &client);
    assert_eq!(status, 200);
    let head = String::from_utf8_lossy(&got).into_owned();
    let head_len = head.find("\r\n\r\n").expect("its end") + 4;
    server.until("the content", || {
        got.extend(client.read());
        got.len() >= head_len + LEN
    });
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
    (tag.expect("it has one").to_owned(), got.split_off(head_len))
}

/// The file is overwritten between any two calls that see it: bytes never come with another version's tag.
#[test]
fn what_changes_between_reading_and_metadata_is_one_version() {
    for calls in 1..4 {
        let mut server = knowing_server();
        let overwritten = vec![b'b'; LEN];
        server
            .disk
            .overwrite_file_after(calls, "d/file.html", overwritten);
        let (first_tag, first) = ask(&mut server);
        let is_whole = |bytes: &[u8]| bytes == vec![bytes[0]; LEN];
        assert!(is_whole(&first), "after {calls} calls");
        // One call reads it, and the next one is for its metadata: no others came first.
        let is_new = first[0] == b'b';
        assert_eq!(is_new, calls < 2, "after {calls} calls");
        server.pass(5_000);
        let (tag, bytes) = ask(&mut server);
        server.pass(5_000);
        let (last_tag, last) = ask(&mut server);
        assert!(is_whole(&bytes), "after {calls} calls");
        assert!(last.iter().all(|byte| *byte == b'b'), "after {calls} calls");
        for (other_tag, other) in [(&first_tag, &first), (&tag, &bytes)] {
            let is_same = *other == last;
            assert_eq!(*other_tag == last_tag, is_same, "after {calls} calls");
        }
    }
}
