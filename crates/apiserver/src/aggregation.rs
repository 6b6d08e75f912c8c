//! Groups that another component serves: kube-apiserver authenticates and authorizes their requests, then forwards
//! them (aggregation layer). Here the component is a function in the same process.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};

use crate::registry::{Resource, Rules, Subresource};
use crate::server::ApiServer;

/// A response that is being computed.
pub type Answering = Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;

/// Answers the authorized requests of a group.
#[derive(Clone)]
pub struct AggregatedApi(Arc<dyn Fn(Request<Bytes>) -> Answering + Send + Sync>);

impl fmt::Debug for AggregatedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregatedApi").finish_non_exhaustive()
    }
}

impl AggregatedApi {
    /// The function has no access to the lock of the server, so it may send requests to it.
    pub fn new(answer: impl Fn(Request<Bytes>) -> Answering + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    pub(crate) fn answer(&self, request: Request<Bytes>) -> Answering {
        (self.0)(request)
    }
}

/// A resource of an aggregated group.
#[derive(Debug, Clone, Copy)]
pub struct AggregatedResource {
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Its name in paths.
    pub plural: &'static str,
    /// Its name for one object.
    pub singular: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// The verbs that the component handles.
    pub verbs: &'static [&'static str],
    /// Its only subresource, with the verbs that the component handles.
    pub subresource: Option<(&'static str, &'static [&'static str])>,
}

impl ApiServer {
    /// Serves a group and version through another component. Discovery lists its resources, and RBAC authorizes their
    /// requests.
    pub fn aggregate(
        &mut self,
        group: &str,
        version: &str,
        resources: &[AggregatedResource],
        api: AggregatedApi,
    ) {
        for resource in resources {
            self.registry.insert(Resource {
                group: group.into(),
                version: version.into(),
                plural: resource.plural.into(),
                singular: resource.singular.into(),
                kind: resource.kind.into(),
                list_kind: format!("{}List", resource.kind),
                namespaced: resource.namespaced,
                short_names: Vec::new(),
                categories: Vec::new(),
                verbs: resource.verbs,
                subresources: resource
                    .subresource
                    .map(|(name, verbs)| Subresource { name, group: "", version: "", kind: "", verbs })
                    .into_iter()
                    .collect(),
                storage: format!("{}.{group}", resource.plural).into(),
                stored_as: format!("{group}/{version}"),
                rules: Rules::DEFAULT, // Nothing is stored, so no rule applies to a write.
                fields: Vec::new(),
                custom: None,
            });
        }
        self.aggregated.insert((group.into(), version.into()), api);
    }
}
