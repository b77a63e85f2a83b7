//! Downloads in order over one connection: to standard output or another writer.

use std::io::{self, Write};

use aws_lc_rs::digest::Context;

use super::Client;
use super::error::{GetError, failure, redirected, unexpected};
use super::output::{base64, wanted_digest};
use super::url::Url;

impl Client {
    /// Fetches `asked` and writes its content to `out` as it arrives. A mismatch of length or
    /// digest is therefore reported only after the content was written.
    ///
    /// # Errors
    /// The server cannot be reached or does not send the content, the length or digest does not
    /// match, or `out` cannot be written.
    pub fn print(&self, asked: &Url, out: &mut dyn Write) -> Result<(), GetError> {
        self.check_trust(std::slice::from_ref(asked))?;
        let fail = |error| failure(asked, &error);
        let fields = [
            ("want-repr-digest", "sha-256=9, sha-512=5".to_owned()),
            ("accept-encoding", "identity".to_owned()),
        ];
        let (head, mut exchange, url) = self.open(asked, &fields).map_err(fail)?;
        if head.status != 200 {
            return Err(fail(redirected(unexpected(&head), asked, &url)));
        }
        if head.is_coded {
            let what = "the content is coded, which was not requested";
            return Err(fail(io::Error::other(what)));
        }
        let digest = head.repr_digest.as_deref().and_then(wanted_digest);
        let mut context = digest
            .as_ref()
            .map(|(_, algorithm, _)| Context::new(algorithm));
        let mut bytes = 0;
        let mut unwritten = None;
        loop {
            let mut take = |content: &[u8]| {
                if let Some(context) = &mut context {
                    context.update(content);
                }
                out.write_all(content).map_err(|error| {
                    let kind = error.kind();
                    unwritten = Some(error);
                    kind.into()
                })
            };
            let next = exchange.next(false, &mut take);
            if let Some(error) = unwritten.take() {
                return Err(GetError::Output(error));
            }
            match next.map_err(fail)? {
                Some(count) => bytes += count,
                None => break,
            }
        }
        out.flush().map_err(GetError::Output)?;
        let wrong = |what: String| Err(fail(io::Error::other(what)));
        if let Some(length) = head.content_length.filter(|length| *length != bytes) {
            return wrong(format!("received {bytes} bytes (expected {length})"));
        }
        if let Some(((name, _, wanted), context)) = digest.zip(context) {
            let found = base64(context.finish().as_ref());
            if found != wanted {
                return wrong(format!("the {name} digest is {found} (expected {wanted})"));
            }
        }
        Ok(())
    }
}
