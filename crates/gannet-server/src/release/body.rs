//! The content of a response, common to all versions of HTTP.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{self, Rc};
use std::sync::{self, Arc};

use gannet_io::driver::{File, Meta};
use gannet_io::memory::Memory;

use crate::release::growing::VersionEnd;
use crate::release::{ServedFile, Source};

/// A run of content: of a response, or cached for later ones.
#[derive(Clone)]
pub(crate) enum Body {
    /// Bytes made or read for this response only.
    Own(Arc<Memory>, Range<usize>),
    /// A range of shared memory.
    Shared(Arc<Memory>, Range<usize>),
    /// A range of a file.
    File(Rc<ServedFile>, Range<u64>),
}

/// A body in memory, or a copy in a file, that lasts only as long as someone else has it.
pub(crate) enum WeakBody {
    Memory(sync::Weak<Memory>),
    File(rc::Weak<ServedFile>, u64),
}

impl WeakBody {
    /// Whether someone has it.
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.strong_count() > 0,
            Self::File(file, _) => file.strong_count() > 0,
        }
    }

    /// The whole body, if someone still has it.
    pub(crate) fn upgrade(&self) -> Option<Body> {
        Some(match self {
            Self::Memory(memory) => Body::whole(memory.upgrade()?),
            Self::File(file, len) => Body::File(file.upgrade()?, 0..*len),
        })
    }
}

impl Body {
    /// A range of a representation; `None` if its bytes are not available yet.
    pub(crate) fn of(source: Source<'_>, range: Range<u64>) -> Option<Self> {
        let bounds = || range.start as usize..range.end as usize;
        Some(match source {
            Source::Bytes(bytes) => Self::own(bytes[bounds()].to_vec()),
            Source::Memory(memory, offset) => {
                let range = offset + bounds().start..offset + bounds().end;
                Self::Shared(Arc::clone(memory), range)
            }
            Source::Made(memory, offset) => {
                let range = offset + bounds().start..offset + bounds().end;
                Self::Own(Arc::clone(memory), range)
            }
            Source::File(file, offset) => {
                Self::File(Rc::clone(file), offset + range.start..offset + range.end)
            }
            Source::Unloaded(_) | Source::Unread => return None,
        })
    }

    /// The whole of a file that may change; `meta` is its metadata at opening, and `end` its end then, if it
    /// had changed recently.
    pub(crate) fn live(file: File, meta: Meta, end: Option<VersionEnd>) -> Self {
        Self::File(Rc::new(ServedFile::live(file, meta, end)), 0..meta.len)
    }

    /// A copy of a file of `len` bytes, in unalterable memory.
    pub(crate) fn copy(file: File, len: u64) -> Self {
        Self::File(Rc::new(ServedFile::constant(file)), 0..len)
    }

    /// All of a memory, to be shared.
    pub(crate) fn whole(memory: Arc<Memory>) -> Self {
        let len = memory.len();
        Self::Shared(memory, 0..len)
    }

    /// The same, without keeping it.
    pub(crate) fn downgrade(&self) -> WeakBody {
        match self {
            Self::Own(memory, _) | Self::Shared(memory, _) => {
                WeakBody::Memory(Arc::downgrade(memory))
            }
            Self::File(file, range) => WeakBody::File(Rc::downgrade(file), range.end),
        }
    }

    /// Whether it is in a file that may change.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, Self::File(file, _) if !file.is_constant())
    }

    /// Whether it is in a file that may change, whose version has this end, if any.
    pub(crate) fn is_live_with(&self, end: Option<VersionEnd>) -> bool {
        matches!(self, Self::File(file, _) if !file.is_constant() && file.end() == end)
    }

    /// The same as the source of a representation.
    pub(crate) fn as_source(&self) -> Source<'_> {
        match self {
            Self::Own(memory, range) | Self::Shared(memory, range) => {
                Source::Memory(memory, range.start)
            }
            Self::File(file, range) => Source::File(file, range.start),
        }
    }

    /// Bytes made or read for one response.
    pub(crate) fn own(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self::Own(Arc::new(Memory::from_vec(bytes)), 0..len)
    }

    /// The same content in memory, if that requires no read: a sealed file that is mapped.
    pub(crate) fn in_memory(self) -> Self {
        match self {
            Self::File(file, range) => match file.file.sealed_memory() {
                Some(memory) => {
                    let range = range.start as usize..range.end as usize;
                    Self::Shared(Arc::clone(memory), range)
                }
                None => Self::File(file, range),
            },
            body => body,
        }
    }

    /// Takes at most `len` bytes from its front; `None` if they are in a file.
    pub(crate) fn take(&mut self, len: u64) -> Option<(Arc<Memory>, Range<usize>)> {
        let (Self::Own(memory, range) | Self::Shared(memory, range)) = self else {
            return None;
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(range.len());
        let taken = range.start..range.start + len;
        range.start = taken.end;
        Some((Arc::clone(memory), taken))
    }

    /// Its memory, for reuse, if it has no other owner.
    pub(crate) fn into_vec(self) -> Option<Vec<u8>> {
        match self {
            Self::Own(memory, _) | Self::Shared(memory, _) => Arc::into_inner(memory)?.into_vec(),
            Self::File(..) => None,
        }
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Own(_, range) | Self::Shared(_, range) => range.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }

    /// The length of all of these.
    pub(crate) fn len_of<'b>(parts: impl IntoIterator<Item = &'b Self>) -> u64 {
        parts.into_iter().map(Self::len).sum()
    }

    /// Whether no bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held only for a response with these parts: its own content, which several of
    /// them in a row may have in common, and the parts themselves.
    pub(crate) fn held_by(parts: &VecDeque<Self>) -> u64 {
        const COUNTS: usize = 2 * size_of::<usize>();
        let own = parts.iter().filter_map(|part| match part {
            Self::Own(memory, _) => Some((
                Arc::as_ptr(memory).addr(),
                memory.len() + size_of::<Memory>() + COUNTS,
            )),
            Self::File(file, _) => {
                let growing = file.growth()?;
                Some((Rc::as_ptr(file).addr(), growing.held_bytes() + COUNTS))
            }
            Self::Shared(..) => None,
        });
        let mut last = None;
        let distinct = own.filter(|(this, _)| last.replace(*this) != Some(*this));
        let own = distinct.map(|(_, held)| held);
        (parts.capacity() * size_of::<Self>() + own.sum::<usize>()) as u64
    }

    /// Its bytes, if that requires no read.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Own(memory, range) | Self::Shared(memory, range) => {
                memory.bytes().get(range.clone())
            }
            Self::File(file, range) => {
                let range = range.start as usize..range.end as usize;
                file.file.sealed_memory()?.bytes().get(range)
            }
        }
    }

    /// The memory, if it is shared.
    pub(crate) fn shared(&self) -> Option<&Arc<Memory>> {
        match self {
            Self::Shared(memory, _) => Some(memory),
            Self::Own(..) | Self::File(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that share memory count it once, and each part takes memory itself.
    #[test]
    fn what_parts_hold_is_counted_once() {
        let framing = Arc::new(Memory::from_vec(vec![b'f'; 1_000]));
        let content = Arc::new(Memory::from_vec(vec![b'c'; 9_000]));
        let mut parts = VecDeque::with_capacity(17);
        for number in 0..8 {
            parts.push_back(Body::Own(
                Arc::clone(&framing),
                100 * number..100 * (number + 1),
            ));
            parts.push_back(Body::Shared(Arc::clone(&content), number..number + 1));
        }
        let entries = (parts.capacity() * size_of::<Body>()) as u64;
        let one = Body::held_by(&parts) - entries;
        assert!((1_000..1_100).contains(&one), "{one}");
        parts.push_back(Body::own(vec![b'r'; 2_000]));
        let two = Body::held_by(&parts) - entries - one;
        assert!((2_000..2_100).contains(&two), "{two}");
    }
}
