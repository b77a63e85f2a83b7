//! Chunked content (RFC 9112 section 7.1), parsed strictly in order to be discarded.
//!
//! The caller bounds the total, framing included, so nothing is bounded here.

/// The position within chunked content.
///
/// ```text
///   Size -> SizeLf -> Data -> DataCr -> DataLf -> Size ...
///    | \-> Extension -^                   last chunk: TrailerLine -> EndLf -> end
///                                                       \-> TrailerName -> TrailerValue
///                                                             -> TrailerLf -> TrailerLine
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChunkState {
    /// In the digits of a chunk's size; this many have been read.
    Size(u8),
    /// In a chunk extension.
    Extension,
    /// After the CR of a size line.
    SizeLf,
    /// In a chunk's data.
    Data,
    /// After a chunk's data.
    DataCr,
    /// After the CR that follows a chunk's data.
    DataLf,
    /// At the beginning of a trailer line.
    TrailerLine,
    /// In the name of a trailer field.
    TrailerName,
    /// In the value of a trailer field.
    TrailerValue,
    /// After the CR of a trailer line.
    TrailerLf,
    /// After the CR of the empty line that ends everything.
    EndLf,
}

/// Chunked content that is being discarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked {
    /// Bytes of the current chunk still to come.
    remaining: u64,
    state: ChunkState,
}

/// A byte that must not be where it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MalformedChunk;

impl Chunked {
    /// At the beginning of chunked content.
    pub(crate) fn new() -> Self {
        Self {
            remaining: 0,
            state: ChunkState::Size(0),
        }
    }

    /// Discards bytes of the content; returns how many, and whether the content ended with them.
    pub(crate) fn receive(&mut self, input: &[u8]) -> Result<(usize, bool), MalformedChunk> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if self.state == ChunkState::Data {
                let len = (input.len() - at) as u64;
                let taken = len.min(self.remaining);
                self.remaining -= taken;
                at += taken as usize;
                if self.remaining == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            at += 1;
            if self.state == ChunkState::EndLf {
                return if byte == b'\n' {
                    Ok((at, true))
                } else {
                    Err(MalformedChunk)
                };
            }
            self.state = self.next(byte)?;
        }
        Ok((at, false))
    }

    /// The state after a byte of framing.
    fn next(&mut self, byte: u8) -> Result<ChunkState, MalformedChunk> {
        let is_text = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        Ok(match (self.state, byte) {
            // Sixteen digits, so the size fits in 64 bits.
            (ChunkState::Size(count @ 0..=15), _) if byte.is_ascii_hexdigit() => {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    _ => (byte | 0x20) - b'a' + 10,
                };
                self.remaining = self.remaining << 4 | u64::from(digit);
                ChunkState::Size(count + 1)
            }
            (ChunkState::Size(1..), b';') => ChunkState::Extension,
            (ChunkState::Size(1..) | ChunkState::Extension, b'\r') => ChunkState::SizeLf,
            (ChunkState::Extension, _) if is_text => ChunkState::Extension,
            (ChunkState::SizeLf, b'\n') if self.remaining == 0 => ChunkState::TrailerLine,
            (ChunkState::SizeLf, b'\n') => ChunkState::Data,
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size(0),
            (ChunkState::TrailerLine, b'\r') => ChunkState::EndLf,
            (ChunkState::TrailerLine | ChunkState::TrailerName, _)
                if crate::scan::is_token_byte(byte) =>
            {
                ChunkState::TrailerName
            }
            (ChunkState::TrailerName, b':') => ChunkState::TrailerValue,
            (ChunkState::TrailerValue, b'\r') => ChunkState::TrailerLf,
            (ChunkState::TrailerValue, _) if is_text => ChunkState::TrailerValue,
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerLine,
            _ => return Err(MalformedChunk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole and byte by byte: `expect` is the length of the content, if it ends.
    fn check(input: &str, expect: Result<Option<usize>, MalformedChunk>) {
        let input = input.as_bytes();
        let whole = Chunked::new()
            .receive(input)
            .map(|(len, is_end)| is_end.then_some(len));
        assert_eq!(whole, expect, "{}", input.escape_ascii());

        let mut chunked = Chunked::new();
        let mut result = Ok(None);
        for (index, byte) in input.iter().enumerate() {
            match chunked.receive(std::slice::from_ref(byte)) {
                Ok((1, false)) => {}
                Ok((_, _)) => {
                    result = Ok(Some(index + 1));
                    break;
                }
                Err(malformed) => {
                    result = Err(malformed);
                    break;
                }
            }
        }
        assert_eq!(result, expect, "byte by byte: {}", input.escape_ascii());
    }

    #[test]
    fn content_ends_after_the_last_chunk_and_its_trailers() {
        check("0\r\n\r\n", Ok(Some(5)));
        check("0\r\n\r\nGET", Ok(Some(5)));
        check("5\r\nhello\r\n0\r\n\r\n", Ok(Some(15)));
        check(
            "00A;x=\"y\"\r\n0123456789\r\nF\r\n0123456789abcde\r\n000\r\n\r\n",
            Ok(Some(50)),
        );
        check("0\r\nA: b\r\nC:\r\n\r\n", Ok(Some(15)));
        check("5\r\nhel", Ok(None));
        check("0\r\n", Ok(None));
        check("ffffffffffffffff\r\nx", Ok(None));
    }

    #[test]
    fn anything_doubtful_is_malformed() {
        for bad in [
            "\r\n",
            ";x\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 \r\n",
            "1\nx\r\n",
            "1\rx",
            "1;x\n",
            "1;\0\r\n",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n\r\n",
            "1\r\na\r0",
            "10000000000000000\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\n a: b\r\n",
            "0\r\na b: c\r\n",
            "0\r\na\r\n",
            "0\r\na: b\n\r\n",
            "0\r\na: b\rx",
            "0\r\n: b\r\n",
            "0\n\n",
        ] {
            check(bad, Err(MalformedChunk));
        }
    }
}
