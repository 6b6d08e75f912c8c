//! Serving certificates, each under an authority of its own. The key of an authority signs one certificate and is not kept,
//! so nothing else is ever valid under it.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// A certificate is valid from so long before its generation: the clock of the API server may be behind.
const BACKDATED_S: i64 = 24 * 3_600;

/// A certificate could not be generated or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("cannot generate a serving certificate: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("the serving certificate cannot be read: {0}")]
    Read(String),
}

/// A serving certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServingCertificate {
    /// The certificate.
    pub(crate) chain: String,
    /// Its private key.
    pub(crate) key: String,
}

impl ServingCertificate {
    /// Generates a certificate for DNS names, valid for `life` from `now` on, and its authority in PEM.
    pub(crate) fn generate(
        names: &[String],
        now: Timestamp,
        life: Duration,
    ) -> Result<(Self, String), CertificateError> {
        let life_s = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        let at = |second: i64| {
            let since_1970 = Duration::from_secs(u64::try_from(second).unwrap_or_default());
            rcgen::date_time_ymd(1970, 1, 1).saturating_add(since_1970.try_into().unwrap_or_default())
        };
        let since = at(now.as_second().saturating_sub(BACKDATED_S));
        let until = at(now.as_second().saturating_add(life_s));
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "muster-ca");
        (authority.not_before, authority.not_after) = (since, until);
        let authority_key = KeyPair::generate()?;
        let own_authority = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let mut serving = CertificateParams::new(names)?;
        serving.distinguished_name.push(DnType::CommonName, "muster");
        (serving.not_before, serving.not_after) = (since, until);
        let key = KeyPair::generate()?;
        let chain = serving.signed_by(&key, &issuer)?.pem();
        Ok((Self { chain, key: key.serialize_pem() }, own_authority))
    }

    /// The certificate and its key, as TLS needs them.
    pub(crate) fn der(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), CertificateError> {
        let wrong = |error: rustls::pki_types::pem::Error| CertificateError::Read(error.to_string());
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes());
        Ok((chain.map_err(wrong)?, key.map_err(wrong)?))
    }

    /// Whether it can be served at this time for these names.
    pub(crate) fn serves(&self, names: &[String], now: Timestamp) -> bool {
        let is_for = |certificate: &X509Certificate<'_>| {
            let valid = certificate.validity().not_after.timestamp() > now.as_second();
            valid && names.iter().all(|name| has_name(certificate, name))
        };
        self.read(is_for).unwrap_or(false)
    }

    /// Whether two thirds of its life have passed, or of `life` if that is shorter.
    pub(crate) fn is_old(&self, now: Timestamp, life: Duration) -> bool {
        let life_max_s = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        let validity = self.read(|certificate| {
            let validity = certificate.validity();
            (validity.not_before.timestamp() + BACKDATED_S, validity.not_after.timestamp())
        });
        validity.is_none_or(|(since, until)| {
            let life_s = until.saturating_sub(since).min(life_max_s);
            now.as_second() >= since.saturating_add(life_s.saturating_mul(2) / 3)
        })
    }

    fn read<T>(&self, of: impl Fn(&X509Certificate<'_>) -> T) -> Option<T> {
        let (chain, _) = self.der().ok()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(chain.first()?).ok()?;
        Some(of(&certificate))
    }
}

fn has_name(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let names = certificate.subject_alternative_name().ok().flatten();
    names.is_some_and(|names| names.value.general_names.contains(&GeneralName::DNSName(name)))
}
