//! Encodes objects, lists and watch events in the negotiated form: full objects, `PartialObjectMetadata` or `Table`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::convert;
use crate::negotiate::{Encoding, Format, MetaVersion, Shape};
use crate::page::Page;
use crate::registry::Resource;
use crate::request::Query;
use crate::store::Object;
use crate::table;

/// Encodes the objects of one response or watch.
#[derive(Debug)]
pub(crate) struct ObjectEncoder {
    format: Format,
    resource: Arc<Resource>,
    /// The `includeObject` policy of table rows: `None`, `Metadata` or `Object`.
    include: String,
    /// The column definitions were already sent; later table events of a watch omit them.
    columns_sent: bool,
}

impl ObjectEncoder {
    pub(crate) fn new(format: Format, resource: &Arc<Resource>, query: &Query) -> Self {
        let include = match query.text("includeObject") {
            "" => "Metadata",
            named => named,
        };
        Self { format, resource: resource.clone(), include: include.into(), columns_sent: false }
    }

    /// Encodes a stored object as a response body.
    pub(crate) fn stored(&self, object: &Object, now: Timestamp) -> Bytes {
        if self.format == Format::JSON && self.as_stored(object) {
            return object.bytes.clone();
        }
        self.unstored(object.value(), now)
    }

    /// Encodes an object that is given as a value in its storage version.
    pub(crate) fn unstored(&self, value: Value, now: Timestamp) -> Bytes {
        let value = convert::from_storage(&self.resource, value);
        let shaped = match self.format.shape {
            Shape::Plain => value,
            Shape::Metadata(version) => metadata(&value, version),
            Shape::Table(version) => {
                let revision = crate::object::text(&value, &["metadata", "resourceVersion"]).to_owned();
                self.table(version, &json!({ "resourceVersion": revision }), &[value], now, true)
            }
        };
        encode(&shaped, self.format.encoding)
    }

    /// Encodes a list as a response body.
    pub(crate) fn list(&self, page: &Page, now: Timestamp) -> Bytes {
        let mut list_meta = json!({ "resourceVersion": page.revision.to_string() });
        let fields = list_meta.as_object_mut().expect("made as an object above");
        // Lists of custom resources have an empty `continue` field on the last page.
        if !page.continue_token.is_empty()
            || self.resource.custom.is_some() && self.format.shape == Shape::Plain
        {
            fields.insert("continue".into(), page.continue_token.as_str().into());
        }
        if let Some(remaining) = page.remaining {
            fields.insert("remainingItemCount".into(), remaining.into());
        }
        let presented = || page.objects.iter().map(|o| convert::from_storage(&self.resource, o.value()));
        let shaped = match self.format.shape {
            Shape::Plain if self.format.encoding == Encoding::Json => {
                return self.plain_list(page, &list_meta);
            }
            Shape::Plain => json!({
                "kind": self.resource.list_kind,
                "apiVersion": self.resource.api_version(),
                "metadata": list_meta,
                "items": presented().collect::<Vec<_>>(),
            }),
            Shape::Metadata(version) => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": version.api_version(),
                "metadata": list_meta,
                "items": presented().map(|value| metadata(&value, version)).collect::<Vec<_>>(),
            }),
            Shape::Table(version) => {
                self.table(version, &list_meta, &presented().collect::<Vec<_>>(), now, true)
            }
        };
        encode(&shaped, self.format.encoding)
    }

    /// Concatenates the stored bytes of the objects, without decoding them.
    fn plain_list(&self, page: &Page, list_meta: &Value) -> Bytes {
        let size: usize = page.objects.iter().map(|o| o.bytes.len() + 1).sum();
        let mut body = BytesMut::with_capacity(size + 256);
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{list_meta},\"items\":[",
            Value::from(self.resource.list_kind.as_str()),
            Value::from(self.resource.api_version()),
        );
        body.put_slice(head.as_bytes());
        for (at, object) in page.objects.iter().enumerate() {
            if at > 0 {
                body.put_u8(b',');
            }
            if self.resource.custom.is_none() && self.as_stored(object) {
                // Items of a built-in list have no `kind` and `apiVersion`.
                body.put_u8(b'{');
                body.put_slice(&object.bytes[object.head..]);
            } else {
                body.put_slice(&self.plain(object));
            }
        }
        body.put_slice(b"]}\n");
        body.freeze()
    }

    /// Encodes the object of a watch event, always as compact JSON.
    pub(crate) fn event(&mut self, object: &Object, now: Timestamp) -> Bytes {
        let value = || convert::from_storage(&self.resource, object.value());
        match self.format.shape {
            Shape::Plain => self.plain(object).into_owned(),
            Shape::Metadata(version) => compact(&metadata(&value(), version)),
            Shape::Table(version) => {
                let list_meta = json!({ "resourceVersion": object.revision.to_string() });
                let table = self.table(version, &list_meta, &[value()], now, !self.columns_sent);
                self.columns_sent = true;
                compact(&table)
            }
        }
    }

    /// Encodes the object of a bookmark event.
    pub(crate) fn bookmark(&mut self, value: &Value) -> Bytes {
        match self.format.shape {
            Shape::Plain => compact(value),
            Shape::Metadata(version) => compact(&metadata(value, version)),
            Shape::Table(version) => {
                let mut row = metadata(value, version);
                row["kind"] = "PartialObjectMetadata".into();
                let list_meta = json!({ "resourceVersion": value["metadata"]["resourceVersion"] });
                let mut table =
                    self.table(version, &list_meta, &[], Timestamp::UNIX_EPOCH, !self.columns_sent);
                self.columns_sent = true;
                table["rows"] = json!([{ "cells": [], "object": row }]);
                compact(&table)
            }
        }
    }

    fn as_stored(&self, object: &Object) -> bool {
        *object.api_version == *self.resource.api_version()
    }

    fn plain<'a>(&self, object: &'a Object) -> Cow<'a, Bytes> {
        if self.as_stored(object) {
            Cow::Borrowed(&object.bytes)
        } else {
            Cow::Owned(compact(&convert::from_storage(&self.resource, object.value())))
        }
    }

    fn table(
        &self,
        version: MetaVersion,
        list_meta: &Value,
        objects: &[Value],
        now: Timestamp,
        columns_sent: bool,
    ) -> Value {
        let rows: Vec<Value> = objects
            .iter()
            .map(|value| {
                let mut row = json!({ "cells": table::cells(&self.resource, value, now) });
                match self.include.as_str() {
                    "None" => {}
                    "Object" => row["object"] = value.clone(),
                    _ => row["object"] = metadata(value, version),
                }
                row
            })
            .collect();
        json!({
            "kind": "Table",
            "apiVersion": version.api_version(),
            "metadata": list_meta,
            "columnDefinitions": if columns_sent { table::columns(&self.resource) } else { Value::Null },
            "rows": rows,
        })
    }
}

/// The `PartialObjectMetadata` of an object.
fn metadata(value: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": value.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn compact(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("values serialize to memory").into()
}

/// Serializes a value in the given encoding.
pub(crate) fn encode(value: &Value, encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Json => compact(value),
        Encoding::Pretty => {
            let mut text = serde_json::to_vec_pretty(value).expect("values serialize to memory");
            text.push(b'\n');
            text.into()
        }
        Encoding::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => text.into(),
            Err(_) => compact(value), // JSON is valid YAML.
        },
    }
}
