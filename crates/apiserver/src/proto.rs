//! Protobuf request bodies, which the imperative commands of kubectl send. kubectl does not retry them as JSON.
//!
//! This module contains [`decode`], a transcoder that uses message descriptors for all kinds. Field names in the
//! messages are those of JSON, with the exceptions handled here. Responses are never protobuf: all clients accept
//! JSON.

mod transcode;

use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _};
use serde_json::Value;

use crate::openapi;

/// The media type of protobuf bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

static DESCRIPTORS: &[u8] = include_bytes!("../assets/descriptors.bin.gz");
/// Prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";
const UNKNOWN: &str = "k8s.io.apimachinery.pkg.runtime.Unknown";

/// Reason why a body cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    /// The body does not start with the prefix of the media type.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    /// The message or its envelope is malformed.
    #[error("cannot decode the protobuf message")]
    Malformed(#[from] prost::DecodeError),
    /// The kind has no known protobuf message.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// `apiVersion` of the body.
        api_version: String,
        /// `kind` of the body.
        kind: String,
    },
    /// JSON embedded in the message is malformed.
    #[error("cannot decode the JSON within the protobuf message")]
    Json(#[from] serde_json::Error),
    /// A value does not match the type of its field in JSON.
    #[error(transparent)]
    Type(#[from] openapi::DecodeError),
}

fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(openapi::unpack(DESCRIPTORS).as_slice())
            .expect("the asset is written by xtask as descriptors")
    })
}

/// Decodes `body` into the JSON object that the same client would send, with `apiVersion` and `kind`, and without
/// empty fields.
pub fn decode(body: &[u8]) -> Result<Value, ProtoError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtoError::Magic)?;
    let unknown = pool().get_message_by_name(UNKNOWN).expect("the asset contains the envelope message");
    let unknown = DynamicMessage::decode(unknown, envelope)?;
    let type_meta = field(&unknown, "typeMeta");
    let type_text = |name: &str| match type_meta.as_ref().and_then(|meta| field(meta.as_message()?, name)) {
        Some(prost_reflect::Value::String(text)) => text,
        _ => String::new(),
    };
    let (api_version, kind) = (type_text("apiVersion"), type_text("kind"));
    let raw = match field(&unknown, "raw") {
        Some(prost_reflect::Value::Bytes(raw)) => raw,
        _ => prost::bytes::Bytes::new(),
    };
    if let Some(prost_reflect::Value::String(inner)) = field(&unknown, "contentType")
        && inner.contains("json")
    {
        return Ok(serde_json::from_slice(&raw)?);
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let unknown_kind = || ProtoError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() };
    let component = openapi::component_name(group, version, &kind).ok_or_else(unknown_kind)?;
    let descriptor = descriptor(component).ok_or_else(unknown_kind)?;
    let mut object = transcode::message(&DynamicMessage::decode(descriptor, raw)?)?;
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), api_version.clone().into());
        fields.insert("kind".to_owned(), kind.clone().into());
    }
    let kind = openapi::component(component).ok_or_else(unknown_kind)?;
    kind.decode(&mut object)?;
    Ok(object)
}

fn field(message: &DynamicMessage, name: &str) -> Option<prost_reflect::Value> {
    let descriptor = message.descriptor().get_field_by_name(name)?;
    message.has_field(&descriptor).then(|| message.get_field(&descriptor).into_owned())
}

/// The message descriptor of a component: `io.k8s.api.core.v1.Pod` is the message `k8s.io.api.core.v1.Pod`.
fn descriptor(component: &str) -> Option<MessageDescriptor> {
    let name = component.strip_prefix("io.k8s.")?.replace('-', "_");
    pool().get_message_by_name(&format!("k8s.io.{name}"))
}
