//! Passages that the manual page and the reference share.

/// Exit statuses with their meanings.
pub(crate) const EXIT_STATUSES: &[(&str, &str)] = &[
    (
        "0",
        "success; stopped by SIGTERM or SIGINT, also if --grace ended before every running answer; \
           closed pipe on standard output",
    ),
    ("1", "the command failed"),
    (
        "2",
        "the command line, the environment or the configuration is wrong",
    ),
    (
        "130, 131, 143",
        "terminated at once by a second SIGINT, SIGQUIT or SIGTERM",
    ),
];

/// Signals with their effects on a running server.
pub(crate) const SIGNALS: &[(&str, &str)] = &[
    (
        "SIGINT, SIGTERM, SIGQUIT",
        "stop accepting, finish running answers within --grace, exit; a second one exits at once",
    ),
    (
        "SIGHUP",
        "reopen the log file, reload certificates and rules; if the configuration file has changed, \
         have a new process with it take this one's place, or say why that is not possible; stop if \
         gannet's terminal has been closed",
    ),
    (
        "SIGUSR1",
        "reopen the log file, and print a summary: connections, requests by status, bytes, operations",
    ),
    (
        "SIGUSR2",
        "have a new process of the program take this one's place, without a lost connection",
    ),
];

/// Example commands with what they do.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    (
        "gannet",
        "serve the current directory on http://127.0.0.1:8080/",
    ),
    ("gannet --expose ./site", "serve a directory to the network"),
    ("gannet --spa ./dist", "serve a single-page application"),
    (
        "gannet pack ./site -o site.gannet",
        "compile a site into one archive",
    ),
    ("gannet site.gannet", "serve it"),
    (
        "gannet -l 127.0.0.1:9000 -l unix:/run/gannet.sock ./site",
        "listen at two addresses",
    ),
    (
        "gannet --log json ./site | jq .",
        "pipe the request log into another program",
    ),
];

/// How the layers of configuration work together.
pub(crate) const LAYERS: &str = "Each flag has an environment variable and a key of the \
    configuration file, which is TOML and named by --config or GANNET_CONFIG. The command line \
    overrides the environment, the environment the file, the file the default. A list in one layer \
    replaces those of lower layers; of a flag with one value the last one counts, but a \
    key of signatures may be given only once. An empty variable \
    counts as unset. --FLAG=false turns a switch off again. Rare settings are keys of the file alone, most of them \
    of the tables [acme], [client] and [log]; where there is such a table, hosts in [acme] is --acme, and format in \
    [log] is --log. Relative paths start from the working \
    directory, even those in the file.";

/// What a later version may add to configurations, and what stays.
pub(crate) const LATER_VERSIONS: &[&str] = &[
    "A later version may add keys, tables, values of a key, and further forms of a value, such as a list where a text \
     is taken. It may change a default: the changelog says which.",
    "A key of 0.1 stays, and what it and its values mean never changes, nor do units, the order of the layers, and \
     that a list replaces another.",
    "A key or a value that this version does not know is an error with file and line: nothing is served, and at a \
     reload what runs stays as it is. So a file for a later version is never obeyed in part.",
    "Names from before 0.1 are errors that name the new one, also as flags and as variables. Other variables that start \
     with GANNET_ are ignored, with a warning if one resembles a flag's.",
];

/// A configuration with every kind of value.
pub(crate) const CONFIGURATION: &str = "\
path = \"/srv/site\"
listen = [\"0.0.0.0:80\", \"[::]:80\"]
metrics = \"127.0.0.1:9100\"
spa = true
cache-memory = \"1GiB\"
head-timeout = \"10s\"
log-file = \"/var/log/gannet/access.log\"

[log]
format = \"combined\"
mask = true

[client]
requests = \"20/s\"

[header]
X-Frame-Options = \"DENY\"

[type]
md = \"text/markdown; charset=utf-8\"
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::commands::all_flags;
    use crate::command_line::config_file::parse;

    #[test]
    fn the_configuration_in_the_manual_is_valid() {
        let file = parse("manual", CONFIGURATION, &all_flags()).expect("valid");
        assert_eq!(file.entries.len(), 12);
    }
}
