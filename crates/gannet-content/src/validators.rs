//! Entity tags: of a live file from its metadata, of stored content from its hash.

use gannet_http::semantics::coding::Coding;

/// Metadata of a live file, all of it read from the descriptor that is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LiveFile {
    /// Last modification, nanoseconds since the Unix epoch.
    pub mtime_ns: i128,
    /// Last status change, nanoseconds since the Unix epoch. A program cannot set it back.
    pub ctime_ns: i128,
    /// Length in bytes.
    pub len: u64,
    /// Device and inode.
    pub identity: (u64, u64),
}

/// The entity tag of a live file: `"<modified, ns>-<length>-<mark>"` in hexadecimal, strong.
///
/// Two contents must not share a tag, so it is made of everything in which a change leaves a trace.
/// Modification time and length alone are not enough: images and reproducible builds set every time
/// to one moment, and then two releases of a file often have the same length too. `mark` is 32 bits
/// mixed from device, inode and status change time, which distinguish such files.
///
/// The price: the same file on two machines, or copied, or with its owner changed, has another tag,
/// and is sent once more than necessary. Content hashes, which archives have, avoid that. Not
/// visible in metadata: a rewrite in place with the same length, within one tick of the kernel's
/// clock (up to 4 ms, finer since Linux 6.13) of the previous write.
#[must_use]
pub fn live_tag(file: &LiveFile) -> String {
    let mtime = file.mtime_ns as u128 as u64; // Wraps after year 2554: still a trace of the time.
    let mark = mix(file.ctime_ns as u128 as u64)
        ^ mix(file.identity.0.rotate_left(32) ^ mix(file.identity.1));
    let (mut tag, mut end) = ([b'"'; TAG_MAX], 1);
    for (number, digits_min, after) in
        [(mtime, 1, b'-'), (file.len, 1, b'-'), (mark >> 32, 8, b'"')]
    {
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4);
        for place in (0..digits.max(digits_min)).rev() {
            tag[end] = b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
            end += 1;
        }
        tag[end] = after;
        end += 1;
    }
    let tag = str::from_utf8(&tag[..end]).expect("it is ASCII");
    tag.to_owned()
}

/// The longest tag of a live file: two numbers of 16 digits, one of 8, and what is between them.
const TAG_MAX: usize = 44;

/// The entity tag of content by its 256-bit hash: 96 bits of it and a letter for the coding, so
/// that each coding of one resource has its own tag (RFC 9110 section 8.8.3.3).
///
/// 96 bits are far beyond accidental collisions (2^48 files); the whole hash would only make every
/// response longer.
#[must_use]
pub fn hash_tag(hash: &[u8; 32], coding: Coding) -> String {
    let mut tag = String::with_capacity(20);
    tag.push('"');
    for triple in hash[..12].chunks_exact(3) {
        let bits = u32::from_be_bytes([0, triple[0], triple[1], triple[2]]);
        for shift in [18, 12, 6, 0] {
            tag.push(char::from(BASE64_URL[(bits >> shift & 63) as usize]));
        }
    }
    tag.push_str(match coding {
        Coding::Identity => "",
        Coding::Gzip => "-g",
        Coding::Brotli => "-b",
        Coding::Zstd => "-z",
        Coding::DictionaryBrotli => "-db",
        Coding::DictionaryZstd => "-dz",
    });
    tag.push('"');
    tag
}

/// The date to send as `Last-Modified` for a file's modification time, in Unix seconds.
///
/// `None` for the epoch and the few days around it and before it: builds write it to mean that
/// there is no date (0, 1, or 1980-01-01 in zip files), and such a date, once cached, outlives
/// every release. `None` too for a date later than `now` (RFC 9110 section 8.8.2.1).
#[must_use]
pub fn last_modified(mtime_ns: i128, now: i64) -> Option<i64> {
    let seconds = i64::try_from(mtime_ns.div_euclid(1_000_000_000)).ok()?;
    (seconds > NO_DATE_MAX && seconds <= now).then_some(seconds)
}

/// Spreads every bit of the input over all bits of the output (the finisher of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// 1980-01-02 12:00:00 UTC: an upper bound of zip's earliest date (1980-01-01, in any time zone).
const NO_DATE_MAX: i64 = 315_662_400;
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits_and_no_fewer_than_asked_for() {
        for number in [0, 1, 15, 16, 0xff, 0x1234_5678, 1 << 63, u64::MAX] {
            let tag = live_tag(&LiveFile {
                mtime_ns: number.into(),
                len: number,
                ..FILE
            });
            let start = format!("\"{number:x}-{number:x}-");
            let mark = tag
                .strip_prefix(&start)
                .expect("the two numbers come first");
            assert_eq!(mark.len(), 9, "{tag}");
            assert!(mark.ends_with('"'), "{tag}");
            assert!(tag.len() <= TAG_MAX, "{tag}");
        }
        // Marks that start with zeros have all their digits.
        let marks = (0..1_000).map(|number| LiveFile {
            ctime_ns: number,
            ..FILE
        });
        let mut tags = marks.map(|file| live_tag(&file));
        let len = live_tag(&FILE).len();
        assert!(tags.all(|tag| tag.len() == len));
    }

    const FILE: LiveFile = LiveFile {
        mtime_ns: 1_790_000_000_123_456_789,
        ctime_ns: 1_790_000_000_123_456_789,
        len: 0x1f40,
        identity: (64, 12_345),
    };

    #[test]
    fn a_live_tag_is_short_and_a_valid_strong_tag() {
        let tag = live_tag(&FILE);
        assert!(tag.starts_with("\"18d75b842b4ecd15-1f40-"), "{tag}");
        assert_eq!(tag.len(), 2 + 16 + 1 + 4 + 1 + 8);
    }

    #[test]
    fn any_trace_of_a_change_gives_another_tag() {
        let mut tags = vec![live_tag(&FILE)];
        for change in [
            |file: &mut LiveFile| file.mtime_ns += 1,
            |file: &mut LiveFile| file.ctime_ns += 1,
            |file: &mut LiveFile| file.len += 1,
            |file: &mut LiveFile| file.identity.0 += 1,
            |file: &mut LiveFile| file.identity.1 += 1,
            |file: &mut LiveFile| file.identity = (file.identity.1, file.identity.0),
            |file: &mut LiveFile| file.mtime_ns = 0,
            |file: &mut LiveFile| file.mtime_ns = -1,
        ] {
            let mut file = FILE;
            change(&mut file);
            tags.push(live_tag(&file));
        }
        let count = tags.len();
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), count, "{tags:?}");
    }

    #[test]
    fn each_coding_of_one_content_has_its_own_tag() {
        let mut hash = [0; 32];
        hash[..12].copy_from_slice(&[0, 16, 131, 16, 81, 135, 32, 146, 139, 48, 211, 143]);
        assert_eq!(hash_tag(&hash, Coding::Identity), "\"ABCDEFGHIJKLMNOP\"");
        assert_eq!(hash_tag(&hash, Coding::Gzip), "\"ABCDEFGHIJKLMNOP-g\"");
        assert_eq!(hash_tag(&hash, Coding::Brotli), "\"ABCDEFGHIJKLMNOP-b\"");
        assert_eq!(hash_tag(&hash, Coding::Zstd), "\"ABCDEFGHIJKLMNOP-z\"");
    }

    #[test]
    fn dates_that_say_nothing_are_not_sent() {
        let check = |seconds: i64, expect| {
            let mtime_ns = i128::from(seconds) * 1_000_000_000 + 5;
            assert_eq!(last_modified(mtime_ns, 1_790_000_000), expect, "{seconds}");
        };
        check(0, None);
        check(1, None);
        check(-1, None);
        check(315_532_800, None); // 1980-01-01
        check(315_662_401, Some(315_662_401));
        check(1_790_000_000, Some(1_790_000_000));
        check(1_790_000_001, None);
        assert_eq!(last_modified(i128::MAX, i64::MAX), None);
    }
}
