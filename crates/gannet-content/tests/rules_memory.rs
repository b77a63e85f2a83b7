//! The memory that rules may hold.

use std::sync::Arc;

use gannet_content::rules::memory::{MemoryRoom, Replaced, SitesMemory};
use gannet_content::rules::problem::{Problem, What};
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{Compat, SourceFile, headers, redirects};

/// The line of the first error, and whether it is about memory.
fn first(problems: &[Problem]) -> Option<(u32, bool)> {
    let first = problems.first()?;
    let is_memory =
        matches!(&first.what, What::Unexpected { found, .. } if found.contains("memory"));
    Some((first.line, is_memory))
}

fn file(path: &'static str, text: &'static str) -> SourceFile<'static> {
    SourceFile {
        path,
        text: text.as_bytes(),
    }
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> &'static str {
    (0..count).map(line).collect::<String>().leak()
}

/// Rules of many segments are refused where they are too much, in both files.
#[test]
fn rules_that_hold_too_much_memory_are_refused() {
    let source = "/a".repeat(64);
    let text = lines(20_000, |_| format!("{source} /t\n"));
    let (rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    let count = rules.rules.len();
    assert!((10_000..20_000).contains(&count), "{count}");
    assert_eq!(first(&problems), Some((count as u32 + 1, true)));

    let text = lines(20_000, |_| format!("{source}\n  x-a: b\n"));
    let (rules, problems) = headers::parse(&file("_headers", text), Compat::Netlify);
    let count = rules.rules.len();
    assert!((10_000..20_000).contains(&count), "{count}");
    let (line, is_memory) = first(&problems).expect("too much");
    assert!(is_memory && line > 2 * (count as u32 - 1), "line {line}");
}

/// Short fields take many times the memory of their text.
#[test]
fn many_short_fields_are_counted() {
    let fields: String = (0..17).map(|at| format!(" a{at}:b\n")).collect();
    let text = lines(50_000, |at| format!("/{at}\n{fields}"));
    let (_, problems) = headers::parse(&file("_headers", text), Compat::Netlify);
    let (line, is_memory) = first(&problems).expect("too much");
    assert!(is_memory && line > 18 * 25_000, "line {line}");
}

/// As many rules as there may be, of the usual length, hold less.
#[test]
fn many_rules_of_the_usual_length_are_accepted() {
    let text = lines(100_000, |at| {
        format!(
            "/blog/{}/{}/{at}/old.html /{at}/\n",
            2000 + at % 25,
            at % 12
        )
    });
    let (rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    assert_eq!((rules.rules.len(), first(&problems)), (100_000, None));
}

/// What an archive has is counted as well.
#[test]
fn tables_of_archives_are_counted() {
    let text = lines(9_000, |_| format!("{} /t\n", "/a".repeat(64)));
    let (mut rules, problems) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    assert_eq!(first(&problems), None);
    let half = rules.rules.clone();
    rules.rules.extend(half);
    let read = RedirectTable::parse(&RedirectTable::new(rules).compile());
    let error = read.expect_err("too much").to_string();
    assert_eq!(error, "a table of rules that hold too much memory");
}

/// What the rules of all sites may hold in these tests.
const ALL: usize = 16 << 20;

/// Reads a `_redirects` of one of several sites; returns what it holds, and its first error.
fn read_of(
    sites: &Arc<SitesMemory>,
    text: &'static str,
    replaced: Replaced,
) -> (MemoryRoom, Option<(u32, bool)>) {
    let mut room = MemoryRoom::among(sites, replaced);
    let files = [file("_redirects", text)];
    let (_, problems) = redirects::parse_within(&files, Compat::Netlify, &mut room);
    (room, first(&problems))
}

/// However many sites have as many rules as they can, all hold what they may together, the next one finds
/// some left, and what is gone holds nothing.
#[test]
fn the_rules_of_all_sites_are_counted_together() {
    let sites = Arc::new(SitesMemory::new(ALL));
    let source = "/a".repeat(64);
    let hostile = lines(2_000, |_| format!("{source} /t\n"));
    let usual = lines(100, |at| format!("/blog/{at} /{at} 301\n"));
    let mut rooms = Vec::new();
    let mut left = ALL / 2;
    for _ in 0..4 {
        let (room, problem) = read_of(&sites, hostile, Replaced::default());
        assert!(problem.is_some_and(|(_, is_memory)| is_memory));
        let taken = room.taken();
        assert!(
            taken <= left / 2 && taken > left / 2 - (64 << 10),
            "{taken}"
        );
        left -= taken;
        rooms.push(room);
        assert_eq!(sites.held(), ALL / 2 - left);
    }
    let (room, problem) = read_of(&sites, usual, Replaced::default());
    assert_eq!(problem, None);
    drop(rooms);
    assert_eq!(sites.held(), room.taken());
    drop(room);
    assert_eq!(sites.held(), 0);
}

/// Many sites that hold as much as they can leave every other one its part, which it may also read anew.
#[test]
fn many_hostile_sites_leave_each_other_one_its_part() {
    let sites = Arc::new(SitesMemory::new(ALL));
    let (mut rooms, mut count) = (Vec::new(), 1 << 14);
    for _ in 0..64 {
        let (room, problem) = read_of(
            &sites,
            lines(count, |_| "/a /t\n".into()),
            Replaced::default(),
        );
        match problem {
            None => rooms.push(room),
            Some(_) => count = (count / 2).max(1),
        }
    }
    let usual = lines(10, |at| format!("/blog/{at} /{at} 301\n"));
    let (room, problem) = read_of(&sites, usual, Replaced::default());
    assert_eq!(problem, None);
    let (again, problem) = read_of(&sites, usual, room.replaced());
    assert_eq!(problem, None);
    drop((room, again, rooms));
    assert_eq!(sites.held(), 0);
}

/// Rules are read beside those that they replace.
#[test]
fn a_site_can_read_as_many_rules_again_as_it_has() {
    let sites = Arc::new(SitesMemory::new(ALL));
    let source = "/a".repeat(64);
    let line = |_| format!("{source} /t\n");
    let (room, problem) = read_of(&sites, lines(2_000, line), Replaced::default());
    let (line_number, _) = problem.expect("too many");
    drop(room);
    let most = lines(line_number as usize - 1, line);
    let (room, problem) = read_of(&sites, most, Replaced::default());
    assert_eq!(problem, None);
    assert!(
        read_of(&sites, most, Replaced::default()).1.is_some(),
        "another site"
    );
    assert_eq!(read_of(&sites, most, room.replaced()).1, None);
    assert_eq!(sites.held(), room.taken());
}

/// Neighbours that hold all that is shared keep no site from reading its next rules, which may be those of
/// its base and its part longer, however often.
#[test]
fn next_rules_are_read_where_neighbours_hold_all_that_is_shared() {
    let sites = Arc::new(SitesMemory::new(ALL));
    let source = "/a".repeat(64);
    let line = |_| format!("{source} /t\n");
    let (mut room, problem) = read_of(&sites, lines(50, line), Replaced::default());
    assert_eq!(problem, None);
    let own_part = ALL / 2 / 512;
    let base = room.taken();
    assert!(base > 2 * own_part, "{base}");
    let rooms: Vec<_> = (0..12)
        .map(|_| read_of(&sites, lines(2_000, line), Replaced::default()).0)
        .collect();
    assert!(sites.held() > ALL / 2 - own_part);
    let mut count = 50;
    while let (next, None) = read_of(&sites, lines(count + 1, line), room.replaced()) {
        (room, count) = (next, count + 1);
    }
    assert!(room.taken() > base && room.taken() <= base + own_part);
    let (shorter, problem) = read_of(&sites, lines(50, line), room.replaced());
    assert_eq!(problem, None);
    drop(room);
    let (room, problem) = read_of(&sites, lines(count, line), shorter.replaced());
    assert_eq!(problem, None);
    drop(shorter);
    assert!(sites.held() <= ALL / 2 + 14 * own_part);
    drop((room, rooms));
    assert_eq!(sites.held(), 0);
}

/// The rules that replace others are held beside them within three quarters of all.
#[test]
fn all_sites_hold_three_quarters_while_some_are_replaced() {
    let sites = Arc::new(SitesMemory::new(ALL));
    let source = "/a".repeat(64);
    let line = |_| format!("{source} /t\n");
    let rooms: Vec<_> = (0..8)
        .map(|_| read_of(&sites, lines(2_000, line), Replaced::default()).0)
        .collect();
    // The old ones are held while the next ones are read.
    let again = |room: &MemoryRoom| read_of(&sites, lines(2_000, line), room.replaced()).0;
    let next: Vec<_> = rooms.iter().chain(&rooms).map(again).collect();
    assert!(sites.held() > ALL / 4 * 3 - (64 << 10));
    assert!(sites.held() <= ALL / 4 * 3 + 16 * (ALL / 2 / 512));
    drop((rooms, next));
    assert_eq!(sites.held(), 0);
}

/// The paths of rules with users are indexed again.
#[test]
fn paths_with_users_are_counted() {
    let source = "/a".repeat(64);
    let taken = |line: &str| {
        let sites = Arc::new(SitesMemory::new(ALL));
        let text = lines(50, |_| format!("{source}\n  {line}\n"));
        let mut room = MemoryRoom::among(&sites, Replaced::default());
        let read = headers::parse_within(&file("_headers", text), Compat::Netlify, &mut room);
        assert_eq!(first(&read.1), None);
        room.taken()
    };
    let [plain, of_users] = [taken("x-a: b"), taken("Basic-Auth: a:b")];
    assert!(of_users > 2 * plain, "{of_users}, {plain}");
}

/// A table of an archive that does not fit beside other sites is told from one that never would.
#[test]
fn tables_of_all_sites_are_counted_together() {
    let text = lines(1_000, |_| format!("{} /t\n", "/a".repeat(64)));
    let (rules, _) = redirects::parse(&[file("_redirects", text)], Compat::Netlify);
    let table = RedirectTable::new(rules).compile();
    let sites = Arc::new(SitesMemory::new(ALL));
    let read =
        RedirectTable::parse_within(&table, &mut MemoryRoom::among(&sites, Replaced::default()));
    let error = read.expect_err("too much").to_string();
    let cause = "a table of rules that hold more memory than other sites leave";
    assert_eq!((error.as_str(), sites.held()), (cause, 0));
}
