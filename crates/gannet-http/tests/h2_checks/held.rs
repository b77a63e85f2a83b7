//! A model of how much a peer's frames may make a connection hold. It splits the bytes into frames
//! independently and counts: streams opened, the field block under way, replies owed, priorities of
//! future streams. The memory that a connection holds must be in proportion.

/// More than a stream takes in the table, including its identifier and its entry among the free
/// ones.
const PER_STREAM: usize = 160;

/// What every connection may hold: our SETTINGS, the first table entries, the start of a block.
const BASE: usize = 2 * 1024;

const STREAMS_MAX: usize = 128;
const PRIORITIES_MAX: usize = 32;
/// Replies at which reading stops, plus those of one more frame.
const REPLIES_MAX: usize = 4096 + 64;
const REPLY_LEN: usize = 17;

/// What has been seen of the peer's bytes.
#[derive(Default)]
pub(crate) struct Held {
    /// The rest of the preface, then of a frame.
    rest: Vec<u8>,
    has_preface: bool,
    requests: usize,
    highest: u32,
    /// Bytes of field blocks, the one under way and earlier ones: the dynamic table holds of them
    /// at most its bound.
    block: usize,
    blocks: usize,
    replies: usize,
    priorities: usize,
}

impl Held {
    /// Records what the peer sends.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        if !self.has_preface {
            if self.rest.len() < 24 {
                return;
            }
            self.rest.drain(..24);
            self.has_preface = true;
        }
        loop {
            let [a, b, c, kind, flags, s0, s1, s2, s3, ..] = self.rest[..] else {
                return;
            };
            let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if self.rest.len() < 9 + len {
                return;
            }
            self.frame(kind, flags, u32::from_be_bytes([s0, s1, s2, s3]), len);
            self.rest.drain(..9 + len);
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, len: usize) {
        const END_HEADERS: u8 = 4;
        match kind {
            // HEADERS, CONTINUATION
            1 | 9 => {
                if kind == 1 {
                    self.block = 0;
                    self.requests += usize::from(stream > self.highest);
                    self.highest = self.highest.max(stream);
                }
                self.block += len;
                self.blocks += len;
                if flags & END_HEADERS != 0 {
                    self.block = 0;
                }
            }
            // PRIORITY_UPDATE
            0x10 => self.priorities += 1,
            _ => {}
        }
        // Any frame may cause a reply: an acknowledgement, a window, a reset, an end.
        self.replies += 1;
    }

    /// The most that a connection may hold after these bytes.
    pub(crate) fn most(&self) -> usize {
        let table = self.blocks.saturating_mul(2).min(2 * 4096);
        BASE + self.requests.min(STREAMS_MAX) * PER_STREAM
            + 2 * self.block
            + table
            + 2 * (self.replies * REPLY_LEN).min(REPLIES_MAX)
            + self.priorities.min(PRIORITIES_MAX) * 32
            + (self.requests * 8).min(64 * 8)
    }
}
