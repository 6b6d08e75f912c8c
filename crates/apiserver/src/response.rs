//! The result of a handler, and its encoding as an HTTP response.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, header};
use serde_json::Value;

use crate::aggregation::AggregatedApi;
use crate::encode::{ObjectEncoder, encode};
use crate::negotiate::{self, Encoding, Format};
use crate::page::Page;
use crate::registry::Resource;
use crate::request::Call;
use crate::status::Status;
use crate::store::Object;
use crate::watch::Watch;

/// The result of a request.
#[derive(Debug)]
pub enum Reply {
    /// A complete response.
    Response(Response<Bytes>),
    /// A watch, whose events are read with [`ApiServer::pull`](crate::ApiServer::pull).
    Watch(Box<Watch>),
    /// The request is authorized; the component that serves its group has to answer it.
    Aggregated(AggregatedApi),
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
    Aggregated(AggregatedApi),
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

/// Encodes the result of a handler in the negotiated format.
pub(crate) fn reply(call: &Call<'_>, answer: Answer) -> Reply {
    let pretty = call.query.flag("pretty");
    let negotiated = |list| negotiate::format(&call.headers, list, pretty);
    let (code, encoding, body) = match answer {
        Answer::Watch(watch) => return Reply::Watch(Box::new(watch)),
        Answer::Aggregated(api) => return Reply::Aggregated(api),
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
