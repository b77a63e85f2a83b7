//! The operator's own format of a log line: text with the variables of nginx.

use std::fmt;
use std::str::FromStr;

/// A format, parsed once. Whatever clients send, each line has the same structure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

/// A part of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum TemplatePart {
    /// Written as it is.
    Text(String),
    /// A value. It cannot end a quoted string nor a line; outside of quotation marks, it has no
    /// spaces either, and is `-` if it is empty.
    Value { variable: Variable, is_quoted: bool },
}

/// A field of a log line that is copied while the request head is available.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Field {
    Method,
    Target,
    /// What the client named: `host` or `:authority`.
    Host,
    Referer,
    UserAgent,
    /// All lines of `x-forwarded-for`, as one list.
    ForwardedFor,
    /// `traceparent`, if it is valid.
    Traceparent,
    /// `x-request-id`, if it is of a plain form.
    RequestId,
    /// The user that the client claims to be, by Basic authentication.
    RemoteUser,
}

impl Field {
    pub(crate) const ALL: [Self; 9] = [
        Self::Method,
        Self::Target,
        Self::Host,
        Self::Referer,
        Self::UserAgent,
        Self::ForwardedFor,
        Self::Traceparent,
        Self::RequestId,
        Self::RemoteUser,
    ];
}

/// What lines need of the certificate that a client has shown.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum OfCertificate {
    #[default]
    Nothing,
    /// Subject and serial number.
    Name,
    NameAndFingerprint,
}

/// A variable, by its meaning in nginx.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Variable {
    /// The client's address.
    RemoteAddr,
    /// Its port.
    RemotePort,
    /// The time in the form of the combined format.
    TimeLocal,
    /// The time by RFC 3339, with milliseconds.
    TimeIso8601,
    /// Unix time in seconds, with milliseconds.
    Msec,
    /// Method, target and version.
    Request,
    /// The version of HTTP.
    ServerProtocol,
    Status,
    BodyBytesSent,
    /// Bytes of the request's head: see [`Request::head_len`](gannet_http::semantics::request::Request::head_len).
    RequestLength,
    /// Seconds with microseconds.
    RequestTime,
    /// `OK` for a whole response, else empty.
    RequestCompletion,
    /// The host without its port, in lower case.
    Host,
    /// The same with the port, or with that of the scheme.
    HostAndPort,
    /// `http` or `https`.
    Scheme,
    /// The path of the target, as it was sent.
    Uri,
    /// Its query.
    Args,
    /// The version of TLS, as OpenSSL calls it.
    TlsProtocol,
    /// The cipher suite, as OpenSSL calls it.
    TlsCipher,
    /// `SUCCESS` if the client has shown a certificate, else `NONE`.
    ClientVerify,
    /// The subject of that certificate.
    ClientSubject,
    /// Its serial number.
    ClientSerial,
    /// Its SHA-1.
    ClientFingerprint,
    /// Why the request was none, else empty.
    Rejected,
    /// A field of the request.
    Of(Field),
}

/// All variables.
const VARIABLES: [(&str, Variable); 32] = [
    ("remote_addr", Variable::RemoteAddr),
    ("remote_port", Variable::RemotePort),
    ("remote_user", Variable::Of(Field::RemoteUser)),
    ("time_local", Variable::TimeLocal),
    ("time_iso8601", Variable::TimeIso8601),
    ("msec", Variable::Msec),
    ("request", Variable::Request),
    ("request_method", Variable::Of(Field::Method)),
    ("request_uri", Variable::Of(Field::Target)),
    ("uri", Variable::Uri),
    ("args", Variable::Args),
    ("host", Variable::Host),
    ("scheme", Variable::Scheme),
    ("server_protocol", Variable::ServerProtocol),
    ("status", Variable::Status),
    ("body_bytes_sent", Variable::BodyBytesSent),
    ("request_length", Variable::RequestLength),
    ("request_time", Variable::RequestTime),
    ("request_completion", Variable::RequestCompletion),
    ("ssl_protocol", Variable::TlsProtocol),
    ("ssl_cipher", Variable::TlsCipher),
    ("ssl_client_verify", Variable::ClientVerify),
    ("ssl_client_s_dn", Variable::ClientSubject),
    ("ssl_client_serial", Variable::ClientSerial),
    ("ssl_client_fingerprint", Variable::ClientFingerprint),
    ("rejected", Variable::Rejected),
    ("http_host", Variable::Of(Field::Host)),
    ("http_referer", Variable::Of(Field::Referer)),
    ("http_user_agent", Variable::Of(Field::UserAgent)),
    ("http_x_forwarded_for", Variable::Of(Field::ForwardedFor)),
    ("http_traceparent", Variable::Of(Field::Traceparent)),
    ("http_x_request_id", Variable::Of(Field::RequestId)),
];

/// Why a text is no format.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TemplateError {
    /// The position of the character at fault, from 1.
    pub position: usize,
    /// What is wrong there.
    pub fault: TemplateFault,
}

/// What is wrong at a position of a format.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TemplateFault {
    /// There is no variable of this name.
    Unknown(String),
    /// A `$` without a name.
    NoName,
    /// A `${` without a `}`.
    NoEnd,
    /// A control character other than a tab would break the line.
    Control,
    /// There is none: all lines would be the same.
    NoVariable,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.position;
        match &self.fault {
            TemplateFault::Unknown(name) => {
                write!(f, "unknown variable '${name}' at character {position}")
            }
            TemplateFault::NoName => write!(f, "no name after the '$' at character {position}"),
            TemplateFault::NoEnd => write!(f, "no '}}' for the '${{' at character {position}"),
            TemplateFault::NoVariable => {
                f.write_str("no variable in it; formats with a name are for --log")
            }
            TemplateFault::Control => write!(f, "a control character at character {position}"),
        }
    }
}

impl std::error::Error for TemplateError {}

impl FromStr for Template {
    type Err = TemplateError;

    /// Parses text with `$name` or `${name}` for each value.
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let (mut is_quoted, mut rest) = (false, text);
        let fail = |rest: &str, fault| {
            let before = &text[..text.len() - rest.len()];
            let position = before.chars().count() + 1;
            Err(TemplateError { position, fault })
        };
        while !rest.is_empty() {
            let plain = rest.find('$').unwrap_or(rest.len());
            let (literal, from_sign) = rest.split_at(plain);
            let is_control = |letter: char| letter.is_control() && letter != '\t';
            if let Some(at) = literal.find(is_control) {
                return fail(&rest[at..], TemplateFault::Control);
            }
            if !literal.is_empty() {
                is_quoted ^= literal.matches('"').count() % 2 == 1;
                parts.push(TemplatePart::Text(literal.to_owned()));
            }
            let Some(after) = from_sign.strip_prefix('$') else {
                break;
            };
            let (name, further) = match after.strip_prefix('{') {
                Some(inner) => match inner.split_once('}') {
                    Some(found) => found,
                    None => return fail(from_sign, TemplateFault::NoEnd),
                },
                None => {
                    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                    let end = after.find(|letter| !is_letter(letter));
                    after.split_at(end.unwrap_or(after.len()))
                }
            };
            if name.is_empty() {
                return fail(from_sign, TemplateFault::NoName);
            }
            let known = VARIABLES.iter().find(|(known, _)| *known == name);
            let Some((_, variable)) = known else {
                return fail(from_sign, TemplateFault::Unknown(name.to_owned()));
            };
            parts.push(TemplatePart::Value {
                variable: *variable,
                is_quoted,
            });
            rest = further;
        }
        if !parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Value { .. }))
        {
            let (position, fault) = (1, TemplateFault::NoVariable);
            return Err(TemplateError { position, fault });
        }
        Ok(Self { parts })
    }
}

impl Template {
    /// The names of all variables.
    pub fn variables() -> impl Iterator<Item = &'static str> {
        VARIABLES.iter().map(|(name, _)| *name)
    }

    /// The combined log format.
    pub(crate) fn combined() -> Self {
        let text = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                    $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
        text.parse().expect("all variables are known")
    }

    /// The same after host and port, as in Apache's `%v:%p`.
    pub(crate) fn vcombined() -> Self {
        let host = TemplatePart::Value {
            variable: Variable::HostAndPort,
            is_quoted: false,
        };
        let mut parts = vec![host, TemplatePart::Text(" ".into())];
        parts.extend(Self::combined().parts);
        Self { parts }
    }

    pub(crate) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    fn variables_in_use(&self) -> impl Iterator<Item = Variable> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(_) => None,
            TemplatePart::Value { variable, .. } => Some(*variable),
        })
    }

    /// What lines need of the certificate that a client has shown.
    pub(crate) fn of_certificate(&self) -> OfCertificate {
        let needs = |variable| match variable {
            Variable::ClientFingerprint => OfCertificate::NameAndFingerprint,
            Variable::ClientVerify | Variable::ClientSubject | Variable::ClientSerial => {
                OfCertificate::Name
            }
            _ => OfCertificate::Nothing,
        };
        self.variables_in_use().map(needs).max().unwrap_or_default()
    }

    /// The fields of requests that lines need.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Field> {
        self.variables_in_use()
            .flat_map(|variable| match variable {
                Variable::Of(field) => [Some(field), None],
                Variable::Host | Variable::HostAndPort => [Some(Field::Host), None],
                Variable::Uri | Variable::Args => [Some(Field::Target), None],
                Variable::Request => [Some(Field::Method), Some(Field::Target)],
                _ => [None, None],
            })
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_format_is_refused_with_its_position() {
        let check = |text: &str, expect: &str| {
            let error = text.parse::<Template>().expect_err(text);
            assert_eq!(error.to_string(), expect, "{text:?}");
        };
        check("$status $", "no name after the '$' at character 9");
        check("a$ b", "no name after the '$' at character 2");
        check("${}", "no name after the '$' at character 1");
        check("é ${status", "no '}' for the '${' at character 3");
        check("é $stat ", "unknown variable '$stat' at character 3");
        check(
            "$http_cookie",
            "unknown variable '$http_cookie' at character 1",
        );
        check("$STATUS", "unknown variable '$STATUS' at character 1");
        check("$status\n", "a control character at character 8");
        let none = "no variable in it; formats with a name are for --log";
        check("json", none);
        check("", none);
        check("\u{85}", "a control character at character 1");
    }

    #[test]
    fn quotation_marks_in_the_text_say_where_a_value_is() {
        let template = "\"$status\" $status \t${status}s \"a\" \"b $status";
        let template: Template = template.parse().expect("a format");
        let quoted: Vec<bool> = template
            .parts()
            .iter()
            .filter_map(|part| match part {
                TemplatePart::Value { is_quoted, .. } => Some(*is_quoted),
                TemplatePart::Text(_) => None,
            })
            .collect();
        assert_eq!(quoted, [true, false, false, true]);
    }

    #[test]
    fn only_fields_in_use_are_needed() {
        let fields = |text: &str| {
            let template: Template = text.parse().expect("a format");
            template.fields().collect::<Vec<_>>()
        };
        assert_eq!(fields("$remote_addr $status"), []);
        assert_eq!(fields("$request"), [Field::Method, Field::Target]);
        assert_eq!(fields("$http_host $msec"), [Field::Host]);
        for name in Template::variables() {
            assert!(format!("${name}").parse::<Template>().is_ok());
        }
    }
}
