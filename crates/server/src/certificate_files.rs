//! A serving certificate in a folder: `tls.crt` and `tls.key`, as in a Secret of Kubernetes. A change of the files is
//! noticed at the next connection, so that a certificate can be renewed without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// Versions and ciphers of TLS. The default is all that the library supports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Only TLS 1.3.
    pub only_tls13: bool,
    /// Names of cipher suites of TLS 1.2, such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`. Empty: all.
    pub cipher_suites: Vec<String>,
    /// Numbers of key exchanges, by preference. Empty: all.
    pub key_exchanges: Vec<u16>,
}

/// Why a folder has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFilesError {
    /// A file cannot be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// A file is not PEM of the expected kind.
    #[error("{0} holds no certificate or key in PEM")]
    Pem(PathBuf, #[source] pem::Error),
    /// The certificate and the key do not belong together, or the options of TLS are not supported.
    #[error("the certificate cannot be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A cipher suite or a key exchange is not supported.
    #[error("{0} is not supported; supported are {1}")]
    NotSupported(String, String),
}

/// A certificate in a folder.
#[derive(Debug)]
pub(crate) struct CertificateFiles {
    folder: PathBuf,
    options: TlsOptions,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    changed: Changed,
}

/// Time of the last change of both files; `None` for a file that cannot be read.
type Changed = [Option<SystemTime>; 2];

impl CertificateFiles {
    /// Reads the files.
    pub(crate) fn open(folder: &Path, options: TlsOptions) -> Result<Self, CertificateFilesError> {
        let changed = changed(folder);
        let config = load(folder, &options)?;
        Ok(Self { folder: folder.into(), options, loaded: Mutex::new(Loaded { config, changed }) })
    }

    /// The configuration with the certificate in the files. If they have changed and cannot be read, that is logged, and
    /// the previous certificate stays until they change again.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        let changed = changed(&self.folder);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.changed != changed {
            loaded.changed = changed;
            match load(&self.folder, &self.options) {
                Ok(config) => loaded.config = config,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "keeping the previous certificate"
                ),
            }
        }
        loaded.config.clone()
    }
}

fn files(folder: &Path) -> [PathBuf; 2] {
    ["tls.crt", "tls.key"].map(|name| folder.join(name))
}

fn changed(folder: &Path) -> Changed {
    files(folder).map(|file| file.metadata().and_then(|meta| meta.modified()).ok())
}

fn load(folder: &Path, options: &TlsOptions) -> Result<Arc<ServerConfig>, CertificateFilesError> {
    let [certificate, key] = files(folder);
    let text = read(&certificate)?;
    let wrong = |error| CertificateFilesError::Pem(certificate.clone(), error);
    let chain = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if chain.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&key)?)
        .map_err(|error| CertificateFilesError::Pem(key.clone(), error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider(options)?))
        .with_protocol_versions(versions(options))?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read(file: &Path) -> Result<Vec<u8>, CertificateFilesError> {
    std::fs::read(file).map_err(|error| CertificateFilesError::Read(file.into(), error))
}

/// The versions that the options permit.
pub(crate) fn versions(options: &TlsOptions) -> &'static [&'static rustls::SupportedProtocolVersion] {
    static ONLY_TLS13: [&rustls::SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    if options.only_tls13 { &ONLY_TLS13 } else { rustls::DEFAULT_VERSIONS }
}

/// The cryptography that the options permit.
pub(crate) fn provider(options: &TlsOptions) -> Result<CryptoProvider, CertificateFilesError> {
    let mut provider = ring::default_provider();
    let name = |suite: &rustls::SupportedCipherSuite| format!("{:?}", suite.suite());
    let is_tls12 = |suite: &rustls::SupportedCipherSuite| suite.tls13().is_none();
    if !options.cipher_suites.is_empty() {
        let known: Vec<String> =
            provider.cipher_suites.iter().filter(|suite| is_tls12(suite)).map(name).collect();
        if let Some(wrong) = options.cipher_suites.iter().find(|suite| !known.contains(suite)) {
            return Err(CertificateFilesError::NotSupported(
                format!("cipher suite {wrong}"),
                known.join(", "),
            ));
        }
        provider
            .cipher_suites
            .retain(|suite| !is_tls12(suite) || options.cipher_suites.contains(&name(suite)));
    }
    if !options.key_exchanges.is_empty() {
        let mut groups = Vec::new();
        for &wanted in &options.key_exchanges {
            let group = provider.kx_groups.iter().find(|group| u16::from(group.name()) == wanted);
            let Some(group) = group else {
                let known = provider.kx_groups.iter().map(|group| u16::from(group.name()).to_string());
                let known = known.collect::<Vec<_>>().join(", ");
                return Err(CertificateFilesError::NotSupported(format!("key exchange {wanted}"), known));
            };
            groups.push(*group);
        }
        provider.kx_groups = groups;
    }
    Ok(provider)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A folder with a new certificate, changed at this time.
    fn write(folder: &Path, minutes: u64) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        for (name, text) in [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())] {
            put(&folder.join(name), &text, minutes);
        }
    }

    fn put(file: &Path, text: &str, minutes: u64) {
        std::fs::write(file, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_mins(minutes);
        std::fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_changed_certificate_is_served_from_the_next_connection_on() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1);
        let files = CertificateFiles::open(folder.path(), TlsOptions::default()).unwrap();
        let first = files.current();
        assert!(Arc::ptr_eq(&first, &files.current()), "without a change nothing is read");
        write(folder.path(), 2);
        let second = files.current();
        assert!(!Arc::ptr_eq(&first, &second));
        put(&folder.path().join("tls.key"), "half a file", 3);
        assert!(Arc::ptr_eq(&second, &files.current()), "a broken file is not served");
        write(folder.path(), 4);
        assert!(!Arc::ptr_eq(&second, &files.current()));
    }

    #[test]
    fn a_folder_without_a_certificate_is_refused_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |options| CertificateFiles::open(folder.path(), options).unwrap_err().to_string();
        assert!(refused(TlsOptions::default()).ends_with("tls.crt"));
        put(&folder.path().join("tls.crt"), "", 1);
        assert!(refused(TlsOptions::default()).ends_with("tls.crt holds no certificate or key in PEM"));
        write(folder.path(), 1);
        let unknown =
            TlsOptions { cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()], ..TlsOptions::default() };
        assert!(
            refused(unknown)
                .starts_with("cipher suite TLS_RSA_WITH_RC4_128_SHA is not supported; supported are TLS_")
        );
        let unknown = TlsOptions { key_exchanges: vec![1], ..TlsOptions::default() };
        assert!(refused(unknown).starts_with("key exchange 1 is not supported; supported are "));
        let narrow = TlsOptions {
            cipher_suites: vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into()],
            key_exchanges: vec![29],
            only_tls13: false,
        };
        assert!(CertificateFiles::open(folder.path(), narrow).is_ok());
    }
}
