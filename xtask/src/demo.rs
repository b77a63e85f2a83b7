//! Serves a small site that shows what gannet does: `xtask/demo`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, bail};
use xtask::process;

use crate::program::Program;

const HELP: &str = "\
cargo xtask demo [--program FILE]

  --program FILE   a gannet that is built already
";

/// What the page does not show.
const TRY: &str = "\
A site that shows what gannet does is served below; its page names what to try. In another terminal:

  curl -i http://127.0.0.1:8080/files/long.txt -H 'accept-encoding: br'    twice: the second answer is shorter
  curl -i http://127.0.0.1:8080/files/long.txt -H 'range: bytes=0-9'       a part
  curl -i http://127.0.0.1:8080/files/ -H 'accept: application/json'       a listing for programs
  gannet explain /old xtask/demo                                           which rule answers
  gannet check xtask/demo                                                  dead links, and more
  gannet pack xtask/demo -o demo.gannet && gannet demo.gannet              one file
";

/// Prints what to try, and serves until it is stopped.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    let gannet = program.path()?;
    println!("{TRY}");
    let mut serve = Command::new(gannet);
    serve.current_dir(process::root());
    let error = serve.args(["serve", "xtask/demo"]).exec();
    bail!("cannot start gannet: {error}")
}
