//! The certificates of all replicas, in one Secret: every replica serves the same certificate, and only the leader changes
//! it. A new certificate is used only after its authority has been registered: until then, the API server would not trust
//! it. Another program, such as cert-manager, can make them instead: it keeps one certificate and its authority in the Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::certificate::{CertificateError, ServingCertificate};

/// Most authorities that are registered at a time.
const AUTHORITIES_MAX: usize = 2;
/// The line before each certificate in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// What the Secret has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificates {
    /// What all replicas serve.
    pub(crate) present: ServingCertificate,
    /// What they will serve: its authority is the first of `authorities`.
    pub(crate) next: Option<ServingCertificate>,
    /// What the API server is to trust, in PEM, the newest first.
    pub(crate) authorities: String,
}

/// Who makes the certificates in a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// The leader: each with an authority of its own and this life. It is renewed after two thirds of it.
    Leader(Duration),
    /// Another program, such as cert-manager: `tls.crt`, `tls.key`, and their authority in `ca.crt`.
    Other,
}

/// Longest interval at which certificates and the configuration of the API server are read again.
const REFRESH_MAX: Duration = Duration::from_mins(1);
/// Intervals in the life of a certificate: a new one is served some intervals after two thirds of it.
const REFRESHES: u32 = 60;
/// Intervals for which an authority stays registered after another issuer has replaced it.
const OVERLAP: u32 = 10;
/// Intervals after which a replica serves a new certificate of another issuer. The leader has registered its authority then.
const DELAY: u32 = 2;

impl Issuer {
    /// How often the certificates are looked at.
    pub(crate) fn interval(self) -> Duration {
        match self {
            Self::Leader(life) => (life / REFRESHES).clamp(Duration::from_secs(1), REFRESH_MAX),
            Self::Other => REFRESH_MAX,
        }
    }

    /// How long a replica goes on to serve a valid certificate after another one has been written.
    pub(crate) fn delay(self) -> Duration {
        match self {
            Self::Leader(_) => Duration::ZERO,
            Self::Other => self.interval() * DELAY,
        }
    }
}

/// The authorities of another issuer. A replaced one stays for some intervals, for as long as replicas may serve under it.
#[derive(Debug, Default)]
pub(crate) struct IssuedAuthorities {
    present: String,
    older: String,
    intervals: u32,
}

impl IssuedAuthorities {
    /// What to register in this interval, in PEM. `issued`: the present authority; `served`: that of the certificate which this replica
    /// serves. A new leader does not know what the one before has registered.
    pub(crate) fn register(&mut self, issued: &str, served: &str) -> String {
        if self.present.is_empty() {
            served.clone_into(&mut self.present);
        }
        if self.present != issued {
            self.older = std::mem::replace(&mut self.present, issued.to_owned());
            self.intervals = OVERLAP;
        }
        self.intervals = self.intervals.saturating_sub(1);
        if self.intervals == 0 || self.older.is_empty() {
            return self.present.clone();
        }
        format!("{}\n{}", self.present.trim_end(), self.older)
    }
}

/// What the certificates are for.
#[derive(Debug, Clone)]
pub(crate) struct Purpose {
    /// The names for which the API server requests a certificate.
    pub(crate) names: Vec<String>,
    /// Who makes them.
    pub(crate) issuer: Issuer,
}

impl Certificates {
    /// What the leader makes of its certificates for these names, which live for `life`; `None`: nothing has to change.
    /// `are_trusted`: the API server has known the authorities for a while.
    pub(crate) fn advance(
        present: Option<&Self>,
        (names, life): (&[String], Duration),
        now: Timestamp,
        are_trusted: bool,
    ) -> Result<Option<Self>, CertificateError> {
        let generate = || ServingCertificate::generate(names, now, life);
        let Some(all) = present else {
            let (present, authorities) = generate()?;
            return Ok(Some(Self { present, next: None, authorities }));
        };
        if let Some(next) = all.next.as_ref().filter(|next| next.serves(names, now)) {
            let promoted = Self { present: next.clone(), next: None, authorities: all.authorities.clone() };
            return Ok(are_trusted.then_some(promoted));
        }
        let serves = all.present.serves(names, now);
        if serves && !all.present.is_old(now, life) {
            return Ok(None);
        }
        let (new, authority) = generate()?;
        let authorities = with_older(authority, &all.authorities);
        // Nobody can be served with what is invalid, so there is nothing to wait for.
        let (present, next) = if serves { (all.present.clone(), Some(new)) } else { (new, None) };
        Ok(Some(Self { present, next, authorities }))
    }

    /// Whether replicas that serve `older` have to serve another certificate that nobody has announced.
    pub(crate) fn replaces(&self, older: &Self) -> bool {
        self.present != older.present && Some(&self.present) != older.next.as_ref()
    }

    fn from_data(data: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(STANDARD.decode(data.get(key)?).ok()?).ok();
        let pair = |chain, key| Some(ServingCertificate { chain: text(chain)?, key: text(key)? });
        let next = pair("next.crt", "next.key");
        Some(Self { present: pair("tls.crt", "tls.key")?, next, authorities: text("ca.crt")? })
    }

    fn data(&self) -> BTreeMap<&'static str, String> {
        let Self { present, next, authorities } = self;
        let pairs = [("tls.crt", "tls.key", Some(present)), ("next.crt", "next.key", next.as_ref())];
        let pairs = pairs.into_iter().filter_map(|(chain, key, pair)| Some((chain, key, pair?)));
        let texts = pairs.flat_map(|(chain, key, pair)| [(chain, &pair.chain), (key, &pair.key)]);
        texts.chain([("ca.crt", authorities)]).map(|(key, text)| (key, STANDARD.encode(text))).collect()
    }
}

/// The authority, and the newest of the older ones.
fn with_older(authority: String, older: &str) -> String {
    let older = older.split(BEGIN).skip(1).take(AUTHORITIES_MAX - 1);
    older.fold(authority, |all, next| all + BEGIN + next)
}

/// The Secret.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The manifest with the permissions for it.
    pub(crate) manifest: &'static str,
}

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The certificates and their Secret, if it exists.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) certificates: Option<Certificates>,
    object: Option<Value>,
}

impl Secret {
    /// Reads the certificates.
    pub(crate) async fn read(&self, client: &Client) -> Result<Found, kube::Error> {
        let request = http::Request::get(self.path(&self.name)).body(Vec::new());
        match client.request::<Value>(request.map_err(kube::Error::HttpError)?).await {
            Ok(object) => {
                let data = BTreeMap::deserialize(&object["data"]).unwrap_or_default();
                Ok(Found { certificates: Certificates::from_data(&data), object: Some(object) })
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Found::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the certificates, unless the Secret has changed since it was found. A Secret of another installer keeps its
    /// type and metadata.
    pub(crate) async fn write(
        &self,
        client: &Client,
        found: &Found,
        certificates: &Certificates,
    ) -> Result<(), kube::Error> {
        let new = || {
            let meta = json!({"name": self.name, "namespace": self.namespace});
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta})
        };
        let request = if found.object.is_some() {
            http::Request::put(self.path(&self.name))
        } else {
            http::Request::post(self.path(""))
        };
        let mut secret = found.object.clone().unwrap_or_else(new);
        secret["data"] = json!(certificates.data());
        let request =
            request.header("content-type", "application/json").body(secret.to_string().into_bytes());
        client.request::<Value>(request.map_err(kube::Error::HttpError)?).await.map(drop)
    }

    fn path(&self, name: &str) -> String {
        let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace);
        path.trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const LIFE: Duration = Duration::from_secs(90);

    fn names() -> [String; 1] {
        ["muster.muster.svc".into()]
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap() + SignedDuration::from_secs(second)
    }

    fn advance(present: Option<&Certificates>, second: i64, are_trusted: bool) -> Option<Certificates> {
        Certificates::advance(present, (&names(), LIFE), at(second), are_trusted).unwrap()
    }

    #[test]
    fn a_certificate_is_served_only_after_its_authority_was_trusted() {
        let first = advance(None, 0, false).unwrap();
        assert_eq!(advance(Some(&first), 59, true), None, "two thirds of its life are left");
        let both = advance(Some(&first), 60, true).unwrap();
        assert_eq!((&both.present, both.authorities.matches(BEGIN).count()), (&first.present, 2));
        assert!(both.authorities.ends_with(&first.authorities), "the newest authority is the first");
        assert_eq!(advance(Some(&both), 61, false), None, "the authority may not be trusted yet");
        let second = advance(Some(&both), 62, true).unwrap();
        assert_eq!((Some(&second.present), &second.next), (both.next.as_ref(), &None));
        assert_eq!(second.authorities, both.authorities, "a replica may still serve the old certificate");
        let third = advance(Some(&second), 130, true).unwrap();
        assert_eq!(third.authorities.matches(BEGIN).count(), 2, "the first authority is dropped");
        assert!(!third.authorities.contains(&first.authorities));
    }

    #[test]
    fn a_certificate_that_cannot_be_served_is_replaced_at_once() {
        let first = advance(None, 0, false).unwrap();
        let late = advance(Some(&first), 91, true).unwrap();
        assert_eq!((late.present == first.present, late.next), (false, None), "its life has ended");
        let odd = ServingCertificate { chain: "odd".into(), key: "odd".into() };
        let odd = Certificates { present: odd.clone(), next: Some(odd), ..first.clone() };
        let new = advance(Some(&odd), 1, false).unwrap();
        assert!(new.present.serves(&names(), at(1)), "it could not be read");
        let other = ["muster-webhook.muster.svc".into()];
        let renamed = Certificates::advance(Some(&first), (&other, LIFE), at(1), false).unwrap().unwrap();
        assert!(renamed.present.serves(&other, at(1)), "it is for other names");
    }

    #[test]
    fn a_replaced_authority_of_another_issuer_stays_registered_for_some_intervals() {
        let mut authorities = IssuedAuthorities::default();
        assert_eq!([authorities.register("a\n", "a\n"), authorities.register("a\n", "a\n")], ["a\n", "a\n"]);
        for _ in 1..OVERLAP {
            assert_eq!(authorities.register("b\n", "a\n"), "b\na\n");
        }
        assert_eq!(authorities.register("b\n", "b\n"), "b\n");
        let mut of_a_new_leader = IssuedAuthorities::default();
        assert_eq!(of_a_new_leader.register("c\n", "b\n"), "c\nb\n");
    }

    #[test]
    fn certificates_are_read_as_they_were_written() {
        let first = advance(None, 0, false).unwrap();
        let both = advance(Some(&first), 60, true).unwrap();
        for all in [first, both] {
            let data = all.data().into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
            assert_eq!(Certificates::from_data(&data), Some(all));
        }
        assert_eq!(Certificates::from_data(&BTreeMap::new()), None);
    }
}
