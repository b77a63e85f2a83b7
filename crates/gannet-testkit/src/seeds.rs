use std::fs;
use std::path::Path;

/// Gives `check` each seed of the fuzz target of this name, so that defects once found stay fixed.
///
/// # Panics
///
/// If the target has no seeds, or as `check` does.
pub fn replay_seeds(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let entries = fs::read_dir(&folder).expect("the seeds of the target");
    let mut count = 0;
    for entry in entries {
        check(&fs::read(entry.expect("an entry").path()).expect("a readable seed"));
        count += 1;
    }
    assert!(count > 0, "{} has seeds", folder.display());
}
