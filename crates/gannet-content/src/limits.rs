//! Bounds on what content code holds or loops over, each with its reason.

/// How many folders are searched for a `404.html`, counted from the root down. Sites that have one
/// in a folder have it near the root; a path that really is 2,000 folders deep must not cost 2,000
/// opens.
pub const NOT_FOUND_FOLDERS_MAX: usize = 64;

/// The longest file name suffix that has a content type, in bytes without the dot. With it a suffix
/// fits in one 128-bit number; registered ones have at most eleven.
pub const SUFFIX_MAX: usize = 16;

/// The most rows of a listing's page, about 2 MB of it, which a browser lays out in half a second. A
/// folder with more gets a note, and the page's script takes the other entries from the JSON.
pub const LISTING_ROWS_MAX: usize = 10_000;

/// The longest listing, in bytes: JSON of 100,000 entries, if their names have 60 bytes on average. A
/// name of 255 bytes can take 2.5 KB on a page, if all of its bytes are escaped twice.
pub const LISTING_BYTES_MAX: usize = 12 << 20;

/// The most folders that a listing's breadcrumbs link to, the nearest ones. Their links take bytes
/// with the square of the depth, and a path may be 2,000 folders deep.
pub const LISTING_CRUMBS_MAX: usize = 32;

/// The longest page of a site for errors, in bytes. It stays in memory, to be sent when the disk
/// fails; a page with its style and a drawing in it has some ten kilobytes.
pub const OWN_ERROR_PAGE_MAX: u64 = 64 << 10;
