//! Limits on what a TLS peer can make us hold or do, each with its reason.

/// Maximum plaintext bytes in one record: 2^14 (RFC 8446 section 5.1).
pub const PLAINTEXT_MAX: usize = 1 << 14;

/// The header of every record: type, version, length (RFC 8446 section 5.1).
pub const RECORD_HEADER_LEN: usize = 5;

/// The tag of all three AEADs in use.
pub const TAG_LEN: usize = 16;

/// Maximum growth of a record by encryption, header included: TLS 1.3 adds 5 + 1 + 16 bytes, TLS
/// 1.2 with AES-GCM 5 + 8 + 16.
pub const RECORD_OVERHEAD_MAX: usize = RECORD_HEADER_LEN + 8 + TAG_LEN;

/// Maximum bytes after the header of a TLS 1.3 record. The RFC leaves room for AEADs that add up to
/// 255 bytes; those in use add a tag, and encrypt at most 2^14 bytes plus a content type, padding
/// included (RFC 8446 sections 5.2 and 5.4).
pub const CIPHERTEXT_MAX_TLS13: usize = PLAINTEXT_MAX + 1 + TAG_LEN;

/// The same for TLS 1.2: 2^14 + 2048 (RFC 5246 section 6.2.3). No suite in use needs as much, and
/// the plaintext is limited to [`PLAINTEXT_MAX`] in any case.
pub const CIPHERTEXT_MAX_TLS12: usize = PLAINTEXT_MAX + 2048;

/// Maximum bytes held of a ClientHello. Real ones have 200 to 2,500 bytes (a hybrid key share is
/// 1,216 of them); tickets and padding add a few thousand at most.
pub const CLIENT_HELLO_MAX: usize = 16 << 10;

/// Maximum bytes of handshake input held at a time once the ClientHello is complete: one record of
/// maximum length and the input that arrived with it. Bytes are received in smaller pieces.
pub const HANDSHAKE_INPUT_MAX: usize = 128 << 10;

/// Maximum steps of the TLS library per call; a whole handshake takes about ten. Stops a state
/// machine that makes no progress.
pub const HANDSHAKE_STEPS_MAX: usize = 4096;

/// Consecutive records without content before the peer is considered abusive. RFC 8446 section 5.1
/// allows them as a traffic analysis countermeasure, so some must be accepted.
pub const EMPTY_RECORDS_MAX: u32 = 32;

/// Key updates by a peer that are accepted at once; each costs two key derivations. Each record
/// with content, sent or received, allows one more: a long download may have any number of them,
/// and they cost little compared with its records.
pub const KEY_UPDATES_MAX: u32 = 128;

/// Consecutive warning alerts (TLS 1.2, and `user_canceled`) that are ignored.
pub const WARNING_ALERTS_MAX: u32 = 4;

/// Records encrypted with one key before it is updated. AES-GCM allows 2^24 full records (RFC 8446
/// section 5.5); half of that leaves room for a connection that cannot update at once.
pub const ENCRYPTED_RECORDS_MAX: u64 = 1 << 23;

/// Minimum records per key that an operator may configure: more than one send contains, so that
/// every key is useful.
pub const ENCRYPTED_RECORDS_MIN: u64 = 256;

/// Number of records at which the connection ends if the key could not be updated after `max` of
/// them: by default 1,024 less than AES-GCM allows.
#[must_use]
pub const fn encrypted_records_end(max: u64) -> u64 {
    2 * max - max / 8192
}

/// Plaintext bytes of a small record. With 22 bytes of record overhead and the 52 to 72 of IPv6 and
/// TCP, one fits into a segment on any usual path, including tunnels of 1,460 bytes: the content of
/// a segment is usable on arrival.
pub const SMALL_RECORD_LEN: usize = 1369;

/// Small records when a connection begins or resumes after a rest: as many as TCP sends before it
/// waits for the first acknowledgement, ten segments (RFC 6928). A full record would be usable one
/// round trip later, when the rest of it has arrived, and over a slow link even one that fits into
/// those segments is delayed: 12 KB take 65 ms at 1.6 Mbit/s, of which the first segment takes 7.
/// Encrypting them costs 3 µs more, where the handshake before them has cost about 100.
pub const SMALL_RECORDS: u32 = 10;

/// Plaintext bytes of early data (0-RTT) accepted from one connection, if early data is enabled:
/// far more than the request heads that a client sends at once. It also limits rejected early data
/// that is skipped. There the TLS library counts a record again each time it inspects its input, at
/// least three times: a client whose 20,000 bytes were rejected continues, one that had sent more
/// has to connect again.
pub const EARLY_DATA_MAX: u32 = 64 << 10;

/// Sessions stored for 0-RTT, over all workers. A stored session is single-use, which prevents
/// early data from being replayed to this server (RFC 8446 section 8.1).
pub const EARLY_SESSIONS_MAX: usize = 16 << 10;

/// Certificates in one PEM file: a leaf and its intermediates are two to four.
pub const CHAIN_LEN_MAX: usize = 16;

/// Certificates that a client may send: its own and its intermediates, in any order.
pub const CLIENT_CHAIN_LEN_MAX: usize = 4;

/// Bytes of these certificates: each with an RSA key of 4,096 bits takes about 2,000. What verifying
/// them costs grows with their length, and QUIC's library holds them as long as the connection.
pub const CLIENT_CHAIN_BYTES_MAX: usize = 16 << 10;

/// Authorities whose certificates clients may have. Their names are part of every handshake, and
/// have about a hundred bytes each.
pub const AUTHORITIES_MAX: usize = 64;

/// Authorities of one name, such as one with its successor. Verification may try each of them for a
/// client's certificate, and checks a signature with each.
pub const AUTHORITIES_OF_ONE_NAME_MAX: usize = 4;

/// Maximum length of a PEM file in bytes.
pub const PEM_LEN_MAX: u64 = 1 << 20;

/// Certificate and key pairs of one server that are named one by one.
pub const PAIRS_MAX: usize = 1024;

/// Chains that are sent compressed. A folder may have those of ten thousand hosts, of which the others are
/// sent as they are.
pub const COMPRESSED_MAX: usize = PAIRS_MAX;

/// Pairs that are taken from the folder of `gannet acme`: some for each of ten thousand hosts. Each is some
/// 20 KiB in memory.
pub const FOLDER_PAIRS_MAX: usize = 16 << 10;

/// Names without a certificate that are asked for between two looks at what to announce to `gannet acme`.
pub const ASKED_MAX: usize = 1024;

/// Names that could not be announced to `gannet acme` yet, because it does not read. More for which clients
/// wait are requested again later, and all others announced when there is room.
pub const NEWS_MAX: usize = 2 * FOLDER_PAIRS_MAX;

/// A requested name is announced again after so many seconds. How soon another order is made is not
/// decided here.
pub const ASK_AGAIN_S: u64 = 60;

/// Handshakes are held for a name that was asked for the first time within so many seconds: most orders take
/// ten. Later ones are refused at once, until no client has asked for [`ANNOUNCE_AGAIN_S`].
pub const COMING_S: u64 = 25;

/// All hosts with certificates are announced again after so many seconds.
pub const ANNOUNCE_AGAIN_S: u64 = 3600;

/// All files of that folder are looked at each time in so many looks, in case one was written to in place.
/// The other times only if one came, went or was replaced, which the folder itself shows.
pub const FOLDER_LOOKS: u32 = 10;

/// Certificates for challenges of an ACME server (RFC 8737) that are read from their folder: more than
/// one process orders at a time.
pub const CHALLENGES_MAX: usize = 64;

/// A certificate that expires within this many seconds causes a warning: 14 days, or a third of its
/// lifetime if that is shorter.
pub const EXPIRY_WARNING_SECONDS: i64 = 14 * 86_400;

/// Bodies from this length on justify handing a connection to the kernel: below it, two or three
/// more system calls cost more than the copy they save.
pub const KERNEL_BODY_MIN: u64 = 64 << 10;
