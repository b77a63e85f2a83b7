//! Sites whose rules cost the most, in heads or in steps, of those accepted: the floods hold over them,
//! clients that read nothing hold little, and those that read get all.

use gannet_content::rules::limits::{EVALUATION_STEPS_MAX, STEPS_MAX};
use gannet_io::sim::{Client, Faults};
use gannet_server::ledger::Account;
use gannet_testkit::h2::{self, headers, wide_opening};
use gannet_testkit::hostile::{self, Asked, Shape};

use crate::link::{Link, Opening};
use crate::quic_deadlines::connected;
use crate::server::{
    Server, fields_of, get, over, over_hostile_sites, over_the_dearest_site, redirects_of,
};
use crate::{
    archive_bodies, budget, coding, directed, floods, folders, growing, long_copies, on_demand,
    quic_addresses, quic_floods, shared_room, waits,
};

const MIB: u64 = 1 << 20;

/// Clients that read nothing.
const SILENT: usize = 60;

/// Bytes that they may have a worker hold in all.
const SILENT_HELD_MAX: u64 = 120 * MIB;

/// Requests of each, as many as it may have at a time.
const REQUESTS: u32 = 100;

const OVER_TCP: [fn(); 7] = [
    floods::input_that_is_not_looked_at_has_a_bound,
    floods::records_that_are_not_whole_have_a_bound,
    || floods::requests_that_wait_for_the_disk(false),
    floods::answers_that_are_not_taken_have_a_bound,
    floods::tables_and_control_frames_have_a_bound,
    floods::first_reads_have_a_bound,
    floods::a_reset_stops_a_lookup,
];

/// Floods of lookups, which hold few heads.
const OF_LOOKUPS: [fn(); 5] = [
    floods::lookups_have_a_budget_in_a_turn,
    floods::a_crowd_that_asks_for_the_same_needs_few_descriptors,
    floods::descriptors_that_peers_hold_are_missed_and_come_back,
    directed::what_a_delay_holds_back_is_bounded,
    folders::what_is_known_of_folders_has_a_bound,
];

/// Floods of bodies, listings and copies, of a directory and of an archive.
const OF_CONTENT: [fn(); 19] = [
    floods::long_bodies_in_memory_leave_in_slices,
    floods::a_short_file_that_streams_wait_with_is_shared,
    floods::answers_in_many_parts_that_are_not_taken_are_counted,
    floods::bodies_that_are_loaded_have_a_bound,
    floods::gzip_that_is_to_be_inflated_has_a_bound,
    budget::listings_that_are_not_taken_have_a_bound,
    budget::slow_readers_of_one_listing_leave_room_for_others,
    budget::cold_files_are_copied_a_few_at_a_time_and_nobody_waits_for_them,
    budget::copies_that_are_not_taken_have_a_bound,
    budget::short_files_that_are_not_taken_have_a_bound,
    budget::many_long_answers_share_a_turn,
    budget::lookups_for_clients_that_have_gone_are_dropped,
    coding::a_flood_of_distinct_files_is_bounded,
    long_copies::copies_have_a_bound_and_make_room_when_idle,
    waits::a_flood_that_waits_for_the_disk_has_a_bound,
    archive_bodies::copies_of_all_bodies_at_once_stay_within_the_room,
    growing::what_is_read_again_in_a_turn_is_bounded,
    shared_room::a_flood_over_all_sites_stays_within_the_room,
    shared_room::a_flood_of_one_site_leaves_another_its_own_part,
];

/// Floods for what is not on this machine.
const OF_PARTS: [fn(); 3] = [
    on_demand::shares::a_flood_by_one_client_leaves_room_for_others,
    on_demand::shares::a_flood_by_one_client_of_a_proxy_leaves_room_for_others,
    on_demand::shares::a_client_that_hangs_up_has_no_share_anew,
];

const OVER_UDP: [fn(); 3] = [
    quic_floods::requests_that_are_given_up_have_a_bound,
    quic_floods::answers_that_are_not_taken_have_a_bound,
    quic_floods::requests_that_are_not_whole_have_a_bound,
];

/// Floods of what precedes and surrounds requests.
const OF_PACKETS: [fn(); 15] = [
    quic_floods::handshakes_that_do_not_go_on_have_a_bound,
    quic_floods::what_comes_before_a_handshake_is_accepted_delays_nobody,
    quic_floods::datagrams_of_nobody_are_answered_with_less,
    quic_floods::a_closed_connection_keeps_no_place,
    quic_floods::sections_do_not_expand_without_end,
    quic_floods::challenges_of_paths_are_answered_with_no_more,
    quic_floods::connection_ids_that_are_replaced_have_a_bound,
    quic_floods::connection_ids_that_are_retired_have_a_bound,
    quic_floods::packets_that_were_never_sent_cannot_be_acknowledged,
    quic_floods::what_the_library_holds_is_charged,
    quic_floods::gaps_have_a_bound,
    quic_floods::the_longest_idle_makes_room,
    quic_addresses::moves_to_addresses_of_others_have_a_bound,
    quic_addresses::probes_from_addresses_of_others_have_a_bound,
    quic_addresses::addresses_that_change_have_a_bound,
];

#[test]
fn floods_over_tcp_hold() {
    over_the_dearest_site(&OVER_TCP);
}

#[test]
fn floods_over_udp_hold() {
    over_the_dearest_site(&OVER_UDP);
}

#[test]
fn floods_over_tcp_hold_where_rules_take_the_most_steps() {
    over_hostile_sites(&OVER_TCP);
    over_hostile_sites(&OF_LOOKUPS);
}

#[test]
fn floods_of_content_hold_where_rules_take_the_most_steps() {
    over_hostile_sites(&OF_CONTENT);
}

#[test]
fn floods_for_parts_hold_where_rules_take_the_most_steps() {
    over_hostile_sites(&OF_PARTS);
}

#[test]
fn floods_over_udp_hold_where_rules_take_the_most_steps() {
    over_hostile_sites(&OVER_UDP);
    over_hostile_sites(&OF_PACKETS);
}

/// What clients have asked for is not looked up, or ruled, after they have left.
#[test]
fn work_of_clients_that_left_ends() {
    over_hostile_sites(&[work_ends as fn(); 3]);
}

fn work_ends() {
    const ASKED: usize = 1_000;
    let mut server = Server::new(Faults::none());
    let clients: Vec<_> = (0..SILENT).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("missing").repeat(ASKED));
    }
    server.pass(5);
    clients.iter().for_each(Client::reset);
    server.pass(5);
    let answered = |server: &mut Server| server.driven.counters().by_status.values().sum::<u64>();
    let at_once = answered(&mut server);
    assert!(at_once < (SILENT * ASKED) as u64 / 2, "{at_once}");
    server.pass(3_000);
    assert_eq!(answered(&mut server), at_once);
    floods::others_are_served(&mut server, None);
}

/// However a request waits for the disk, all its parts together take no more steps than one may.
#[test]
fn steps_of_requests_that_wait_have_a_bound() {
    over_hostile_sites(&[steps_hold as fn(); 3]);
}

fn steps_hold() {
    let faults = Faults {
        cold: 1_000,
        ..Faults::none()
    };
    let mut server = Server::new(faults);
    let mut most = 0;
    for path in ["small", "missing", "missing/a", "small", "missing"] {
        let before = server.driven.counters().rule_steps;
        let client = server.connect();
        client.write(&get(path));
        server.until("an answer", || client.readable() > 0);
        most = most.max(server.driven.counters().rule_steps - before);
    }
    assert!((100..=u64::from(STEPS_MAX)).contains(&most), "{most}");
}

/// Rules of each shape, as many as are accepted of two thousand: the requests that they cost most take no more
/// steps than one may, and each takes some. The largest files, which take long to read, are in
/// `gannet-content/tests/rules_steps.rs`.
#[test]
fn the_dearest_file_of_each_shape_costs_a_request_no_more_than_it_may() {
    let mut dearest: Vec<(u64, &str)> = Vec::new();
    let mut count = 2_000;
    let mut names: Vec<_> = hostile::shapes(1).iter().map(|it| it.name).collect();
    while !names.is_empty() {
        for shape in hostile::shapes(count) {
            if names.contains(&shape.name) && is_accepted(&shape) {
                names.retain(|it| *it != shape.name);
                dearest.push((steps_of(&shape), shape.name));
            }
        }
        count /= 2;
        assert!(count > 10, "{names:?} are never accepted");
    }
    dearest.sort_unstable();
    println!("steps of a request: {dearest:?}");
    let (least, name) = dearest[0];
    assert!(least > 0, "no rule was looked for: {name}");
    let (most, name) = dearest[dearest.len() - 1];
    let bounds = u64::from(EVALUATION_STEPS_MAX)..=u64::from(STEPS_MAX);
    assert!(bounds.contains(&most), "{name}: {most}");
}

fn is_accepted(shape: &Shape) -> bool {
    redirects_of(shape.redirects.as_bytes()).is_some()
        && fields_of(shape.headers.as_bytes()).is_some()
}

/// The most that a request for a site with these rules takes, which waits for the disk again and again.
fn steps_of(shape: &Shape) -> u64 {
    let mut most = 0;
    over([&shape.redirects, &shape.headers], || {
        let mut server = Server::new(Faults {
            cold: 1_000,
            ..Faults::none()
        });
        let asked = shape.asked.iter();
        most = asked
            .map(|it| steps_of_one(&mut server, it))
            .max()
            .unwrap_or(0);
    });
    most
}

fn steps_of_one(server: &mut Server, asked: &Asked) -> u64 {
    let before = server.driven.counters().rule_steps;
    let query = asked.query.as_ref().map(|it| format!("?{it}"));
    let client = server.connect();
    client.write(
        format!(
            "GET {}{} HTTP/1.1\r\nhost: {}\r\naccept-language: {}\r\n\r\n",
            asked.path,
            query.unwrap_or_default(),
            asked.host,
            asked.language
        )
        .as_bytes(),
    );
    server.until("an answer", || client.readable() > 0);
    server.driven.counters().rule_steps - before
}

/// Bytes held for all clients in all accounts but those of content.
fn held(server: &Server) -> u64 {
    let accounts = [
        Account::Input,
        Account::Waiting,
        Account::Answers,
        Account::Sends,
        Account::Streams,
        Account::Transport,
    ];
    let held = accounts.map(|account| floods::holding(server, account).held);
    held.iter().sum()
}

/// Requests for missing paths, each of which is looked up; their answers have a head each.
fn asks(number: usize) -> Vec<u8> {
    let mut bytes = wide_opening();
    for stream in 0..REQUESTS {
        let path = format!("/missing/{number}/{stream}");
        bytes.extend(headers(2 * stream + 1, &h2::request("GET", &path, &[])));
    }
    bytes
}

#[test]
fn heads_that_are_not_taken_over_http2_have_a_bound() {
    over_the_dearest_site(&[|| {
        // Lookups complete one by one, and their answers meet a send that does not go on.
        let faults = Faults {
            cold: 1_000,
            socket_capacity: 4_096,
            ..Faults::none()
        };
        let mut server = Server::new(faults);
        let silent: Vec<_> = (0..SILENT).map(|_| server.connect()).collect();
        for (number, client) in silent.iter().enumerate() {
            client.write(&asks(number));
        }
        let mut most = 0;
        for _ in 0..20 {
            server.pass(100);
            most = most.max(held(&server));
        }
        assert!((MIB..SILENT_HELD_MAX / 2).contains(&most), "{most} bytes");
        floods::others_are_served(&mut server, None);
        silent.iter().for_each(Client::reset);
        floods::check_given_back(&mut server, Account::Answers, 1);

        // One that reads gets all of them.
        let before = server.driven.counters().by_status.get(&404).copied();
        let reader = server.connect();
        reader.write(&asks(SILENT));
        let mut len = 0;
        server.until("all heads", || {
            len += reader.read().len();
            // As HPACK codes them.
            len > REQUESTS as usize * (20 << 10)
        });
        let answered = server.driven.counters().by_status.get(&404).copied();
        let count = answered.unwrap_or_default() - before.unwrap_or_default();
        assert_eq!(count, u64::from(REQUESTS));
    }]);
}

#[test]
fn heads_that_are_not_taken_over_http3_have_a_bound() {
    over_the_dearest_site(&[|| {
        let (mut server, config) = quic_floods::server();
        let silent = (0..SILENT).map(|number| {
            let number = u16::try_from(number).expect("few");
            let opening = Opening {
                windows: (0, 8 << 20),
                ..Opening::new(number)
            };
            let mut link = connected(&mut server, &config, &opening);
            for request in 0..REQUESTS {
                link.get(&format!("/missing/{number}/{request}"));
            }
            link
        });
        let mut silent: Vec<_> = silent.collect();
        let mut most = 0;
        for _ in 0..10 {
            server.pass_while(100, || silent.iter_mut().for_each(Link::step));
            most = most.max(held(&server));
        }
        assert!((MIB..SILENT_HELD_MAX).contains(&most), "{most} bytes");
        quic_floods::others_are_served(&mut server, &config, 100);
        silent.iter_mut().for_each(Link::close);
        drop(silent);
        quic_floods::check_given_back(&mut server, Account::Answers, 1);
    }]);
}

/// No head is longer than its bound, whatever the version and the answer.
#[test]
fn heads_are_as_long_as_the_rules_make_them() {
    over_the_dearest_site(&[|| {
        let mut server = Server::new(Faults::none());
        for (path, status) in [("small", "200"), ("missing", "404"), ("%2e%2e/..", "400")] {
            let client = server.connect();
            client.write(&get(path));
            let mut got = Vec::new();
            server.until("a head", || {
                got.extend(client.read());
                got.windows(4).any(|end| end == b"\r\n\r\n")
            });
            let head = String::from_utf8_lossy(&got);
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status} ")),
                "{head:.80}"
            );
            let len = head.find("\r\n\r\n").expect("a head");
            assert!(len < 32 << 10, "{len} bytes");
            assert_eq!(len > 24_000, status != "400", "{path}: {len} bytes");
        }
    }]);
}
