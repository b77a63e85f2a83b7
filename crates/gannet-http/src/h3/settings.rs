//! SETTINGS frames: writing ours, checking the peer's (RFC 9114 section 7.2.4).

use super::error::Why;
use super::frame::{FrameType, read_varint, write_varint};
use super::limits::SETTINGS_MAX;
use crate::binary::limits::FIELD_SECTION_MAX;

/// The maximum decoded size of a field section.
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// Whether extended CONNECT is supported (RFC 9220).
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
/// Whether HTTP datagrams are supported (RFC 9297).
const H3_DATAGRAM: u64 = 0x33;

/// A reserved identifier, 0x1f * N + 0x21 for N = 0x3a7: exercises the requirement that clients
/// ignore unknown settings (RFC 9114 section 7.2.4.1).
const GREASE: u64 = 0x1f * 0x3a7 + 0x21;

/// Appends our SETTINGS frame. All other settings keep their defaults: QPACK's dynamic table has
/// capacity 0, and no stream may be blocked by it.
pub(crate) fn write(out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(16);
    for (id, value) in [
        (MAX_FIELD_SECTION_SIZE, u64::from(FIELD_SECTION_MAX)),
        (GREASE, 0),
    ] {
        write_varint(id, &mut payload);
        write_varint(value, &mut payload);
    }
    write_varint(FrameType::SETTINGS.0, out);
    write_varint(payload.len() as u64, out);
    out.extend_from_slice(&payload);
}

/// Checks the payload of the peer's SETTINGS frame. Its values are not used: this server has no
/// dynamic table, and its field sections are short.
///
/// # Errors
/// If the payload is not a list of settings, or has too many, a repeated or reserved one, or an
/// invalid value.
pub(crate) fn check(payload: &[u8]) -> Result<(), Why> {
    let mut rest = payload;
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let id = read_varint(&mut rest).ok_or(Why::FrameLength)?;
        let value = read_varint(&mut rest).ok_or(Why::FrameLength)?;
        match id {
            // RFC 9114 11.2.2: settings of HTTP/2.
            0x0 | 0x2..=0x5 => return Err(Why::SettingReserved),
            ENABLE_CONNECT_PROTOCOL | H3_DATAGRAM if value > 1 => return Err(Why::SettingValue),
            _ if seen.contains(&id) => return Err(Why::SettingRepeated),
            _ if seen.len() == SETTINGS_MAX => return Err(Why::ControlFrameTooLong),
            _ => seen.push(id),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_may_set() {
        let check = |pairs: &[(u64, u64)], expect| {
            let mut payload = Vec::new();
            for (id, value) in pairs {
                write_varint(*id, &mut payload);
                write_varint(*value, &mut payload);
            }
            assert_eq!(super::check(&payload), expect, "{pairs:x?}");
        };
        check(&[], Ok(()));
        check(
            &[(1, 4096), (7, 100), (6, 1 << 61), (8, 1), (0x33, 0)],
            Ok(()),
        );
        check(&[(0x21, 1), (0x40, 7), (1 << 60, 1 << 60)], Ok(()));
        for id in [0, 2, 3, 4, 5] {
            check(&[(id, 0)], Err(Why::SettingReserved));
        }
        check(&[(6, 1), (1, 0), (6, 1)], Err(Why::SettingRepeated));
        check(&[(0x21, 1), (0x21, 2)], Err(Why::SettingRepeated));
        check(&[(8, 2)], Err(Why::SettingValue));
        check(&[(0x33, 2)], Err(Why::SettingValue));
        let many: Vec<_> = (0..65).map(|n| (0x21 + 0x1f * n, 0)).collect();
        check(&many[1..], Ok(()));
        check(&many, Err(Why::ControlFrameTooLong));
        assert_eq!(super::check(&[6]), Err(Why::FrameLength));
        assert_eq!(super::check(&[6, 0x40]), Err(Why::FrameLength));
    }

    #[test]
    fn ours_are_good() {
        let mut frame = Vec::new();
        write(&mut frame);
        assert_eq!(frame[0], 4);
        assert_eq!(usize::from(frame[1]), frame.len() - 2);
        assert_eq!(super::check(&frame[2..]), Ok(()));
        assert_eq!((GREASE - 0x21) % 0x1f, 0);
    }
}
