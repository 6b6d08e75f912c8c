//! Adapts the slim wire types of `api` and `index` to kube: a watch decodes only the fields that they declare.

use std::borrow::Cow;
use std::fmt;

use api::Meta;
use api::appwrapper::AppWrapper;
use api::quota::QuotaSubtree;
use index::wire;
use kube::api::{ApiResource, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// A wire type with our metadata type.
pub(crate) trait HasMeta:
    Clone + fmt::Debug + Default + Send + 'static + for<'de> Deserialize<'de>
{
    /// Metadata of the object.
    fn meta(&self) -> &Meta;
}

macro_rules! has_meta {
    ($($kind:ty),+) => {
        $(impl HasMeta for $kind {
            fn meta(&self) -> &Meta {
                &self.metadata
            }
        })+
    };
}

has_meta!(AppWrapper, QuotaSubtree, wire::Node, wire::Pod, wire::Object, wire::Definition);

/// A watched object, with the metadata that the watcher of kube needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched<T> {
    meta: ObjectMeta,
    pub(crate) body: T,
}

impl<'de, T: HasMeta> Deserialize<'de> for Watched<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = T::deserialize(deserializer)?;
        let meta = body.meta();
        let meta = ObjectMeta {
            name: Some(meta.name.clone()),
            namespace: (!meta.namespace.is_empty()).then(|| meta.namespace.clone()),
            uid: Some(meta.uid.clone()),
            resource_version: Some(meta.resource_version.clone()),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, body })
    }
}

impl<T: HasMeta> kube::Resource for Watched<T> {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
