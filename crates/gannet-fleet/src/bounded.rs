//! The HTTP client, which bounds all answers except the objects that are read, and reads only the
//! beginning of an error: the library below would hold all of it in memory, whatever its length. It also
//! completes uploads under the condition that there is no such object yet, where the store takes one: the
//! library's uploads cannot ask for that.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use http::header::{AUTHORIZATION, HeaderValue, IF_NONE_MATCH};
use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, Extensions};

use crate::limits::{ANSWER_LEN_MAX, ERROR_BODY_LEN_MAX};

/// Makes clients.
#[derive(Debug)]
pub(crate) struct Bounded {
    connector: ReqwestConnector,
    condition: Condition,
}

/// Whether uploads are completed under the condition that there is no such object yet.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// The storage takes none. Google's refuses them for uploads in parts.
    Untaken,
    /// S3 takes one, which the signature does not cover.
    Unsigned,
    /// Azure takes one, which the signature covers: it is made anew, by what this gives once the
    /// library knows it.
    Signed(Arc<OnceLock<AzureCredentialProvider>>),
}

impl Bounded {
    pub(crate) fn new(condition: Condition) -> Self {
        Self {
            connector: ReqwestConnector::default(),
            condition,
        }
    }
}

impl HttpConnector for Bounded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedClient {
            client: self.connector.connect(options)?,
            condition: self.condition.clone(),
        }))
    }
}

#[derive(Debug)]
struct BoundedClient {
    client: HttpClient,
    condition: Condition,
}

impl BoundedClient {
    /// Adds the condition to a request that completes an upload.
    async fn put_condition(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        if matches!(self.condition, Condition::Untaken) || !completes(request) {
            return Ok(());
        }
        let any = HeaderValue::from_static("*");
        request.headers_mut().insert(IF_NONE_MATCH, any);
        let Condition::Signed(credentials) = &self.condition else {
            return Ok(());
        };
        let Some(credentials) = credentials.get() else {
            return Ok(());
        };
        let signed = request.headers().get(AUTHORIZATION);
        let signed = signed.and_then(|it| it.to_str().ok());
        let account = signed.and_then(|it| it.strip_prefix("SharedKey ")?.split_once(':'));
        // Others than account keys are not for one request.
        if let Some((account, _)) = account {
            let account = account.to_owned();
            let refuse = |error| HttpError::new(HttpErrorKind::Request, error);
            let credential = credentials.get_credential().await.map_err(refuse)?;
            request.headers_mut().remove(AUTHORIZATION);
            AzureAuthorizer::new(&credential, &account)
                .try_authorize(request)
                .map_err(refuse)?;
        }
        Ok(())
    }
}

impl HttpService for BoundedClient {
    fn call<'s, 'f>(
        &'s self,
        mut request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            self.put_condition(&mut request).await?;
            let is_streamed = request.extensions().get::<Streamed>().is_some();
            let response = self.client.execute(request).await?;
            let is_success = response.status().is_success();
            if is_success && is_streamed {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let most = match is_success {
                true => ANSWER_LEN_MAX,
                false => ERROR_BODY_LEN_MAX,
            };
            let mut start = Vec::new();
            let mut pieces = body.bytes_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                let room = most - start.len();
                start.extend_from_slice(&piece[..piece.len().min(room)]);
                if piece.len() > room {
                    if is_success {
                        let long = format!("its answer has more than {most} bytes");
                        return Err(HttpError::new(
                            HttpErrorKind::Decode,
                            io::Error::new(io::ErrorKind::FileTooLarge, long),
                        ));
                    }
                    break;
                }
            }
            Ok(HttpResponse::from_parts(parts, Bytes::from(start).into()))
        })
    }
}

/// A mark of a request that reads an object, whose bytes are passed on as they come. All others, such
/// as those for credentials, which a machine's metadata service answers, are bounded.
#[derive(Clone)]
struct Streamed;

/// What marks a request for an object.
pub(crate) fn streamed() -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(Streamed);
    extensions
}

/// Whether a request completes an upload in parts: of S3, or of Azure.
fn completes(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let has = |what: fn(&str) -> bool| query.split('&').any(what);
    match *request.method() {
        Method::POST => has(|it| it.starts_with("uploadId=")),
        Method::PUT => has(|it| it == "comp=blocklist"),
        _ => false,
    }
}
