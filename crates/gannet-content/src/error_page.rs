//! Error pages: small, readable, in the style of listings; generated at compile time.
//!
//! They are sent with [`answer::PAGE_POLICY`](crate::answer::PAGE_POLICY).

use gannet_http::semantics::status::Status;

/// The type of every page.
pub const CONTENT_TYPE: &[u8] = b"text/html; charset=utf-8";

macro_rules! page {
    ($code:literal, $title:literal, $text:literal) => {
        concat!(
            "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n",
            "<meta name=viewport content=\"width=device-width\">\n",
            "<meta name=robots content=noindex>\n",
            "<title>",
            $code,
            " ",
            $title,
            "</title>\n<style>",
            include_str!("error_page/style.css"),
            "</style>\n<main>\n<p class=code>",
            $code,
            "</p>\n<h1>",
            $title,
            "</h1>\n<p>",
            $text,
            "</p>\n</main>\n"
        )
        .as_bytes()
    };
}

macro_rules! pages {
    ($($code:literal $name:ident $title:literal $text:literal)*) => {
        /// The statuses that have a page, in ascending order.
        pub const STATUSES: &[Status] = &[$(Status::$name),*];

        const PAGES: &[&[u8]] = &[$(page!($code, $title, $text)),*];

        const LINES: &[&str] = &[$(concat!($code, " ", $title, "\n")),*];
    };
}

pages! {
    400 BAD_REQUEST "Bad Request"
        "The server could not understand the request."
    401 UNAUTHORIZED "Unauthorized"
        "This page is for users with a password, for which the browser asks."
    403 FORBIDDEN "Forbidden"
        "The server is not allowed to show this page."
    404 NOT_FOUND "Not Found"
        "There is nothing at this address."
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
        "This page can be read, and nothing else."
    406 NOT_ACCEPTABLE "Not Acceptable"
        "The page does not exist in a requested form."
    408 REQUEST_TIMEOUT "Request Timeout"
        "The request took too long to arrive."
    410 GONE "Gone"
        "What was at this address is gone for good."
    411 LENGTH_REQUIRED "Length Required"
        "The request does not say how long it is."
    412 PRECONDITION_FAILED "Precondition Failed"
        "The page is not what the request expects it to be."
    413 CONTENT_TOO_LARGE "Content Too Large"
        "The server takes no content of this size."
    414 URI_TOO_LONG "URI Too Long"
        "The address is longer than any that exists here."
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
        "The file does not have the requested part."
    417 EXPECTATION_FAILED "Expectation Failed"
        "The server cannot do what the request expects of it."
    421 MISDIRECTED_REQUEST "Misdirected Request"
        "This server does not answer for that name."
    425 TOO_EARLY "Too Early"
        "The request came before the connection was known to be safe. Please try again."
    429 TOO_MANY_REQUESTS "Too Many Requests"
        "Please wait a moment and try again."
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
        "The request is longer than the server reads. Clearing this site’s cookies may help."
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
        "The page exists, but the server could not read it."
    501 NOT_IMPLEMENTED "Not Implemented"
        "The server does not know what was requested."
    502 BAD_GATEWAY "Bad Gateway"
        "The page could not be fetched from where it is kept."
    503 SERVICE_UNAVAILABLE "Service Unavailable"
        "The server cannot answer this right now. Please try again in a moment."
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
        "The server does not speak this version of HTTP."
}

/// The page of a status, or that of 500.
#[must_use]
pub fn page(status: Status) -> &'static [u8] {
    PAGES[index_of(status)]
}

/// The status in one line of plain text, `404 Not Found`; that of 500 if it has none of its own.
#[must_use]
pub fn plain(status: Status) -> &'static str {
    LINES[index_of(status)]
}

/// The position of a status in [`STATUSES`]; that of 500 if it is not listed.
#[must_use]
pub(crate) fn index_of(status: Status) -> usize {
    match STATUSES.binary_search(&status) {
        Ok(index) => index,
        Err(_) => INTERNAL_SERVER_ERROR,
    }
}

/// Pages of a site that are sent in place of the built-in ones, by their names at its root: the
/// first one that the site has for a status counts. (Pages for 404 belong to folders:
/// [`routing`](crate::routing).)
pub const OWN_NAMES: &[(&str, &[Status])] = &[
    ("401.html", &[Status::UNAUTHORIZED]),
    ("403.html", &[Status::FORBIDDEN]),
    ("405.html", &[Status::METHOD_NOT_ALLOWED]),
    ("416.html", &[Status::RANGE_NOT_SATISFIABLE]),
    ("429.html", &[Status::TOO_MANY_REQUESTS]),
    ("500.html", &[Status::INTERNAL_SERVER_ERROR]),
    ("503.html", &[Status::SERVICE_UNAVAILABLE]),
    (
        "50x.html",
        &[Status::INTERNAL_SERVER_ERROR, Status::SERVICE_UNAVAILABLE],
    ),
];

/// The page of a site for a status, if it `has` one.
#[must_use]
pub fn own_name(status: Status, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let mut names = OWN_NAMES.iter();
    let found = names.find(|(name, statuses)| statuses.contains(&status) && has(name));
    found.map(|(name, _)| *name)
}

/// The position of 500 in [`STATUSES`].
const INTERNAL_SERVER_ERROR: usize = {
    let mut index = 0;
    while STATUSES[index].0 != 500 {
        index += 1;
    }
    index
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_tells_its_status_and_is_small() {
        assert!(STATUSES.is_sorted());
        for &status in STATUSES {
            let page = str::from_utf8(page(status)).expect("a page is UTF-8");
            let (code, reason) = (status.0, status.reason());
            assert!(
                page.contains(&format!("<title>{code} {reason}</title>")),
                "{code}"
            );
            assert!(page.contains(&format!("<p class=code>{code}</p>\n<h1>{reason}</h1>")));
            assert_eq!(plain(status), format!("{code} {reason}\n"));
            assert!(page.len() < 1400, "{code}: {} bytes", page.len());
        }
    }

    #[test]
    fn the_page_of_one_status_precedes_that_of_several() {
        let check = |status, files: &[&str], expect| {
            let found = own_name(status, |name| files.contains(&name));
            assert_eq!(found, expect, "{status:?} of {files:?}");
        };
        let unavailable = Status::SERVICE_UNAVAILABLE;
        check(unavailable, &["50x.html", "503.html"], Some("503.html"));
        check(unavailable, &["50x.html", "500.html"], Some("50x.html"));
        check(unavailable, &["500.html"], None);
        check(
            Status::FORBIDDEN,
            &["403.html", "404.html"],
            Some("403.html"),
        );
        check(Status::NOT_FOUND, &["404.html", "50x.html"], None);
        for (name, statuses) in OWN_NAMES {
            assert!(name.ends_with(".html"));
            assert!(statuses.iter().all(|status| STATUSES.contains(status)));
        }
    }

    #[test]
    fn a_status_without_page_is_answered_as_an_error_of_the_server() {
        for status in [Status(200), Status(418), Status(599)] {
            assert_eq!(page(status), page(Status::INTERNAL_SERVER_ERROR));
            assert_eq!(plain(status), "500 Internal Server Error\n");
        }
    }
}
