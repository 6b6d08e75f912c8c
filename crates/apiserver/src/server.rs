//! The state of the server, and the dispatch of a request to the handler of its verb and resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header};
use jiff::Timestamp;
use serde_json::Value;

use crate::discovery;
use crate::documents::Documents;
use crate::encode::{ObjectEncoder, encode};
use crate::gc::WorkItem;
use crate::list::Page;
use crate::negotiate::{self, Encoding, Format};
use crate::registry::{Registry, Resource};
use crate::request::{Call, Target};
use crate::rng::Rng;
use crate::status::Status;
use crate::store::{History, Location, Object, Store};
use crate::strategy::Allocations;
use crate::user::{Auth, User};
use crate::watch::Watch;

/// Configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of the generator of uids and generated names.
    pub seed: u64,
    /// How requests are authenticated.
    pub auth: Auth,
    /// Version that `/version` returns, e.g. `v1.36.0`.
    pub version: String,
    /// Size of the change log of each resource, in changes.
    pub history_changes: usize,
    /// Size of the change log of each resource, in bytes.
    pub history_bytes: usize,
    /// Seconds after which an event is deleted.
    pub event_ttl_seconds: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            auth: Auth::Open,
            version: "v1.36.0".into(),
            history_changes: 50_000,
            history_bytes: 128 << 20,
            event_ttl_seconds: 3600,
        }
    }
}

/// A Kubernetes API server without a clock, tasks or sockets.
#[derive(Debug)]
pub struct ApiServer {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) rng: Rng,
    /// Pending work of the built-in controllers.
    pub(crate) work_queue: BTreeSet<WorkItem>,
    /// Objects with a TTL, ordered by time of expiry.
    pub(crate) expiring: BTreeSet<(Timestamp, Location)>,
    pub(crate) expires_at: BTreeMap<Location, Timestamp>,
    pub(crate) terminating_namespaces: BTreeSet<String>,
    pub(crate) booted: bool,
    pub(crate) services: Allocations,
    /// Issued service account tokens, with their user and time of expiry.
    pub(crate) tokens: BTreeMap<String, (User, Timestamp)>,
    /// Log lines, by pod uid and container name.
    pub(crate) logs: BTreeMap<(String, String), Vec<(Timestamp, String)>>,
    /// Cached `OpenAPI` v3 documents, by group and version.
    pub(crate) documents: Documents,
    /// Number of simulated restarts.
    pub(crate) restarts: u64,
}

/// The result of a request.
#[derive(Debug)]
pub enum Reply {
    /// A complete response.
    Response(Response<Bytes>),
    /// A watch, whose events are read with [`ApiServer::pull`].
    Watch(Box<Watch>),
}

/// An object in a response, in its storage version.
#[derive(Debug)]
pub(crate) enum ResponseObject {
    Stored(Arc<Object>),
    /// The object is not in the store: the result of a dry run, or the last state of a deleted object.
    Unstored(Value),
}

/// The result of a handler, before content negotiation and encoding.
#[derive(Debug)]
pub(crate) enum Answer {
    Object {
        code: u16,
        resource: Arc<Resource>,
        shown: ResponseObject,
    },
    /// A value that has no table or metadata form, such as a scale or a review.
    Value {
        code: u16,
        value: Value,
    },
    List {
        resource: Arc<Resource>,
        page: Page,
    },
    Status(Status),
    Raw {
        content_type: &'static str,
        body: Bytes,
        etag: Option<String>,
    },
    NotModified {
        etag: String,
    },
    Watch(Watch),
}

impl ResponseObject {
    /// The object in its storage version.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Stored(object) => object.value(),
            Self::Unstored(value) => value,
        }
    }
}

impl Answer {
    pub(crate) fn object(code: u16, resource: &Arc<Resource>, shown: ResponseObject) -> Self {
        Self::Object { code, resource: resource.clone(), shown }
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Raw { content_type: "text/plain; charset=utf-8", body: text.into(), etag: None }
    }
}

impl ApiServer {
    /// An empty server. The first call creates the default namespaces, because creation needs the current time.
    pub fn new(config: Config) -> Self {
        let history = History { changes: config.history_changes, bytes: config.history_bytes };
        let registry = Registry::new();
        let mut store = Store::new(history);
        for resource in registry.all().filter(|r| !r.is_virtual()) {
            store.open(&resource.storage);
        }
        Self {
            rng: Rng::new(config.seed),
            store,
            registry,
            config,
            work_queue: BTreeSet::new(),
            expiring: BTreeSet::new(),
            expires_at: BTreeMap::new(),
            terminating_namespaces: BTreeSet::new(),
            booted: false,
            services: Allocations::default(),
            tokens: BTreeMap::new(),
            logs: BTreeMap::new(),
            documents: Documents::default(),
            restarts: 0,
        }
    }

    /// Handles a request of `user` at the time `now`. Its writes are visible to watches when it returns.
    pub fn handle(&mut self, now: Timestamp, user: &User, request: http::Request<Bytes>) -> Reply {
        self.boot(now);
        let mut call = Call::new(now, user, request);
        let answer = self.route(&mut call).unwrap_or_else(Answer::Status);
        reply(&call, answer)
    }

    /// Simulates a restart that keeps the stored objects. Every watch ends. A client that resumes from an older
    /// revision gets 410 `Expired`, because the change log is compacted.
    pub fn restart(&mut self) {
        self.restarts += 1;
        self.store.compact();
    }

    /// The resources that changed since the last call; the caller wakes their watches.
    pub fn take_changed(&mut self) -> impl Iterator<Item = Arc<str>> + use<> {
        self.store.take_changed().into_iter()
    }

    fn route(&mut self, call: &mut Call<'_>) -> Result<Answer, Status> {
        let segments = std::mem::take(&mut call.segments);
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let target = match parts.as_slice() {
            ["api", version, _, ..] => Target::parse("", version, &segments[2..]),
            ["apis", group, version, _, ..] => Target::parse(group, version, &segments[3..]),
            _ => {
                self.authorize_path(call, &parts)?;
                return discovery::answer(self, call, &parts);
            }
        };
        let target = target.ok_or_else(Status::no_such_path)?;
        let resource = self.registry.get(&target.group, &target.version, &target.plural).cloned();
        let served = || self.registry.all().any(|r| r.group == target.group);
        let resource = resource
            .ok_or_else(|| if served() { Status::no_such_resource() } else { Status::no_such_path() })?;
        self.serve(call, &target, &resource)
    }

    fn serve(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let wrong_scope = match (&target.namespace, resource.namespaced) {
            (Some(_), false) => true,
            (None, true) => target.name.is_some(),
            (Some(_), true) | (None, false) => false,
        };
        if wrong_scope {
            return Err(Status::no_such_resource());
        }
        let one = target.name.is_some();
        let verb = match (&call.method, one) {
            // A GET of one object is not a watch, even with `watch=true`.
            (&Method::GET | &Method::HEAD, true) => "get",
            (&Method::GET | &Method::HEAD, false) if call.query.flag("watch") => "watch",
            (&Method::GET | &Method::HEAD, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => "",
        };
        self.authorize(call, target, verb)?;
        negotiate::format(&call.headers, verb == "list", false)?;
        if *resource.storage == *"endpoints" {
            let warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
            call.warnings.push(warning.into());
        }
        if let Some(warning) = resource.custom.as_ref().and_then(|c| c.deprecation.clone()) {
            call.warnings.push(warning);
        }
        if let Some(subresource) = &target.subresource {
            let known = resource.subresource(subresource).copied().ok_or_else(Status::no_such_resource)?;
            return self.serve_subresource(call, target, resource, known);
        }
        // A request across all namespaces can only read.
        let has_scope = target.namespace.is_some() || !resource.namespaced;
        let allowed = match verb {
            "create" => !one && has_scope,
            "deletecollection" => has_scope,
            "update" | "patch" => one,
            _ => true,
        };
        if !allowed || !resource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        match verb {
            "watch" => {
                let format = negotiate::format(&call.headers, false, false)?;
                self.watch(call, target, resource, format)
            }
            "get" => self.read(call, target, resource),
            "list" => self.list(call, target, resource),
            "create" if resource.is_virtual() => self.review(call, target, resource),
            "create" => self.create(call, target, resource),
            "update" => self.update(call, target, resource, ""),
            "patch" => self.patch(call, target, resource, ""),
            "delete" => self.delete(call, target, resource),
            _ => self.delete_collection(call, target, resource),
        }
    }
}

fn reply(call: &Call<'_>, answer: Answer) -> Reply {
    let pretty = call.query.flag("pretty");
    let negotiated = |list| negotiate::format(&call.headers, list, pretty);
    let (code, encoding, body) = match answer {
        Answer::Watch(watch) => return Reply::Watch(Box::new(watch)),
        Answer::Raw { content_type, body, etag } => return raw(content_type, body, etag.as_deref()),
        Answer::NotModified { etag } => {
            let response = Response::builder().status(304).header(header::ETAG, etag);
            return Reply::Response(response.body(Bytes::new()).expect("an ETag is a valid header"));
        }
        Answer::Status(status) => return failure(call, &status),
        Answer::Value { code, value } => match negotiated(false) {
            Ok(format) => (code, format.encoding, encode(&value, format.encoding)),
            Err(status) => return failure(call, &status),
        },
        Answer::Object { code, resource, shown } => match negotiated(false) {
            Ok(format) => {
                let encoder = ObjectEncoder::new(format, &resource, &call.query);
                let body = match shown {
                    ResponseObject::Stored(object) => encoder.stored(&object, call.now),
                    ResponseObject::Unstored(value) => encoder.unstored(value, call.now),
                };
                (code, format.encoding, body)
            }
            Err(status) => return failure(call, &status),
        },
        Answer::List { resource, page } => match negotiated(true) {
            Ok(format) => {
                let body = ObjectEncoder::new(format, &resource, &call.query).list(&page, call.now);
                (200, format.encoding, body)
            }
            Err(status) => return failure(call, &status),
        },
    };
    let content_type = if encoding == Encoding::Yaml { "application/yaml" } else { "application/json" };
    Reply::Response(response(call, code, content_type, body))
}

fn failure(call: &Call<'_>, status: &Status) -> Reply {
    if status.is_plain() {
        let body = Bytes::from(status.message().to_owned());
        return Reply::Response(response(call, status.code(), "text/plain; charset=utf-8", body));
    }
    let encoding = negotiate::format(&call.headers, false, false).unwrap_or(Format::JSON).encoding;
    let content_type = if encoding == Encoding::Yaml { "application/yaml" } else { "application/json" };
    let mut response = response(call, status.code(), content_type, encode(&status.to_value(), encoding));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Reply::Response(response)
}

fn response(call: &Call<'_>, code: u16, content_type: &str, body: Bytes) -> Response<Bytes> {
    let mut builder = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::CACHE_CONTROL, "no-cache, private");
    for warning in &call.warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            builder = builder.header(header::WARNING, value);
        }
    }
    builder.body(body).expect("status and headers are valid")
}

fn raw(content_type: &str, body: Bytes, etag: Option<&str>) -> Reply {
    let mut builder = Response::builder().status(200).header(header::CONTENT_TYPE, content_type);
    if let Some(etag) = etag {
        builder = builder.header(header::ETAG, etag).header(header::VARY, "Accept");
    }
    Reply::Response(builder.body(body).expect("status and headers are valid"))
}
