//! The HTTP client, which reads only the beginning of an answer that is an error: the library below
//! would hold all of it in memory, however long.

use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::limits::ERROR_BODY_LEN_MAX;

/// Makes clients.
#[derive(Debug, Default)]
pub(crate) struct Bounded(ReqwestConnector);

impl HttpConnector for Bounded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(BoundedClient(client)))
    }
}

#[derive(Debug)]
struct BoundedClient(HttpClient);

impl HttpService for BoundedClient {
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let response = self.0.execute(request).await?;
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
