//! Peers on the same machine of which nobody can tell any more, in the middle of an answer, what they have read.

use gannet_io::driver::Receipt;
use gannet_io::sim::{End, Faults};

use crate::run::LIMITS;
use crate::server::{LATE_MS, Server, get};

const HUGE: usize = 1 << 20;

/// The end of the answer is held back as if its pages were unread, whether or not they change, until it is cut off
/// for lack of progress.
#[test]
fn an_answer_to_a_peer_that_cannot_be_asked_any_more_ends_short() {
    for is_overwritten in [false, true] {
        let mut server = Server::new(Faults::none());
        server.disk.set_receipt(Receipt::Read);
        server.disk.put_file("huge", vec![b'L'; HUGE]);
        server.disk.age_files(100_000);
        let client = server.connect();
        client.write(&get("huge"));
        let mut got = Vec::new();
        server.until("all but the end is sent", || {
            let unread = (HUGE - 60_000_usize).saturating_sub(got.len());
            got.extend(client.read_at_most(unread.min(10_000)));
            got.len() + client.readable() > HUGE - 8_000
        });
        server.disk.set_faults(Faults {
            peer_unknown: 1_000,
            ..Faults::none()
        });
        if is_overwritten {
            server.disk.overwrite_file("huge", vec![1; HUGE]);
        }
        let took = server.until("it ends", || {
            got.extend(client.read());
            client.end() != End::Open
        });
        assert_eq!(client.end(), End::Reset);
        assert!(got.len() < HUGE, "{} bytes", got.len());
        assert_eq!(got.contains(&1), is_overwritten, "as pages");
        let most = 2 * LIMITS.progress_timeout_ms + LATE_MS;
        assert!(took <= most, "{took} ms");
    }
}
