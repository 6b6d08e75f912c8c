//! The serving certificate, under an authority of its own. Both exist in memory only: the process registers the
//! authority when it starts to serve.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Life of the certificate, in days.
pub(crate) const LIFE_DAYS: i64 = 365;

/// A certificate could not be generated.
#[derive(Debug, thiserror::Error)]
#[error("cannot generate a serving certificate: {0}")]
pub(crate) struct CertificateError(#[from] rcgen::Error);

/// A serving certificate.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    /// The certificate of the authority, in PEM.
    pub(crate) authority: String,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl ServingCertificate {
    /// Generates an authority and a certificate for DNS names, valid from `now`.
    pub(crate) fn generate(names: Vec<String>, now: jiff::Timestamp) -> Result<Self, CertificateError> {
        let day = |days: i64| {
            let at = now.saturating_add(jiff::SignedDuration::from_hours(24 * days)).unwrap_or(now);
            let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
            rcgen::date_time_ymd(
                i32::from(date.year()),
                u8::try_from(date.month()).unwrap_or(1),
                u8::try_from(date.day()).unwrap_or(1),
            )
        };
        let (since, until) = (day(-1), day(LIFE_DAYS));
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "muster-ca");
        (authority.not_before, authority.not_after) = (since, until);
        let authority_key = KeyPair::generate()?;
        let own_authority = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let mut serving = CertificateParams::new(names)?;
        serving.distinguished_name.push(DnType::CommonName, "muster");
        (serving.not_before, serving.not_after) = (since, until);
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &issuer)?;
        Ok(Self {
            authority: own_authority.pem(),
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        })
    }
}
