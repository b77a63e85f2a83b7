//! HTTP/2 attacks, each beside a well-behaved client that must not notice.

use gannet_testkit::client::metric;
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{
    CANCEL, ENHANCE_YOUR_CALM, INITIAL_WINDOW_SIZE, PING, Peer, frame, headers, request,
    rst_stream, window_update,
};
use gannet_testkit::process::{memory_kib, until};
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet};

const LARGE: usize = 6 << 20;

const FLAGS: [&str; 4] = ["--workers", "1", "--metrics", "127.0.0.1:0"];

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

    fn peer(&self) -> Peer {
        match self {
            Self::Clear(server) => Peer::new(server),
            Self::Tls(secure) => Peer::secure(secure, &[]),
        }
    }
}

/// Runs a test on each engine, in clear text and over TLS.
fn on_all(test: impl Fn(&Target) + Sync) {
    let site = site();
    on_both_engines(|engine| {
        test(&Target::Clear(engine.serve(site.path(), &FLAGS)));
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        test(&Target::Tls(Box::new(secure)));
    });
}

/// Runs an attack beside a well-behaved client. The attack ends with ENHANCE_YOUR_CALM.
fn beside_a_polite_client(target: &Target, attack: impl Fn(&mut Peer)) {
    let mut polite = target.peer();
    let page = polite.get("/about").expect(200);
    let before = memory_kib(target.server(), "VmRSS");
    let mut hostile = target.peer();
    attack(&mut hostile);
    let code = hostile.ends();
    // A reset may overtake the GOAWAY, since the peer never stopped sending.
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    assert_eq!(polite.get("/about").expect(200).body, page.body);
    assert_eq!(polite.get("/large.bin").expect(200).body.len(), LARGE);
    let grown = memory_kib(target.server(), "VmRSS").saturating_sub(before);
    assert!(grown < MEMORY_KIB, "{grown} KiB more");
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

/// Which floods, bombs and trickles there are, `gannet-http/tests/h2/attacks.rs` shows: here are one that makes
/// work and one that makes answers.
#[test]
fn floods_of_frames_are_calmed() {
    let get = request("GET", "/large.bin", &[]);
    let id = |n: usize| 1 + 2 * n as u32;
    let rapid = |n: usize| [headers(id(n), &get), rst_stream(id(n), CANCEL)].concat();
    let ping = |_: usize| frame(PING, 0, 0, b"aaaaaaaa");
    let floods: [&(dyn Fn(usize) -> Vec<u8> + Sync); 2] = [&rapid, &ping];
    on_all(|target| {
        for (ended, frames) in (1..).zip(floods) {
            beside_a_polite_client(target, |peer| flood(peer, frames));
            let name = "gannet_h2_errors_total{code=\"ENHANCE_YOUR_CALM\",cause=\"budget_spent\"}";
            assert_eq!(metric(target.server(), name), ended);
        }
    });
}

/// A hundred streams with closed windows, and a connection that never reads: they occupy little
/// memory, and are closed for lack of progress.
#[test]
fn who_takes_nothing_holds_little_and_is_ended() {
    let site = site();
    on_both_engines(|engine| {
        let flags = [&FLAGS[..], &["--progress-timeout", "2s"]].concat();
        let secure = Secure::serve(engine, site.path(), &flags);
        let server = &secure.server;
        let mut polite = Peer::secure(&secure, &[]);
        polite.get("/about").expect(200);
        let before = memory_kib(server, "VmRSS");
        let mut shut = Peer::secure(&secure, &[(INITIAL_WINDOW_SIZE, 0)]);
        let mut deaf = Peer::secure(&secure, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
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
