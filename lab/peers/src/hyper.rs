//! Answers every request with 13 bytes through hyper, on one thread: `constant-hyper PORT`.

use std::{convert::Infallible, net::Ipv4Addr};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, body::Incoming, header::CONTENT_TYPE, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// The listen backlog.
const BACKLOG: u32 = 4096;
const BODY: &[u8] = b"Hello, World!";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok());
    let Some(port) = port else {
        return Err(std::io::Error::other("usage: constant-hyper PORT"));
    };
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    let listener = socket.listen(BACKLOG)?;
    loop {
        // The connection ended in the backlog, or no descriptor is free: the next may succeed.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // The client detects how a connection ended.
            let _ = http1::Builder::new()
                .pipeline_flush(true)
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
        });
    }
}

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
    let text = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    Ok(response)
}
