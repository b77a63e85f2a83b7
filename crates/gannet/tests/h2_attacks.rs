//! HTTP/2 attacks, each beside a well-behaved client that must not notice.

use gannet_testkit::client::metric;
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS,
    INITIAL_WINDOW_SIZE, PING, PRIORITY, Peer, SETTINGS, frame, headers, indexed, request,
    rst_stream, window_update,
};
use gannet_testkit::process::{memory_kib, until};
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet};

const LARGE: usize = 6 << 20;

/// Far more frames than any budget allows.
const MANY: usize = 200_000;

/// Memory in KiB that a hostile connection may occupy.
const MEMORY_KIB: u64 = 16 << 10;

fn site() -> Folder {
    let site = Folder::site();
    site.write("large.bin", pattern(LARGE, 5));
    site
}

/// A server, and how its peers connect.
enum Target {
    Clear(Gannet),
    Tls(Box<Secure>),
}

impl Target {
    fn server(&self) -> &Gannet {
        match self {
            Self::Clear(server) => server,
            Self::Tls(secure) => &secure.server,
        }
    }

    fn peer(&self, settings: &[(u16, u32)]) -> Peer {
        match self {
            Self::Clear(server) => Peer::with_settings(server, settings),
            Self::Tls(secure) => Peer::secure(secure, settings),
        }
    }
}

/// Runs a test on each engine, in clear text and over TLS.
fn on_all(flags: &[&str], test: impl Fn(&Target) + Sync) {
    let site = site();
    let flags = [&["--workers", "1", "--metrics", "127.0.0.1:0"], flags].concat();
    on_both_engines(|engine| {
        test(&Target::Clear(engine.serve(site.path(), &flags)));
        let secure = Secure::serve(engine, site.path(), &flags);
        test(&Target::Tls(Box::new(secure)));
    });
}

/// Runs an attack beside a well-behaved client.
fn beside_a_polite_client(
    settings: &[(u16, u32)],
    attack: impl Fn(&mut Peer) + Sync,
    after: impl Fn(&Gannet, &mut Peer) + Sync,
) {
    on_all(&[], |target| {
        let mut polite = target.peer(&[]);
        let page = polite.get("/about").expect(200);
        let before = memory_kib(target.server(), "VmRSS");
        let mut hostile = target.peer(settings);
        attack(&mut hostile);
        after(target.server(), &mut hostile);
        assert_eq!(polite.get("/about").expect(200).body, page.body);
        assert_eq!(polite.get("/large.bin").expect(200).body.len(), LARGE);
        let grown = memory_kib(target.server(), "VmRSS").saturating_sub(before);
        assert!(grown < MEMORY_KIB, "{grown} KiB more");
    });
}

/// Repeats these frames until the server ends the connection.
fn flood(peer: &mut Peer, frames: impl Fn(usize) -> Vec<u8>) {
    for from in (0..MANY).step_by(200) {
        let batch: Vec<u8> = (from..from + 200).flat_map(&frames).collect();
        if !peer.try_send(&batch) {
            return;
        }
    }
}

/// The server ends the connection with ENHANCE_YOUR_CALM, and counts it.
fn calms(server: &Gannet, peer: &mut Peer) {
    let code = peer.ends();
    // A reset may overtake the GOAWAY, since the peer never stopped sending.
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    let name = "gannet_h2_errors_total{code=\"ENHANCE_YOUR_CALM\",cause=\"budget_spent\"}";
    assert_eq!(metric(server, name), 1);
}

/// The server ends the connection for excessive load.
fn ends(_: &Gannet, peer: &mut Peer) {
    let code = peer.ends();
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
}

#[test]
fn floods_of_frames_are_calmed() {
    let get = request("GET", "/large.bin", &[]);
    let id = |n: usize| 1 + 2 * n as u32;
    let open = frame(HEADERS, END_HEADERS, 1, &request("POST", "/", &[]));
    // Rapid reset, resets provoked from the server, and each cheap frame.
    let rapid = |n: usize| [headers(id(n), &get), rst_stream(id(n), CANCEL)].concat();
    let made = |n: usize| [headers(id(n), &get), window_update(id(n), 0)].concat();
    let ping = |_: usize| frame(PING, 0, 0, b"aaaaaaaa");
    let settings = |_: usize| frame(SETTINGS, 0, 0, &[]);
    let acks = |_: usize| frame(SETTINGS, ACK, 0, &[]);
    let priority = |n: usize| frame(PRIORITY, 0, id(n), &[0, 0, 0, 0, 1]);
    let update = |_: usize| window_update(0, 1);
    let empty = |n: usize| {
        let data = frame(DATA, 0, 1, &[]);
        if n == 0 {
            [open.clone(), data].concat()
        } else {
            data
        }
    };
    let unknown = |_: usize| frame(0xfa, 0, 0, b"?");
    let floods: [&(dyn Fn(usize) -> Vec<u8> + Sync); 9] = [
        &rapid, &made, &ping, &settings, &acks, &priority, &update, &empty, &unknown,
    ];
    for frames in floods {
        beside_a_polite_client(&[], |peer| flood(peer, frames), calms);
    }
}

#[test]
fn endless_field_blocks_are_ended() {
    for piece in [&[][..], &[0; 1], &[0; 16_000]] {
        let attack = |peer: &mut Peer| {
            let block = request("GET", "/", &[]);
            peer.send(&frame(HEADERS, END_STREAM, 1, &block[..10]));
            flood(peer, |_| frame(CONTINUATION, 0, 1, piece));
        };
        beside_a_polite_client(&[], attack, ends);
    }
}

#[test]
fn a_bomb_of_references_is_ended() {
    let attack = |peer: &mut Peer| {
        // One entry of 4,000 bytes in the dynamic table, referenced repeatedly.
        let mut block = request("GET", "/", &[]);
        block.extend(indexed("x", &[b'a'; 4_000]));
        block.extend([0x80 | 62; 10_000]);
        for stream in (1..200).step_by(2) {
            if !peer.try_send(&headers(stream, &block)) {
                return;
            }
        }
    };
    beside_a_polite_client(&[], attack, ends);
}

#[test]
fn windows_of_a_byte_are_calmed() {
    let attack = |peer: &mut Peer| {
        peer.opens_windows = false;
        let stream = peer.ask("GET", "/large.bin", &[]);
        flood(peer, |_| window_update(stream, 1));
    };
    beside_a_polite_client(&[(INITIAL_WINDOW_SIZE, 0)], attack, calms);
}

/// A hundred streams with closed windows, and a connection that never reads: they occupy little
/// memory, and are closed for lack of progress.
#[test]
fn who_takes_nothing_holds_little_and_is_ended() {
    on_all(&["--progress-timeout", "2s"], |target| {
        let server = target.server();
        let mut polite = target.peer(&[]);
        polite.get("/about").expect(200);
        let before = memory_kib(server, "VmRSS");
        let mut shut = target.peer(&[(INITIAL_WINDOW_SIZE, 0)]);
        let mut deaf = target.peer(&[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        deaf.send(&window_update(0, 1 << 30));
        for _ in 0..100 {
            shut.ask("GET", "/large.bin", &[]);
            deaf.ask("GET", "/large.bin", &[]);
        }
        shut.sync();
        let grown = memory_kib(server, "VmRSS").saturating_sub(before);
        assert!(grown < MEMORY_KIB, "{grown} KiB more");
        until("all their streams are ended", || {
            metric(server, "gannet_timeouts_total") >= 101
        });
        assert_pattern(&polite.get("/large.bin").expect(200).body, 5);
    });
}

/// An occasional byte, too rare to exhaust the budget, is not progress: the stream is closed. A
/// slow stream above the minimum rate lasts longer.
#[test]
fn who_takes_a_byte_at_a_time_is_ended_and_who_is_slow_stays() {
    on_all(&["--progress-timeout", "2s"], |target| {
        let closed = [(INITIAL_WINDOW_SIZE, 0)];
        let [mut trickling, mut slow] = [target.peer(&closed), target.peer(&closed)];
        let begin = |peer: &mut Peer| {
            peer.opens_windows = false;
            peer.send(&window_update(0, 1 << 30));
            peer.ask("GET", "/large.bin", &[])
        };
        let (few, some) = (begin(&mut trickling), begin(&mut slow));
        let (mut taken, mut looks) = (0, 0);
        until("the trickle is ended", || {
            looks += 1;
            if looks % 20 != 0 {
                return false;
            }
            trickling.send(&window_update(few, 1));
            trickling.sync();
            slow.send(&window_update(some, 1_000));
            slow.sync();
            taken += 1_000;
            trickling.so_far(few).reset.is_some()
        });
        assert_eq!(trickling.so_far(few).reset, Some(ENHANCE_YOUR_CALM));
        // The connection is unaffected.
        trickling.sync();
        while slow.so_far(some).body.len() < taken {
            assert!(slow.step());
        }
        let body = slow.so_far(some);
        assert_eq!(body.reset, None);
        assert_pattern(&body.body, 5);
    });
}
