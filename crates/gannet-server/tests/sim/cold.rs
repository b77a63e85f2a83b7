//! A working set larger than memory on a slow disk: whatever waits for the disk, those who request
//! cached files do not.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};

use crate::budget::MS;
use crate::run::LIMITS;
use crate::server::{Server, get};

/// The time of each operation on a cold file.
const SLOW_MS: u64 = 200;

/// The longest time for which a request for a cached file may wait, in milliseconds.
const STALL_MS_MAX: u64 = 50;

const COLD: usize = 20;

/// Short files, files that are copied for their first request, and files that are read in slices,
/// each requested by a client of its own, while another one requests a cached file all the time.
#[test]
fn cold_files_stall_nobody_who_requests_cached_ones() {
    for len in [2_000, 300_000, 6_000_000] {
        let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
        let disk = driver.handle();
        disk.put_file("hot", "hot");
        for number in 0..COLD {
            let name = format!("cold{number}.html");
            disk.put_file(&name, vec![b'c'; len]);
            disk.slow_file(&name, SLOW_MS * MS);
        }
        disk.age_files(100_000);
        let content = DrivenContent::Directory(disk.root());
        let options = ContentOptions::default();
        let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
        let mut server = Server { driven, disk };
        let hot = server.connect();
        let ask_hot = |server: &mut Server| {
            let start = server.disk.now();
            hot.write(&get("hot"));
            let mut got = Vec::new();
            server.until("the cached file", || {
                got.extend(hot.read());
                got.ends_with(b"hot")
            });
            // A visitor that asks at once would ask ten thousand times. What stalls the next request counts, too.
            server.pass(1);
            let took_ms = (server.disk.now().0 - start.0) / MS;
            assert!(took_ms <= STALL_MS_MAX, "{took_ms} ms beside {len} bytes");
        };
        ask_hot(&mut server);
        let clients: Vec<Client> = (0..COLD)
            .map(|number| {
                let client = server.connect();
                client.write(&get(&format!("cold{number}.html")));
                client
            })
            .collect();
        let mut got = [0; COLD];
        let start = server.disk.now();
        while got.iter().any(|got| *got < len) {
            for (client, got) in clients.iter().zip(&mut got) {
                *got += client.read().len();
            }
            ask_hot(&mut server);
        }
        let took_ms = (server.disk.now().0 - start.0) / MS;
        assert!(took_ms >= SLOW_MS, "{took_ms} ms: the files were not cold");
    }
}
