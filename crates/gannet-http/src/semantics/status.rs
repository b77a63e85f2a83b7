//! Status codes and their reason phrases (RFC 9110 section 15).

/// A status code, 100 to 599.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Status(pub u16);

impl Status {
    /// Whether a response with this status never has content: 1xx, 204 and 304 (RFC 9110 6.4.1).
    #[must_use]
    pub const fn is_without_content(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }

    /// Whether it reports an error of the client or the server: 4xx and 5xx.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 400
    }
}

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal)*) => {
        impl Status {
            $(#[doc = concat!("`", $code, " ", $reason, "`")] pub const $name: Self = Self($code);)*

            /// The reason phrase; empty for a code without a registered one.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// The status line of HTTP/1.1 with its CRLF; `None` for an unregistered code.
            #[must_use]
            pub(crate) const fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n")),)*
                    _ => None,
                }
            }
        }

        #[cfg(test)]
        const CODES: &[u16] = &[$($code),*];
    };
}

statuses! {
    100 CONTINUE "Continue"
    103 EARLY_HINTS "Early Hints"
    200 OK "OK"
    204 NO_CONTENT "No Content"
    206 PARTIAL_CONTENT "Partial Content"
    301 MOVED_PERMANENTLY "Moved Permanently"
    302 FOUND "Found"
    303 SEE_OTHER "See Other"
    304 NOT_MODIFIED "Not Modified"
    307 TEMPORARY_REDIRECT "Temporary Redirect"
    308 PERMANENT_REDIRECT "Permanent Redirect"
    400 BAD_REQUEST "Bad Request"
    401 UNAUTHORIZED "Unauthorized"
    403 FORBIDDEN "Forbidden"
    404 NOT_FOUND "Not Found"
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
    406 NOT_ACCEPTABLE "Not Acceptable"
    408 REQUEST_TIMEOUT "Request Timeout"
    410 GONE "Gone"
    411 LENGTH_REQUIRED "Length Required"
    412 PRECONDITION_FAILED "Precondition Failed"
    413 CONTENT_TOO_LARGE "Content Too Large"
    414 URI_TOO_LONG "URI Too Long"
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type"
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
    417 EXPECTATION_FAILED "Expectation Failed"
    421 MISDIRECTED_REQUEST "Misdirected Request"
    425 TOO_EARLY "Too Early"
    429 TOO_MANY_REQUESTS "Too Many Requests"
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
    501 NOT_IMPLEMENTED "Not Implemented"
    502 BAD_GATEWAY "Bad Gateway"
    503 SERVICE_UNAVAILABLE "Service Unavailable"
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_made_of_code_and_reason() {
        for &code in CODES {
            let status = Status(code);
            let expect = format!("HTTP/1.1 {code} {}\r\n", status.reason());
            assert_eq!(status.line(), Some(expect.as_str()));
        }
        assert_eq!((Status(299).reason(), Status(299).line()), ("", None));
    }

    #[test]
    fn only_informational_204_and_304_are_without_content() {
        let without: Vec<_> = CODES
            .iter()
            .filter(|c| Status(**c).is_without_content())
            .collect();
        assert_eq!(without, [&100, &103, &204, &304]);
    }
}
