//! What is kept of a response until its end, for the log and the metrics.

use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::users::Credentials;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::{Request, Version};
use gannet_http::semantics::status::Status;
use gannet_io::driver::Nanos;

use crate::bounds::limits::{LOG_FIELD_MAX, LOG_TARGET_MAX};
use crate::config::template::Field;
use crate::observe::measures::{Measured, OTHER, ResponseKind};
use crate::observe::trace_context;

/// Facts about a response, for counters and log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    /// Bytes of content after the head.
    pub(crate) body_len: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Record {
    kind: ResponseKind,
    pub(crate) status: u16,
    /// The label of its site.
    site: u16,
    /// Bytes of content to send; for a response that was cut short, those sent.
    pub(crate) body_len: u64,
    /// When the request's head was complete.
    pub(crate) began: Nanos,
    /// When the send with its first bytes was begun.
    first_byte: Option<Nanos>,
    /// For its line in the log, if it gets one.
    pub(crate) logged: Option<Box<Logged>>,
}

/// The fields that a format needs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct LogFields([bool; Field::ALL.len()]);

impl LogFields {
    /// All fields.
    pub(crate) const ALL: Self = Self([true; Field::ALL.len()]);

    /// All of these but one.
    pub(crate) fn without(mut self, field: Field) -> Self {
        self.0[field as usize] = false;
        self
    }
}

impl FromIterator<Field> for LogFields {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        let mut needed = Self::default();
        for field in fields {
            needed.0[field as usize] = true;
        }
        needed
    }
}

/// What a log line has of a request.
#[derive(Debug)]
pub(crate) struct Logged {
    fields: [Option<Box<[u8]>>; Field::ALL.len()],
    pub(crate) version: &'static str,
    /// Bytes of its head; 0 if that was none.
    pub(crate) request_len: usize,
    /// How the client has sent it: `https`.
    pub(crate) scheme: Scheme,
    /// Why there is no request.
    pub(crate) rejected: Option<&'static str>,
    /// The client that a trusted proxy has named.
    pub(crate) client: Option<Box<str>>,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Every byte was passed to the kernel.
    Whole,
    /// The connection ended first.
    CutShort,
}

impl Record {
    /// The record of a response by a site with this label.
    pub(crate) fn new(
        request: &Request<'_>,
        answered: Answered,
        began: Nanos,
        site: u16,
        logged: Option<Box<Logged>>,
    ) -> Self {
        Self {
            kind: ResponseKind::new(request.method, request.version, answered.status),
            status: answered.status.0,
            site,
            body_len: answered.body_len,
            began,
            first_byte: None,
            logged,
        }
    }

    /// The record of a response by `version` to an invalid request; its line, if it gets one, says why.
    pub(crate) fn rejected(
        version: Version,
        answered: Answered,
        began: Nanos,
        (scheme, logged): (Scheme, Option<&'static str>),
    ) -> Self {
        Self {
            kind: ResponseKind::rejected(version),
            status: answered.status.0,
            site: OTHER,
            body_len: answered.body_len,
            began,
            first_byte: None,
            logged: logged.map(|why| Box::new(Logged::rejected(why, scheme))),
        }
    }

    /// Marks the response as cut short, before the last `rest` bytes of its body were sent.
    pub(crate) fn cut(&mut self, rest: u64) {
        self.body_len = self.body_len.saturating_sub(rest);
    }

    /// A send begins that has the first bytes of the response, unless an earlier one had them.
    pub(crate) fn sends(&mut self, now: Nanos) {
        self.first_byte.get_or_insert(now);
    }

    /// What is counted of the response.
    pub(crate) fn measured(&self) -> Measured {
        Measured {
            kind: self.kind,
            site: self.site,
            body_len: self.body_len,
            began: self.began,
            first_byte: self.first_byte,
        }
    }

    /// Bytes of memory the record occupies.
    pub(crate) fn memory(&self) -> u64 {
        let logged = self.logged.as_ref().map_or(0, |logged| logged.memory());
        size_of::<Self>() as u64 + logged
    }
}

impl Logged {
    /// The fields of a request by this scheme that are needed.
    pub(crate) fn new(request: &Request<'_>, scheme: Scheme, needed: LogFields) -> Self {
        let value = |field| match field {
            Field::Method => Some((request.method_name, LOG_FIELD_MAX)),
            Field::Target => Some((request.target.raw, LOG_TARGET_MAX)),
            Field::Host => request.authority.map(|host| (host, LOG_FIELD_MAX)),
            Field::Referer => known(request, KnownField::Referer),
            Field::UserAgent => known(request, KnownField::UserAgent),
            Field::Traceparent => {
                trace_context::traceparent(&request.fields).map(|value| (value, LOG_FIELD_MAX))
            }
            Field::RequestId => {
                trace_context::request_id(&request.fields).map(|value| (value, LOG_FIELD_MAX))
            }
            // Made below.
            Field::ForwardedFor | Field::RemoteUser => None,
        };
        let copied = |field| {
            match field {
                Field::RemoteUser => return remote_user(request),
                Field::ForwardedFor => return forwarded_for(request),
                _ => {}
            }
            let (value, most) = value(field)?;
            Some(value[..value.len().min(most)].into())
        };
        Self {
            fields: Field::ALL.map(|field| match needed.0[field as usize] {
                true => copied(field),
                false => None,
            }),
            version: request.version.name(),
            request_len: request.head_len(),
            scheme,
            rejected: None,
            client: None,
        }
    }

    /// The fields of a request that is invalid for this reason.
    pub(crate) fn rejected(why: &'static str, scheme: Scheme) -> Self {
        let mut fields = [const { None }; Field::ALL.len()];
        for field in [Field::Method, Field::Target] {
            fields[field as usize] = Some(b"-".as_slice().into());
        }
        Self {
            fields,
            version: "-",
            request_len: 0,
            scheme,
            rejected: Some(why),
            client: None,
        }
    }

    /// These fields, whatever a protocol would have said of them.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(values: [(Field, &str); N]) -> Self {
        let mut logged = Self::rejected("", Scheme::Http);
        logged.version = "HTTP/1.1";
        logged.rejected = None;
        for (field, value) in values {
            logged.fields[field as usize] = Some(value.as_bytes().into());
        }
        logged
    }

    /// The value of a field, if the request has it and the format needs it.
    pub(crate) fn field(&self, field: Field) -> Option<&[u8]> {
        self.fields[field as usize].as_deref()
    }

    fn memory(&self) -> u64 {
        let fields = self.fields.iter().flatten().map(|value| value.len());
        let client = self.client.as_ref().map_or(0, |client| client.len());
        (size_of::<Self>() + client + fields.sum::<usize>()) as u64
    }
}

/// The user-id of Basic authentication, whether the password is right or not.
fn remote_user(request: &Request<'_>) -> Option<Box<[u8]>> {
    let value = request.fields.get(KnownField::Authorization)?;
    let mut user = Credentials::parse(value)?.user;
    user.truncate(LOG_FIELD_MAX);
    Some(user.into())
}

/// The addresses that proxies have named, in the order in which they did.
fn forwarded_for(request: &Request<'_>) -> Option<Box<[u8]>> {
    let mut all = Vec::new();
    for line in request.fields.lines(KnownField::XForwardedFor) {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(line);
    }
    all.truncate(LOG_FIELD_MAX);
    (!all.is_empty()).then(|| all.into())
}

fn known<'a>(request: &Request<'a>, field: KnownField) -> Option<(&'a [u8], usize)> {
    request
        .fields
        .get(field)
        .map(|value| (value, LOG_FIELD_MAX))
}
