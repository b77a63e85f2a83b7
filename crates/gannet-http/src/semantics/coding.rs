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
/// Among codings, weights other than 0 make no difference: the server chooses, and chooses the
/// smallest. A coding of less weight than identity has is not used. A client without the field gets
/// identity, although any coding would be allowed: such clients are scripts and tools that store
/// what they receive. `*` counts only if no coding is named, and then means gzip, which every client
/// that wrote it once could decode; never a coding that is younger than the client. An invalid
/// weight refuses its coding. Identity is accepted unless it is refused by name, or by `*;q=0`
/// without being named.
#[must_use]
pub fn accept_encoding<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> CodingSet {
    let Some(first) = lines.next() else {
        return CodingSet::IDENTITY;
    };
    // The values that browsers send, recognised as a whole.
    let known = match first {
        b"gzip, deflate, br, zstd" => Some(CodingSet(0b1111)),
        b"gzip, deflate, br" => Some(CodingSet(0b0111)),
        _ => None,
    };
    match (known, lines.next()) {
        (Some(known), None) => known,
        (_, second) => weigh([first].into_iter().chain(second).chain(lines)),
    }
}

/// As [`accept_encoding`], for any lines.
fn weigh<'a>(lines: impl Iterator<Item = &'a [u8]>) -> CodingSet {
    let mut named = [None; Coding::ALL.len()];
    let mut others = None;
    for element in lines.flat_map(|line| line.split(|&byte| byte == b',')) {
        let mut parts = element.splitn(2, |&byte| byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let weight = parts.next().map_or(WEIGHT_MAX, weight);
        let known = match name {
            b"*" => &mut others,
            name => match Coding::parse(name) {
                Some(coding) => &mut named[coding as usize],
                None => continue,
            },
        };
        // A coding named twice and refused once is refused.
        *known = Some(known.map_or(weight, |known: u16| known.min(weight)));
    }
    let [identity, codings @ ..] = named;
    let least = identity.unwrap_or(0).max(1);
    let mut accepted = CodingSet::EMPTY;
    if identity.or(others) != Some(0) {
        accepted = CodingSet::IDENTITY;
    }
    for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
        if named[coding as usize].is_some_and(|weight| weight >= least) {
            accepted = accepted.with(coding);
        }
    }
    let is_any_named = codings.into_iter().flatten().any(|weight| weight > 0);
    let is_gzip_meant = others.is_some_and(|weight| weight > identity.unwrap_or(0));
    if !is_any_named && is_gzip_meant && named[Coding::Gzip as usize].is_none() {
        accepted = accepted.with(Coding::Gzip);
    }
    accepted
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
        match parts.next().is_none_or(|it| weight(it) > 0) {
            true => accepted = accepted.with(coding),
            false => refused = refused.with(coding),
        }
    }
    CodingSet(accepted.0 & !refused.0)
}

/// The weight that the parameters of an element are (RFC 9110 section 12.4.2), in thousandths; 0 if
/// they are something else.
fn weight(parameters: &[u8]) -> u16 {
    let text = parameters.trim_ascii();
    let (whole, rest) = match text {
        [b'q' | b'Q', b'=', whole @ (b'0' | b'1')] => (whole, &[][..]),
        [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), b'.', rest @ ..] => (whole, rest),
        _ => return 0,
    };
    if rest.len() > 3 || !rest.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |place: usize| u16::from(rest.get(place).map_or(0, |byte| byte - b'0'));
    let fraction = 100 * digit(0) + 10 * digit(1) + digit(2);
    match (whole, fraction) {
        (b'1', 0) => WEIGHT_MAX,
        (b'1', _) => 0,
        _ => fraction,
    }
}

/// A weight of 1, which an element without a weight has, in thousandths.
const WEIGHT_MAX: u16 = 1_000;

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
        check(&["*"], "identity gzip");
        check(&["*;q=0.1"], "identity gzip");
        check(&["deflate, *"], "identity gzip");
        check(&["br, *"], "identity br");
        check(&["br;q=0.5, *;q=1"], "identity br");
        check(&["gzip;q=0, *"], "identity");
        check(&["identity, *"], "identity");
        check(&["identity;q=0.5, *"], "identity gzip");
        check(&["*", "identity"], "identity");
        check(&["*;q=0"], "");
        check(&["*;q=0, identity"], "identity");
        check(&["gzip, *;q=0"], "gzip");
        check(&["identity;q=0"], "");
        check(&["identity;q=0, gzip"], "gzip");
        check(&["identity;q=0, *"], "gzip");
        check(&["br;q=0, *"], "identity gzip");
    }

    #[test]
    fn identity_is_preferred_by_its_weight() {
        check(&["identity, gzip;q=0.5"], "identity");
        check(&["gzip;q=0.5", "identity;q=0.501"], "identity");
        check(&["identity;q=0.5, gzip;q=0.5"], "identity gzip");
        check(&["identity;q=0.5, gzip;q=0.4, br"], "identity br");
        check(&["gzip, deflate, br", "identity"], "identity gzip br");
        check(&["gzip, deflate, br, zstd", "br;q=0"], "identity gzip zstd");
    }
}
