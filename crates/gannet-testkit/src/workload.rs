//! The arguments of programs whose instructions are counted.

/// The workload that the program is to run, and how many times: its arguments `NAME COUNT`. Without
/// arguments it prints the names, one a line, and has nothing to run.
///
/// # Panics
/// The name is none of these, or the count is no number.
#[must_use]
pub fn workload<'n>(names: &[&'n str]) -> Option<(&'n str, u64)> {
    let mut arguments = std::env::args().skip(1);
    let Some(asked) = arguments.next() else {
        println!("{}", names.join("\n"));
        return None;
    };
    let name = names.iter().find(|name| **name == asked);
    let name = name.unwrap_or_else(|| panic!("'{asked}' is none of {names:?}"));
    let count = arguments.next();
    let count = count.map_or(1, |it| it.parse().expect("how many times"));
    Some((name, count))
}
