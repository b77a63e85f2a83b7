//! What `gannet follow --on-demand` does for a server: it fetches the parts of releases that are asked for by
//! standard input, and answers by standard output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use gannet_fleet::{Answer, Fetcher, Reason, Remote, Want};
use gannet_server::config::supply::{AHEAD, NO_CLIENT, ReleasePart, Supplied, SupplyReply, USED};
use gannet_store::ReleaseId;
use rustix::fs::{FileType, fstat};

use crate::messages::{Exit, Failure};

/// The pipes of a server.
pub(crate) struct Counter {
    questions: File,
    answers: Arc<File>,
}

impl Counter {
    /// Takes standard input and output.
    ///
    /// # Errors
    /// They are no pipes: no server has started this process.
    pub(crate) fn open() -> Result<Self, Failure> {
        let open = |descriptor: &dyn AsFd| {
            let kind = fstat(descriptor.as_fd()).map(|it| FileType::from_raw_mode(it.st_mode));
            let owned = descriptor.as_fd().try_clone_to_owned().ok();
            owned.filter(|_| kind == Ok(FileType::Fifo)).map(File::from)
        };
        let (questions, answers) = (open(&io::stdin()), open(&io::stdout()));
        let (Some(questions), Some(answers)) = (questions, answers) else {
            let what = "cannot use '--on-demand': no server sends requests on standard input";
            return Err(Failure::usage(what)
                .help("'gannet serve URL --on-demand SIZE' starts the server and this beside it"));
        };
        Ok(Self {
            questions,
            answers: Arc::new(answers),
        })
    }

    /// Begins to answer: what is asked is fetched from the store by connections of its own. The follower of the
    /// folder is open, and need not have looked at the store.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn begin(
        self,
        (folder, room): (&Path, u64),
        remote: Remote,
    ) -> Result<Arc<Fetcher>, Failure> {
        let report = |error| Failure::from(error).report();
        let fetcher = Arc::new(Fetcher::start(remote, folder, room, report)?);
        let asked = Arc::clone(&fetcher);
        let Self {
            mut questions,
            answers,
        } = self;
        let read = move || {
            while let Some(question) = next(&mut questions) {
                answer(question, &asked, &answers);
            }
        };
        let begun = thread::Builder::new()
            .name("questions".to_owned())
            .spawn(read);
        begun.map_err(|error| Failure::of_system("start", "a thread", &error))?;
        Ok(fetcher)
    }
}

/// The next question, with its number and client; `None` if the server has ended, or asks in another way.
fn next(questions: &mut File) -> Option<(ReleasePart, u64, u128)> {
    let mut record = [0; ReleasePart::LEN];
    questions.read_exact(&mut record).ok()?;
    let question = ReleasePart::read(&record);
    if question.is_none() {
        // The program was replaced while the server runs: releases come, and the server refuses what is not here.
        let cause = "it is of another version of gannet";
        let failure = Failure {
            message: format!("cannot fetch what the server asks for: {cause}"),
            help: Some("restart the server".into()),
            exit: Exit::Failed,
        };
        failure.report();
    }
    question
}

fn answer(
    (part, number, client): (ReleasePart, u64, u128),
    fetcher: &Fetcher,
    answers: &Arc<File>,
) {
    let want = Want {
        release: ReleaseId::of_bytes(part.release),
        blob: part.blob,
        range: part.range,
        client: (client != NO_CLIENT).then_some(client),
        is_ahead: number == AHEAD,
    };
    if number == USED {
        return fetcher.used(want);
    }
    let answers = Arc::clone(answers);
    let reply = move |answer| {
        // If the server has ended, this process ends soon.
        let _ = (&*answers).write_all(&reply_of(number, answer).to_bytes());
    };
    fetcher.ask(want, Box::new(reply));
}

fn reply_of(number: u64, answer: Answer) -> SupplyReply {
    let (supplied, effort) = match answer {
        Answer::Present(effort) => (Supplied::Present, effort),
        Answer::Failed(Reason::Damaged, effort) => (Supplied::Damaged, effort),
        Answer::Failed(_, effort) => (Supplied::Unavailable, effort),
    };
    SupplyReply {
        number,
        supplied,
        fetched: effort.fetched,
        unverified: effort.unverified.into(),
    }
}
