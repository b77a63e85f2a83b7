//! Surveys of folders: the names of a folder are read once for all lookups that need them.
//!
//! The first requests for a folder come together. Those that would ask for each sidecar of their files
//! while its names are being read wait for the names instead, and hold nothing: they begin again, and
//! each of them waits so once.

use std::rc::Rc;

use gannet_io::driver::{Done, Driver, Errno, Nanos, Started, Token};

use crate::bounds::limits::SURVEYS_MAX;
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::token::{Kind, token};
use crate::release::directory::DirectorySite;
use crate::release::directory::fill::DiskLookup;

/// The surveys of a worker in progress, by the number in their token.
#[derive(Default)]
pub(crate) struct Surveying([Option<SurveyJob>; SURVEYS_MAX]);

struct SurveyJob {
    /// The site in the release of the first request.
    site: Rc<DirectorySite>,
    /// The path of the folder below the root.
    folder: Vec<u8>,
    /// When it began, by both clocks.
    since: (Nanos, i64),
    /// Lookups that begin again when it ends.
    waiters: Line,
}

impl Surveying {
    fn find(&mut self, site: &Rc<DirectorySite>, folder: &[u8]) -> Option<&mut SurveyJob> {
        let mut jobs = self.0.iter_mut().flatten();
        jobs.find(|job| Rc::ptr_eq(&job.site, site) && job.folder == folder)
    }
}

impl<D: Driver> Shared<D> {
    /// Reads at most `max` names of the folder of the file that a lookup has found, or joins those who wait
    /// for them: `waiter` is woken to begin again. False if they cannot be had.
    pub(crate) fn ask_for_survey(
        &mut self,
        fill: &mut DiskLookup,
        max: usize,
        waiter: Token,
    ) -> bool {
        let (site, folder) = (Rc::clone(fill.site()), fill.folder().to_vec());
        if let Some(job) = self.surveying.find(&site, &folder) {
            job.waiters.push(waiter, &mut self.waiters);
            fill.await_survey();
            return true;
        }
        let free = self.surveying.0.iter().position(Option::is_none);
        let (Some(place), Some(root)) = (free, site.root()) else {
            return false;
        };
        let since = (self.driver.now(), self.driver.unix_seconds());
        site.survey(&folder, max);
        let number = token(Kind::Survey, place as u32);
        match self
            .driver
            .survey(root, &folder, (max, DiskLookup::KEPT_NAMES), number)
        {
            Started::Now(result) => {
                site.surveyed(&folder, result.ok(), since);
                false
            }
            Started::Pending => {
                fill.await_survey();
                self.surveying.0[place] = Some(SurveyJob {
                    site,
                    folder,
                    since,
                    waiters: Line([waiter].into()),
                });
                true
            }
        }
    }

    /// Handles a folder whose names were read, or could not be.
    pub(crate) fn surveyed(&mut self, place: u32, result: Result<Done, Errno>) {
        let job = self.surveying.0.get_mut(place as usize);
        let Some(job) = job.and_then(Option::take) else {
            return;
        };
        let survey = match result {
            Ok(Done::Surveyed(survey)) => Some(survey),
            _ => None,
        };
        job.site.surveyed(&job.folder, survey, job.since);
        self.look_up_again(job.waiters);
    }
}
