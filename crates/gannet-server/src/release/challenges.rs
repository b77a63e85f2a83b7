//! Answers to challenges of an ACME server by HTTP-01 (RFC 8555 section 8.3), without state: the answer
//! is the token in the path and the thumbprint of the account's key, which is public. So any server that
//! knows the thumbprint answers for each name that leads to it.

use crate::bounds::limits::{ACME_TOKEN_LEN_MAX, ACME_TOKEN_LEN_MIN};

/// Where the tokens are.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// The content type of an answer (RFC 8555 section 8.3).
pub(crate) const CONTENT_TYPE: &[u8] = b"application/octet-stream";

/// Answers for one account.
#[derive(Debug)]
pub(crate) struct Challenges {
    /// With the dot before it.
    thumbprint: Vec<u8>,
}

impl Challenges {
    pub(crate) fn new(thumbprint: &str) -> Self {
        let thumbprint = format!(".{thumbprint}").into_bytes();
        Self { thumbprint }
    }

    /// The answer at a path, as it was sent; `None` if that is not the path of a challenge.
    pub(crate) fn answer(&self, path: &[u8]) -> Option<Vec<u8>> {
        let token = path.strip_prefix(PREFIX)?;
        // Base64url without padding (RFC 8555 section 8).
        let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = (ACME_TOKEN_LEN_MIN..=ACME_TOKEN_LEN_MAX).contains(&token.len())
            && token.iter().all(is_of_token);
        is_token.then(|| [token, &self.thumbprint].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_base64url_of_a_sane_length() {
        let challenges = Challenges::new("thumb");
        let answer = |token: &str| {
            let path = format!("/.well-known/acme-challenge/{token}");
            let answer = challenges.answer(path.as_bytes());
            answer.map(|it| String::from_utf8(it).expect("ASCII"))
        };
        for len in [ACME_TOKEN_LEN_MIN, 43, ACME_TOKEN_LEN_MAX] {
            let token = "aZ09-_".repeat(len)[..len].to_owned();
            assert_eq!(answer(&token), Some(format!("{token}.thumb")));
        }
        let long = "a".repeat(ACME_TOKEN_LEN_MAX + 1);
        let short = "a".repeat(ACME_TOKEN_LEN_MIN - 1);
        for token in ["", &short, &long] {
            assert_eq!(answer(token), None, "{token}");
        }
        let usual = "a".repeat(42);
        for wrong in [".", "/", "%", "=", "+", "<", " ", "\u{e4}"] {
            assert_eq!(answer(&format!("{usual}{wrong}")), None, "{wrong}");
        }
        assert_eq!(challenges.answer(b"/.well-known/acme-challenge"), None);
        assert_eq!(
            challenges.answer(b"/other/aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            None
        );
    }
}
