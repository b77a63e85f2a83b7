//! The answer to `OPTIONS`.

use gannet_http::semantics::request::{Request, TargetForm};
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::Driver;

use super::answering::{Answering, Reply};
use super::outgoing::Outgoing;
use super::own_answers::ALLOW_ORIGIN;
use super::workbench::{ALLOW, Workbench};
use crate::observe::record::Answered;
use crate::release::access;
use crate::release::rules::RequestRules;
use crate::release::{RequestView, Resolved, Site};

impl<D: Driver> Workbench<'_, D> {
    /// Answers with the methods of a resource, and the fields that rules set for its path: they may allow
    /// other sites' scripts to read it. So may those that an archive was packed with.
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
        let site = self.release.site(number);
        let path = &path[self.release.prefix(number).len()..];
        // It would tell what is there. (Browsers send no password with it.)
        let rules = site.rules();
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
        let mut packed = None;
        if let Site::Archive(archive) = site {
            // The origin does not depend on the selected coding.
            let (_, resolved) = archive.resolve(&view, &mut to.ruling);
            if let Resolved::Selected(selected) = resolved {
                let origin = selected.block.h1.get(ALLOW_ORIGIN);
                packed = origin.map(|it| String::from_utf8_lossy(it).into_owned());
            }
        }
        to.preflight(packed, ALLOW)
    }
}
