//! The server itself: what it holds, and how a request finds its way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header};
use jiff::Timestamp;
use serde_json::Value;

use crate::discovery;
use crate::documents::Documents;
use crate::gc::Work;
use crate::list::Page;
use crate::negotiate::{self, Encoding, Format};
use crate::registry::{Registry, Resource};
use crate::request::{Call, Target};
use crate::rng::Rng;
use crate::show::{Shower, encode};
use crate::status::Status;
use crate::store::{History, Object, Place, Store};
use crate::strategy::Allocations;
use crate::user::{Auth, User};
use crate::watch::Watch;

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Origin of uids and generated names.
    pub seed: u64,
    /// Who may come in.
    pub auth: Auth,
    /// Version that `/version` tells, as `v1.36.0`.
    pub version: String,
    /// Changes of each resource that watches can replay.
    pub history_changes: usize,
    /// Bytes of such changes of each resource.
    pub history_bytes: usize,
    /// Seconds that events are kept.
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

/// A Kubernetes API server without clock, tasks and sockets.
#[derive(Debug)]
pub struct ApiServer {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) rng: Rng,
    /// Work for the next round of housekeeping.
    pub(crate) work: BTreeSet<Work>,
    /// Objects that go by themselves at a time.
    pub(crate) expiring: BTreeSet<(Timestamp, Place)>,
    pub(crate) expires_at: BTreeMap<Place, Timestamp>,
    pub(crate) terminating_namespaces: BTreeSet<String>,
    pub(crate) booted: bool,
    pub(crate) services: Allocations,
    /// Tokens that were given out, with their users and ends.
    pub(crate) tokens: BTreeMap<String, (User, Timestamp)>,
    /// Lines of containers, by uid of the pod and name of the container.
    pub(crate) logs: BTreeMap<(String, String), Vec<(Timestamp, String)>>,
    /// Documents of `OpenAPI`, by group and version.
    pub(crate) documents: Documents,
    /// How often it seemed to start again.
    pub(crate) restarts: u64,
}

/// What a request gives.
#[derive(Debug)]
pub enum Reply {
    /// A whole response.
    Response(Response<Bytes>),
    /// A stream of events, to be pulled with [`ApiServer::pull`].
    Watch(Box<Watch>),
}

/// An object of an answer.
#[derive(Debug)]
pub(crate) enum Shown {
    Stored(Arc<Object>),
    /// Not in the store, but in the version that is stored: of a dry run, or made up.
    Draft(Value),
}

/// An answer before it takes the form that the client asked for.
#[derive(Debug)]
pub(crate) enum Answer {
    Object {
        code: u16,
        resource: Arc<Resource>,
        shown: Shown,
    },
    /// A value that is neither a table nor a view: scales, reviews.
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

impl Shown {
    /// The object, in the version that is stored.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Stored(object) => object.value(),
            Self::Draft(value) => value,
        }
    }
}

impl Answer {
    pub(crate) fn object(code: u16, resource: &Arc<Resource>, shown: Shown) -> Self {
        Self::Object { code, resource: resource.clone(), shown }
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Raw { content_type: "text/plain; charset=utf-8", body: text.into(), etag: None }
    }
}

impl ApiServer {
    /// An empty server; the first call brings the default namespaces, as that needs the time.
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
            work: BTreeSet::new(),
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

    /// Answers a request of `who` at the time `now`. What it wrote is visible to watches when it returns.
    pub fn handle(&mut self, now: Timestamp, who: &User, request: http::Request<Bytes>) -> Reply {
        self.boot(now);
        let mut call = Call::new(now, who, request);
        let answer = self.route(&mut call).unwrap_or_else(Answer::Status);
        reply(&call, answer)
    }

    /// What clients see of a server that ends and starts again with all that is stored: every watch ends, and nobody can go on from
    /// a revision of before (410, `Expired`), as the log of changes begins anew.
    pub fn restart(&mut self) {
        self.restarts += 1;
        self.store.forget();
    }

    /// The stored resources that were written to since the last call, for waking their watches.
    pub fn take_touched(&mut self) -> impl Iterator<Item = Arc<str>> + use<> {
        self.store.take_touched().into_iter()
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
        let misplaced = match (&target.namespace, resource.namespaced) {
            (Some(_), false) => true,
            (None, true) => target.name.is_some(),
            (Some(_), true) | (None, false) => false,
        };
        if misplaced {
            return Err(Status::no_such_resource());
        }
        let one = target.name.is_some();
        let verb = match (&call.method, one) {
            // What asks for one object is no watch, whatever it says besides.
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
        // All namespaces at once can only be read.
        let somewhere = target.namespace.is_some() || !resource.namespaced;
        let placed = match verb {
            "create" => !one && somewhere,
            "deletecollection" => somewhere,
            "update" | "patch" => one,
            _ => true,
        };
        if !placed || !resource.verbs.contains(&verb) {
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
                let shower = Shower::new(format, &resource, &call.query);
                let body = match shown {
                    Shown::Stored(object) => shower.stored(&object, call.now),
                    Shown::Draft(value) => shower.draft(value, call.now),
                };
                (code, format.encoding, body)
            }
            Err(status) => return failure(call, &status),
        },
        Answer::List { resource, page } => match negotiated(true) {
            Ok(format) => {
                let body = Shower::new(format, &resource, &call.query).list(&page, call.now);
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
