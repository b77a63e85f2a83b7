//! What a store that is copied can make a follower hold or do. The file of a release is bounded by
//! the pointer, which is signed if a key is required, and by [`crate::Settings::disk_max`].

use std::time::Duration;

/// Until a connection is made, an answer begins, or a pointer has arrived.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A body has to bring [`BODY_LEAST`] bytes within this time, again and again.
pub const BODY_WINDOW: Duration = Duration::from_secs(30);

/// 1 KiB a second: the slowest link that still differs from a store that holds us up.
pub const BODY_LEAST: u64 = 30 << 10;

/// The lowest limit of the rate that may be set, in bytes a second: eight times what a body has to
/// bring, so that the limit itself never looks like a store that holds us up.
pub const RATE_LEAST: u64 = 8 << 10;

/// Bytes that are read of an answer that is an error: enough for its message.
pub const ERROR_BODY_LEN_MAX: usize = 4096;

/// Bytes that an answer may have, unless an object is read: twice what a page of a list may come to,
/// 5000 names at Microsoft's.
pub const ANSWER_LEN_MAX: usize = 16 << 20;

/// Attempts at a request that fails for a moment: at a write, a list, a text. At one range of a release,
/// each continues where the last one broke off, and one that has brought [`BODY_LEAST`] bytes does not
/// count. A follower that polls asks for the pointer, and for an entry of the log, once, and polls again.
pub const ATTEMPTS_MAX: u32 = 5;

/// Between two attempts, times the number of those made.
pub const ATTEMPT_PAUSE: Duration = Duration::from_millis(500);

/// Bytes between two ranges that are fetched by one request: about what a connection brings in the
/// time that another request takes.
pub const JOIN_GAP_MAX: u64 = 64 << 10;

/// Blobs of an archive for which others are searched, 53 bytes each in memory, or 16 on demand: those of a million
/// files in four codings. One that has more is fetched whole, and on demand without a search.
pub const BLOBS_MAX: u64 = 1 << 22;

/// Bytes of an index for each one of its packed form. Five are the most that was seen; what is longer is not unpacked,
/// as a few bytes would become as many as a release may have.
pub const UNPACKED_TIMES_MAX: u64 = 32;

/// Entries of the log that are fetched in a round, at most 1 KiB each: three times what is kept by
/// default.
pub const HISTORY_MAX: usize = 64;

/// The bytes of all releases in the copy, unless set otherwise.
pub const DISK_DEFAULT: u64 = 64 << 30;

/// The bytes of a release that a publisher fetches from a store, to compare with it or to go back to it.
/// Who can write to a bucket without a key can name any length.
pub const BROUGHT_MAX: u64 = DISK_DEFAULT;

/// Of what is free on the disk of the publisher's picture, such a release has at most the part that is one
/// over this.
pub const BROUGHT_SHARE: u64 = 2;

/// Seconds until a release that was fetched whole, and is not what its pointer names, is fetched again
/// under the same pointer.
pub const DAMAGED_S: u64 = 3600;

/// Seconds between two looks at what is no longer kept, and what is lacking of that, while nothing
/// changes in the store.
pub const TIDY_S: u64 = 600;

/// The wait after a first failure; it doubles with each further one.
pub const BACK_OFF_LEAST: Duration = Duration::from_secs(1);

/// The longest wait after a failure. Copies are at most this far behind a store that is back.
pub const BACK_OFF_MOST: Duration = Duration::from_secs(300);

/// Bytes of a message from another program that are shown.
pub const WORDS_LEN_MAX: usize = 200;

/// Bytes of an answer of an ACME server: a chain of certificates is the longest, some 6 KiB.
pub const ACME_BODY_LEN_MAX: usize = 256 << 10;

/// Until an ACME server has answered one request.
pub const ACME_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Until an order has come to its end: servers check names from several places.
pub const ORDER_TIMEOUT: Duration = Duration::from_secs(300);

/// The same while other hosts wait for theirs, or may come: most orders take seconds. It is gone on with later.
pub const ORDER_TIMEOUT_SHARED: Duration = Duration::from_secs(60);

/// Attempts at an order, and at an account, whose nonces a server refuses. One attempt sends a request up
/// to three times.
pub const NONCE_ATTEMPTS: u32 = 3;

/// Until a challenge and, after it, a certificate is there; both polled with growing pauses.
pub const ORDER_POLL_TIMEOUT: Duration = Duration::from_secs(120);

/// Between putting a certificate for a challenge into its folder and having it looked at. A server reads
/// the folder once a second, and less often only if that takes it long.
pub const CHALLENGE_SEEN: Duration = Duration::from_secs(4);

/// Orders in a minute. Let's Encrypt allows 300 in three hours.
pub const ORDERS_PER_MINUTE: usize = 10;

/// Certificates of a host in a week that are not renewals in their time, of which Let's Encrypt gives five:
/// where a clock is wrong, a server asks for it, or files get lost, each new one is due at once.
pub const CERTIFICATES_PER_WEEK: usize = 4;

/// Orders in an hour for hosts that clients request: half of what Let's Encrypt
/// allows, so that the other half is there for hosts that the operator names, and for renewals.
pub const ON_DEMAND_HOSTS_ORDERS_PER_HOUR: usize = 50;

/// Such hosts that have no certificate and wait for their orders. Others are not noted.
pub const ON_DEMAND_HOSTS_WAITING_MAX: usize = 256;

/// Such hosts in all: as many as a server's sites.
pub const ON_DEMAND_HOSTS_MAX: usize = 1 << 14;

/// Such hosts of which a failure is remembered, which delays the next order.
pub const ON_DEMAND_HOSTS_FAILED_MAX: usize = 1 << 12;

/// Hosts that are looked at before others are heard of that have been added meanwhile.
pub const LOOKS_PER_ROUND: usize = 64;

/// What a server may ask for with `Retry-After` counts up to this.
pub const RETRY_AFTER_MOST: Duration = Duration::from_secs(30 * 86_400);

/// The wait after a first failed order; it doubles with each further one.
pub const ORDER_BACK_OFF_LEAST: Duration = Duration::from_secs(150);

/// The longest wait after a failed order, unless the server asks for up to four times as much.
pub const ORDER_BACK_OFF_MOST: Duration = Duration::from_secs(6 * 3600);

/// Between two looks at a server's renewal information, whatever it says (RFC 9773 section 4.3.2).
pub const RENEWAL_LOOK_LEAST: Duration = Duration::from_secs(60);

/// The same: servers revoke in masse within a day, and say so here.
pub const RENEWAL_LOOK_MOST: Duration = Duration::from_secs(86_400);

/// Until a server has answered a look: an order for which a client waits may be behind it.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Spent by looks at renewal information after which a round begins no other: the next round starts with
/// hosts that were added meanwhile.
pub const LOOKS_TIME: Duration = Duration::from_secs(5);

/// Seconds without looks after one that was not answered.
pub const LOOKS_PAUSE_S: i64 = 600;

/// Failed attempts within an hour after which the next start no longer tries at once: a supervisor that
/// starts again and again stays below the five that Let's Encrypt allows of each name.
pub const STARTS_PER_HOUR: usize = 3;

/// The same within a day.
pub const STARTS_PER_DAY: usize = 10;

/// Names whose failures and orders are kept over a restart: as many as a server's sites. Of more, those
/// of the longest ago are forgotten.
pub const HISTORY_NAMES_MAX: usize = 1 << 14;

/// Bytes of the file that keeps them, each a line of at most 512 bytes, and one of [`ON_DEMAND_HOSTS_ORDERS_PER_HOUR`].
pub const HISTORY_LEN_MAX: u64 = (HISTORY_NAMES_MAX as u64 + 3) * 512;

/// The longest wait until a file is written again that could not be: waiting costs nothing.
pub const WRITE_BACK_OFF_MOST: Duration = Duration::from_secs(600);

/// Certificates of a chain: two or three are usual, and clients take no more than ten.
pub const CHAIN_MAX: usize = 10;

/// Bytes of a chain before they are written as text: ten certificates with many names.
pub const CHAIN_LEN_MAX: usize = 64 << 10;

/// Bytes of the disk that are set aside before a certificate is ordered: a chain as text, and a key.
pub const ORDER_RESERVED: u64 = (CHAIN_LEN_MAX * 3 / 2 + (16 << 10)) as u64;

/// Bytes of the file of an order: a key, and two URLs.
pub const ORDER_LEN_MAX: u64 = 32 << 10;

/// Seconds for which an order that came to no end is kept: servers forget them within days.
pub const ORDER_KEPT_S: u64 = 7 * 86_400;

/// Seconds until an account that a server does not know is replaced once more.
pub const ACCOUNT_KEPT_S: i64 = 86_400;

/// Bytes of a file of an account.
pub const ACCOUNT_LEN_MAX: u64 = 64 << 10;

/// Bytes of a file of a certificate: more than a chain and a key come to.
pub const CERTIFICATE_LEN_MAX: u64 = (ACME_BODY_LEN_MAX + (16 << 10)) as u64;

/// Letters of an ACME server's message that are shown. They say what is wrong with a name.
pub const PROBLEM_LEN_MAX: usize = 600;

/// Bytes of a release that are written by one request, of which [`PARTS_AT_ONCE`] are in memory. Object
/// storages take at most [`PARTS_MAX`] parts of at least 5 MiB each, so that those of a larger release
/// are larger.
pub const PART_LEN: u64 = 8 << 20;

/// Parts of a release that are written at the same time: enough to fill a link to another continent.
pub const PARTS_AT_ONCE: usize = 4;

/// Parts of a release, as Amazon's S3 bounds them.
pub const PARTS_MAX: u64 = 10_000;

/// Bytes a second that a request which writes has to get rid of, beside [`ANSWER_TIMEOUT`]: the slowest
/// link that still differs from a store that takes nothing.
pub const WRITE_LEAST: u64 = 4 << 10;

/// Until the parts of a release are one object: Amazon's S3 takes minutes for large ones.
pub const COMPLETE_TIMEOUT: Duration = Duration::from_secs(600);

/// Names that are read of a bucket's log, whose serials are held, some 20 MiB: a publication every five minutes
/// for ten years, which is a thousand pages of a list.
pub const ENTRIES_MAX: usize = 1 << 20;

/// Names that are read of a bucket's releases, and held.
pub const RELEASES_MAX: usize = 1 << 17;

/// Entries of the log that are read at the same time.
pub const ENTRIES_AT_ONCE: usize = 16;

/// Bytes of the file that notes the parts of an upload: [`PARTS_MAX`] lines.
pub const JOURNAL_LEN_MAX: u64 = 4 << 20;

/// Bytes of the note that names the URL of which a folder has the copy: twice what web servers take.
pub const ORIGIN_LEN_MAX: u64 = 16 << 10;

/// Ranges that a receiver asks for before it reads the first of them: their lines are less than what a
/// connection takes without being read, so that neither side waits for the other.
pub const ASKED_AT_ONCE: usize = 64;

/// Bytes of a line between a publisher and a receiver.
pub const LINE_LEN_MAX: usize = 512;

/// Of a release's length, what a publisher sends in one conversation at most: a receiver asks once for what it
/// lacks, and once more for all of it, if what it has is not what it should be.
pub const SENT_TIMES_MAX: u64 = 2;

/// Lines that a receiver says in one conversation at most, beside a range for each [`JOIN_GAP_MAX`] bytes of a
/// release: it asks for its first bytes, its metadata in packed form and as it is, what follows the last gap, and all of
/// it, and ends with two words.
pub const LINES_BESIDE: u64 = 7;

/// For which a publisher waits in one conversation: as long as it is waited for itself, and the same again for
/// what the receiver does meanwhile.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// Bytes that are read and written as one by publishers and receivers.
pub const CONVERSATION_PIECE: usize = 64 << 10;

/// Connections of publishers at the same time, each with a thread: one uploads, one waits for it, and the
/// others are refused once they have shown a pointer. Of more, one that has not makes room for the newest: the
/// oldest of the client that has most, so that clients without the key keep no publisher out by waiting, nor one
/// address by coming often.
pub const PUBLISHERS_MAX: usize = 32;

/// Bytes of the stack of such a thread, whose buffers are on the heap.
pub const PUBLISHER_STACK: usize = 256 << 10;

/// Until a publisher has shown a pointer, in time that it is waited for: a handshake, a request, and 1 KiB.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// For which a publisher is waited in one conversation, beside the rate of [`BODY_LEAST`]: what is not there by
/// then is resumed by the next one. Who holds an upload without the key, by a pointer that it has seen, can begin
/// again; a newer pointer ends that.
pub const CONVERSATION_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Until a receiver says its next line: it may read all of a release meanwhile, and copy from others.
pub const RECEIVER_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of the head of a request, and of the answer, which open a conversation: proxies add fields.
pub const OPENING_LEN_MAX: usize = 4096;

/// The pause after a connection that the system could not accept, for want of descriptors or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Different refusals of publishers that are reported between two releases, of those with a good pointer and of
/// others each: any client can cause them, with a pointer that it has seen or without.
pub const REFUSALS_REPORTED: usize = 8;

/// Bytes of a blob that are made present by one question, from the start of what is requested: the longest unit,
/// or sixteen groups of a long blob, so that little is fetched of what is only begun.
pub const FETCH_LEN_MAX: u64 = gannet_archive::limits::UNIT_LEN_MAX;

/// Until a fetch of [`FETCH_LEN_MAX`] bytes has ended, however often it was tried: 17 KiB a second, below which
/// no client waits for a page. Clients wait less long, and find it there when they come back.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Fetches for servers at the same time, each with [`FETCH_LEN_MAX`] bytes in memory: as many as a page has files.
pub const FLIGHTS_MAX: usize = 32;

/// Questions of one client for which some of these may begin: what others ask for does not wait for all of it.
pub const FLIGHTS_OF_CLIENT: usize = FLIGHTS_MAX / 4 * 3;

/// Questions that a client has in one turn: as many files as a page needs before it is shown. With one, the last files of
/// each page would wait for the first of all pages that are requested later.
pub const TURN: usize = FLIGHTS_OF_CLIENT / 3;

/// Until a question is given up that no fetch has begun for: no client waits longer, and those who come later wait
/// behind it.
pub const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Different questions of servers that wait for an answer: 1,280 that clients wait for (a server of up to 16 workers
/// asks no more, one of 32 twice as many), and what is asked ahead, which has half of them. So with more than 19 workers
/// a flood may be refused for what is asked ahead.
pub const QUESTIONS_MAX: usize = 3072;

/// Questions of one client with which nothing more is asked ahead for it: some long files at a time.
pub const AHEAD_MAX: usize = 64;

/// Bytes of a blob that one use counts for: what a server sends from memory.
pub const USED_LEN_MAX: u64 = 4 << 20;

/// Connections that wait for an answer, to whatever questions.
pub const ANSWERS_MAX: usize = 1 << 14;

/// Questions and uses that were not looked at yet.
pub const MESSAGES_MAX: usize = 4096;

/// How long a unit is not fetched again that did not verify twice: clients of a damaged store cost it little.
pub const DAMAGED_FOR: Duration = Duration::from_secs(10);

/// The same for one that a store did not send, or the disk did not take.
pub const UNREACHABLE_FOR: Duration = Duration::from_secs(1);

/// Units of which such a failure is remembered. Of more, all are forgotten.
pub const FAILED_MAX: usize = 1 << 14;

/// Different failures that are reported before a fetch succeeds.
pub const REPORTED_MAX: usize = 8;

/// Partial releases that are open, whose units take some bytes of memory each: more than are kept by default.
pub const RELEASES_OPEN_MAX: usize = 32;

/// One conversation waits for the store's lock so long: the one before it may just have ended. Others that come
/// meanwhile do not.
pub const LOCK_WAIT: Duration = Duration::from_secs(5);

/// When room is made, this part of all of it becomes free, so that it is not made for each unit.
pub const ROOM_SHARE: u64 = 64;

/// Units that are removed at one time, while questions wait.
pub const EVICTED_MAX: usize = 1 << 12;

/// How often units are removed for one that is to be written: not every file system says at once what it has freed.
pub const EVICTIONS_MAX: usize = 4;

/// Uses of a unit that count. They are halved when room is looked for.
pub const USE_MAX: u8 = 63;

/// Blobs that are fetched of a release before they are requested: those used most of the one before.
pub const WARMED_MAX: usize = 4096;

/// Fetches for that at the same time, while no server waits.
pub const WARMING_FLIGHTS: usize = 2;

/// Units that are written for that before they are synced, of at most [`FETCH_LEN_MAX`] each: copied and hashed in
/// some milliseconds, in which no question is looked at.
pub const WRITTEN_MAX: usize = 8;

/// That fills at most the room divided by this: the rest is for what is requested.
pub const WARMED_SHARE: u64 = 4;
