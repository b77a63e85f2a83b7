//! The HTTP client, which bounds all answers except the objects that are read, and reads only the
//! beginning of an error: the library below would hold all of it in memory, whatever its length. For S3
//! it also completes uploads under the condition that there is no such object yet, which the library's
//! uploads cannot ask for.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use http::header::{HeaderValue, IF_NONE_MATCH};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

use crate::limits::{ANSWER_LEN_MAX, ERROR_BODY_LEN_MAX};

/// Makes clients.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    connector: ReqwestConnector,
    creates: bool,
}

impl Bounded {
    /// For S3, which takes a condition with the completion of an upload.
    pub(crate) fn creating() -> Self {
        Self {
            creates: true,
            ..Self::default()
        }
    }
}

impl HttpConnector for Bounded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedClient {
            client: self.connector.connect(options)?,
            creates: self.creates,
        }))
    }
}

#[derive(Debug)]
struct BoundedClient {
    client: HttpClient,
    creates: bool,
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
            if self.creates && completes(&request) {
                let any = HeaderValue::from_static("*");
                request.headers_mut().insert(IF_NONE_MATCH, any);
            }
            let is_streamed = reads_object(&request);
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
                            io::Error::other(long),
                        ));
                    }
                    break;
                }
            }
            Ok(HttpResponse::from_parts(parts, Bytes::from(start).into()))
        })
    }
}

/// Whether a request reads an object, whose bytes are passed on as they come.
fn reads_object(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut parameters = query.split('&');
    request.method() == Method::GET
        && !parameters.any(|it| it == "comp=list" || it.starts_with("list-type="))
}

/// Whether a request completes an upload in parts. The signature does not cover the condition.
fn completes(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::POST && query.split('&').any(|it| it.starts_with("uploadId="))
}
