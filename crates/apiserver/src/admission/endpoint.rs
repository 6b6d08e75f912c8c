//! Where a registered webhook is called.

use base64::Engine as _;
use http::Uri;
use serde_json::Value;

use crate::object;
use crate::server::ApiServer;

/// Port of HTTPS.
const PORT: u16 = 443;

/// Where a webhook is called, and how it proves that it is the right one.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The URL as errors show it.
    pub(super) url: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The name in the certificate.
    pub(super) server_name: String,
    pub(super) path: String,
    /// Certificates of authorities, in PEM.
    pub(super) authorities: Vec<u8>,
}

impl ApiServer {
    /// The endpoint of a `clientConfig`. The address of a Service is that of an `ExternalName`, else that of a ready
    /// endpoint in its `EndpointSlices`: there is no network in which its cluster IP is served.
    ///
    /// # Errors
    /// There is no endpoint.
    pub(super) fn endpoint(&self, config: &Value) -> Result<Endpoint, String> {
        let bundle = object::text(config, &["caBundle"]);
        let authorities = base64::engine::general_purpose::STANDARD
            .decode(bundle)
            .map_err(|error| format!("caBundle: {error}"))?;
        let url = object::text(config, &["url"]);
        if !url.is_empty() {
            return by_url(url, authorities);
        }
        let service = &config["service"];
        let (namespace, name) = (object::text(service, &["namespace"]), object::text(service, &["name"]));
        if name.is_empty() {
            return Err("webhook configuration must have either service or URL".into());
        }
        let port = object::int(service, &["port"]).unwrap_or(i64::from(PORT));
        let server_name = format!("{name}.{namespace}.svc");
        let path = match object::text(service, &["path"]) {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let url = format!("https://{server_name}:{port}{path}");
        let (host, port) =
            self.resolve(namespace, name, port).map_err(|why| format!("Post {url:?}: {why}"))?;
        Ok(Endpoint { url, host, port, server_name, path, authorities })
    }

    /// The host and the port that serve a port of a Service.
    fn resolve(&self, namespace: &str, name: &str, port: i64) -> Result<(String, u16), String> {
        let found = self.store.get("services", &crate::store::key_of(namespace, name));
        let service = found.ok_or_else(|| format!("service {name:?} not found"))?.value();
        let number = |port: i64| u16::try_from(port).map_err(|_| format!("{port} is no port"));
        if object::text(&service, &["spec", "type"]) == "ExternalName" {
            return Ok((object::text(&service, &["spec", "externalName"]).to_owned(), number(port)?));
        }
        let ports = object::items(&service, &["spec", "ports"]);
        let named = ports.iter().find(|item| object::int(item, &["port"]) == Some(port));
        let named = named.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        let port_name = object::text(named, &["name"]);
        let slices = self.store.range("endpointslices.discovery.k8s.io", Some(namespace), None);
        let mut slices = slices.map(|slice| slice.value()).filter(|slice| {
            object::text(slice, &["metadata", "labels", "kubernetes.io/service-name"]) == name
        });
        slices
            .find_map(|slice| ready_address(&slice, port_name))
            .ok_or_else(|| format!("no endpoints available for service {name:?}"))
    }
}

fn ready_address(slice: &Value, port_name: &str) -> Option<(String, u16)> {
    let ports = object::items(slice, &["ports"]);
    let port = ports.iter().find(|port| object::text(port, &["name"]) == port_name)?;
    let is_ready =
        |endpoint: &&Value| object::get(endpoint, &["conditions", "ready"]) != Some(&Value::Bool(false));
    let endpoint = object::items(slice, &["endpoints"]).iter().find(is_ready)?;
    let address = object::texts(endpoint, &["addresses"]).next()?;
    Some((address.to_owned(), u16::try_from(object::int(port, &["port"])?).ok()?))
}

fn by_url(url: &str, authorities: Vec<u8>) -> Result<Endpoint, String> {
    let parsed: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
    let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if parsed.scheme_str() != Some("https") || host.is_empty() {
        return Err(format!("the URL of a webhook starts with https:// and names a host: {url:?}"));
    }
    Ok(Endpoint {
        url: url.to_owned(),
        port: parsed.port_u16().unwrap_or(PORT),
        server_name: host.clone(),
        host,
        path: parsed.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        authorities,
    })
}
