//! What object storages say when they refuse a request: a status, and XML with a code, which the
//! services of Amazon, Google and Microsoft document one by one.

use object_store::Error;

/// A refusal.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Refusal<'e> {
    pub(crate) status: u16,
    /// The status in words: `403 Forbidden`.
    line: &'e str,
    /// What the storage calls it; empty if it does not say.
    pub(crate) code: &'e str,
    /// What it says to people; may be empty.
    message: &'e str,
}

/// A code that people meet, what it means, and what to do.
struct KnownCode {
    codes: &'static [&'static str],
    cause: &'static str,
    next_step: &'static str,
}

const KNOWN: &[KnownCode] = &[
    KnownCode {
        codes: &[
            "AccessDenied",
            "AuthorizationFailure",
            "AuthorizationPermissionMismatch",
            "InsufficientAccountPermissions",
        ],
        cause: "these credentials do not allow it",
        next_step: "following takes permission to read below the store's path; publishing to write, \
                    list and remove as well",
    },
    KnownCode {
        codes: &["NoSuchBucket", "ContainerNotFound"],
        cause: "there is no such bucket",
        next_step: "make it first, or correct its name; for another service than Amazon's, \
                    AWS_ENDPOINT_URL says where that is",
    },
    KnownCode {
        codes: &["InvalidAccessKeyId", "AuthenticationRequired"],
        cause: "it does not know these credentials",
        next_step: "are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY those of this service? \
                    AWS_ENDPOINT_URL says where another one than Amazon's is",
    },
    KnownCode {
        codes: &["SignatureDoesNotMatch", "AuthenticationFailed"],
        cause: "the secret does not belong to the name, or the clock is wrong",
        next_step: "compare AWS_SECRET_ACCESS_KEY, or AZURE_STORAGE_ACCOUNT_KEY, with what the \
                    service has, and the clock with 'date -u'",
    },
    KnownCode {
        codes: &["RequestTimeTooSkewed", "RequestExpired"],
        cause: "the clock here is not the storage's",
        next_step: "set the clock: compare it with 'date -u' on another machine",
    },
    KnownCode {
        codes: &["ExpiredToken", "TokenRefreshRequired", "InvalidToken"],
        cause: "the credentials are for a session that has ended",
        next_step: "get new ones: all of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
                    AWS_SESSION_TOKEN",
    },
    KnownCode {
        codes: &["SlowDown", "ServerBusy", "TooManyRequests"],
        cause: "it has too many requests at present",
        next_step: "try again later; what has been written is resumed",
    },
    KnownCode {
        codes: &["AuthorizationHeaderMalformed"],
        cause: "the bucket is in another region",
        next_step: "name that in AWS_REGION",
    },
];

impl<'e> Refusal<'e> {
    /// The refusal in the text of the error at the root of another one.
    fn read(text: &'e str) -> Option<Self> {
        let rest = text.strip_prefix(STATUS)?;
        let status = rest.get(..3)?.parse().ok()?;
        let (line, body) = rest.split_once(": ").unwrap_or((rest, ""));
        Some(Self {
            status,
            line: line.trim_end_matches(':'),
            code: element(body, "Code"),
            message: element(body, "Message"),
        })
    }

    fn known(&self) -> Option<&'static KnownCode> {
        KNOWN.iter().find(|it| it.codes.contains(&self.code))
    }

    /// What to do, for codes that are known.
    pub(crate) fn next_step(&self) -> Option<&'static str> {
        self.known().map(|it| it.next_step)
    }

    /// Whether the same request may be taken a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.status, 408 | 429 | 500..)
            || ["RequestTimeout", "IncompleteBody"].contains(&self.code)
    }

    /// Whether a write may have been taken all the same: a proxy has lost its answer, or the storage does
    /// not say why it failed.
    pub(crate) fn leaves_open(&self) -> bool {
        matches!(self.status, 500 | 502 | 504)
    }

    /// Whether an upload that was begun is gone, or has parts that cannot be put together. Google's code is
    /// not always there.
    pub(crate) fn is_of_upload(&self) -> bool {
        const CODES: [&str; 6] = [
            "NoSuchUpload",
            "InvalidPart",
            "InvalidPartOrder",
            "EntityTooSmall",
            "InvalidBlockList",
            "InvalidBlockId",
        ];
        CODES.contains(&self.code) || (self.status == 404 && self.code.is_empty())
    }

    /// Whether another write of the same object is under way, which may be our own.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status == 409 && !self.code.ends_with("AlreadyExists")
    }

    /// What it says, without the XML; `None` if it names no code.
    pub(crate) fn words(&self) -> Option<String> {
        let Self {
            line,
            code,
            message,
            ..
        } = self;
        Some(match self.known() {
            _ if code.is_empty() => return None,
            Some(known) => format!("{} ({code})", known.cause),
            None if message.is_empty() => format!("status {line} ({code})"),
            None => format!("{message} ({code})"),
        })
    }

    /// Its status in words.
    pub(crate) fn status_words(&self) -> String {
        format!("status {}", self.line)
    }
}

/// Passes on what lies at the root of an error, if that is a refusal.
pub(crate) fn of<T>(error: &Error, pass: impl FnOnce(&Refusal<'_>) -> Option<T>) -> Option<T> {
    let mut root: &dyn std::error::Error = error;
    while let Some(below) = root.source() {
        root = below;
    }
    let text = root.to_string();
    Refusal::read(&text).and_then(|it| pass(&it))
}

/// The first element of a name in XML; empty if there is none.
fn element<'x>(xml: &'x str, name: &str) -> &'x str {
    let begin = xml.split_once(&format!("<{name}>"));
    let whole = begin.and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    // Azure's messages continue with ids in lines of their own, which differ each time.
    whole.map_or("", |(text, _)| text.lines().next().unwrap_or("").trim())
}

/// How the library names an answer that is an error.
const STATUS: &str = "Server returned non-2xx status code: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_out_of_what_a_storage_says() {
        let check = |text: &str, expect: &str| {
            let text = format!("{STATUS}{text}");
            let refusal = Refusal::read(&text).unwrap();
            let words = refusal.words();
            assert_eq!(words.unwrap_or_else(|| refusal.status_words()), expect);
        };
        check(
            "403 Forbidden: <?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
             <Message>Access Denied</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>",
            "these credentials do not allow it (AccessDenied)",
        );
        check(
            "400 Bad Request: <Error><Code>InvalidPart</Code><Message>One is missing.\n\
             RequestId:1\nTime:2</Message></Error>",
            "One is missing. (InvalidPart)",
        );
        check(
            "400 Bad Request: <Error><Code>Odd</Code></Error>",
            "status 400 Bad Request (Odd)",
        );
        check("502 Bad Gateway: ", "status 502 Bad Gateway");
        check("502 Bad Gateway: <html>", "status 502 Bad Gateway");
        check("403 Forbidden: ", "status 403 Forbidden");
        assert_eq!(Refusal::read("connection refused"), None);
        assert_eq!(Refusal::read(&format!("{STATUS}x")), None);
    }

    #[test]
    fn a_request_that_is_wrong_is_not_sent_again() {
        let check = |text: &str, expect: bool| {
            let text = format!("{STATUS}{text}");
            assert_eq!(Refusal::read(&text).unwrap().is_passing(), expect, "{text}");
        };
        check("400 Bad Request: ", false);
        check("403 Forbidden: ", false);
        check("429 Too Many Requests: ", true);
        check("503 Service Unavailable: ", true);
        check("400 -: <Code>RequestTimeout</Code>", true);
    }
}
