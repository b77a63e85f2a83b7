//! Which files of a live directory are coded while they are served: text, of a length for which it
//! pays, in the codings for which they have no sidecar.
//!
//! Files of unknown type are not: most are coded already (downloads, media, models), and to find out, a
//! server would copy each and try, where a packer tries once and has all the time that it takes.

use crate::directory::sidecars::may_have_sidecars;
use crate::{mime, stored_coding};
use gannet_http::semantics::coding::{Coding, CodingSet};

/// A shorter file fits into the first packets of an answer, whatever its coding.
pub const CODED_FROM: u64 = 1 << 10;

/// The longest file that is coded: also the longest text that a server copies into memory before it
/// sends it, which is what makes a coding one of the very bytes that others get uncoded. Search indexes
/// of large documentations have 2 to 6 MB.
pub const CODED_UP_TO: u64 = 8 << 20;

/// The codings that are made.
pub const MADE: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Up to this length Brotli is the smallest coding as a rule; above it zstd, at the levels that fit work
/// done while a site is served, for half of Brotli's time.
const BROTLI_FIRST_UP_TO: u64 = 1 << 20;

/// The longest file of which Brotli is made: its encoder's memory grows with the file, to 44 MiB here and
/// to 57 MiB for twice as much.
const BROTLI_UP_TO: u64 = 4 << 20;

/// Whether a file is coded: its path below the root, its content type, and its length in bytes.
/// Fields of the answer may still forbid it: see
/// [`FieldChanges::forbid_coding`](crate::rules::headers::FieldChanges::forbid_coding).
#[must_use]
pub fn is_coded(path: &[u8], content_type: &str, len: u64) -> bool {
    (CODED_FROM..=CODED_UP_TO).contains(&len)
        && may_have_sidecars(path, len)
        && mime::is_compressible(content_type, len)
        && !mime::is_unknown(content_type)
        && !stored_coding::is_possible(path)
}

/// The coding that is made of a file of `len` bytes for a client that accepts these, if any.
#[must_use]
pub fn wanted(accepted: CodingSet, len: u64) -> Option<Coding> {
    use Coding::{Brotli, Gzip, Zstd};
    let made: &[Coding] = match len {
        ..=BROTLI_FIRST_UP_TO => &[Brotli, Zstd, Gzip],
        _ if len <= BROTLI_UP_TO => &[Zstd, Brotli, Gzip],
        _ => &[Zstd, Gzip],
    };
    made.iter()
        .copied()
        .find(|coding| accepted.contains(*coding))
}

/// Whether a coded form is worth keeping: it saves a packet, and a twentieth.
#[must_use]
pub fn pays(len: u64, coded_len: u64) -> bool {
    let saved = len.saturating_sub(coded_len);
    saved >= SAVED_MIN && saved * 20 >= len
}

const SAVED_MIN: u64 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_fitting_length_is_coded() {
        let check = |path: &str, len, expect| {
            let content_type = mime::content_type(path.as_bytes());
            let found = is_coded(path.as_bytes(), content_type, len);
            assert_eq!(found, expect, "{path}, {len} bytes");
        };
        check("a.html", CODED_FROM, true);
        check("a.html", CODED_FROM - 1, false);
        check("a.css", CODED_UP_TO, true);
        check("a.css", CODED_UP_TO + 1, false);
        check("a.svg", 10_000, true);
        check("a.png", 10_000, false);
        check("a.js.gz", 10_000, false);
        check("Build/game.wasm.br", 10_000, false);
        check("game.wasm", 10_000, true);
        // Of unknown type.
        check("data.bin", 10_000, false);
        check("data", 10_000, false);
        check("a.zip", 10_000, false);
    }

    #[test]
    fn the_first_accepted_coding_is_made() {
        let set = |codings: &[Coding]| {
            let all = codings.iter();
            all.fold(CodingSet::IDENTITY, |set, coding| set.with(*coding))
        };
        use Coding::{Brotli, Gzip, Zstd};
        let check = |accepted: &[Coding], expect: [Option<Coding>; 3]| {
            let lens = [BROTLI_FIRST_UP_TO, BROTLI_UP_TO, CODED_UP_TO];
            let found = lens.map(|len| wanted(set(accepted), len));
            assert_eq!(found, expect, "{accepted:?}");
            let longer = lens.map(|len| wanted(set(accepted), len + 1));
            assert_eq!(longer[..2], expect[1..], "{accepted:?}");
        };
        check(
            &[Brotli, Zstd, Gzip],
            [Some(Brotli), Some(Zstd), Some(Zstd)],
        );
        check(&[Zstd, Gzip], [Some(Zstd); 3]);
        check(&[Brotli, Gzip], [Some(Brotli), Some(Brotli), Some(Gzip)]);
        check(&[Brotli], [Some(Brotli), Some(Brotli), None]);
        check(&[Gzip], [Some(Gzip); 3]);
        check(&[], [None; 3]);
    }

    #[test]
    fn a_small_saving_does_not_pay() {
        assert!(pays(1_024, 896));
        assert!(!pays(1_024, 897));
        assert!(pays(100_000, 95_000));
        assert!(!pays(100_000, 95_001));
        assert!(!pays(100, 200));
    }
}
