//! SETTINGS (RFC 9113 section 6.5): pairs of an identifier and a value, or an acknowledgement.

use super::{FrameHeader, FrameType, flags};
use crate::h2::error::Why;

/// The identifier of a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SettingId(pub u16);

impl SettingId {
    /// The size of the decoder's dynamic table.
    pub const HEADER_TABLE_SIZE: Self = Self(0x1);
    /// Whether the server may push.
    pub const ENABLE_PUSH: Self = Self(0x2);
    /// How many streams may be open at once.
    pub const MAX_CONCURRENT_STREAMS: Self = Self(0x3);
    /// The initial window of each stream.
    pub const INITIAL_WINDOW_SIZE: Self = Self(0x4);
    /// The longest frame payload.
    pub const MAX_FRAME_SIZE: Self = Self(0x5);
    /// The largest field section, advisory.
    pub const MAX_HEADER_LIST_SIZE: Self = Self(0x6);
    /// Extended CONNECT is supported (RFC 8441).
    pub const ENABLE_CONNECT_PROTOCOL: Self = Self(0x8);
    /// The priorities of RFC 7540 are not used (RFC 9218 section 2.1).
    pub const NO_RFC7540_PRIORITIES: Self = Self(0x9);
}

/// Bytes of one setting.
const SETTING_LEN: usize = 6;

/// The settings of a payload, in order.
///
/// # Errors
/// [`Why::FrameLength`] unless the length is a multiple of 6.
pub(crate) fn parse(
    payload: &[u8],
) -> Result<impl ExactSizeIterator<Item = (SettingId, u32)>, Why> {
    let (settings, rest) = payload.as_chunks::<SETTING_LEN>();
    if !rest.is_empty() {
        return Err(Why::FrameLength);
    }
    Ok(settings.iter().map(|&[a, b, value @ ..]| {
        let id = SettingId(u16::from_be_bytes([a, b]));
        (id, u32::from_be_bytes(value))
    }))
}

/// Appends a frame with these settings.
pub(crate) fn write(settings: &[(SettingId, u32)], out: &mut Vec<u8>) {
    header(settings.len() * SETTING_LEN, 0).write(out);
    for (id, value) in settings {
        out.extend_from_slice(&id.0.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends an acknowledgement.
pub(crate) fn write_ack(out: &mut Vec<u8>) {
    header(0, flags::ACK).write(out);
}

fn header(len: usize, frame_flags: u8) -> FrameHeader {
    FrameHeader {
        len: len as u32, // of a handful of settings
        kind: FrameType::SETTINGS,
        flags: frame_flags,
        stream: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back() {
        let settings = [
            (SettingId::INITIAL_WINDOW_SIZE, 0x0102_0304),
            (SettingId(0xfefe), u32::MAX),
        ];
        let mut out = Vec::new();
        write(&settings, &mut out);
        assert_eq!(out[..9], [0, 0, 12, 4, 0, 0, 0, 0, 0]);
        let found: Vec<_> = parse(&out[9..]).expect("two settings").collect();
        assert_eq!(found, settings);
        assert_eq!(parse(&out[10..]).err(), Some(Why::FrameLength));
        assert_eq!(parse(&[]).map(|all| all.count()), Ok(0));
    }
}
