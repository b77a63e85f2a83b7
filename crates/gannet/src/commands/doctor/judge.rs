//! Turns facts into findings.

mod content;
mod machine;
mod network;
#[cfg(test)]
mod tests;

use super::facts::Facts;
use super::finding::{Finding, Level};

/// All findings, in the order of the report.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = facts
        .refusals
        .iter()
        .map(|lack| Finding::lacking(Level::Bad, "configuration", lack))
        .collect();
    all.extend(machine::kernel(facts));
    all.extend(machine::limits(&facts.limits));
    all.extend(machine::memory(&facts.memory));
    all.extend(machine::process(facts));
    let unit = facts.unit.iter();
    all.extend(unit.map(|lack| Finding::lacking(Level::Note, "unit", lack)));
    all.extend(network::settings(facts));
    all.extend(network::addresses(facts));
    all.extend(content::sites(facts));
    all.extend(content::certificates(facts.certificates.as_ref()));
    all.push(machine::clock(&facts.clock, facts.certificates.is_some()));
    all
}
