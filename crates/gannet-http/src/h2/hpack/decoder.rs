//! Decoding of field blocks (RFC 7541 sections 3 and 6).
//!
//! Every field is appended to a buffer in HTTP/1's line form. A block whose fields exceed the limit
//! is still decoded, because the dynamic table has to stay in step, but its lines can be dropped
//! one by one, so that the buffer does not grow.

use super::dynamic_table::DynamicTable;
use super::static_table::{self, STATIC_COUNT};
use crate::binary::limits::FIELD_SECTION_DECODED_MAX;
use crate::binary::line::{LINE_END, Line, NameKind};
use crate::binary::{CodingError, integer, string};
use crate::h2::limits::DYNAMIC_TABLE_MAX;

/// The decoder of one connection.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: DynamicTable,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder with an empty table of at most [`DYNAMIC_TABLE_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: DynamicTable::new(),
        }
    }

    /// Decodes a whole block into `lines`. Passes each line to `keep`, which returns whether it
    /// stays.
    ///
    /// # Errors
    /// After an error the table is out of step with the peer's: the connection cannot continue.
    #[inline]
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        lines: &mut Vec<u8>,
        mut keep: impl FnMut(&Line, &[u8]) -> bool,
    ) -> Result<(), CodingError> {
        let mut input = self.read_size_updates(block)?;
        let mut decoded = 0;
        while let Some((&first, rest)) = input.split_first() {
            input = rest;
            let line = if first & 0x80 != 0 {
                let index = integer::decode(first, 7, &mut input)?;
                self.indexed(index, lines)?
            } else if first & 0xe0 == 0x20 {
                // RFC 7541 4.2: an update is allowed only at the beginning.
                return Err(CodingError::SizeUpdate);
            } else {
                self.literal(first, &mut input, lines)?
            };
            decoded += line.size();
            if !keep(&line, lines) {
                lines.truncate(line.start as usize);
            }
            if decoded > FIELD_SECTION_DECODED_MAX {
                return Err(CodingError::TooLarge);
            }
        }
        Ok(())
    }

    /// Decodes a block and passes each name and value to a callback, for tools and tests.
    ///
    /// # Errors
    /// If the block cannot be decoded; fields before the error have been passed.
    pub fn decode_each(
        &mut self,
        block: &[u8],
        mut show: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CodingError> {
        self.decode(block, &mut Vec::new(), |line, bytes| {
            let start = line.start as usize;
            let name = &bytes[start..start + usize::from(line.name_len)];
            let value = &bytes[line.value_start()..line.end() - LINE_END.len()];
            show(name, value);
            false
        })
    }

    /// Size updates at the beginning of a block: at most the lowest size since the last block, and
    /// the final one (RFC 7541 section 4.2).
    fn read_size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], CodingError> {
        let mut input = block;
        let mut count = 0;
        while let Some((&first, rest)) = input.split_first()
            && first & 0xe0 == 0x20
        {
            input = rest;
            let size = integer::decode(first, 5, &mut input)?;
            count += 1;
            if size > DYNAMIC_TABLE_MAX || count > 2 {
                return Err(CodingError::SizeUpdate);
            }
            self.table.resize(size);
        }
        Ok(input)
    }

    /// An indexed field (RFC 7541 section 6.1).
    #[inline]
    fn indexed(&self, index: u32, lines: &mut Vec<u8>) -> Result<Line, CodingError> {
        if let Some(entry) = static_table::get(index) {
            return Ok(Line::of_entry(entry, lines));
        }
        let position = dynamic_position(index)?;
        self.table
            .write_line(position, lines)
            .ok_or(CodingError::Index)
    }

    /// A literal field (RFC 7541 section 6.2); `first` distinguishes the three kinds.
    fn literal(
        &mut self,
        first: u8,
        input: &mut &[u8],
        lines: &mut Vec<u8>,
    ) -> Result<Line, CodingError> {
        let is_added = first & 0x40 != 0;
        let prefix_len = if is_added { 6 } else { 4 };
        let index = integer::decode(first, prefix_len, input)?;
        let start = lines.len();
        let kind = if index == 0 {
            string::read_next(input, 7, lines)?;
            NameKind::of(&lines[start..])
        } else if let Some(entry) = static_table::get(index) {
            lines.extend_from_slice(entry.name().as_bytes());
            entry.kind
        } else {
            let position = dynamic_position(index)?;
            self.table
                .write_name(position, lines)
                .ok_or(CodingError::Index)?
        };
        let line = Line::read_value(kind, start, input, lines)?;
        if is_added {
            self.table.insert(&line, &lines[start..]);
        }
        Ok(line)
    }

    #[cfg(test)]
    pub(crate) fn table_size(&self) -> u32 {
        self.table.size()
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }
}

/// Position in the dynamic table of an index beyond the static one.
#[inline]
fn dynamic_position(index: u32) -> Result<usize, CodingError> {
    (index as usize)
        .checked_sub(STATIC_COUNT + 1)
        .ok_or(CodingError::Index)
}
