//! Properties of semantics: written values parse back, and fast code agrees with plain code.

use gannet_http::semantics::coding::{Coding, accept_encoding};
use gannet_http::semantics::date::{DATE_MAX, DATE_MIN, parse_date, write_date};
use gannet_http::semantics::decimal::{parse_decimal, write_decimal};
use gannet_http::semantics::entity_tag::{Comparison, EntityTag, list_matches};
use gannet_http::semantics::fields::{Fields, KnownField};
use gannet_http::semantics::range::{ByteRange, RangeRequest, parse_range};
use gannet_http::semantics::ready_fields::check_field;
use proptest::prelude::*;

const KNOWN: [KnownField; 6] = [
    KnownField::Host,
    KnownField::Accept,
    KnownField::IfMatch,
    KnownField::IfNoneMatch,
    KnownField::AcceptEncoding,
    KnownField::Range,
];

/// The values of a field, found with string methods alone.
fn lines_plainly(section: &str, name: &str) -> Vec<String> {
    let lines = section
        .split("\r\n")
        .filter_map(|line| line.split_once(':'));
    let of_name = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    of_name
        .map(|(_, value)| value.trim_matches([' ', '\t']).to_owned())
        .collect()
}

/// Whether every line is a token, a colon and text, by a second, slow implementation.
fn is_well_formed_plainly(section: &str) -> bool {
    let is_token_char =
        |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    let Some(lines) = section.strip_suffix("\r\n") else {
        return section.is_empty();
    };
    lines.split("\r\n").all(|line| match line.split_once(':') {
        Some((name, value)) => {
            let is_text = |char: char| char == '\t' || !char.is_ascii_control();
            !name.is_empty() && name.chars().all(is_token_char) && value.chars().all(is_text)
        }
        None => false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fields_are_found_as_plain_string_methods_find_them(
        section in concat!(
            "((host|Accept|if-match|If-None-Match|ACCEPT-ENCODING|range|x-other|x)",
            r":[ \ta-z,é]{0,12}\r\n){0,12}",
        ),
    ) {
        let fields = Fields::parse(section.as_bytes()).expect("a well-formed section");
        for field in KNOWN {
            let plain = lines_plainly(&section, field.name());
            let lines: Vec<_> = fields.lines(field).collect();
            prop_assert_eq!(fields.get(field), lines.first().copied());
            prop_assert_eq!(fields.has(field), !plain.is_empty());
            prop_assert_eq!(fields.is_repeated(field), plain.len() > 1);
            prop_assert!(lines.into_iter().eq(plain.iter().map(String::as_bytes)));
        }
    }

    #[test]
    fn sections_are_refused_as_a_plain_check_refuses_them(
        section in r"([aB!(:; \t\x00\x7fé-]{1,3}|x: y|\r\n|\r\n|\r|\n){0,12}",
    ) {
        // An empty line ends a section; the rest is ignored.
        let lines = match section.strip_prefix("\r\n") {
            Some(_) => "",
            None => section.find("\r\n\r\n").map_or(section.as_str(), |end| &section[..end + 2]),
        };
        prop_assert_eq!(Fields::parse(section.as_bytes()).is_ok(), is_well_formed_plainly(lines));
    }

    #[test]
    fn dates_read_back(moment in DATE_MIN..=DATE_MAX, now in DATE_MIN..=DATE_MAX) {
        prop_assert_eq!(parse_date(&write_date(moment), now), Some(moment));
    }

    #[test]
    fn obsolete_dates_read_back(
        moment in 0i64..4_000_000_000,
        offset in -1_500_000_000i64..1_500_000_000,
    ) {
        let imf = String::from_utf8(write_date(moment).to_vec()).expect("ASCII");
        let (weekday, day, month) = (&imf[..3], &imf[5..7], &imf[8..11]);
        let (year, time) = (&imf[12..16], &imf[17..25]);
        let padded_day = match day.strip_prefix('0') {
            Some(digit) => format!(" {digit}"),
            None => day.to_owned(),
        };
        let asctime = format!("{weekday} {month} {padded_day} {time} {year}");
        prop_assert_eq!(parse_date(asctime.as_bytes(), 0), Some(moment));

        let names = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
        let name = names.iter().find(|name| name.starts_with(weekday)).expect("a day");
        let rfc850 = format!("{name}, {day}-{month}-{} {time} GMT", &year[2..]);
        // Less than 48 years away, the century is unambiguous.
        prop_assert_eq!(parse_date(rfc850.as_bytes(), moment + offset), Some(moment));
    }

    #[test]
    fn decimals_read_back(number: u64) {
        let mut out = Vec::new();
        write_decimal(number, &mut out);
        prop_assert_eq!(parse_decimal(&out), Some(number));
    }

    #[test]
    fn tags_read_back_and_match_themselves(is_weak: bool, opaque in r"[!#-~é]{0,12}") {
        let tag = EntityTag { is_weak, opaque: opaque.as_bytes() };
        let mut value = Vec::new();
        tag.write(&mut value);
        prop_assert_eq!(EntityTag::parse(&value), Some(tag));

        let list = [b"\"other,\", ".as_slice(), &value, b" ,\"x\""].concat();
        let matches = |how| list_matches([list.as_slice()].into_iter(), Some(tag), how);
        prop_assert!(matches(Comparison::Weak));
        prop_assert_eq!(matches(Comparison::Strong), !is_weak);
    }

    #[test]
    fn ranges_read_back(len in 1u64.., a: u64, b: u64) {
        let (a, b) = (a % len, b % len);
        let range = ByteRange { start: a.min(b), end: a.max(b) + 1 };
        let mut value = Vec::new();
        range.write_content_range(len, &mut value);
        let text = String::from_utf8(value).expect("ASCII");
        let (range_text, len_text) = text.split_once('/').expect("a length");
        prop_assert_eq!(len_text, len.to_string());
        let field = range_text.replacen(' ', "=", 1);
        match parse_range(field.as_bytes(), len) {
            RangeRequest::Satisfiable(set) => prop_assert_eq!(set.as_slice(), [range]),
            other => prop_assert!(false, "{} is {:?}", field, other),
        }
    }

    #[test]
    fn codings_named_once_are_accepted_if_they_weigh_as_much_as_identity(
        weights in prop::collection::vec(prop::option::of(0u32..=1000), 4),
        order in Just(Coding::ALL.to_vec()).prop_shuffle(),
    ) {
        let mut elements = Vec::new();
        for coding in order {
            if let Some(weight) = weights[coding as usize] {
                let (whole, part) = (weight / 1000, weight % 1000);
                elements.push(format!("{};q={whole}.{part:03}", coding.name()));
            }
        }
        let line = elements.join(", ");
        let accepted = accept_encoding([line.as_bytes()].into_iter());
        for coding in Coding::ALL {
            let expect = match weights[coding as usize] {
                Some(weight) => weight > 0 && Some(weight) >= weights[0],
                None => coding == Coding::Identity,
            };
            prop_assert_eq!(accepted.contains(coding), expect, "{:?} in {:?}", coding, line);
        }
    }

    #[test]
    fn fields_that_may_be_sent_are_fields_that_parse(
        name in r"[a-zA: \r]{0,4}",
        value in r"[a \t\r\n\x00é]{0,6}",
    ) {
        if check_field(&name, value.as_bytes()).is_ok() {
            let line = format!("{name}: {value}\r\n");
            let fields = Fields::parse(line.as_bytes()).expect("one line");
            let found: Vec<_> = fields.iter().collect();
            prop_assert_eq!(found, [(name.as_bytes(), value.as_bytes())]);
        }
    }
}
