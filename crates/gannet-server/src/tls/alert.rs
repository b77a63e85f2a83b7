//! Alerts, by which one side tells the other why it closes the connection.

use std::fmt;

/// An alert description (RFC 8446 section 6, TLS Alerts registry).
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Alert(pub u8);

impl Alert {
    /// The sender will send no more data; not an error.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// An inappropriate record or message.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record could not be decrypted.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record is longer than the protocol allows.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// No set of parameters suits both sides.
    pub const HANDSHAKE_FAILURE: Self = Self(40);
    /// A field has a value that is not allowed.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message could not be parsed.
    pub const DECODE_ERROR: Self = Self(50);
    /// No version suits both sides.
    pub const PROTOCOL_VERSION: Self = Self(70);
    /// Our own fault.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The user cancelled; `close_notify` follows.
    pub const USER_CANCELED: Self = Self(90);
    /// An extension is needed, such as the name of the server (RFC 8446 section 9.2).
    pub const MISSING_EXTENSION: Self = Self(109);
    /// There is no certificate for the name (RFC 6066 section 3).
    pub const UNRECOGNIZED_NAME: Self = Self(112);
    /// The client has sent no certificate (RFC 8446 section 4.4.2.4).
    pub const CERTIFICATE_REQUIRED: Self = Self(116);
    /// None of the offered application protocols is spoken here.
    pub const NO_APPLICATION_PROTOCOL: Self = Self(120);

    /// The content of an alert record: level and description. All alerts are fatal but
    /// `close_notify` and `user_canceled` (RFC 8446 section 6).
    #[must_use]
    pub fn content(self) -> [u8; 2] {
        let is_warning = matches!(self, Self::CLOSE_NOTIFY | Self::USER_CANCELED);
        [if is_warning { 1 } else { 2 }, self.0]
    }

    /// Whether it is about a certificate or a signature of the peer.
    #[must_use]
    pub fn is_about_certificate(self) -> bool {
        // bad_certificate to certificate_unknown, unknown_ca, access_denied, decrypt_error.
        matches!(self.0, 42..=46 | 48 | 49 | 51)
    }

    /// The name in the registry.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            _ => "unknown_alert",
        }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Debug for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why an established connection has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsFault {
    /// The peer violated the protocol: send it this alert, then close.
    Ours(Alert),
    /// The peer sent a fatal alert: nothing more is sent (RFC 8446 section 6.2).
    Peers(Alert),
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(alert) => write!(f, "alert_sent={alert}"),
            Self::Peers(alert) => write!(f, "alert_received={alert}"),
        }
    }
}
