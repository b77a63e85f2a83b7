//! The name of a release.

use std::fmt;
use std::str::FromStr;

/// The first 16 bytes of the build id of an archive; in text, 32 hexadecimal digits in lower case.
///
/// The build id covers every byte that is served, so equal names mean equal content.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReleaseId([u8; 16]);

impl ReleaseId {
    /// The name of the release with this build id.
    #[must_use]
    pub fn of_build_id(build_id: &[u8; 32]) -> Self {
        let mut name = [0; 16];
        name.copy_from_slice(&build_id[..16]);
        Self(name)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// The name with these bytes.
    #[must_use]
    pub fn of_bytes(name: [u8; 16]) -> Self {
        Self(name)
    }

    /// Its first eight digits, enough to tell the releases of one store apart by eye.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The text is not 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAReleaseId;

impl fmt::Display for NotAReleaseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not the id of a release: 32 digits, 0 to 9 and a to f")
    }
}

impl std::error::Error for NotAReleaseId {}

impl FromStr for ReleaseId {
    type Err = NotAReleaseId;

    fn from_str(text: &str) -> Result<Self, NotAReleaseId> {
        digits(text).map(Self).ok_or(NotAReleaseId)
    }
}

/// Bytes in hexadecimal digits, lower case alone.
pub(crate) fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    (text.len() == 2 * N).then_some(())?;
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let text = "00ff10203040506070809a0b0c0d0e0f";
        let id: ReleaseId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.short(), "00ff1020");
        for bad in [
            "",
            "00ff",
            "00FF10203040506070809a0b0c0d0e0f",
            "00ff10203040506070809a0b0c0d0e0f0",
            "00ff10203040506070809a0b0c0d0e0g",
            "+0ff10203040506070809a0b0c0d0e0f",
        ] {
            assert_eq!(bad.parse::<ReleaseId>(), Err(NotAReleaseId), "{bad}");
        }
    }
}
