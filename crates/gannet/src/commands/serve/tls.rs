//! Certificates from settings: those named, or one made for development.

use gannet_server::config::HttpVersions;
use gannet_server::config::{ListenAddress, Scheme, TlsConfig};
use gannet_server::tls::certificates::{Cause, PairPaths, Warning, now_unix};
use gannet_server::tls::config::{AlpnProtocol, Options};
use gannet_server::tls::development::{self, Development, DevelopmentError};
use gannet_server::tls::on_demand::OnDemand;
use gannet_server::tls::watch::{CertificateSource, Reload};

use super::acme;
use crate::command_line::settings::{Settings, TlsSettings};
use crate::messages::{Exit, Failure};
use crate::quantities::counted;

/// Whether HTTPS is enabled.
#[must_use]
pub fn is_wanted(tls: &TlsSettings) -> bool {
    let acme = &tls.acme;
    let is_ordered = acme.is_wanted() || acme.folder.is_some();
    tls.development || !tls.certificates.is_empty() || is_ordered
}

/// The scheme of an address. The client of a Unix socket is a proxy, which has terminated TLS.
#[must_use]
pub fn scheme(tls: &TlsSettings, address: &ListenAddress) -> Scheme {
    match address {
        ListenAddress::Tcp(_) if is_wanted(tls) => Scheme::Https,
        ListenAddress::Tcp(_) | ListenAddress::Unix(_) => Scheme::Http,
    }
}

/// Whether the certificate is one for development.
#[must_use]
pub fn is_for_development(tls: &TlsSettings) -> bool {
    tls.development && tls.certificates.is_empty() && !tls.acme.is_wanted()
}

/// Where certificates come from, besides one for development; `None` without HTTPS.
///
/// # Errors
/// A flag that requires another one is given without it; there is no folder for what is ordered.
pub fn source(settings: &Settings) -> Result<Option<CertificateSource>, Failure> {
    let tls = &settings.tls;
    let http = settings.server.http;
    if !is_wanted(tls) && !http.http1 && !http.http2 {
        return Err(Failure::usage("--http 3 leaves no version for clear text")
            .help("add 1 or 2, or --tls-cert FILE"));
    }
    let mut pairs = pairs(tls)?;
    let ordered = acme::ordered(settings, &mut pairs)?;
    Ok(is_wanted(tls).then(|| CertificateSource {
        pairs,
        awaits_pairs: settings.server.content.acme_thumbprint.is_some(),
        ordered,
        options: Options {
            protocols: protocols(settings.server.http),
            tls12: tls.tls12,
            early_data: tls.early_data,
            ..Options::default()
        },
        client_authorities: tls.client_authorities.clone(),
        client_demand: tls.client_demand.unwrap_or_default(),
    }))
}

/// What handshakes over TCP offer. Without either version they offer HTTP/1, which is refused then.
fn protocols(http: HttpVersions) -> Vec<AlpnProtocol> {
    match (http.http1, http.http2) {
        (true, true) => vec![AlpnProtocol::H2, AlpnProtocol::Http11],
        (false, true) => vec![AlpnProtocol::H2],
        (_, false) => vec![AlpnProtocol::Http11],
    }
}

/// The certificate and key files, in the order given.
fn pairs(tls: &TlsSettings) -> Result<Vec<PairPaths>, Failure> {
    if tls.certificates.is_empty() && !tls.keys.is_empty() {
        let failure = Failure::usage("--tls-key is given without --tls-cert");
        return Err(failure.help("add --tls-cert FILE, the certificate that belongs to the key"));
    }
    if !is_wanted(tls) {
        let alone = [
            ("--http-redirect", !tls.redirects.is_empty()),
            ("--early-data", tls.early_data),
            ("'alt-svc'", tls.alt_svc.is_some()),
        ];
        if let Some((flag, _)) = alone.iter().find(|(_, is_given)| *is_given) {
            let message = format!("{flag} makes no sense without HTTPS");
            return Err(Failure::usage(message).help("add --tls-cert FILE, or --tls"));
        }
        return Ok(Vec::new());
    }
    // Also with the default, which would otherwise seem to protect something.
    if tls.client_demand.is_some() && tls.client_authorities.is_empty() {
        let failure = Failure::usage("--tls-client-auth is given without --tls-client-ca");
        return Err(failure.help(
            "add --tls-client-ca FILE, the certificate of the authority that issues those of clients",
        ));
    }
    let (certificates, keys) = (tls.certificates.len(), tls.keys.len());
    if keys > 0 && keys != certificates {
        let message = format!(
            "there are {} (--tls-cert) and {} (--tls-key)",
            counted(certificates as u64, "certificate"),
            counted(keys as u64, "key")
        );
        return Err(Failure::usage(message).help(
            "give one key per certificate, in the same order; omit all keys if each file has both",
        ));
    }
    if is_for_development(tls) && tls.hsts {
        return Err(
            Failure::usage("--hsts makes no sense with a certificate for development")
                .help("it would lock browsers out of other servers on this machine for two years"),
        );
    }
    let pair = |(at, certificate): (usize, &std::path::PathBuf)| PairPaths {
        certificate: certificate.clone(),
        key: tls.keys.get(at).unwrap_or(certificate).clone(),
    };
    Ok(tls.certificates.iter().enumerate().map(pair).collect())
}

/// The server's TLS configuration, and the development certificate if one is used. `on_demand`
/// announces the names that clients request.
///
/// # Errors
/// The flags contradict each other, or no certificate can be stored.
pub fn prepare(
    settings: &Settings,
    on_demand: Option<OnDemand>,
) -> Result<Option<(TlsConfig, Option<Development>)>, Failure> {
    let tls = &settings.tls;
    let Some(mut source) = source(settings)? else {
        return Ok(None);
    };
    let mut made = None;
    if is_for_development(tls) {
        let development = development()?;
        source.pairs.push(development.pair.clone());
        made = Some(development);
    }
    if let Some(ordered) = &mut source.ordered {
        ordered.on_demand = on_demand;
    }
    let config = TlsConfig {
        source,
        kernel: tls.kernel,
        key_records_max: tls.key_records_max,
        http3: settings.server.http.http3,
        alt_svc: tls.alt_svc.clone(),
    };
    Ok(Some((config, made)))
}

/// This user's development certificate, created if there is none.
///
/// # Errors
/// There is no directory for it, or it cannot be written.
pub fn development() -> Result<Development, Failure> {
    let directory = development::default_directory();
    let made = directory
        .ok_or(DevelopmentError::NoDirectory)
        .and_then(|directory| {
            development::prepare(&directory, &development::machine_names(), now_unix())
        });
    made.map_err(|error| Failure {
        help: error.help(),
        exit: Exit::Failed,
        ..Failure::usage(error.to_string())
    })
}

/// `gannet cert`: the authority's certificate as PEM.
///
/// # Errors
/// As [`development()`]; the file cannot be read.
pub fn authority() -> Result<String, Failure> {
    let path = development()?.authority;
    std::fs::read_to_string(&path)
        .map_err(|error| Failure::of_system("read", path.display(), &error))
}

/// Warnings about certificates that have a line each: a folder may have those of ten thousand hosts.
pub const WARNINGS_SHOWN: usize = 20;

/// The line in place of those that are not shown.
#[must_use]
pub fn more(warnings: &[Warning]) -> Option<String> {
    let more = warnings.len().saturating_sub(WARNINGS_SHOWN);
    (more > 0).then(|| {
        format!(
            "and {} about certificates",
            counted(more as u64, "more warning")
        )
    })
}

/// The outcome of reloading certificates: a line for people, or an error.
pub fn reloaded(reload: &Reload) -> Result<String, Failure> {
    match reload {
        Reload::Replaced(warnings) => {
            let mut text = String::from("certificates reloaded\n");
            for warning in warnings.iter().take(WARNINGS_SHOWN) {
                text.push_str(&format!("note     {warning}; {}\n", warning.help()));
            }
            if let Some(more) = more(warnings) {
                text.push_str(&format!("note     {more}\n"));
            }
            Ok(text)
        }
        Reload::Failed(error) => Err(Failure {
            help: error.help(),
            exit: Exit::Failed,
            ..Failure::usage(format!("{error}; the old certificates stay in use"))
        }),
        Reload::Kept(warnings) => {
            let (first, others) = match warnings.split_first() {
                Some((first, others)) => (first, others.len()),
                None => return Ok(String::new()),
            };
            let more = match others {
                0 => String::new(),
                count => format!(" (and {count} more)"),
            };
            Err(Failure {
                help: Some(first.help()),
                exit: Exit::Failed,
                ..Failure::usage(format!("{first}{more}"))
            })
        }
        Reload::NoChallenge(error) => {
            let left_out = match error.cause {
                Cause::TooManyChallenges => "the others are not answered",
                _ => "this challenge is not answered",
            };
            Err(Failure {
                help: error.help(),
                exit: Exit::Failed,
                ..Failure::usage(format!("{error}; {left_out}"))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(certificates: usize, keys: usize) -> TlsSettings {
        let files = |kind: &str, count| (0..count).map(|n| format!("{kind}{n}").into()).collect();
        TlsSettings {
            certificates: files("cert", certificates),
            keys: files("key", keys),
            ..TlsSettings::default()
        }
    }

    #[test]
    fn keys_belong_to_certificates_by_their_order() {
        let got = pairs(&tls(2, 2)).expect("two pairs");
        let names: Vec<_> = got
            .iter()
            .map(|pair| (pair.certificate.to_str(), pair.key.to_str()))
            .collect();
        let expect = [(Some("cert0"), Some("key0")), (Some("cert1"), Some("key1"))];
        assert_eq!(names, expect);
        let got = pairs(&tls(1, 0)).expect("one file with both");
        assert_eq!(got[0].certificate, got[0].key);
        assert!(pairs(&tls(2, 1)).is_err());
    }

    #[test]
    fn flags_of_https_need_it() {
        let check = |tls: TlsSettings, expect: Option<&str>| {
            let got = pairs(&tls).err().map(|failure| failure.message);
            match expect {
                Some(part) => assert!(got.as_deref().is_some_and(|m| m.contains(part)), "{got:?}"),
                None => assert_eq!(got, None),
            }
        };
        check(TlsSettings::default(), None);
        check(tls(0, 1), Some("--tls-key is given without --tls-cert"));
        let development = TlsSettings {
            development: true,
            ..tls(0, 1)
        };
        check(development, Some("--tls-key is given without --tls-cert"));
        let redirect = TlsSettings {
            redirects: "127.0.0.1:80".parse().into_iter().collect(),
            ..TlsSettings::default()
        };
        check(redirect, Some("--http-redirect makes no sense"));
        let hsts = TlsSettings {
            hsts: true,
            development: true,
            ..TlsSettings::default()
        };
        check(hsts, Some("with a certificate for development"));
    }
}
