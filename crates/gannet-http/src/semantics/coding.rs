//! Content codings and their negotiation (RFC 9110 sections 8.4 and 12.5.3).

/// A content coding that gannet stores, with its number in archives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Coding {
    /// No coding: the bytes unchanged.
    Identity = 0,
    /// `gzip` (RFC 1952).
    Gzip = 1,
    /// `br` (RFC 7932).
    Brotli = 2,
    /// `zstd` (RFC 8878), with a window of at most 8 MiB (RFC 9659).
    Zstd = 3,
    /// `dcb`: Brotli with a dictionary (RFC 9842 section 4).
    DictionaryBrotli = 4,
    /// `dcz`: Zstandard with a dictionary (RFC 9842 section 5).
    DictionaryZstd = 5,
}

impl Coding {
    /// Every coding that needs nothing besides the content, identity first.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Brotli, Self::Zstd];

    /// The codings that need a dictionary (RFC 9842).
    pub const WITH_DICTIONARY: [Self; 2] = [Self::DictionaryBrotli, Self::DictionaryZstd];

    /// Whether it needs a dictionary.
    #[must_use]
    pub const fn has_dictionary(self) -> bool {
        matches!(self, Self::DictionaryBrotli | Self::DictionaryZstd)
    }

    /// The coding of a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Identity),
            1 => Some(Self::Gzip),
            2 => Some(Self::Brotli),
            3 => Some(Self::Zstd),
            4 => Some(Self::DictionaryBrotli),
            5 => Some(Self::DictionaryZstd),
            _ => None,
        }
    }

    /// The name in `Content-Encoding`; identity's is never sent there.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::DictionaryBrotli => "dcb",
            Self::DictionaryZstd => "dcz",
        }
    }

    /// The coding of [`ALL`](Self::ALL) with a name, in any case; `x-gzip` means gzip (RFC 9110 section
    /// 8.4.1.3).
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// A set of codings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CodingSet(u8);

impl From<Coding> for CodingSet {
    /// That coding alone.
    fn from(coding: Coding) -> Self {
        Self::EMPTY.with(coding)
    }
}

impl CodingSet {
    /// No coding at all.
    pub const EMPTY: Self = Self(0);
    /// Identity alone: assumed of a client that sends no `Accept-Encoding`.
    pub const IDENTITY: Self = Self(1);
    /// Every coding of [`Coding::ALL`].
    pub const ALL: Self = Self(0b1111);

    /// This set and `coding`.
    #[must_use]
    pub const fn with(self, coding: Coding) -> Self {
        Self(self.0 | 1 << coding as u8)
    }

    /// This set without `coding`.
    #[must_use]
    pub const fn without(self, coding: Coding) -> Self {
        Self(self.0 & !(1 << coding as u8))
    }

    /// Whether `coding` is in the set.
    #[must_use]
    pub const fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    /// Whether the coding with a [number](Coding::from_number) is in the set.
    #[must_use]
    pub const fn has_number(self, number: u8) -> bool {
        number < 8 && self.0 >> number & 1 != 0
    }

    /// The codings in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits, one per coding by its number: an index into tables, a byte in a cache key.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The codings of [`Coding::ALL`] in the set, identity first.
    pub fn iter(self) -> impl Iterator<Item = Coding> {
        Coding::ALL
            .into_iter()
            .filter(move |&coding| self.contains(coding))
    }
}

/// The codings that a client accepts, according to the lines of its `Accept-Encoding` field.
///
/// Weights other than 0 make no difference: the server chooses, and chooses the smallest. A client
/// without the field gets identity, although any coding would be allowed: such clients are scripts
/// and tools that store what they receive. If `*` is present and not refused, every coding not
/// named is accepted. An invalid weight refuses its coding. Identity is accepted unless it is
/// refused by name, or by `*;q=0` without being named.
#[must_use]
pub fn accept_encoding<'a>(lines: impl Iterator<Item = &'a [u8]>) -> CodingSet {
    let mut accepted = CodingSet::EMPTY;
    let mut refused = CodingSet::EMPTY;
    let mut others = None;
    for line in lines {
        // The values that browsers send, recognised as a whole.
        match line {
            b"gzip, deflate, br, zstd" => {
                accepted = CodingSet(accepted.0 | 0b1110);
                continue;
            }
            b"gzip, deflate, br" => {
                accepted = CodingSet(accepted.0 | 0b0110);
                continue;
            }
            _ => {}
        }
        for element in line.split(|&byte| byte == b',') {
            let mut parts = element.splitn(2, |&byte| byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let is_accepted = parts.next().is_none_or(is_weight_above_zero);
            if name == b"*" {
                others = Some(is_accepted && others != Some(false));
            } else if let Some(coding) = Coding::parse(name) {
                let set = if is_accepted {
                    &mut accepted
                } else {
                    &mut refused
                };
                *set = set.with(coding);
            }
        }
    }
    let unnamed = CodingSet(CodingSet::ALL.0 & !accepted.0 & !refused.0);
    let by_default = match others {
        Some(true) => unnamed,
        Some(false) => CodingSet::EMPTY,
        None => unnamed.intersection(CodingSet::IDENTITY),
    };
    // A coding named twice and refused once is refused.
    CodingSet((accepted.0 | by_default.0) & !refused.0)
}

/// The codings with a dictionary that a client accepts: those named, and refused nowhere. `*` means
/// neither, since a client lists them only for a request that has a dictionary (RFC 9842 section
/// 6.1).
#[must_use]
pub fn accept_dictionary_encoding<'a>(lines: impl Iterator<Item = &'a [u8]>) -> CodingSet {
    let (mut accepted, mut refused) = (CodingSet::EMPTY, CodingSet::EMPTY);
    for element in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
        let mut parts = element.splitn(2, |&byte| byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let mut codings = Coding::WITH_DICTIONARY.into_iter();
        let named = codings.find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()));
        let Some(coding) = named else { continue };
        match parts.next().is_none_or(is_weight_above_zero) {
            true => accepted = accepted.with(coding),
            false => refused = refused.with(coding),
        }
    }
    CodingSet(accepted.0 & !refused.0)
}

/// Whether the parameters of an element are a weight (RFC 9110 section 12.4.2) other than 0.
fn is_weight_above_zero(parameters: &[u8]) -> bool {
    let weight = parameters.trim_ascii();
    let Some(digits) = weight
        .strip_prefix(b"q=")
        .or_else(|| weight.strip_prefix(b"Q="))
    else {
        return false;
    };
    match digits {
        [b'1'] => true,
        [b'1', b'.', rest @ ..] => rest.len() <= 3 && rest.iter().all(|&byte| byte == b'0'),
        [b'0', b'.', rest @ ..] => {
            rest.len() <= 3
                && rest.iter().all(u8::is_ascii_digit)
                && rest.iter().any(|&byte| byte != b'0')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[&str], expect: &str) {
        let set = accept_encoding(lines.iter().map(|line| line.as_bytes()));
        let names: Vec<_> = set.iter().map(Coding::name).collect();
        assert_eq!(names.join(" "), expect, "{lines:?}");
    }

    #[test]
    fn what_clients_send() {
        check(&[], "identity");
        check(&[""], "identity");
        check(&["gzip"], "identity gzip");
        check(&["gzip, deflate, br, zstd"], "identity gzip br zstd");
        check(&["gzip, deflate, br"], "identity gzip br");
        check(&["gzip,deflate,br,zstd"], "identity gzip br zstd");
        check(&["GZip , Br"], "identity gzip br");
        check(&["x-gzip"], "identity gzip");
        check(&["gzip", "br"], "identity gzip br");
        check(&["deflate"], "identity");
        check(&["identity"], "identity");
    }

    #[test]
    fn weights() {
        check(&["gzip;q=0.5, br;q=1.0"], "identity gzip br");
        check(&["gzip;q=0, br"], "identity br");
        check(&["gzip;q=0.000, br ; q=0.001"], "identity br");
        check(&["gzip;Q=1"], "identity gzip");
        check(&["gzip;q=0, gzip"], "identity");
        check(&["gzip, gzip;q=0"], "identity");
        check(&["gzip;q=2, br;q=0.1234, zstd;x=1"], "identity");
    }

    #[test]
    fn codings_with_a_dictionary_are_accepted_by_name_alone() {
        let check = |lines: &[&str], expect: &[Coding]| {
            let set = accept_dictionary_encoding(lines.iter().map(|line| line.as_bytes()));
            let found = Coding::WITH_DICTIONARY.into_iter();
            let found: Vec<_> = found.filter(|coding| set.contains(*coding)).collect();
            assert_eq!(found, expect, "{lines:?}");
            let others = accept_encoding(lines.iter().map(|line| line.as_bytes()));
            let with_dictionary = Coding::WITH_DICTIONARY.into_iter();
            assert!(!with_dictionary.into_iter().any(|it| others.contains(it)));
        };
        let (dcb, dcz) = (Coding::DictionaryBrotli, Coding::DictionaryZstd);
        check(&["gzip, deflate, br, zstd, dcb, dcz"], &[dcb, dcz]);
        check(&["DCB;q=0.5", "dcz ; q=0.1"], &[dcb, dcz]);
        check(&[], &[]);
        check(&["*"], &[]);
        check(&["*, dcz"], &[dcz]);
        check(&["dcb;q=0, dcz"], &[dcz]);
        check(&["dcb", "dcb;q=0"], &[]);
        check(&["dcb;q=2"], &[]);
        check(&["dcbx, xdcb, br"], &[]);
    }

    #[test]
    fn wildcards_and_identity() {
        check(&["*"], "identity gzip br zstd");
        check(&["*;q=0"], "");
        check(&["*;q=0, identity"], "identity");
        check(&["gzip, *;q=0"], "gzip");
        check(&["identity;q=0"], "");
        check(&["identity;q=0, gzip"], "gzip");
        check(&["identity;q=0, *"], "gzip br zstd");
        check(&["br;q=0, *"], "identity gzip zstd");
    }
}
