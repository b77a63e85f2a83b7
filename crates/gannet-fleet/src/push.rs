//! Brings a release to a [receiver](crate::Receiver), which asks for what it lacks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::{error, fmt};

use crate::error::FleetError;
use crate::limits::{CONVERSATION_PIECE, JOIN_GAP_MAX, LINES_BESIDE, SENT_TIMES_MAX};
use crate::receiver::{HELLO, REFUSED, read_line, say};
use crate::trust::{DISTRUSTED_HELP, is_distrusted};

/// What a receiver has after a conversation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pushed {
    /// Bytes of the release that were sent.
    pub bytes: u64,
}

/// Why a receiver does not have a release.
#[derive(Debug)]
pub enum PushError {
    /// It refuses it, for this reason.
    Refused(String),
    /// It says what no receiver says.
    Words,
    /// There are no authorities whose certificates to trust.
    Trust(FleetError),
    /// The connection, or the file of the release, fails.
    Io(io::Error),
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "it refuses: {why}"),
            Self::Trust(error) => error.fmt(f),
            Self::Words => f.write_str("it does not speak the protocol of gannet's receivers"),
            Self::Io(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    f.write_str("it does not answer")
                }
                io::ErrorKind::UnexpectedEof => f.write_str("it has closed the connection"),
                _ => f.write_str(&gannet_io::cause::cause(error)),
            },
        }
    }
}

impl PushError {
    /// The next step, for a line `help: ...`.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Trust(error) => error.help(),
            Self::Io(error) if is_distrusted(error) => Some(DISTRUSTED_HELP.to_owned()),
            Self::Io(_) | Self::Refused(_) | Self::Words => None,
        }
    }
}

impl error::Error for PushError {}

impl From<io::Error> for PushError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Brings a release with its pointer, under the text that this has with its signature, and has it put into
/// force if it `is_activated`. `release` is the file, of `size` bytes.
///
/// # Errors
/// The receiver refuses it, or the connection or the file fails. Whether it is in force is unknown only if
/// the connection failed after it was to be.
pub fn push(
    stream: &mut (impl Read + Write),
    pointer: &str,
    (release, size): (&File, u64),
    is_activated: bool,
) -> Result<Pushed, PushError> {
    stream.write_all(format!("{HELLO}{}\n{pointer}", pointer.len()).as_bytes())?;
    stream.flush()?;
    let mut pushed = Pushed { bytes: 0 };
    for _ in 0..size / JOIN_GAP_MAX + LINES_BESIDE {
        let line = read_line(stream)?;
        if let Some(range) = line.strip_prefix("send ") {
            let range = parse(range).filter(|it| it.start <= it.end && it.end <= size);
            let range = range.ok_or(PushError::Words)?;
            pushed.bytes += range.end - range.start;
            if pushed.bytes > size.saturating_mul(SENT_TIMES_MAX) {
                return Err(PushError::Words);
            }
            // It may have said why it takes no more.
            send(stream, release, range).map_err(|error| match read_line(stream) {
                Ok(line) if line.starts_with(REFUSED) => {
                    PushError::Refused(line[REFUSED.len()..].to_owned())
                }
                _ => error.into(),
            })?;
        } else if let Some(why) = line.strip_prefix(REFUSED) {
            return Err(PushError::Refused(why.to_owned()));
        } else {
            match (&*line, is_activated) {
                // At once, if it is in force already.
                ("whole", false) | ("active", _) => return Ok(pushed),
                ("whole", true) => say(stream, "activate")?,
                _ => return Err(PushError::Words),
            }
        }
    }
    Err(PushError::Words)
}

fn parse(range: &str) -> Option<Range<u64>> {
    let (start, end) = range.split_once(' ')?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

fn send(stream: &mut impl Write, release: &File, range: Range<u64>) -> io::Result<()> {
    let mut piece = vec![0; CONVERSATION_PIECE];
    let mut at = range.start;
    while at < range.end {
        let left = usize::try_from(range.end - at).unwrap_or(CONVERSATION_PIECE);
        let piece = &mut piece[..left.min(CONVERSATION_PIECE)];
        release.read_exact_at(piece, at)?;
        stream.write_all(piece)?;
        at += piece.len() as u64;
    }
    stream.flush()
}
