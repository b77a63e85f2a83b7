//! The lines of `_headers` that name users: `Basic-Auth: anna:secret bob:secret`.

use super::headers::{HeaderProblem, HeaderRule, Headers};
use super::limits::USERS_MAX;
use super::lines::{Line, Report, Wrong};
use super::problem::Problem;
use super::users::{self, Secret, User};

/// Their name, in lower case. It is no field that is sent.
pub(super) const NAME: &str = "basic-auth";

/// The value of a line that names users.
pub(super) fn value_of<'a>(line: &Line<'a>) -> Option<&'a str> {
    let (name, value) = line.text.split_once(':')?;
    name.trim().eq_ignore_ascii_case(NAME).then_some(value)
}

/// Adds the users in the `value` of a line to a rule.
pub(super) fn add(
    rule: &mut HeaderRule,
    line: &Line<'_>,
    value: &str,
) -> Result<(), HeaderProblem> {
    let start = line.text.len() - value.len();
    if rule.pattern.host.is_some() {
        let wrong = Wrong::words("passwords for a host", "a rule for a path alone");
        let help = "clients choose the host that they name: protect the path";
        return Err((1, wrong.help(help)));
    }
    let at = |offset| line.column(start + offset);
    let users = users::parse_value(value).map_err(|(offset, wrong)| (at(offset), wrong))?;
    let is_again = |user: &User| rule.users.iter().any(|it| it.name == user.name);
    if users.iter().any(is_again) {
        let wrong = Wrong::words("the same user again", "each user once");
        return Err((at(0), wrong));
    }
    if users.iter().any(is_clear) {
        let position = (line.number, at(value.len() - value.trim_start().len()));
        rule.lines.clear_password.get_or_insert(position);
    }
    rule.users.extend(users);
    if rule.users.len() > USERS_MAX {
        let wrong = Wrong::words("more users", format!("at most {USERS_MAX} in a rule"));
        return Err((at(0), wrong));
    }
    Ok(())
}

fn is_clear(user: &User) -> bool {
    matches!(user.secret, Secret::Clear(_))
}

impl Headers {
    /// The problem of a rule with a password in the clear, which is to stay secret: an error for
    /// rules that are given away.
    #[must_use]
    pub fn clear_password(&self, file: &str) -> Option<Problem> {
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.users.iter().any(is_clear))?;
        let mut problems = Vec::new();
        let mut report = Report::new(file, &mut problems);
        let wrong = Wrong::words("a password in the clear", "a hash of it");
        let help = "everyone could read it in the archive; 'gannet password USER' prints a hash to put in \
                    its place";
        let (line, column) = rule.lines.clear_password.unwrap_or((rule.place.line, 1));
        report.error(line, column, wrong.help(help));
        report.finish();
        problems.pop()
    }
}
