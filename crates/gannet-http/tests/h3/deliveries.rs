//! Arbitrary bytes in arbitrary pieces, and arbitrary valid requests.

use gannet_http::h2::Time;
use gannet_http::h3::request::Event;
use gannet_http::h3::{Connection, StreamId};
use gannet_testkit::h3::*;
use proptest::prelude::*;

use super::h3_checks;
use super::h3_checks::peer::Given;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        h3_checks::h3_streams(&bytes);
    }

    /// Streams of frames, most of them nearly valid.
    #[test]
    fn any_frames_in_any_pieces(
        frames in proptest::collection::vec((any_stream(), any_frame(), any::<bool>()), 0..40),
        piece_len in 2usize..40,
    ) {
        let opening = Given::bytes(2, &control(&[]));
        let script: Vec<_> = std::iter::once(opening)
            .chain(frames.into_iter().map(|(stream, bytes, is_fin)| {
                Given::Bytes(stream, bytes, is_fin && stream != 2)
            }))
            .collect();
        let whole = h3_checks::record_in_pieces(&script, usize::MAX);
        for len in [1, piece_len] {
            prop_assert_eq!(&h3_checks::record_in_pieces(&script, len), &whole);
        }
    }

    /// Fields survive another implementation's encoder unchanged.
    #[test]
    fn any_fields_arrive(
        fields in proptest::collection::vec(("[a-z0-9!#$%&'*+.^_`|~-]{1,20}", "([!-~]([ -~]{0,200}[!-~])?)?"), 0..20),
        path in "/[a-z0-9/?=&%]{0,30}",
    ) {
        // Fields with special rules have separate tests.
        let special = ["te", "host", "expect", "upgrade", "connection"];
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .filter(|(name, _)| !special.contains(name))
            .collect();
        let bytes = request("GET", &path, &fields);
        let mut connection = Connection::new(Time(0));
        let mut stream = connection.open_request(StreamId(0)).expect("a stream");
        let mut scratch = Vec::new();
        let received = stream.receive(&mut connection, &bytes, true, &mut scratch);
        let Ok(Event::Request(request)) = received.map(|received| received.event) else {
            panic!("a request");
        };
        prop_assert_eq!(request.target.raw, path.as_bytes());
        let found: Vec<_> = request
            .fields
            .iter()
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        let expect: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        prop_assert_eq!(found, expect);
    }
}

fn any_stream() -> impl Strategy<Value = u64> {
    prop_oneof![3 => (0u64..6).prop_map(|n| 4 * n), 2 => Just(2), 1 => (1u64..4).prop_map(|n| 4 * n + 2)]
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        4 => 0u64..16,
        1 => Just(PRIORITY_UPDATE),
        1 => Just(PRIORITY_UPDATE_PUSH),
        1 => Just(GREASE),
    ];
    let payload = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(qpack::encode(&[("x", "y")])),
        (0u64..400).prop_map(varint),
        (0u64..100).prop_map(|n| [varint(4 * n), b"u=2, i".to_vec()].concat()),
    ];
    let any = (kind, payload).prop_map(|(kind, payload)| frame(kind, &payload));
    let good = prop_oneof![
        (0u64..3000).prop_map(|n| request("GET", &format!("/{n}"), &[("priority", "u=1")])),
        Just(request("POST", "/", &[("content-length", "3")])),
        Just(frame(DATA, b"abc")),
        Just(headers(&[("a", "trailer")])),
    ];
    let stream_type = (0u64..5).prop_map(varint);
    prop_oneof![3 => any, 4 => good, 1 => stream_type]
}
