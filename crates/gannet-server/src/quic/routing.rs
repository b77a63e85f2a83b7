//! Routing of datagrams to the worker that has their connection.
//!
//! The kernel spreads datagrams over the workers' sockets: where it accepts a filter, by the same
//! byte of the connection ID. The filter is an optimisation, because a worker forwards the
//! datagrams that belong to another one.

use gannet_io::udp;

use super::VERSION;
use super::settings::ID_LEN;

/// The bit of a long header (RFC 8999 section 5.1).
const LONG_HEADER: u8 = 0x80;

/// The type of a long header in QUIC version 1 (RFC 9000 section 17.2), and that of a Handshake packet.
const LONG_TYPE: u8 = 0x30;
const HANDSHAKE: u8 = 0x20;

/// Offset of the destination connection ID in a long header: after the first byte, the version and
/// the length of the ID.
const LONG_ID_AT: usize = 6;

/// Who issued a connection ID, as its first bytes say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Issuer {
    /// The number of the worker.
    pub(super) worker: u8,
    /// The generation of its process.
    pub(super) generation: u8,
}

/// Who issued the connection ID of a datagram's first packet. `None` if the client may have chosen
/// the ID.
pub(super) fn issuer(datagram: &[u8]) -> Option<Issuer> {
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return issuer_at(datagram, 1);
    }
    let is_ours = datagram.get(1..5) == Some(&VERSION.to_be_bytes());
    match is_ours && first & LONG_TYPE == HANDSHAKE {
        true => issuer_at(datagram, LONG_ID_AT),
        false => None,
    }
}

/// Who issued the connection ID of a client's first packets, if it is as long as ours: it is ours
/// from the second packet of the client on, and may be a client's own choice.
pub(super) fn possible_issuer(datagram: &[u8]) -> Option<Issuer> {
    let is_long = datagram.first()? & LONG_HEADER != 0;
    let len = usize::from(*datagram.get(LONG_ID_AT - 1)?);
    match is_long && len == ID_LEN {
        true => issuer_at(datagram, LONG_ID_AT),
        false => None,
    }
}

fn issuer_at(datagram: &[u8], at: usize) -> Option<Issuer> {
    let [worker, generation] = *datagram.get(at..at + 2)? else {
        return None;
    };
    Some(Issuer { worker, generation })
}

/// The first byte of the destination connection ID, chosen by either side.
pub(super) fn worker_named(datagram: &[u8]) -> Option<u8> {
    match datagram.first()? & LONG_HEADER {
        0 => datagram.get(1).copied(),
        _ => datagram.get(LONG_ID_AT).copied(),
    }
}

/// The worker for a client's first packets where the kernel does not spread them: the one that the
/// kernel's filter would choose, so that all of them reach the same worker.
pub(super) fn spread(datagram: &[u8], workers: u8) -> Option<u8> {
    Some((worker_named(datagram)? & udp::WORKER_MASK) % workers.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_ids_name_their_issuer() {
        let expect = |worker, generation| Some(Issuer { worker, generation });
        assert_eq!(issuer(&[0x40, 3, 9, 9]), expect(3, 9));
        assert_eq!(issuer(&[0x40, 3]), None);
        assert_eq!(issuer(&[]), None);
        let long = |first, len| [first, 0, 0, 0, 1, len, 5, 9, 9];
        assert_eq!(issuer(&long(0xe0, 10)), expect(5, 9), "a Handshake packet");
        assert_eq!(issuer(&long(0xc0, 10)), None, "an Initial packet");
        assert_eq!(issuer(&long(0xd0, 10)), None, "a 0-RTT packet");
        let unknown = [0xe0, 0x0a, 0x0a, 0x0a, 0x0a, 8, 5, 9, 9];
        assert_eq!(issuer(&unknown), None, "a version whose types are unknown");
        assert_eq!(issuer(&[0xe0, 0, 0, 0, 1, 8]), None);
        assert_eq!(possible_issuer(&long(0xc0, 10)), expect(5, 9));
        assert_eq!(possible_issuer(&long(0xc0, 8)), None, "a client's choice");
        assert_eq!(possible_issuer(&[0x40, 3, 9, 9, 1, 10, 5, 9]), None);
    }

    #[test]
    fn first_packets_of_a_client_reach_one_worker() {
        let initial = |id| [0xc0, 0, 0, 0, 1, 8, id, 1, 1];
        assert_eq!(spread(&initial(0x85), 4), Some(1));
        assert_eq!(spread(&initial(2), 4), Some(2), "the ID of worker 2");
        assert_eq!(spread(&[0xc0], 4), None);
    }
}
