//! A download to standard output: in order, over one connection, and without a report.

use std::io::{self, Write};

use aws_lc_rs::digest::Context;

use super::error::{failure, redirected, unexpected};
use super::output::{base64, wanted_digest};
use super::url::Url;
use super::{Client, GetOptions};
use crate::messages::Failure;

/// Refuses what does not go with it.
///
/// # Errors
/// Several connections, a download that goes on, or a report at the same place.
pub(super) fn check(options: &GetOptions) -> Result<(), Failure> {
    let (what, help) = if options.connections > 1 {
        (
            "is in order, over one connection",
            "leave --connections out, or name a file",
        )
    } else if options.resumes {
        (
            "has nothing to go on with",
            "leave --continue out, or name a file",
        )
    } else if options.json {
        (
            "is for the content, not for a report",
            "leave --json out, or name a file",
        )
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!("--output -: standard output {what}")).help(help))
}

impl Client<'_> {
    /// Fetches `asked` and writes its content as it comes. Its problems only show when it is
    /// written.
    pub(super) fn print(&self, typed: &str, asked: &Url) -> Result<(), Failure> {
        let fail = |error| failure(typed, &error);
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
        let mut out = io::stdout().lock();
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
                return Err(Failure::from_output(error));
            }
            match next.map_err(fail)? {
                Some(count) => bytes += count,
                None => break,
            }
        }
        out.flush().map_err(Failure::from_output)?;
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
