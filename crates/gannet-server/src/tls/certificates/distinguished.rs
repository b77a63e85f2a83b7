//! Distinguished names as text: RFC 2253 in the form of OpenSSL and nginx, which is plain ASCII.
//!
//! The last part comes first, as in `CN=alice,O=Example`. A value is escaped by `\`: what separates
//! parts by itself, all but printable ASCII as `\XX`, each byte of its UTF-8. One of an attribute
//! that is not in [`NAMES`], or that is no string, is its encoding in hex, `#0403...`.

use std::fmt::Write;

use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::x509::X509Name;

/// The names of attributes in OpenSSL. RFC 2253 section 2.3 has some of them.
const NAMES: [(&str, &str); 28] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.3", "mail"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
];

/// What follows the beginning of a text that is too long.
pub(super) const CUT: &str = "...";

/// The text of a name; its first `most` bytes and [`CUT`] if it is longer. No escape is cut.
pub(super) fn text(name: &X509Name<'_>, most: usize) -> String {
    let mut out = LimitedText {
        text: String::new(),
        most,
    };
    // A name that is too long ends the loop by an error, and has its beginning.
    let is_whole = write(name, &mut out).is_some();
    if !is_whole {
        out.text.push_str(CUT);
    }
    out.text
}

/// Text of limited length.
struct LimitedText {
    text: String,
    most: usize,
}

impl LimitedText {
    /// Adds a part that is not cut; `None` if there is no room.
    fn add(&mut self, part: &str) -> Option<()> {
        if self.text.len() + part.len() > self.most {
            return None;
        }
        self.text.push_str(part);
        Some(())
    }

    fn add_hex(&mut self, before: &str, byte: u8) -> Option<()> {
        let mut part = String::from(before);
        // Writing into a string cannot fail.
        let _ = write!(part, "{byte:02X}");
        self.add(&part)
    }
}

fn write(name: &X509Name<'_>, out: &mut LimitedText) -> Option<()> {
    let sets: Vec<_> = name.iter_rdn().collect();
    for set in sets.into_iter().rev() {
        let attributes: Vec<_> = set.iter().collect();
        for (number, attribute) in attributes.into_iter().rev().enumerate() {
            if !out.text.is_empty() {
                out.add(if number == 0 { "," } else { "+" })?;
            }
            let dotted = attribute.attr_type().to_id_string();
            let known = NAMES.iter().find(|(known, _)| *known == dotted);
            out.add(known.map_or(&*dotted, |(_, name)| name))?;
            out.add("=")?;
            let value = attribute.attr_value();
            match known.and_then(|_| string(value)) {
                Some(value) => escaped(&value, out)?,
                None => {
                    out.add("#")?;
                    for byte in value.to_der_vec().unwrap_or_default() {
                        out.add_hex("", byte)?;
                    }
                }
            }
        }
    }
    Some(())
}

/// The UTF-8 of a string; `None` if it is none.
fn string(value: &Any<'_>) -> Option<Vec<u8>> {
    let bytes = value.data;
    let of = |letters: &mut dyn Iterator<Item = Option<char>>| {
        letters.collect::<Option<String>>().map(String::into_bytes)
    };
    match value.tag() {
        Tag::Utf8String => Some(bytes.to_vec()),
        Tag::NumericString
        | Tag::PrintableString
        | Tag::Ia5String
        | Tag::VisibleString
        | Tag::TeletexString => of(&mut bytes.iter().map(|byte| Some(char::from(*byte)))),
        Tag::BmpString if bytes.len().is_multiple_of(2) => of(&mut bytes
            .chunks_exact(2)
            .map(|unit| char::from_u32(u32::from(u16::from_be_bytes([unit[0], unit[1]]))))),
        Tag::UniversalString if bytes.len().is_multiple_of(4) => of(&mut bytes
            .chunks_exact(4)
            .map(|unit| char::from_u32(u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]])))),
        _ => None,
    }
}

fn escaped(value: &[u8], out: &mut LimitedText) -> Option<()> {
    let end = value.len().saturating_sub(1);
    for (at, &byte) in value.iter().enumerate() {
        let is_special = match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => true,
            b'#' => at == 0,
            b' ' => at == 0 || at == end,
            _ => false,
        };
        match byte {
            b' '..=b'~' if is_special => out.add(&format!("\\{}", char::from(byte)))?,
            b' '..=b'~' => out.add(char::from(byte).encode_utf8(&mut [0; 4]))?,
            _ => out.add_hex("\\", byte)?,
        }
    }
    Some(())
}
