//! One order: from a host to a certificate with its key.

use std::net::IpAddr;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::KeyPair;
use tokio::time::{sleep, timeout};

use super::certificate::{Held, proof, server_name};
use super::error::Refusal;
use super::folder::{Folder, Passing};
use super::{Challenge, OrderSettings};
use crate::limits::{CHALLENGE_SEEN, ORDER_POLL_TIMEOUT, ORDER_TIMEOUT};

/// A certificate with its chain, and its key: both PEM.
pub(super) struct Issued {
    pub(super) chain: String,
    pub(super) key: String,
    pub(super) held: Held,
}

const POLLS: RetryPolicy = RetryPolicy::new().backoff(1.5).timeout(ORDER_POLL_TIMEOUT);

/// Orders a certificate with a new key.
pub(super) async fn order(
    account: &Account,
    host: &str,
    replaced: Option<CertificateIdentifier<'static>>,
    (settings, folder): (&OrderSettings, &Folder),
) -> Result<Issued, Refusal> {
    let ordered = timeout(ORDER_TIMEOUT, async {
        let identifiers = [match host.parse::<IpAddr>() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(host.to_owned()),
        }];
        let mut wanted = NewOrder::new(&identifiers);
        if let Some(profile) = &settings.profile {
            wanted = wanted.profile(profile);
        }
        let mut order = match replaced {
            None => account.new_order(&wanted).await?,
            Some(replaced) => {
                let replacing = NewOrder::new(&identifiers).replaces(replaced);
                let replacing = match &settings.profile {
                    Some(profile) => replacing.profile(profile),
                    None => replacing,
                };
                match account.new_order(&replacing).await {
                    // Of another account, replaced already, or not known any more: it is a new one then.
                    Err(Error::Api(problem)) if !is_limit(&problem) => {
                        account.new_order(&wanted).await?
                    }
                    Err(Error::Other(_)) => account.new_order(&wanted).await?,
                    made => made?,
                }
            }
        };
        prove(&mut order, host, settings.challenge, folder).await?;
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&POLLS).await?;
        examine(host, chain, key)
    });
    let ordered = ordered.await;
    ordered.unwrap_or_else(|_| Err(Refusal::new("the order does not come to its end")))
}

fn is_limit(problem: &instant_acme::Problem) -> bool {
    let kind = problem.r#type.as_deref();
    kind.is_some_and(|kind| kind.ends_with(":rateLimited"))
}

/// Proves control of the host.
async fn prove(
    order: &mut Order,
    host: &str,
    challenge: Challenge,
    folder: &Folder,
) -> Result<(), Refusal> {
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
            status => return Err(Refusal::new(format!("the authorization is {status:?}"))),
        }
        let Some(mut asked) = authorization.challenge(kind.clone()) else {
            return Err(Refusal::new(match challenge {
                Challenge::Http => "the server offers no challenge by HTTP-01",
                Challenge::Tls => "the server offers no challenge by TLS-ALPN-01",
            }));
        };
        if challenge == Challenge::Tls {
            let digest = asked.key_authorization().digest();
            let proof = proof(host, digest.as_ref());
            let proof = proof.map_err(|error| Refusal::new(error.to_string()))?;
            let file = Passing::put(folder.challenge(&server_name(host)), proof.as_bytes());
            files.push(file.map_err(|error| Refusal::new(error.to_string()))?);
            sleep(CHALLENGE_SEEN).await;
        }
        asked.set_ready().await?;
    }
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) | Err(Error::Api(_)) => Err(why(order).await),
        Err(error) => Err(error.into()),
    }
}

/// Why an order has become invalid: its challenges have it.
async fn why(order: &mut Order) -> Refusal {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else {
            break;
        };
        let mut problems = state.challenges.iter().filter_map(|it| it.error.as_ref());
        if let Some(problem) = problems.next() {
            return Refusal::of_problem(problem);
        }
    }
    Refusal::new("the order is invalid, and the server does not say why")
}

/// Makes sure that what a server has sent is what was ordered.
fn examine(host: &str, chain: String, key: String) -> Result<Issued, Refusal> {
    let own = KeyPair::from_pem(&key).map_err(|error| Refusal::new(error.to_string()))?;
    let held = Held::parse(chain.as_bytes())
        .map_err(|why| Refusal::new(format!("the server's certificate: {why}")))?;
    if held.public_key != rcgen::PublicKeyData::subject_public_key_info(&own) {
        return Err(Refusal::new("the server's certificate is for another key"));
    }
    if !held.is_for(host) {
        return Err(Refusal::new("the server's certificate is for another name"));
    }
    Ok(Issued { chain, key, held })
}

#[cfg(test)]
mod tests {
    use rcgen::CertificateParams;

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
            let got = examine("a.test", chain, key.serialize_pem());
            let got = got.map_or_else(|refusal| refusal.words, |_| "ok".into());
            assert!(got.contains(expect), "{got}");
        };
        check(issue("a.test"), &key, "ok");
        check(issue("b.test"), &key, "for another name");
        check(issue("a.test"), &other, "for another key");
        check("-----BEGIN".into(), &key, "the server's certificate: ");
        check(String::new(), &key, "the server's certificate: ");
    }
}
