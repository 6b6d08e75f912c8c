//! Adapts the slim wire types of `api` and `index` to kube: a watch decodes only the fields that they declare. The loops beside that of the
//! planner watch whole objects. The watcher of kube gets one type for all of them, because it would be compiled for each.

use std::borrow::Cow;
use std::fmt;

use api::Meta;
use api::appwrapper::AppWrapper;
use api::kueue::objects::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass,
};
use api::kueue::workload::Workload;
use api::quota::QuotaSubtree;
use index::wire;
use kube::api::{ApiResource, ObjectMeta};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::undecodable;
use crate::json_depth::{DEPTH_MAX, deep_field};

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

has_meta!(
    AppWrapper,
    QuotaSubtree,
    wire::Node,
    wire::Pod,
    wire::Object,
    wire::Definition,
    wire::volumes::Claim,
    wire::volumes::Volume,
    wire::volumes::StorageClass,
    wire::DaemonSet,
    wire::mutators::LimitRange,
    wire::mutators::RuntimeClass,
    wire::mutators::MutatingWebhooks,
    wire::Namespace,
    ResourceFlavor,
    Topology,
    Cohort,
    ClusterQueue,
    LocalQueue,
    AdmissionCheck,
    WorkloadPriorityClass,
    Workload
);

/// An object with all its fields.
#[derive(Debug, Clone, Default)]
pub struct Whole {
    /// Its metadata.
    pub metadata: Meta,
    /// All of it, without `managedFields`.
    pub value: Value,
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let metadata = Meta::deserialize(&value["metadata"]).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata, value })
    }
}

impl HasMeta for Whole {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A change of an object.
#[derive(Debug)]
pub(crate) enum Change {
    /// It was added or modified.
    Applied(Box<Whole>),
    /// It was deleted; its uid and its name.
    Deleted(String, String),
}

/// A watched object as it was received, with the metadata that the watcher of kube needs. Its body may be undecodable: one object must
/// not fail the list of all.
#[derive(Debug, Clone)]
pub struct Watched {
    pub(crate) meta: ObjectMeta,
    json: Box<RawValue>,
}

impl Watched {
    /// Uid of the object.
    pub fn uid(&self) -> String {
        self.meta.uid.clone().unwrap_or_default()
    }

    /// Name of the object.
    pub fn name(&self) -> String {
        self.meta.name.clone().unwrap_or_default()
    }

    /// Namespace of the object.
    pub fn namespace(&self) -> String {
        self.meta.namespace.clone().unwrap_or_default()
    }

    /// The object with all its fields.
    ///
    /// # Errors
    ///
    /// Why it cannot be decoded.
    pub fn whole(&self) -> Result<Whole, String> {
        self.decode()
    }

    /// The object.
    ///
    /// # Errors
    ///
    /// Why it cannot be decoded.
    pub(crate) fn decode<T: HasMeta>(&self) -> Result<T, String> {
        let describe = |error| match deep_field(self.json.get(), DEPTH_MAX) {
            Some(path) => {
                format!("the field {path}… is nested too deeply; an object may have {DEPTH_MAX} levels")
            }
            None => undecodable(&error),
        };
        serde_json::from_str(self.json.get()).map_err(describe)
    }
}

/// The names of an object with any body. Other fields are skipped without a limit of their depth.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnyObject {
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let any = serde_json::from_str(json.get()).map_err(|error| D::Error::custom(undecodable(&error)))?;
        let AnyObject { metadata: Names { name, namespace, uid, resource_version } } = any;
        let meta = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Ok(Self { meta, json })
    }
}

impl kube::Resource for Watched {
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
