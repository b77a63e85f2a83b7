//! Answers every request with 13 bytes through actix-web, with one worker: `constant-actix PORT`.

use std::{net::Ipv4Addr, time::Duration};

use actix_web::{App, HttpResponse, HttpServer, http::KeepAlive, web};

/// The listen backlog.
const BACKLOG: u32 = 4096;
/// Connections that one worker serves at a time.
const CONNECTIONS: usize = 65_536;
const BODY: &str = "Hello, World!";

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: Option<u16> = arguments.next().and_then(|port| port.parse().ok());
    let Some(port) = port else {
        return Err(std::io::Error::other("usage: constant-actix PORT"));
    };
    let application = || App::new().default_service(web::to(answer));
    HttpServer::new(application)
        .workers(1)
        .backlog(BACKLOG)
        .max_connections(CONNECTIONS)
        .keep_alive(KeepAlive::Timeout(Duration::from_secs(3600)))
        .bind((Ipv4Addr::LOCALHOST, port))?
        .run()
        .await
}

async fn answer() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(BODY)
}
