//! The HTTP client of orders: whatever a server answers is bounded in bytes and time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use tokio::time::timeout;
use url::Url;

use super::error::AcmeError;
use super::server::is_local;
use crate::limits::{ACME_ANSWER_TIMEOUT, ACME_BODY_LEN_MAX, RETRY_AFTER_MOST};
use crate::trust::authorities;

type RequestBody = bytes::Bytes;

/// How long a server has asked to wait with its last error.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestedPause(Arc<Mutex<Option<Duration>>>);

impl RequestedPause {
    fn set(&self, wait: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }

    pub(super) fn take(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// See the module documentation.
#[derive(Clone)]
pub(super) struct AcmeHttp {
    client: Client,
    directory: Url,
    pause: RequestedPause,
    patience: Duration,
}

impl AcmeHttp {
    /// A client for the server with this directory: over HTTPS only, but on this machine.
    pub(super) fn new(directory: &Url, pause: RequestedPause) -> Result<Self, AcmeError> {
        let refuse = |why: String| AcmeError::Url(directory.to_string(), why);
        let trusted = authorities().map_err(|name| {
            refuse(format!(
                "no certificate of an authority is where {name} says"
            ))
        })?;
        let trusted = trusted.iter();
        let builder = Client::builder()
            .redirect(Policy::none())
            .https_only(!is_local(directory))
            .connect_timeout(ACME_ANSWER_TIMEOUT)
            .tls_certs_only(trusted.filter_map(|der| Certificate::from_der(der).ok()));
        Ok(Self {
            client: builder.build().map_err(|error| refuse(error.to_string()))?,
            directory: directory.clone(),
            pause,
            patience: ACME_ANSWER_TIMEOUT,
        })
    }

    /// The same with another patience.
    #[cfg(test)]
    fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    async fn exchange(
        self,
        request: Request<BodyWrapper<RequestBody>>,
    ) -> Result<BytesResponse, Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(other)?.to_bytes();
        let is_for_directory = parts.uri == *self.directory.as_str();
        let request = self.client.request(parts.method, parts.uri.to_string());
        let request = request.headers(parts.headers).body(body);
        let mut response = request.send().await.map_err(other)?;
        let mut content = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(other)? {
            if content.len() + piece.len() > ACME_BODY_LEN_MAX {
                return Err(other("the server's answer is too long"));
            }
            content.extend_from_slice(&piece);
        }
        let mut answer = http::Response::new(());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        let wait = bound_wait(answer.headers_mut());
        let status = answer.status();
        let is_later = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        if is_for_directory && !is_later && !is_object(&content) {
            return Err(other(NoDirectory(status)));
        }
        if status.is_client_error() || status.is_server_error() {
            let field = |name| answer.headers().get(name).and_then(|it| it.to_str().ok());
            self.pause.set(wait);
            let is_problem = field(CONTENT_TYPE).is_some_and(|it| it.contains("json"));
            if !is_problem {
                return Err(other(format!("the server answers with status {status}")));
            }
        }
        Ok(BytesResponse {
            parts: answer.into_parts().0,
            body: Box::new(RequestBody::from(content)),
        })
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<RequestBody>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let one = self.clone();
        Box::pin(async move {
            let patience = one.patience;
            let answered = timeout(patience, one.exchange(request)).await;
            answered.unwrap_or_else(|_| Err(other("no answer in time")))
        })
    }
}

/// Directories and problems are (RFC 8555 sections 6.7 and 7.1.1).
fn is_object(content: &[u8]) -> bool {
    serde_json::from_slice(content).is_ok_and(|it: serde_json::Value| it.is_object())
}

/// What is at the URL of a server's directory is none.
#[derive(Debug)]
pub(super) struct NoDirectory(StatusCode);

impl fmt::Display for NoDirectory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status) = self;
        write!(
            out,
            "there is no directory of an ACME server (status {status})"
        )
    }
}

impl std::error::Error for NoDirectory {}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Other(Box::new(Unanswered(error.into())))
}

/// A request to which there was no answer, or none that says anything: the server may have done what it
/// was requested.
#[derive(Debug)]
pub(super) struct Unanswered(Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Unanswered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for Unanswered {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause: &(dyn std::error::Error + 'static) = self.0.as_ref();
        Some(cause)
    }
}

/// A number of seconds. Of dates, which servers may send as well, own pauses are not much shorter.
/// How long the server asks to wait. The library adds that to the time, which must not overflow.
fn bound_wait(headers: &mut HeaderMap) -> Option<Duration> {
    let field = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let wait = wait_of(field)?;
    if wait > RETRY_AFTER_MOST {
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_MOST.as_secs()));
    }
    Some(wait)
}

fn wait_of(field: &str) -> Option<Duration> {
    field.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    /// More than any answer takes that comes.
    const LONG: Duration = Duration::from_secs(60);

    /// What a server's answer to one request comes to; `further` is sent until its receiver is gone.
    fn ask(
        answer: &'static str,
        further: &'static [u8],
        patience: Duration,
    ) -> (Result<Vec<u8>, String>, RequestedPause) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let url = Url::parse(&url).expect("a URL");
        let pause = RequestedPause::default();
        let client = AcmeHttp::new(&url, pause.clone()).expect("a client");
        let client = client.with_patience(patience);
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 4096]);
            let mut is_taken = stream.write_all(answer.as_bytes()).is_ok();
            while is_taken && !further.is_empty() {
                is_taken = stream.write_all(further).is_ok();
            }
            // Until the client leaves.
            let _ = stream.read(&mut [0; 4096]);
        });
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let request = Request::builder().uri(url.as_str());
        let request = request.body(BodyWrapper::default()).expect("a request");
        let result = runtime.block_on(async {
            let mut answer = client.request(request).await.map_err(|it| it.to_string())?;
            let body = answer
                .body
                .into_bytes()
                .await
                .map_err(|it| it.to_string())?;
            Ok(body.to_vec())
        });
        drop((client, runtime));
        server.join().expect("no panic");
        (result, pause)
    }

    #[test]
    fn answers_are_bounded_in_bytes_and_time() {
        let (got, _) = ask("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", b"", LONG);
        assert_eq!(got.as_deref(), Ok(&b"{}"[..]));
        let (got, _) = ask(
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            &[b' '; 4096],
            LONG,
        );
        assert_eq!(got, Err("the server's answer is too long".into()));
        let parts = [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{",
            "HTTP/1.1 200",
        ];
        for part in parts {
            let (got, _) = ask(part, b"", Duration::from_secs(1));
            assert_eq!(got, Err("no answer in time".into()));
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        for (asked, expected) in [
            ("120", "120"),
            ("18446744073709551615", "2592000"),
            (
                "Fri, 31 Dec 1999 23:59:59 GMT",
                "Fri, 31 Dec 1999 23:59:59 GMT",
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(asked));
            bound_wait(&mut headers);
            assert_eq!(headers[RETRY_AFTER], expected);
        }
    }

    #[test]
    fn an_error_that_is_no_problem_is_said_and_its_wait_is_kept() {
        let (got, pause) = ask(
            "HTTP/1.1 503 Busy\r\nretry-after: 120\r\ncontent-type: text/html\r\n\
             content-length: 4\r\n\r\nbusy",
            b"",
            LONG,
        );
        let why = got.expect_err("an error");
        assert!(why.contains("status 503"), "{why}");
        assert_eq!(pause.take(), Some(Duration::from_secs(120)));
        assert_eq!(pause.take(), None);
    }
}
