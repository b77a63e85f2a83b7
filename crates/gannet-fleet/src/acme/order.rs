//! One order: from a host to a certificate with its key.

use std::net::IpAddr;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CertificateSigningRequest, DistinguishedName, KeyPair};
use tokio::time::{sleep, timeout};

use super::account::is_lost;
use super::certificate::{CertificateFacts, chain, proof, server_name};
use super::client::Unanswered;
use super::draft::OrderDraft;
use super::error::{AcmeRefusal, is_of_nonce};
use super::folder::{Folder, Passing};
use super::{Challenge, OrderSettings};
use crate::limits::{CHALLENGE_SEEN, NONCE_ATTEMPTS, ORDER_POLL_TIMEOUT};

/// A certificate with its chain, and its key: both PEM.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) facts: CertificateFacts,
}

const POLLS: RetryPolicy = RetryPolicy::new().backoff(1.5).timeout(ORDER_POLL_TIMEOUT);

/// Why there is no certificate.
pub(super) struct Fault {
    pub(super) refusal: AcmeRefusal,
    pub(super) kind: FaultKind,
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FaultKind {
    /// There was no answer: what has become of the order is not known, and it may continue.
    Open,
    /// The server does not come to an end with the order: it may continue, once.
    Slow,
    /// The order has come to its end.
    Ended,
    /// What the order was built on is not there any more, such as an authorization that was revoked: a new
    /// one may do.
    Void,
    /// The server has refused the nonces of one request several times in a row: it may be sent again at
    /// once (RFC 8555 section 6.5).
    Nonce,
    /// The server does not know the account, or does not let it order.
    Account,
}

impl Fault {
    fn new(kind: FaultKind, why: impl AsRef<str>) -> Self {
        Self {
            refusal: AcmeRefusal::new(why),
            kind,
        }
    }

    fn ended(why: impl AsRef<str>) -> Self {
        Self::new(FaultKind::Ended, why)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Other(error) if error.is::<Unanswered>() => FaultKind::Open,
            Error::Timeout(_) => FaultKind::Slow,
            error if is_of_nonce(error) => FaultKind::Nonce,
            Error::Api(problem) if is_kind(problem, &["rateLimited", "serverInternal"]) => {
                FaultKind::Slow
            }
            _ => FaultKind::Ended,
        };
        Self {
            refusal: error.into(),
            kind,
        }
    }
}

/// Orders a certificate for the draft's key, or continues an earlier order. After `patience` it is left
/// for later.
pub(super) async fn order(
    account: &Account,
    (host, replaced): (&str, Option<CertificateIdentifier<'static>>),
    draft: &mut OrderDraft,
    (settings, folder, patience): (&OrderSettings, &Folder, Duration),
) -> Result<Issued, Fault> {
    let wanted = CertificateOrder {
        host,
        replaced,
        settings,
        folder,
    };
    let is_earlier = draft.order().is_some();
    let ordered = timeout(patience, async {
        let (mut is_void, mut nonces) = (false, 1);
        loop {
            match wanted.attempt(account, draft).await {
                Err(fault) if fault.kind == FaultKind::Void && !is_void => {
                    draft.note(None);
                    is_void = true;
                }
                Err(fault) if fault.kind == FaultKind::Nonce && nonces < NONCE_ATTEMPTS => {
                    nonces += 1;
                }
                issued => break issued,
            }
        }
    });
    let why = "the order does not complete";
    let ordered = ordered.await;
    let ordered = ordered.unwrap_or_else(|_| Err(Fault::new(FaultKind::Slow, why)));
    let is_over = |fault: &Fault| match fault.kind {
        FaultKind::Open => false,
        FaultKind::Slow => is_earlier,
        FaultKind::Ended | FaultKind::Void | FaultKind::Nonce | FaultKind::Account => true,
    };
    if ordered.as_ref().is_err_and(is_over) {
        draft.note(None);
    }
    ordered
}

/// What is ordered.
struct CertificateOrder<'w> {
    host: &'w str,
    replaced: Option<CertificateIdentifier<'static>>,
    settings: &'w OrderSettings,
    folder: &'w Folder,
}

impl CertificateOrder<'_> {
    async fn attempt(&self, account: &Account, draft: &mut OrderDraft) -> Result<Issued, Fault> {
        let mut order = match earlier(account, draft).await? {
            Some(order) => order,
            None => {
                let order = self.place(account).await?;
                draft.note(Some(order.url()));
                order
            }
        };
        if order.state().status == OrderStatus::Pending {
            prove(&mut order, self.host, self.settings.challenge, self.folder).await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = request(self.host, draft.key());
            let request = request.map_err(|error| Fault::ended(error.to_string()))?;
            match order.finalize_csr(request.der()).await {
                // An authorization has ended since the order was ready.
                Err(Error::Api(problem))
                    if is_kind(&problem, &["unauthorized", "orderNotReady"]) =>
                {
                    return Err(Fault {
                        refusal: AcmeRefusal::of_problem(&problem),
                        kind: FaultKind::Void,
                    });
                }
                done => done?,
            }
        }
        let chain = order.poll_certificate(&POLLS).await?;
        examine(self.host, &chain, draft.key())
    }

    /// A new order.
    async fn place(&self, account: &Account) -> Result<Order, Fault> {
        let identifiers = [match self.host.parse::<IpAddr>() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(self.host.to_owned()),
        }];
        let wanted = || {
            let wanted = NewOrder::new(&identifiers);
            match &self.settings.profile {
                Some(profile) => wanted.profile(profile),
                None => wanted,
            }
        };
        let made = match self.replaced.clone() {
            None => account.new_order(&wanted()).await,
            Some(replaced) => match account.new_order(&wanted().replaces(replaced)).await {
                // Without an answer, the server may have taken the order.
                Err(Error::Other(error)) if error.is::<Unanswered>() => Err(Error::Other(error)),
                Err(Error::Api(problem))
                    if is_kind(&problem, &["rateLimited", "serverInternal"]) =>
                {
                    Err(Error::Api(problem))
                }
                // Of another account, replaced already, or not known any more: it is a new one then. So it
                // is where the server knows nothing of this, or does not repeat what is replaced.
                Err(Error::Other(_) | Error::Api(_) | Error::Unsupported(_)) => {
                    account.new_order(&wanted()).await
                }
                made => made,
            },
        };
        made.map_err(|error| match error {
            Error::Api(problem) if is_lost(&problem) => Fault {
                refusal: AcmeRefusal::of_problem(&problem),
                kind: FaultKind::Account,
            },
            error => error.into(),
        })
    }
}

/// The order of before, if there still is one.
async fn earlier(account: &Account, draft: &mut OrderDraft) -> Result<Option<Order>, Fault> {
    let Some(url) = draft.order() else {
        return Ok(None);
    };
    match account.order(url.to_owned()).await.map_err(Fault::from) {
        Ok(mut order) => {
            if order.state().status != OrderStatus::Invalid {
                return Ok(Some(order));
            }
            draft.note(None);
        }
        Err(fault)
            if matches!(
                fault.kind,
                FaultKind::Open | FaultKind::Slow | FaultKind::Nonce
            ) =>
        {
            return Err(fault);
        }
        Err(_) => draft.note(None),
    }
    Ok(None)
}

/// A request for a certificate (RFC 2986).
fn request(host: &str, key: &KeyPair) -> Result<CertificateSigningRequest, rcgen::Error> {
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.serialize_request(key)
}

fn is_kind(problem: &Problem, kinds: &[&str]) -> bool {
    let kind = AcmeRefusal::of_problem(problem).kind;
    kind.is_some_and(|kind| kinds.contains(&kind.as_str()))
}

/// Proves control of the host.
async fn prove(
    order: &mut Order,
    host: &str,
    challenge: Challenge,
    folder: &Folder,
) -> Result<(), Fault> {
    let kind = match challenge {
        Challenge::Http => ChallengeType::Http01,
        Challenge::Tls => ChallengeType::TlsAlpn01,
    };
    let mut files = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut authorization = next?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Invalid => {
                return Err(Fault::ended("the authorization is invalid"));
            }
            // RFC 8555 section 7.1.6: it was valid, or has waited for too long.
            status => {
                let why = format!("the authorization is {status:?}").to_lowercase();
                return Err(Fault::new(FaultKind::Void, why));
            }
        }
        let Some(mut asked) = authorization.challenge(kind.clone()) else {
            return Err(Fault::ended(match challenge {
                Challenge::Http => "the server offers no challenge by HTTP-01",
                Challenge::Tls => "the server offers no challenge by TLS-ALPN-01",
            }));
        };
        if challenge == Challenge::Tls {
            let digest = asked.key_authorization().digest();
            let proof = proof(host, digest.as_ref());
            let proof = proof.map_err(|error| Fault::ended(error.to_string()))?;
            let file = Passing::put(folder.challenge(&server_name(host)), proof.as_bytes());
            files.push(file.map_err(|error| Fault::ended(error.to_string()))?);
            sleep(CHALLENGE_SEEN).await;
        }
        asked.set_ready().await?;
    }
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Err(error) if is_of_nonce(&error) => Err(error.into()),
        Ok(_) | Err(Error::Api(_)) => Err(Fault {
            refusal: why(order).await,
            kind: FaultKind::Ended,
        }),
        Err(error) => Err(error.into()),
    }
}

/// Why an order has become invalid: its challenges have it.
async fn why(order: &mut Order) -> AcmeRefusal {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else {
            break;
        };
        let mut problems = state.challenges.iter().filter_map(|it| it.error.as_ref());
        if let Some(problem) = problems.next() {
            return AcmeRefusal::of_problem(problem);
        }
    }
    AcmeRefusal::new("the order is invalid, and the server does not say why")
}

/// Makes sure that what a server has sent is what was ordered.
fn examine(host: &str, text: &str, key: &KeyPair) -> Result<Issued, Fault> {
    let read = chain(text);
    let (chain, facts) =
        read.map_err(|why| Fault::ended(format!("the server's certificate: {why}")))?;
    if facts.public_key != rcgen::PublicKeyData::subject_public_key_info(key) {
        return Err(Fault::ended("the server's certificate is for another key"));
    }
    if !facts.is_for(host) {
        return Err(Fault::ended("the server's certificate is for another name"));
    }
    Ok(Issued {
        chain,
        key: key.serialize_pem(),
        facts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_to_be_the_one_that_was_ordered() {
        let key = KeyPair::generate().expect("a key");
        let other = KeyPair::generate().expect("a key");
        let issue = |name: &str| {
            let params = CertificateParams::new([name.to_owned()]).expect("a name");
            params.self_signed(&key).expect("signed").pem()
        };
        let check = |chain: String, key: &KeyPair, expect: &str| {
            let got = examine("a.test", &chain, key);
            let got = got.map_or_else(|fault| fault.refusal.words, |_| "ok".into());
            assert!(got.contains(expect), "{got}");
        };
        check(issue("a.test"), &key, "ok");
        check(issue("b.test"), &key, "for another name");
        check(issue("a.test"), &other, "for another key");
        check("-----BEGIN".into(), &key, "the server's certificate: ");
        check(String::new(), &key, "the server's certificate: ");
    }
}
