//! The answer to `OPTIONS`.

use gannet_http::semantics::request::{Request, TargetForm};
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::Driver;

use super::answering::{Answering, Reply};
use super::outgoing::Outgoing;
use super::pump::{ALLOW, Pump};
use crate::observe::record::Answered;
use crate::release::access;
use crate::release::rules::RequestRules;
use crate::release::{RequestView, Resolved, Site};

impl<D: Driver> Pump<'_, D> {
    /// Answers with the methods of a resource. An archive carries its own CORS policy: the fields
    /// of a resource apply to preflight requests, too.
    pub(super) fn options(
        &mut self,
        reply: &mut dyn Reply,
        request: &Request<'_>,
        out: &mut Outgoing,
    ) -> Answered {
        let mut to = Answering::new(reply, &self.turn, out);
        let form = request.target.form;
        if !matches!(form, TargetForm::Origin | TargetForm::Absolute) {
            return to.options(ALLOW);
        }
        let Ok(path) = decode_path(request.target.path, self.scratch) else {
            return to.options(ALLOW);
        };
        let path = path.as_bytes();
        let Ok(number) = self.release.number(request.authority, path) else {
            return to.options(ALLOW);
        };
        let Site::Archive(archive) = self.release.site(number) else {
            return to.options(ALLOW);
        };
        let path = &path[self.release.prefix(number).len()..];
        // It would tell what is there. (Browsers send no password with it.)
        let rules = archive.current.rules.as_deref();
        if access::lists((self.release, number), rules, path, &self.turn.steps).is_some() {
            return to.options(ALLOW);
        }
        let view = RequestView {
            request,
            path,
            scheme: self.turn.scheme,
            fields: &self.turn.fields,
            release: self.release,
            steps: &self.turn.steps,
            site: number,
        };
        to.ruling = rules.map(|rules| RequestRules::new(rules, view.input(), view.steps));
        // The policy does not depend on the selected coding.
        let (_, resolved) = archive.resolve(&view, &mut to.ruling);
        match resolved {
            Resolved::Selected(selected) => to.preflight(request, &selected, ALLOW),
            _ => {
                to.ruling = None;
                to.options(ALLOW)
            }
        }
    }
}
