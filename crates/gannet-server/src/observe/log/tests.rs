use gannet_content::rules::pattern::Scheme;
use gannet_http::h1::{Connection, Event, Why};
use gannet_http::semantics::request::Version;

use super::*;
use crate::bounds::limits::LOG_FIELD_MAX;
use crate::observe::record::Answered;
use crate::observe::record::Logged;

/// Clients without a certificate.
fn at(address: &str) -> ClientName<'_> {
    ClientName {
        address,
        identity: None,
        tls: None,
    }
}

/// What would end a string, a field or a line, or steer a terminal.
const HOSTILE: &str = "a\"b\\ \t\u{1b}[31m\r\n\u{7f}\u{202e}\u{1f600}";

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn own(text: &str) -> LogFormat {
    LogFormat::Own(Arc::new(text.parse().expect("a format")))
}

/// The record of a response to a request with these lines.
fn record(needed: LogFields, head: &str) -> Record {
    let mut machine = Connection::new();
    let step = machine.receive(head.as_bytes());
    let Event::Request(request) = step.event else {
        panic!("no request: {head:?}");
    };
    let answered = Answered {
        status: Status::OK,
        body_len: 13,
    };
    let logged = Logged::new(&request, Scheme::Https, needed);
    Record::new(&request, answered, Nanos(0), 0, Some(Box::new(logged)))
}

/// The line of a response to `peer` in this form.
fn line_with(
    format: &LogFormat,
    is_masked: bool,
    (peer, identity): (&str, Option<&Identity>),
    record: impl FnOnce(LogFields) -> Record,
) -> String {
    let (queue, _inbox) = std::sync::mpsc::sync_channel(1);
    let lines = LogLines {
        is_masked,
        one_in: 1,
    };
    let mut sink = LogSink::new(format, lines, Some(queue), Arc::default());
    let record = record(sink.needed());
    let took = Nanos(1_000_005_000);
    let client = ClientName {
        identity,
        ..at(peer)
    };
    sink.add(&record, client, End::Whole, took, 951_827_696_042);
    let text = String::from_utf8(std::mem::take(&mut sink.batch)).expect("UTF-8");
    text.strip_suffix('\n').expect("a line").to_owned()
}

/// The same for a request with this head.
fn line_of(format: &LogFormat, is_masked: bool, peer: &str, head: &str) -> String {
    line_with(format, is_masked, (peer, None), |needed| {
        record(needed, head)
    })
}

/// The same for a request whose every field is hostile: no protocol lets all of it in.
fn hostile_line(format: &LogFormat) -> String {
    let identity = Identity {
        subject: HOSTILE.into(),
        serial: HOSTILE.into(),
        fingerprint: HOSTILE.into(),
    };
    line_with(format, false, ("[::1]:99", Some(&identity)), |needed| {
        let mut record = record(needed, "GET / HTTP/1.1\r\nhost: h\r\n\r\n");
        record.logged = Some(Box::new(Logged::of([
            (Field::Method, HOSTILE),
            (Field::Target, HOSTILE),
            (Field::Host, HOSTILE),
            (Field::Referer, HOSTILE),
            (Field::UserAgent, HOSTILE),
            (Field::ForwardedFor, HOSTILE),
            (Field::Traceparent, HOSTILE),
            (Field::RequestId, HOSTILE),
            (Field::RemoteUser, HOSTILE),
        ])));
        record
    })
}

#[test]
fn a_peer_cannot_forge_lines() {
    let hostile = "a\\x22b\\x5C \\x09\\x1B[31m\\x0D\\x0A\\x7F\\xE2\\x80\\xAE\\xF0\\x9F\\x98\\x80";
    let plain = hostile.replace(' ', "\\x20");
    let combined = format!(
        "::1 - {plain} [29/Feb/2000:12:34:56 +0000] \"{hostile} {hostile} HTTP/1.1\" 200 13 \
         \"{hostile}\" \"{hostile}\""
    );
    assert_eq!(hostile_line(&LogFormat::Combined), combined);
    let vcombined = format!("{plain}:80 {combined}");
    assert_eq!(hostile_line(&LogFormat::Vcombined), vcombined);
    let json = "a\\\"b\\\\ \\u0009\\u001b[31m\\u000d\\u000a\\u007f\\u202e\\ud83d\\ude00";
    assert_eq!(
        hostile_line(&LogFormat::Json),
        format!(
            "{{\"time\":\"2000-02-29T12:34:56.042Z\",\"peer\":\"[::1]:99\",\"method\":\"{json}\",\
             \"target\":\"{json}\",\"host\":\"{json}\",\"user\":\"{json}\",\"referer\":\"{json}\",\
             \"user_agent\":\"{json}\",\"traceparent\":\"{json}\",\"request_id\":\"{json}\",\
             \"tls_client\":\"{json}\",\"tls_client_serial\":\"{json}\",\
             \"protocol\":\"HTTP/1.1\",\"status\":200,\"body_bytes\":13,\
             \"duration_us\":1000005,\"whole\":true}}"
        )
    );
    let pretty = hostile_line(&LogFormat::Pretty { colour: false });
    assert!(pretty.contains(&format!("{hostile} {hostile}")), "{pretty}");
    assert!(!pretty.contains(['\x1b', '\n', '\u{202e}']), "{pretty}");
}

/// Every variable, in and out of quotation marks, with values that would end a string, a field or a
/// line.
#[test]
fn no_value_leaves_its_place() {
    for name in Template::variables() {
        let line = |format: &str| hostile_line(&own(format));
        let quoted = line(&format!("\"${name}\" end"));
        let inner = quoted
            .strip_prefix('"')
            .and_then(|it| it.strip_suffix("\" end"));
        let inner = inner.unwrap_or_else(|| panic!("{quoted}"));
        assert!(!inner.is_empty() && !inner.contains('"'), "{quoted}");
        assert!(
            inner.bytes().all(|b| (b' '..=b'~').contains(&b)),
            "{quoted}"
        );
        let plain = line(&format!("${name}\tend"));
        let server_made = name == "time_local";
        let is_plain = |b: u8| b.is_ascii_graphic() && b != b'"' || server_made && b == b' ';
        let value = plain.strip_suffix("\tend").expect("it is at the end");
        assert!(!value.is_empty() && value.bytes().all(is_plain), "{plain}");
    }
}

#[test]
fn variables_mean_what_they_mean_in_nginx() {
    let head = "GET /x?y HTTP/1.1\r\nhost: A:80\r\nuser-agent: b c\r\n\r\n";
    for (format, expect) in [
        ("$remote_addr $remote_port", "192.0.2.7 443"),
        ("$remote_user $http_referer", "- -"),
        (
            "[$time_local] $time_iso8601",
            "[29/Feb/2000:12:34:56 +0000] 2000-02-29T12:34:56.042Z",
        ),
        ("$msec", "951827696.042"),
        (
            "\"$request\"|$request_method|$request_uri",
            "\"GET /x?y HTTP/1.1\"|GET|/x?y",
        ),
        ("$request", "GET\\x20/x?y\\x20HTTP/1.1"),
        (
            "$server_protocol $status $body_bytes_sent",
            "HTTP/1.1 200 13",
        ),
        ("${request_time}s $request_completion", "1.000005s OK"),
        ("$request_length", &head.len().to_string()),
        ("$http_x_forwarded_for", "-"),
        ("$ssl_protocol $ssl_cipher", "- -"),
        (
            "$http_host \"$http_user_agent\" $http_user_agent",
            "A:80 \"b c\" b\\x20c",
        ),
        ("$http_traceparent $http_x_request_id", "- -"),
        (
            "$ssl_client_verify $ssl_client_s_dn \"$ssl_client_serial\" $ssl_client_fingerprint",
            "NONE - \"-\" -",
        ),
    ] {
        let line = line_of(&own(format), false, "192.0.2.7:443", head);
        assert_eq!(line, expect, "{format}");
    }
}

/// All lines as one list, as nginx has them; not with a mask, and not in JSON, which names the client.
#[test]
fn addresses_that_proxies_name_are_a_list() {
    let head = "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 192.0.2.1, 192.0.2.2\r\n\
                X-Forwarded-For: 192.0.2.3\r\n\r\n";
    let of_nginx = "\"$http_x_forwarded_for\"";
    let line = |format: &LogFormat, is_masked| line_of(format, is_masked, "192.0.2.7:443", head);
    let list = "\"192.0.2.1, 192.0.2.2, 192.0.2.3\"";
    assert_eq!(line(&own(of_nginx), false), list);
    assert_eq!(line(&own(of_nginx), true), "\"-\"");
    let json = line(&LogFormat::Json, false);
    assert!(!json.contains("192.0.2.1"), "{json}");
    let long = format!("x-forwarded-for: {}\r\n", "1".repeat(LOG_FIELD_MAX)).repeat(2);
    let head = format!("GET / HTTP/1.1\r\nhost: h\r\n{long}\r\n");
    let line = line_of(&own(of_nginx), false, "192.0.2.7:443", &head);
    assert_eq!(line.len(), LOG_FIELD_MAX + 2);
}

#[test]
fn a_client_with_a_certificate_is_named() {
    let head = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    let check = |subject: &str, format: &LogFormat, expect: &str| {
        let identity = Identity {
            subject: subject.into(),
            serial: "0A1B".into(),
            fingerprint: "ab".into(),
        };
        let client = ("192.0.2.7:443", Some(&identity));
        let line = line_with(format, false, client, |needed| record(needed, head));
        assert!(line.contains(expect), "{line}");
    };
    let all = own(
        "$ssl_client_verify $ssl_client_s_dn \"$ssl_client_s_dn\" $ssl_client_serial \
                   $ssl_client_fingerprint",
    );
    let expect = "SUCCESS CN=A\\x20B \"CN=A B\" 0A1B ab";
    check("CN=A B", &all, expect);
    check("O=x\\, y", &all, "O=x\\x5C,\\x20y \"O=x\\x5C, y\"");
    // One whose subject is empty was verified, too.
    check("", &all, "SUCCESS - \"-\" 0A1B");
    let json = "\"tls_client\":\"O=x\\\\, y\",\"tls_client_serial\":\"0A1B\",\"protocol\"";
    check("O=x\\, y", &LogFormat::Json, json);
    check("", &LogFormat::Json, "\"tls_client\":\"\",");
    let combined = "192.0.2.7 - - [";
    check("CN=a", &LogFormat::Combined, combined);
}

/// Formats that do not name clients keep nothing of their certificates; nor do those with a mask, unless
/// they name clients expressly.
#[test]
fn only_what_lines_say_of_a_certificate_is_kept() {
    let kept = |format: &LogFormat, is_masked| {
        let (queue, _inbox) = std::sync::mpsc::sync_channel(1);
        let lines = LogLines {
            is_masked,
            one_in: 1,
        };
        let sink = LogSink::new(format, lines, Some(queue), Arc::default());
        let identity = sink.identity(b"no certificate")?;
        Some(!identity.fingerprint.is_empty())
    };
    for format in [
        LogFormat::Combined,
        LogFormat::Vcombined,
        LogFormat::Pretty { colour: false },
        own("$remote_addr $status"),
    ] {
        assert_eq!(kept(&format, false), None, "{format:?}");
    }
    assert_eq!(kept(&LogFormat::Json, false), Some(false));
    assert_eq!(kept(&LogFormat::Json, true), None);
    for (name, has_fingerprint) in [
        ("ssl_client_verify", false),
        ("ssl_client_s_dn", false),
        ("ssl_client_serial", false),
        ("ssl_client_fingerprint", true),
    ] {
        for is_masked in [false, true] {
            let format = own(&format!("$ssl_client_verify ${name}"));
            assert_eq!(kept(&format, is_masked), Some(has_fingerprint), "{name}");
        }
    }
    let off = LogSink::new(&LogFormat::Json, LogLines::default(), None, Arc::default());
    assert!(off.identity(b"no certificate").is_none());
}

#[test]
fn a_mask_leaves_no_address_in_any_form() {
    let head = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    let line = |format: &LogFormat, peer| line_of(format, true, peer, head);
    for peer in ["192.0.2.77:4431", "[2001:db8:1:aaaa::77]:4431"] {
        for format in [
            LogFormat::Combined,
            LogFormat::Vcombined,
            LogFormat::Json,
            LogFormat::Pretty { colour: true },
            own("$remote_addr $remote_port"),
        ] {
            let line = line(&format, peer);
            let hidden = ["77", "aaaa", "4431"];
            assert!(hidden.iter().all(|it| !line.contains(it)), "{line}");
        }
    }
    let json = line(&LogFormat::Json, "192.0.2.77:4431");
    assert!(json.contains("\"peer\":\"192.0.2.0\""), "{json}");
    let own = line(
        &own("$remote_addr $remote_port"),
        "[2001:db8:1:aaaa::77]:4431",
    );
    assert_eq!(own, "2001:db8:1:: -");
}

/// A bad identifier is left out, not logged in part.
#[test]
fn identifiers_are_validated() {
    let long = "x".repeat(crate::bounds::limits::LOG_REQUEST_ID_MAX + 1);
    let check = |lines: &str, expect: &str| {
        let head = format!("GET / HTTP/1.1\r\nhost: h\r\n{lines}\r\n");
        let format = own("$http_traceparent $http_x_request_id");
        assert_eq!(line_of(&format, false, "-", &head), expect, "{lines}");
    };
    let trace = format!("TraceParent: {TRACEPARENT}\r\n");
    check(&trace, &format!("{TRACEPARENT} -"));
    check(&format!("{trace}{trace}"), "- -");
    check(
        "traceparent: 00-x\r\nX-Request-ID: 4bf9/2-a==\r\n",
        "- 4bf9/2-a==",
    );
    check(&format!("x-request-id: {long}\r\n"), "- -");
    check(
        &format!("x-request-id: {}\r\n", &long[1..]),
        &format!("- {}", &long[1..]),
    );
    check("x-request-id: a b\r\n", "- -");
    check("x-request-id: a\"b\r\n", "- -");
    check("x-request-id:\r\n", "- -");
}

/// What a format does not need is not kept.
#[test]
fn only_needed_fields_are_copied() {
    let head = format!(
        "GET / HTTP/1.1\r\nhost: h\r\nuser-agent: long\r\ntraceparent: {TRACEPARENT}\r\n\r\n"
    );
    let memory = |format: &str| {
        let Format::Of(template) = Format::new(&own(format)) else {
            panic!("it is one");
        };
        record(template.fields().collect(), &head).memory()
    };
    let least = memory("$status $remote_addr $msec");
    assert_eq!(memory("$http_host") - least, 1);
    assert_eq!(
        memory("$http_traceparent") - least,
        TRACEPARENT.len() as u64
    );
    assert_eq!(memory("$request_method") - least, 3);
}

#[test]
fn a_rejected_request_has_a_line() {
    let line = |format: &LogFormat| {
        line_with(format, false, ("unix", None), |_| {
            let answered = Answered {
                status: Status::BAD_REQUEST,
                body_len: 0,
            };
            let why = Some(Why::HostInvalid.name());
            Record::rejected(Version::Http11, answered, Nanos(0), (Scheme::Http, why))
        })
    };
    assert_eq!(
        line(&LogFormat::Combined),
        "unix - - [29/Feb/2000:12:34:56 +0000] \"- - -\" 400 0 \"-\" \"-\""
    );
    assert_eq!(
        line(&own("$status $rejected \"$rejected\"")),
        "400 invalid\\x20host \"invalid host\""
    );
    let json = line(&LogFormat::Json);
    let key = ",\"rejected\":\"invalid host\",\"protocol\":\"-\",\"status\":400,";
    assert!(json.contains(key), "{json}");
    let pretty = line(&LogFormat::Pretty { colour: false });
    assert!(pretty.ends_with("  (invalid host)"), "{pretty}");
    // A request has none.
    let json = line_with(&LogFormat::Json, false, ("unix", None), |_| simple_record());
    assert!(!json.contains("rejected"), "{json}");
}

/// One in so many, evenly, and every failure of the server.
#[test]
fn a_sample_has_every_server_error() {
    for one_in in [1, 2, 7, 100] {
        let (queue, _inbox) = std::sync::mpsc::sync_channel(1);
        let lines = LogLines {
            one_in,
            is_masked: false,
        };
        let mut sink = LogSink::new(&LogFormat::Json, lines, Some(queue), Arc::default());
        let mut taken = 0;
        for _ in 0..10_000 {
            taken += u32::from(sink.takes(Status::OK));
            assert!(sink.takes(Status::SERVICE_UNAVAILABLE));
        }
        let expect = 10_000 / one_in;
        assert!(taken.abs_diff(expect) <= 2, "1/{one_in}: {taken}");
    }
    let mut off = LogSink::new(&LogFormat::Off, LogLines::default(), None, Arc::default());
    assert!(!off.takes(Status::SERVICE_UNAVAILABLE));
}

fn simple_record() -> Record {
    record(LogFields::ALL, "GET / HTTP/1.1\r\nhost: h\r\n\r\n")
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (queue, inbox) = std::sync::mpsc::sync_channel(1);
    let lines = LogLines::default();
    let mut sink = LogSink::new(&LogFormat::Combined, lines, Some(queue), Arc::default());
    for _ in 0..3 {
        sink.add(&simple_record(), at("unix"), End::Whole, Nanos(0), 0);
        sink.flush();
    }
    assert_eq!(sink.dropped(), 2);
    drop(inbox);
}

/// Lines lost to a full disk are counted once, by one worker.
#[test]
fn a_failed_write_is_counted() {
    let full = std::path::Path::new("/dev/full");
    let form = (&LogFormat::Combined, LogLines::default());
    let (mut writer, factory) = LogWriter::start(form, Some(full), None).expect("it can be opened");
    writer.begin().expect("a thread");
    let (mut one, mut other) = (factory.sink(), factory.sink());
    drop(factory);
    for _ in 0..3 {
        one.add(&simple_record(), at("unix"), End::Whole, Nanos(0), 0);
    }
    one.flush();
    let failed = Arc::clone(&one.failed);
    drop(one.queue.take());
    drop(other.queue.take());
    writer.finish();
    assert_eq!(failed.load(Ordering::Relaxed), 3);
    assert_eq!((one.dropped(), other.dropped()), (3, 0));
}

/// Host and port as GoAccess and others expect them of `vcombined`; parts of the target.
#[test]
fn parts_of_host_and_target_are_told_apart() {
    let check = |authority: &str, target: &str, expect: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
        let format = own("$host $uri $args $scheme");
        let line = line_of(&format, false, "192.0.2.1:1", &head);
        assert_eq!(line, expect);
        let line = line_of(&LogFormat::Vcombined, false, "192.0.2.1:1", &head);
        line.split(' ').next().unwrap_or_default().to_owned()
    };
    let virtual_host = check("A.Example", "/x", "a.example /x - https");
    assert_eq!(virtual_host, "a.example:443");
    let virtual_host = check("a.example:8443", "/?q=1?2", "a.example / q=1?2 https");
    assert_eq!(virtual_host, "a.example:8443");
    let virtual_host = check("[2001:DB8::1]", "/a%20b?", "[2001:db8::1] /a%20b - https");
    assert_eq!(virtual_host, "[2001:db8::1]:443");
    let virtual_host = check("[::1]:80", "http://[::1]:80/a?b", "[::1] /a b https");
    assert_eq!(virtual_host, "[::1]:80");
    let virtual_host = check("a.example", "http://a.example", "a.example / - https");
    assert_eq!(virtual_host, "a.example:443");
}

/// Who has asked is known where Basic authentication says so, and addresses are not masked.
#[test]
fn the_user_is_in_the_log_unless_addresses_are_masked() {
    let head = "GET / HTTP/1.1\r\nhost: h\r\nauthorization: Basic YW5uYTpzZWNyZXQ=\r\n\r\n";
    let line = |is_masked| line_of(&LogFormat::Combined, is_masked, "192.0.2.1:1", head);
    assert!(
        line(false).starts_with("192.0.2.1 - anna ["),
        "{}",
        line(false)
    );
    assert!(line(true).starts_with("192.0.2.0 - - ["), "{}", line(true));
    let json = line_of(&LogFormat::Json, false, "192.0.2.1:1", head);
    assert!(json.contains("\"user\":\"anna\""), "{json}");
    assert!(!json.contains("secret"), "{json}");
}
