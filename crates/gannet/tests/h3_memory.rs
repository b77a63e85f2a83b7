//! Memory exhausted by clients of HTTP/3.

use gannet_testkit::Folder;
use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Secure, connection};

/// Clients fill their flow-control windows with bytes that cannot be read, because the bytes before
/// them are missing, and exhaust the memory: other clients are served over TCP, and the connections
/// of these end.
#[test]
fn windows_that_are_full_do_not_use_up_memory() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let flags = [
            "--max-memory",
            "32M",
            "--workers",
            "2",
            "--metrics",
            "127.0.0.1:0",
        ];
        // Longer than it takes them all to fill the memory, on a busy machine, too.
        let times = ["--head-timeout", "30", "--idle-timeout", "30"];
        let secure = Secure::serve(engine, folder.path(), &[&flags[..], &times].concat());
        let tls = secure.authority.client(Abilities {
            alpn: vec![b"h3".to_vec()],
            ..Abilities::default()
        });
        let address = secure.server.address();
        let shed = || metric(&secure.server, "gannet_connections_shed_total");
        let mut greedy = Vec::new();
        // As many come while the memory is full as have filled it.
        let mut filled = None;
        while filled.is_none_or(|count| greedy.len() < 2 * count) {
            assert!(filled.is_some() || greedy.len() < 250, "the memory lasts");
            for _ in 0..10 {
                let mut quic = Quic::start_hasty(address, &tls);
                quic.shake();
                for _ in 0..4 {
                    quic.send_but_first(&[0; 64 << 10]);
                }
                greedy.push(quic);
            }
            if filled.is_none() && shed() > 0 {
                filled = Some(greedy.len());
            }
        }
        until("another one is served", || {
            let mut client = Client::tls(address, connection(&secure.config, "localhost"));
            let sent = client.try_send(head("GET", "/", &[]));
            sent.is_ok() && client.head_or_end().is_ok_and(|head| head.status == 200)
        });
        until("theirs end", || {
            metric(&secure.server, "gannet_connections") <= 1
        });
        drop(greedy);
        assert_eq!(
            Quic::connect(address, &secure.authority).get("/").status,
            200
        );
    });
}
