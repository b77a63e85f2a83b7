//! Downloads paths over HTTP/3 as a case of interoperability asks for it, with s2n-quic and s2n-tls.
//!
//! usage: client CASE AUTHORITY CACERT FOLDER PATH...
//!
//! What comes for a path is written to FOLDER, in a file by the number of the path. Exits with 127 if the
//! library lacks the case. Its HTTP/3 is what a download needs: no field is compressed by a table of its own.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use s2n_quic::client::Connect;
use s2n_quic::connection::Handle;
use s2n_quic::provider::event::Subscriber;
use s2n_quic::provider::event::events::{ConnectionInfo, ConnectionMeta, Frame, FrameReceived};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::default as tls;
use s2n_quic::{Client, Connection};

type Failure = Box<dyn Error + Send + Sync>;

/// What the library cannot do, or has no setting for: it updates keys after many packets only.
const LACKING: [&str; 5] = ["chacha20", "keyupdate", "resumption", "zerortt", "v2"];

/// Whether the server's acknowledgements have counted marked packets.
#[derive(Clone, Default)]
struct Marked(Arc<AtomicBool>);

impl Subscriber for Marked {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_frame_received(&mut self, _: &mut (), _: &ConnectionMeta, event: &FrameReceived) {
        if let Frame::Ack { ecn_counts, .. } = &event.frame
            && ecn_counts.as_ref().is_some_and(|it| it.ect_0_count > 0)
        {
            self.0.store(true, Ordering::Release);
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, authority, cacert, folder, paths @ ..] = &arguments[..] else {
        return ExitCode::FAILURE;
    };
    if LACKING.contains(&&case[..]) {
        return ExitCode::from(127);
    }
    match run(case, authority, Path::new(cacert), Path::new(folder), paths).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(
    case: &str,
    authority: &str,
    cacert: &Path,
    folder: &Path,
    paths: &[String],
) -> Result<(), Failure> {
    let minute = Duration::from_secs(60);
    let limits = Limits::new()
        .with_max_handshake_duration(minute)?
        .with_max_idle_timeout(minute)?;
    let protocol = tls::Client::builder().with_application_protocols(["h3"].into_iter())?;
    let marked = Marked::default();
    let mut client = Client::builder()
        .with_tls(protocol.with_certificate(cacert)?.build()?)?
        .with_limits(limits)?
        .with_event(marked.clone())?
        .with_io("127.0.0.1:0")?
        .start()?;
    let port = authority.rsplit(':').next().ok_or("no port")?.parse()?;
    let server = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let mut connection = client
        .connect(Connect::new(server).with_server_name("localhost"))
        .await?;
    connection.keep_alive(true)?;
    all(&mut connection, authority, folder, paths).await?;
    if case == "ecn" && !marked.0.load(Ordering::Acquire) {
        return Err("no acknowledgement counts marked packets".into());
    }
    // An application's close, without an error (RFC 9114 section 8.1).
    connection.close(0x100u32.into());
    drop(connection);
    client.wait_idle().await?;
    Ok(())
}

async fn all(
    connection: &mut Connection,
    authority: &str,
    folder: &Path,
    paths: &[String],
) -> Result<(), Failure> {
    let mut control = connection.open_send_stream().await?;
    // A control stream with empty settings, which stays open.
    control.send(vec![0, 4, 0].into()).await?;
    let mut downloads = Vec::new();
    for path in paths {
        let (handle, request) = (connection.handle(), request(authority, path));
        downloads.push(tokio::spawn(download(handle, request)));
    }
    for (number, it) in downloads.into_iter().enumerate() {
        let body = it.await?.map_err(|why| format!("path {number}: {why}"))?;
        std::fs::write(folder.join(number.to_string()), body)?;
    }
    Ok(())
}

async fn download(mut handle: Handle, request: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let (mut answer, mut send) = handle.open_bidirectional_stream().await?.split();
    send.send(request.into()).await?;
    send.finish()?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.receive().await? {
        bytes.extend_from_slice(&chunk);
    }
    body(&bytes)
}

/// A frame of fields of the static table (RFC 9204 appendix A), with values.
fn request(authority: &str, path: &str) -> Vec<u8> {
    // No dynamic table; GET; https.
    let mut fields = vec![0, 0, 0xc0 | 17, 0xc0 | 23];
    for (name, value) in [(0, authority), (1, path)] {
        assert!(value.len() < 0x7f, "a length of one byte");
        fields.extend([0x50 | name, value.len() as u8]);
        fields.extend_from_slice(value.as_bytes());
    }
    assert!(fields.len() < 0x40, "a length of one byte");
    [&[1, fields.len() as u8][..], &fields].concat()
}

/// What the frames of DATA hold, after fields that begin with status 200.
fn body(mut bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let (mut is_right, mut body) = (false, Vec::new());
    while !bytes.is_empty() {
        let (kind, len) = (integer(&mut bytes)?, integer(&mut bytes)?);
        let (frame, rest) = bytes.split_at_checked(len).ok_or("a frame is cut off")?;
        bytes = rest;
        match kind {
            0 if is_right => body.extend_from_slice(frame),
            1 => is_right |= frame.get(2) == Some(&(0xc0 | 25)),
            _ => {}
        }
    }
    is_right
        .then_some(body)
        .ok_or_else(|| "no status 200".into())
}

/// A number of 1 to 8 bytes (RFC 9000 section 16).
fn integer(bytes: &mut &[u8]) -> Result<usize, Failure> {
    let first = *bytes.first().ok_or("a number is cut off")?;
    let (number, rest) = bytes
        .split_at_checked(1 << (first >> 6))
        .ok_or("a number is cut off")?;
    *bytes = rest;
    let high = usize::from(first & 0x3f);
    Ok(number[1..]
        .iter()
        .fold(high, |all, byte| all << 8 | usize::from(*byte)))
}
