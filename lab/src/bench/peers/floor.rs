//! The floor programs, compiled from `lab/floor`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{Floor, Launch, Task, show};
use xtask::process;

/// Largest body that [`Floor::Memory`] keeps in memory, in bytes.
const MEMORY_MAX: u64 = 16 * 1024;

fn source(floor: Floor) -> &'static str {
    match floor {
        Floor::Epoll => "constant_epoll",
        Floor::Uring => "constant_uring",
        Floor::Files | Floor::Memory => "files",
    }
}

pub(super) fn find(floor: Floor, build: &Path) -> Result<(PathBuf, String)> {
    let name = source(floor);
    let program = build.join(name);
    let file = process::root()
        .join("lab/floor")
        .join(name)
        .with_extension("c");
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-o"]).arg(&program).arg(file);
    process::capture(&mut command)?;
    Ok((program, format!("lab/floor/{name}.c")))
}

/// Fails if io_uring is unavailable on this machine.
pub(super) fn probe_uring(build: &Path) -> Result<()> {
    let (program, _) = find(Floor::Uring, build)?;
    process::capture(Command::new(program).arg("probe")).map(|_| ())
}

pub(super) fn launch(program: &Path, floor: Floor, task: &Task<'_>) -> Launch {
    let mut command = Command::new(program);
    command.arg(task.port.to_string());
    let memory = match floor {
        Floor::Epoll | Floor::Uring => {
            if !task.cell.scenario.load.keep_alive {
                command.arg("close");
            }
            let configuration = show(&command);
            return Launch {
                command,
                input: None,
                configuration,
            };
        }
        Floor::Files => 0,
        Floor::Memory => MEMORY_MAX,
    };
    command.arg(&task.site.root).arg(memory.to_string());
    let configuration = show(&command);
    let input = task
        .site
        .targets
        .iter()
        .map(|target| format!("{}\n", target.path))
        .collect();
    Launch {
        command,
        input: Some(input),
        configuration,
    }
}
