//! How long requests take while others swap releases.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use gannet_testkit::client::Client;

use super::site::{FILES, file};
use crate::open_loop::{self, Latencies, Pace};

/// Connections that make the requests.
const CLIENTS: usize = 8;

/// Requests a second, of all of them together.
const RATE: u32 = 800;

/// A prime, so that files of all folders come one after the other.
const STEP: usize = 7_919;

/// Asks for files of the site for `time`. Returns the latencies of requests that were under way
/// while `is_swapping`, and those of all others.
///
/// # Errors
///
/// A response was wrong.
pub(super) fn run(
    address: SocketAddr,
    time: Duration,
    is_swapping: &AtomicBool,
) -> Result<[Latencies; 2]> {
    let clients = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    open_loop::run(clients, Pace { rate: RATE, time }, |client, request| {
        let (path, content) = file(request as usize * STEP % FILES);
        let was_swapping = is_swapping.load(Ordering::SeqCst);
        let response = client.get(&path).expect(200);
        assert_eq!(response.text(), content, "{path}");
        let is_calm = !was_swapping && !is_swapping.load(Ordering::SeqCst);
        usize::from(is_calm)
    })
}
