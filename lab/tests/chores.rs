//! The program as `cargo xtask` and `.ci/run` start it.

use std::process::Command;

/// What the lab answers, which is an error.
fn refused(name: &str) -> String {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_gannet-lab"));
    let output = lab.args([name, "--no-such-flag"]).output();
    let output = output.expect("the lab runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_chore_refuses_a_flag_that_it_does_not_have() {
    for name in [
        "bench",
        "caches",
        "cost",
        "flood",
        "idle",
        "instructions",
        "link",
        "swap",
        "wire",
    ] {
        let text = refused(name);
        assert!(text.contains("--no-such-flag"), "{name}: {text}");
    }
    let text = refused("none");
    assert!(text.contains("the lab has no 'none'"), "{text}");
}
