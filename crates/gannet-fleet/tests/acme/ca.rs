//! An ACME server on loopback (RFC 8555) that believes everybody, and has the faults that it is told to
//! have. It checks no signature.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;
use gannet_testkit::stand_in::Request;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// See the module documentation.
pub(crate) struct Ca {
    base: String,
    state: Arc<Mutex<State>>,
}

/// What it knows, what it was asked for, and what goes wrong next.
#[derive(Default)]
pub(crate) struct State {
    accounts: Vec<Account>,
    orders: Vec<Order>,
    /// Each request but those for a directory, a nonce or a state: `newOrder`, `finalize`, ...; one for an
    /// account that is there already is `findAccount`.
    pub(crate) asked: Vec<String>,
    /// The type of the problem with which the next requests of a kind are refused.
    pub(crate) refused: VecDeque<(&'static str, &'static str)>,
    /// The state of the next authorizations.
    pub(crate) authorizations: VecDeque<&'static str>,
    /// Challenges of this host are never looked at.
    pub(crate) never_proved: Option<&'static str>,
    /// The next requests of this kind are done, and not answered.
    pub(crate) unanswered: VecDeque<&'static str>,
    /// There is renewal information (RFC 9773), and requests for it are never answered.
    pub(crate) do_looks_hang: bool,
    /// Happens when a certificate is issued, or an account made, once.
    pub(crate) meanwhile: Option<Box<dyn FnOnce() + Send>>,
    /// Seconds for which certificates are valid, from a minute before `now`; 90 days from now on if not set.
    pub(crate) validity: Option<(i64, i64)>,
    /// What comes after the certificate in place of its issuer's.
    pub(crate) rest: Option<String>,
}

struct Account {
    key: String,
    status: &'static str,
    contact: Value,
}

struct Order {
    host: String,
    authorization: &'static str,
    is_final: bool,
    certificate: Option<String>,
}

impl Ca {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let state = Arc::new(Mutex::new(State::default()));
        let ca = Self {
            base: base.clone(),
            state: state.clone(),
        };
        thread::spawn(move || {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.distinguished_name = DistinguishedName::new();
            let name = &mut params.distinguished_name;
            name.push(DnType::CommonName, "stand-in");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let own = params.self_signed(&key).expect("signed").pem();
            let issuer = Issuer::new(params, key);
            let mut hanging = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                let Some((path, body)) = request(&stream) else {
                    continue;
                };
                if path.starts_with("/renewalInfo/") {
                    state
                        .lock()
                        .expect("no panic")
                        .asked
                        .push("look".to_owned());
                    hanging.push(stream);
                    continue;
                }
                let mut state = state.lock().expect("no panic");
                let answer = state.answer(&base, &path, &body, (&issuer, own.as_str()));
                if let Some(answer) = answer {
                    // Nobody may be there any more.
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        });
        ca
    }

    /// The URL of a directory; there are as many as one likes.
    pub(crate) fn url(&self, directory: &str) -> String {
        format!("{}/dir/{directory}", self.base)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// How often it was asked for this.
    pub(crate) fn count(&self, what: &str) -> usize {
        let state = self.state();
        state.asked.iter().filter(|asked| *asked == what).count()
    }
}

impl State {
    /// Accounts are lost, or closed.
    pub(crate) fn forget_accounts(&mut self, is_closed: bool) {
        for account in &mut self.accounts {
            account.status = match is_closed {
                true => "deactivated",
                false => "forgotten",
            };
        }
    }

    /// Has looked at all challenges.
    pub(crate) fn prove_all(&mut self) {
        for order in &mut self.orders {
            order.authorization = "valid";
        }
    }

    /// The addresses of the last account.
    pub(crate) fn contact(&self) -> Value {
        let last = self.accounts.last();
        last.expect("an account").contact.clone()
    }

    fn answer(
        &mut self,
        base: &str,
        path: &str,
        body: &Value,
        issuer: (&Issuer<'_, KeyPair>, &str),
    ) -> Option<String> {
        let (kind, number) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        let number: usize = number.parse().unwrap_or_default();
        let is_search = body["payload"]["onlyReturnExisting"] == true;
        let kind = if is_search { "findAccount" } else { kind };
        let mut location = String::new();
        let header = &body["protected"];
        let account = self.account(header, base);
        let done = match kind {
            "dir" => {
                let looks = self.do_looks_hang.then(|| format!("{base}/renewalInfo"));
                Ok(json!({
                    "newNonce": format!("{base}/nonce"),
                    "newAccount": format!("{base}/newAccount"),
                    "newOrder": format!("{base}/newOrder"),
                    "renewalInfo": looks,
                }))
            }
            "nonce" => Ok(json!("")),
            _ => self.asked(kind).and_then(|()| match (kind, account) {
                ("newAccount" | "findAccount", account) => {
                    let (at, account) = self.new_account(account, is_search, body)?;
                    location = format!("{base}/account/{at}");
                    Ok(account)
                }
                (_, Err(problem)) => Err(problem),
                ("account", Ok(at)) => {
                    let account = &mut self.accounts[at];
                    account.contact = body["payload"]["contact"].clone();
                    Ok(json!({ "status": "valid", "contact": account.contact }))
                }
                ("newOrder", _) => {
                    let host = body["payload"]["identifiers"][0]["value"].as_str();
                    self.orders.push(Order {
                        host: host.expect("a name").to_owned(),
                        authorization: self.authorizations.pop_front().unwrap_or("pending"),
                        is_final: false,
                        certificate: None,
                    });
                    let at = self.orders.len() - 1;
                    location = format!("{base}/order/{at}");
                    Ok(self.orders[at].shown(base, at))
                }
                _ => self.of_order(kind, number, (base, body), issuer),
            }),
        };
        if self.unanswered.front().is_some_and(|it| *it == kind) {
            self.unanswered.pop_front();
            return None;
        }
        let (status, content) = match done {
            Ok(Value::String(text)) => ("200 OK", text),
            Ok(value) => ("201 Created", value.to_string()),
            Err(problem) => {
                let kind = format!("urn:ietf:params:acme:error:{problem}");
                let problem = json!({ "type": kind, "detail": "as it was told" });
                let status = match kind.ends_with(":badNonce") {
                    true => "400 Bad Request",
                    false => "403 Forbidden",
                };
                (status, problem.to_string())
            }
        };
        Some(format!(
            "HTTP/1.1 {status}\r\nreplay-nonce: n\r\nlocation: {location}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{content}",
            content.len()
        ))
    }

    fn asked(&mut self, kind: &str) -> Result<(), &'static str> {
        self.asked.push(kind.to_owned());
        match self.refused.front() {
            Some((of, problem)) if *of == kind => {
                let problem = *problem;
                self.refused.pop_front();
                Err(problem)
            }
            _ => Ok(()),
        }
    }

    /// The account of a request.
    fn account(&self, header: &Value, base: &str) -> Result<usize, &'static str> {
        let key = &header["jwk"]["x"];
        let mut all = self.accounts.iter().enumerate();
        let found = all.find(|(at, account)| {
            account.status != "forgotten"
                && (*key == account.key.as_str() || header["kid"] == format!("{base}/account/{at}"))
        });
        match found {
            None => Err("accountDoesNotExist"),
            Some((_, account)) if account.status == "deactivated" => Err("unauthorized"),
            Some((at, _)) => Ok(at),
        }
    }

    fn new_account(
        &mut self,
        known: Result<usize, &'static str>,
        is_search: bool,
        body: &Value,
    ) -> Result<(usize, Value), &'static str> {
        let status = json!({ "status": "valid" });
        match known {
            Ok(at) => return Ok((at, status)),
            Err("accountDoesNotExist") if !is_search => {}
            Err(problem) => return Err(problem),
        }
        self.accounts.push(Account {
            key: body["protected"]["jwk"]["x"]
                .as_str()
                .expect("a key")
                .into(),
            status: "valid",
            contact: body["payload"]["contact"].clone(),
        });
        self.meanwhile();
        Ok((self.accounts.len() - 1, status))
    }

    fn of_order(
        &mut self,
        kind: &str,
        at: usize,
        (base, body): (&str, &Value),
        issuer: (&Issuer<'_, KeyPair>, &str),
    ) -> Result<Value, &'static str> {
        let order = self.orders.get_mut(at).ok_or("malformed")?;
        // RFC 8555 section 7.1.6: challenges are not revoked.
        let status = match order.authorization {
            "valid" | "invalid" => order.authorization,
            _ => "pending",
        };
        let token = json!({
            "type": "http-01", "url": format!("{base}/challenge/{at}"), "token": "t",
            "status": status,
        });
        match kind {
            "order" => {}
            "authorization" => {
                return Ok(json!({
                    "identifier": { "type": "dns", "value": order.host },
                    "status": order.authorization,
                    "challenges": [token],
                }));
            }
            "challenge" => {
                if self.never_proved != Some(order.host.as_str()) {
                    order.authorization = "valid";
                }
                return Ok(token);
            }
            "finalize" => {
                let request = body["payload"]["csr"].as_str().expect("a request");
                let request = BASE64_URL.decode(request).expect("base64url");
                let validity = self.validity;
                let certificate = issue(&order.host, &request, validity, issuer.0);
                let rest = self.rest.as_deref().unwrap_or(issuer.1);
                order.certificate = Some(certificate + rest);
                order.is_final = true;
                self.meanwhile();
            }
            "certificate" => return Ok(json!(order.certificate)),
            other => panic!("'{other}' is not part of the protocol"),
        }
        Ok(self.orders[at].shown(base, at))
    }

    fn meanwhile(&mut self) {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
    }
}

impl Order {
    fn shown(&self, base: &str, at: usize) -> Value {
        let status = match (self.is_final, self.authorization) {
            (true, _) => "valid",
            (_, "valid") => "ready",
            _ => "pending",
        };
        json!({
            "status": status,
            "identifiers": [{ "type": "dns", "value": self.host }],
            "authorizations": [format!("{base}/authorization/{at}")],
            "finalize": format!("{base}/finalize/{at}"),
            "certificate": self.is_final.then(|| format!("{base}/certificate/{at}")),
        })
    }
}

/// The public key of a request.
struct Asked(Vec<u8>);

impl PublicKeyData for Asked {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn issue(
    host: &str,
    request: &[u8],
    validity: Option<(i64, i64)>,
    issuer: &Issuer<'_, KeyPair>,
) -> String {
    let (_, request) = X509CertificationRequest::from_der(request).expect("a request");
    let key = &request.certification_request_info.subject_pki;
    let key = Asked(key.subject_public_key.data.to_vec());
    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    let at = |time: i64| {
        ASN1Time::from_timestamp(time)
            .expect("a time")
            .to_datetime()
    };
    let now = ASN1Time::now().timestamp();
    let (now, seconds) = validity.unwrap_or((now, 90 * 86_400));
    params.not_before = at(now - 60);
    params.not_after = at(now - 60 + seconds);
    // With it, a certificate has an identifier for renewals (RFC 9773 section 4.1).
    params.use_authority_key_identifier_extension = true;
    params.signed_by(&key, issuer).expect("signed").pem()
}

/// The path and the body of a request, as what was signed.
fn request(stream: &TcpStream) -> Option<(String, Value)> {
    let request = Request::read(stream)?;
    let body: Value = serde_json::from_slice(&request.content).unwrap_or_default();
    let part = |name: &str| -> Value {
        let text = body[name].as_str().unwrap_or_default();
        let bytes = BASE64_URL.decode(text).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    };
    Some((
        request.target,
        json!({ "protected": part("protected"), "payload": part("payload") }),
    ))
}
