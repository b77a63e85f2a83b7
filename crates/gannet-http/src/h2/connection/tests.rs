//! What the machine's memory is bounded by: see the attacks in `tests/`.

use super::*;

#[test]
fn a_connection_is_small_and_begins_with_no_tables() {
    let connection = Connection::new(Time(0), Timeouts::default());
    assert!(
        size_of::<Connection>() <= 512,
        "{}",
        size_of::<Connection>()
    );
    assert!(connection.memory() <= 64, "{}", connection.memory());
}
