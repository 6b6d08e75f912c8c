//! Protobuf request bodies, which kubectl's imperative commands send and get no second chance for.
//!
//! Holds [`decode`], one transcoder over descriptors for every kind. Field names of Kubernetes' messages are those of
//! JSON, up to the special cases in here. Answers are never protobuf: every client takes JSON as well.

mod transcode;

use std::sync::OnceLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _};
use serde_json::Value;

use crate::openapi;

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

static DESCRIPTORS: &[u8] = include_bytes!("../assets/descriptors.bin.gz");
/// What every body begins with.
const MAGIC: &[u8] = b"k8s\0";
const UNKNOWN: &str = "k8s.io.apimachinery.pkg.runtime.Unknown";

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    /// It does not begin as bodies of this media type do.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    /// The message, or the envelope around it, is broken.
    #[error("cannot decode the protobuf message")]
    Malformed(#[from] prost::DecodeError),
    /// The kind is none that has a protobuf form here.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// As the body has it.
        api_version: String,
        /// As the body has it.
        kind: String,
    },
    /// JSON within the message is broken.
    #[error("cannot decode the JSON within the protobuf message")]
    Json(#[from] serde_json::Error),
    /// A value does not have the type that its field has in JSON.
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

/// The object in `body`, as the same client would have sent it in JSON: with `apiVersion` and `kind`, without what is
/// empty.
pub fn decode(body: &[u8]) -> Result<Value, ProtoError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtoError::Magic)?;
    let unknown = pool().get_message_by_name(UNKNOWN).expect("the asset holds the envelope");
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

/// `io.k8s.api.core.v1.Pod` is the message `k8s.io.api.core.v1.Pod`.
fn descriptor(component: &str) -> Option<MessageDescriptor> {
    let name = component.strip_prefix("io.k8s.")?.replace('-', "_");
    pool().get_message_by_name(&format!("k8s.io.{name}"))
}
