//! The HTTP client, which reads only the beginning of an answer that is an error: the library below
//! would hold all of it in memory, however long. That of S3 also completes uploads under the condition
//! that there is no such object yet, which the library's uploads cannot ask for.

use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use http::Method;
use http::header::{HeaderValue, IF_NONE_MATCH};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::limits::ERROR_BODY_LEN_MAX;

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
            let response = self.client.execute(request).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let mut start = Vec::new();
            let mut pieces = body.bytes_stream();
            while start.len() < ERROR_BODY_LEN_MAX
                && let Some(piece) = pieces.next().await
            {
                let piece = piece?;
                let room = ERROR_BODY_LEN_MAX - start.len();
                start.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            let text = String::from_utf8_lossy(&start).into_owned();
            Ok(HttpResponse::from_parts(parts, text.into()))
        })
    }
}

/// Whether a request completes an upload in parts. The signature does not cover the condition.
fn completes(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::POST && query.split('&').any(|it| it.starts_with("uploadId="))
}
