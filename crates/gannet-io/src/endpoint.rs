//! The state that both real engines keep for each socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::file_send::FileSend;
use crate::gather::Gather;
use crate::ktls::{ControlRecord, Stage};
use crate::operation::Token;
use crate::progress::Progress;

/// A socket: what its caller wants from it, and its send.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) fd: Option<OwnedFd>,
    /// Distinguishes a socket from earlier ones in the same slot.
    pub(crate) generation: u32,
    /// The caller wants to receive (or has not paused).
    pub(crate) wants: bool,
    /// It wants to receive only once.
    pub(crate) wants_once: bool,
    pub(crate) receive_token: Option<Token>,
    pub(crate) sending: Sending,
    /// End the sending half when the send under way is done.
    pub(crate) shuts_down: bool,
    /// Bytes sent in all completed sends.
    pub(crate) sent: u64,
    pub(crate) kernel_tls: Stage,
}

/// The send of a socket.
#[derive(Debug, Default)]
pub(crate) enum Sending {
    #[default]
    Nothing,
    List {
        token: Token,
        progress: Progress,
        /// Where the kernel finds the parts during the send, if there are several.
        gather: Option<Gather>,
    },
    File(Box<FileSend>),
    Control(Token, ControlRecord),
}

impl Endpoint {
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.fd
            .as_ref()
            .expect("a slot in use has its descriptor")
            .as_fd()
    }

    /// Whether no send is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.sending, Sending::Nothing)
    }
}

impl Sending {
    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        match self {
            Self::Nothing | Self::Control(..) => 0,
            Self::List { progress, .. } => progress.sent(),
            Self::File(sending) => sending.sent(),
        }
    }
}
