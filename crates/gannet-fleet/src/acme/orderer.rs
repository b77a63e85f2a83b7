//! Keeps certificates of hosts: orders what is missing, renews what is due.

use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use instant_acme::CertificateIdentifier;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};
use url::Url;

use super::account::{Accounts, News};
use super::certificate::{self, CertificateFacts, is_from, is_ordered};
use super::client::{AcmeHttp, RequestedPause};
use super::draft::OrderDraft;
use super::error::{AcmeError, AcmeRefusal};
use super::folder::{self, Folder};
use super::history::History;
use super::on_demand::OnDemandOrders;
use super::order::{Fault, FaultKind, Issued, order};
use super::schedule::{Looks, Orders, back_off, is_late, latest_renewal_of, renewal_of, within};
use super::{OrderSettings, server};
use crate::limits::{
    CERTIFICATE_LEN_MAX, LOOK_TIMEOUT, LOOKS_PAUSE_S, LOOKS_PER_ROUND, ORDER_TIMEOUT,
    RENEWAL_LOOK_LEAST, RENEWAL_LOOK_MOST, WRITE_BACK_OFF_MOST,
};

/// What a round reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// There is a new certificate in a file.
    Ordered {
        /// For this host.
        host: &'a str,
        /// The chain and its key.
        file: PathBuf,
        /// Until when it is valid, Unix seconds.
        not_after: i64,
    },
    /// There is none, and it is tried again after this time.
    Failed {
        /// For this host.
        host: &'a str,
        /// Why.
        error: AcmeError,
        /// When it is tried again.
        again: Duration,
        /// Until when the certificate is valid that should have been renewed, Unix seconds, if less than
        /// a third of its lifetime is left.
        until: Option<i64>,
    },
    /// The server did not know the account any more: there is a new one.
    Replaced {
        /// Where the earlier one is kept.
        aside: PathBuf,
    },
    /// The account has a key whose thumbprint was not printed yet, since [`Orderer::thumbprint`] gave none, or
    /// another one.
    Account {
        /// The thumbprint of the key.
        thumbprint: String,
    },
    /// Something is not as it should be, and is no reason not to order.
    Warned(AcmeError),
}

/// What a round has left to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Renewals {
    /// Until the next round.
    pub next: Duration,
    /// Hosts whose last order has failed.
    pub failing: usize,
    /// Hosts whose orders wait for others, since there is a bound for each minute, or that wait for the next
    /// round.
    pub waiting: usize,
}

/// Orders certificates. While it lives, it alone uses its folder.
pub struct Orderer {
    runtime: Runtime,
    keeper: Keeper,
}

impl Orderer {
    /// Opens or makes the folder. `is_busy` is called if another process uses it, which is waited for, with the
    /// number of that process if it is known.
    ///
    /// # Errors
    /// It is no URL of an ACME server, or the system refuses something.
    pub fn open(
        folder: &Path,
        hosts: &[String],
        settings: OrderSettings,
        is_busy: impl FnOnce(Option<u32>),
    ) -> Result<Self, AcmeError> {
        let directory = server::directory(&settings.server)?;
        let pause = RequestedPause::default();
        let client = AcmeHttp::new(&directory, pause.clone())?;
        let folder = Folder::open(folder, is_busy)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AcmeError::io("order into", &folder.certificate("*")))?;
        let (history, damage) = History::read(folder.history(&server::file_name(&directory)));
        let client = (client, pause.clone());
        let mut accounts = Accounts::new((&directory, &settings), client, &folder)?;
        accounts.warnings.extend(damage);
        Ok(Self {
            runtime,
            keeper: Keeper {
                hosts: hosts.iter().map(|name| Host::new(name)).collect(),
                directory,
                settings,
                pause,
                folder,
                accounts,
                history,
                orders: Orders::default(),
                looks: Looks::default(),
                on_demand: OnDemandOrders::default(),
            },
        })
    }

    /// The thumbprint of the account's key (RFC 7638), which is public. Makes the account at `now`, Unix
    /// seconds, if there is none.
    ///
    /// # Errors
    /// There is no account.
    pub fn thumbprint(&mut self, now: i64) -> Result<String, AcmeError> {
        let Keeper {
            accounts, history, ..
        } = &mut self.keeper;
        let account = self.runtime.block_on(accounts.get(history, now))?;
        let thumbprint = account.key_thumbprint().to_owned();
        accounts.reported(&thumbprint);
        Ok(thumbprint)
    }

    /// What is not as it should be, and is no reason not to order. A round reports it by itself.
    pub fn warnings(&mut self) -> Vec<AcmeError> {
        mem::take(&mut self.keeper.accounts.warnings)
    }

    /// Adds a host at `now`, Unix seconds: a client requests it, or it has a certificate that is to be
    /// renewed. Those beyond the limits are not added: see
    /// [`ON_DEMAND_HOSTS_WAITING_MAX`](crate::limits::ON_DEMAND_HOSTS_WAITING_MAX) and the limits after it.
    pub fn add(&mut self, name: &str, now: i64) {
        self.keeper.add(name, now);
    }

    /// Takes out a host that was added by [`add`](Self::add).
    pub fn forget(&mut self, name: &str) {
        if self.keeper.on_demand.remove(name) {
            self.keeper.hosts.retain(|host| host.name != name);
        }
    }

    /// Does what is due, and reports what came of it. The clock returns Unix seconds: an order takes its
    /// time. Hosts that are added meanwhile have their turn in the next round, which is due soon then.
    pub fn round(
        &mut self,
        clock: &dyn Fn() -> i64,
        report: &mut dyn FnMut(Event<'_>),
    ) -> Renewals {
        self.runtime.block_on(self.keeper.round(clock, report))
    }
}

struct Host {
    name: String,
    /// When to look again, Unix seconds.
    due: i64,
    /// What was before the start no longer delays its orders.
    is_free: bool,
    /// The last order has failed, or what came of it could not be kept.
    is_failing: bool,
    /// For other orders.
    waits: bool,
    /// A certificate that could not be written. Nothing is ordered meanwhile.
    unwritten: Option<Box<Issued>>,
    /// In a row, in writing.
    write_failures: u32,
}

impl Host {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            due: i64::MIN,
            is_free: false,
            is_failing: false,
            waits: false,
            unwritten: None,
            write_failures: 0,
        }
    }
}

/// What comes next for a host without failures; see [`Host`].
struct Next {
    due: i64,
    waits: bool,
}

struct Keeper {
    hosts: Vec<Host>,
    directory: Url,
    settings: OrderSettings,
    pause: RequestedPause,
    folder: Folder,
    accounts: Accounts,
    history: History,
    orders: Orders,
    looks: Looks,
    on_demand: OnDemandOrders,
}

const NOT_VALID: &str = "the new certificate is not valid now: is the clock of this machine right?";

/// Clock, and the receiver of events.
struct OrderRound<'r> {
    clock: &'r dyn Fn() -> i64,
    report: &'r mut dyn FnMut(Event<'_>),
    /// No other host is due after the one that is looked at.
    is_last: bool,
}

impl OrderRound<'_> {
    /// Reports what is new about the account: before an order, which needs servers that know it.
    fn report_news(&mut self, accounts: &mut Accounts) {
        let News { aside, thumbprint } = accounts.news();
        if let Some(aside) = aside {
            (self.report)(Event::Replaced { aside });
        }
        if let Some(thumbprint) = thumbprint {
            (self.report)(Event::Account { thumbprint });
        }
    }
}

/// What to do about a host.
enum Due {
    /// Nothing before this time.
    At(i64),
    /// An order, in place of this certificate.
    Now(Option<CertificateIdentifier<'static>>),
}

impl Keeper {
    async fn round(
        &mut self,
        clock: &dyn Fn() -> i64,
        report: &mut dyn FnMut(Event<'_>),
    ) -> Renewals {
        let mut round = OrderRound {
            clock,
            report,
            is_last: false,
        };
        let mut gone = Vec::new();
        self.looks.begin();
        let mut due = self.due_hosts(clock()).into_iter();
        let mut looked = 0;
        // What is left is due in the next round, after hosts that are added meanwhile.
        while !self.has_enough(looked)
            && let Some(at) = due.next()
        {
            looked += 1;
            round.is_last = due.len() == 0;
            if !self.look(at, &mut round).await {
                gone.push(self.hosts[at].name.clone());
            }
            round.report_news(&mut self.accounts);
            for warning in mem::take(&mut self.accounts.warnings) {
                (round.report)(Event::Warned(warning));
            }
        }
        self.hosts.retain(|host| !gone.contains(&host.name));
        let next = self.hosts.iter().map(|host| host.due).min();
        let next = next.unwrap_or(i64::MAX).saturating_sub(clock()).max(1);
        Renewals {
            next: Duration::from_secs(next.unsigned_abs()),
            failing: self.hosts.iter().filter(|host| host.is_failing).count(),
            waiting: self.hosts.iter().filter(|host| host.waits).count() + due.len(),
        }
    }

    fn add(&mut self, name: &str, now: i64) {
        if self.hosts.iter().any(|host| host.name == name) {
            return;
        }
        if self.is_of_others(name) {
            return;
        }
        let is_held = matches!(self.facts(name), Ok(Some(_)));
        if self.on_demand.add(name, is_held, now) {
            self.hosts.push(Host::new(name));
        }
    }

    /// Whether a round that has looked at so many hosts is to end.
    fn has_enough(&self, looked: usize) -> bool {
        let is_heard = !self.on_demand.is_empty();
        self.looks.is_over() || is_heard && looked >= LOOKS_PER_ROUND
    }

    /// The hosts to look at, those first for which a client waits.
    fn due_hosts(&self, now: i64) -> Vec<usize> {
        let hosts = self.hosts.iter().enumerate();
        let due = hosts.filter(|(_, host)| host.due <= now);
        let (mut first, rest): (Vec<_>, Vec<_>) =
            due.partition(|(_, host)| self.on_demand.is_new(&host.name));
        first.extend(rest);
        first.into_iter().map(|(at, _)| at).collect()
    }

    /// Looks at one host, and notes when to look again. Returns false if it is not to be looked at by
    /// itself any more.
    async fn look(&mut self, at: usize, round: &mut OrderRound<'_>) -> bool {
        let name = self.hosts[at].name.clone();
        let facts = self.facts(&name);
        let valid = facts.as_ref().ok().and_then(|facts| facts.as_ref());
        let validity = valid.map(|facts| (facts.not_before, facts.not_after));
        let done = match facts {
            Ok(facts) => self.attend(at, facts, round).await,
            Err(error) => Err(error),
        };
        // Pauses begin when the order has ended.
        let now = (round.clock)();
        let host = &mut self.hosts[at];
        let error = match done {
            Ok(Next { due, waits: true }) => {
                (host.due, host.waits) = (due, true);
                return true;
            }
            Ok(Next { due, waits: false }) => {
                (host.due, host.waits) = (due, false);
                (host.is_failing, host.write_failures) = (false, 0);
                self.on_demand.got(&name);
                let kept = self.history.succeeded(&name, now);
                self.accounts.warnings.extend(kept.err());
                return true;
            }
            Err(error) => error,
        };
        let again = self.pause(at, &error, now);
        let host = &mut self.hosts[at];
        host.due = now + again.as_secs().cast_signed();
        (host.is_failing, host.waits) = (true, false);
        // What could not be written is still to be written.
        let is_gone = host.unwritten.is_none() && self.on_demand.failed(&name, host.due, now);
        let late = validity.filter(|validity| is_late(*validity, now));
        (round.report)(Event::Failed {
            host: &name,
            error,
            again,
            until: late.map(|(_, not_after)| not_after),
        });
        !is_gone
    }

    /// When to try again after this, which is kept if it was a server that failed.
    fn pause(&mut self, at: usize, error: &AcmeError, now: i64) -> Duration {
        let until = |due: i64| Duration::from_secs((due - now).max(1).unsigned_abs());
        let host = &mut self.hosts[at];
        match error {
            AcmeError::Waits { until: due, .. } => until(*due),
            AcmeError::Account { .. } => until(self.accounts.due(now)),
            AcmeError::Io(_) | AcmeError::Damaged(..) => {
                host.write_failures = host.write_failures.saturating_add(1);
                back_off(host.write_failures).min(WRITE_BACK_OFF_MOST)
            }
            _ => {
                let (wait, kept) = self.history.failed(&host.name, now, self.pause.take());
                self.accounts.warnings.extend(kept.err());
                wait
            }
        }
    }

    /// Whether a host's failures before the start let it order again.
    fn free(&mut self, at: usize, now: i64) -> Result<(), AcmeError> {
        let host = &mut self.hosts[at];
        if !host.is_free {
            let until = self.history.first_due(&host.name, now);
            if now < until {
                return Err(AcmeError::Waits {
                    server: self.directory.to_string(),
                    failures: self.history.failures(&host.name),
                    host: Some(host.name.clone()),
                    until,
                    history: self.history.path().to_owned(),
                });
            }
            host.is_free = true;
        }
        Ok(())
    }

    /// Orders if that is due; returns when to look again.
    async fn attend(
        &mut self,
        at: usize,
        facts: Option<CertificateFacts>,
        round: &mut OrderRound<'_>,
    ) -> Result<Next, AcmeError> {
        let now = (round.clock)();
        if let Some(issued) = self.hosts[at].unwritten.take() {
            return self.keep(at, *issued, round);
        }
        // A certificate that is not renewed in its time, but soon after it was issued.
        let is_early = facts.as_ref().is_none_or(|facts| {
            let lifetime = facts.not_after - facts.not_before;
            now < facts.not_before + lifetime / 3
        });
        let replaced = match self.due(facts, now).await {
            Due::At(due) => return Ok(Next { due, waits: false }),
            Due::Now(replaced) => replaced,
        };
        let host = self.hosts[at].name.clone();
        self.free(at, now)?;
        if self.history.is_full(&host, now) {
            return Err(self.refuse(
                &host,
                AcmeRefusal::new(
                    "each new certificate is due for renewal at once: is the clock of this machine right?",
                ),
            ));
        }
        let is_new = self.on_demand.is_new(&host);
        let of_hour = is_new.then(|| self.history.on_demand_wait(now)).flatten();
        let wait = self.orders.wait(now).max(of_hour);
        if let Some(wait) = wait {
            let due = now + wait.cast_signed();
            return Ok(Next { due, waits: true });
        }
        let server = self.directory.as_str();
        let mut draft = OrderDraft::open(&self.folder.order(&host), server)?;
        let account = self.accounts.get(&mut self.history, now).await?;
        round.report_news(&mut self.accounts);
        match is_new {
            true => self.history.begin_on_demand(&host, now),
            false => self.history.begin(&host, now),
        }?;
        self.orders.count(now);
        self.pause.take();
        // Those that are added meanwhile have their turn in the next round.
        let is_alone = round.is_last && self.on_demand.is_empty();
        let patience = match is_alone {
            true => ORDER_TIMEOUT,
            false => self.settings.patience,
        };
        let context = (&self.settings, &self.folder, patience);
        let wanted = (host.as_str(), replaced.clone());
        let mut issued = order(&account, wanted, &mut draft, context).await;
        if issued
            .as_ref()
            .is_err_and(|it| it.kind == FaultKind::Account)
        {
            let now = (round.clock)();
            let made = self.accounts.replace(&mut self.history, now).await?;
            if let Some(account) = made {
                round.report_news(&mut self.accounts);
                let wanted = (host.as_str(), replaced);
                issued = order(&account, wanted, &mut draft, context).await;
            }
        }
        let issued = issued.map_err(|Fault { refusal, .. }| self.refuse(&host, refusal))?;
        let now = (round.clock)();
        if is_early || !issued.facts.is_valid(now) {
            // It counts from the next order on, whatever becomes of the file.
            let kept = self.history.issued(&host, now);
            self.accounts.warnings.extend(kept.err());
        }
        draft.make_room();
        self.keep(at, issued, round)
    }

    /// Puts a certificate into its file.
    fn keep(
        &mut self,
        at: usize,
        issued: Issued,
        round: &mut OrderRound<'_>,
    ) -> Result<Next, AcmeError> {
        let now = (round.clock)();
        let host = self.hosts[at].name.clone();
        let file = self.folder.certificate(&host);
        let text = certificate::file(self.directory.as_str(), &issued.chain, &issued.key);
        if !issued.facts.is_valid(now)
            && matches!(self.facts(&host), Ok(Some(facts)) if facts.is_valid(now))
        {
            OrderDraft::remove(&self.folder.order(&host));
            return Err(self.refuse(&host, AcmeRefusal::new(NOT_VALID)));
        }
        if let Err(error) = folder::replace(&file, text.as_bytes()) {
            self.hosts[at].unwritten = Some(Box::new(issued));
            return Err(error);
        }
        OrderDraft::remove(&self.folder.order(&host));
        (round.report)(Event::Ordered {
            host: &host,
            file,
            not_after: issued.facts.not_after,
        });
        // Ordering again would not help.
        match issued.facts.is_valid(now) {
            true => Ok(Next {
                due: now + RENEWAL_LOOK_LEAST.as_secs().cast_signed(),
                waits: false,
            }),
            false => Err(self.refuse(&host, AcmeRefusal::new(NOT_VALID))),
        }
    }

    fn refuse(&self, host: &str, cause: AcmeRefusal) -> AcmeError {
        AcmeError::Order {
            host: host.to_owned(),
            cause,
            challenge: self.settings.challenge,
        }
    }

    /// The certificate of a host, if it is one from this server.
    fn facts(&self, host: &str) -> Result<Option<CertificateFacts>, AcmeError> {
        let path = self.folder.certificate(host);
        let Some(file) = folder::read(&path, CERTIFICATE_LEN_MAX)? else {
            return Ok(None);
        };
        let facts = CertificateFacts::parse(&file).ok();
        let is_ours = is_from(self.directory.as_str(), &file);
        Ok(facts.filter(|facts| is_ours && facts.is_for(host)))
    }

    /// Whether there is a certificate for a host that was not ordered here, which is left alone.
    fn is_of_others(&self, host: &str) -> bool {
        let path = self.folder.certificate(host);
        let file = folder::read(&path, CERTIFICATE_LEN_MAX).ok().flatten();
        file.is_some_and(|file| !is_ordered(&file) && CertificateFacts::parse(&file).is_ok())
    }

    async fn due(&mut self, facts: Option<CertificateFacts>, now: i64) -> Due {
        let Some(facts) = facts else {
            return Due::Now(None);
        };
        let validity = (facts.not_before, facts.not_after);
        if facts.not_after <= now {
            return Due::Now(None);
        }
        let own = renewal_of(validity);
        // Whatever the server says: it has to be tried more than once.
        let last = latest_renewal_of(validity);
        let is_paused = facts.id.is_some() && !self.looks.may_ask(now);
        let asked = match &facts.id {
            Some(id) if !is_paused => self.asked_renewal(id, now).await,
            _ => None,
        };
        let (at, look) = match asked {
            Some((at, look)) => (at.min(last), now + look),
            // It was not asked at all.
            None if is_paused => (own, now + LOOKS_PAUSE_S),
            // It may be there the next time.
            None => (own, now + RENEWAL_LOOK_MOST.as_secs().cast_signed() / 4),
        };
        match at <= now {
            true => Due::Now(facts.id),
            false => Due::At(at.min(look)),
        }
    }

    /// When the server wants a certificate renewed, and after how many seconds to ask again; `None` if it
    /// does not say, which is no failure of a renewal.
    async fn asked_renewal(
        &mut self,
        id: &CertificateIdentifier<'static>,
        now: i64,
    ) -> Option<(i64, i64)> {
        let account = self.accounts.get(&mut self.history, now).await.ok()?;
        let begun = Instant::now();
        let asked = timeout(LOOK_TIMEOUT, account.renewal_info(id)).await;
        self.looks.count(begun.elapsed(), asked.is_ok(), now);
        // How long to wait with this is reported elsewhere.
        self.pause.take();
        let (info, again) = asked.ok()?.ok()?;
        let window = info.suggested_window;
        let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
        let again = again.clamp(RENEWAL_LOOK_LEAST, RENEWAL_LOOK_MOST);
        // A point that was chosen before would be forgotten by a restart anyway: within a window that has
        // begun, each look renews with the part of it that has passed.
        let at = within(start, end);
        Some((at, again.as_secs().cast_signed()))
    }
}
