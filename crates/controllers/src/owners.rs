//! The owners of a pod, read from the API server: whether they lead to an AppWrapper that exists.

use api::appwrapper;
use index::{Kind, wire};
use kube::Client;

use crate::api_calls::ResourcePath;
use crate::discovery::Resources;
use crate::error::Error;

/// Longest chain of controller references that is followed.
const OWNERS_MAX: usize = 10;

/// Where the controller references of a pod lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owners {
    /// To an object without a controller: no AppWrapper owns the pod.
    WithoutAppWrapper,
    /// To an object that does not exist: garbage collection deletes the pod, unless an owner waits for a finalizer.
    Deleted,
    /// To an AppWrapper that exists, through objects of these kinds.
    AppWrapper(Vec<Kind>),
    /// The pod has ended, is being deleted or has no gate any more.
    NothingToDo,
    /// An owner could not be read.
    Unknown(String),
}

impl Owners {
    /// Follows the controller references of the pod with this uid, with one request for each owner.
    pub(crate) async fn read(client: &Client, namespace: &str, name: &str, uid: &str) -> Self {
        match follow(client, namespace, name, uid).await {
            Ok(owners) => owners,
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}

async fn follow(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<Owners, Error> {
    let pods = ResourcePath::of(&Kind::new("v1", "Pod"), "pods", namespace);
    let pod: wire::Pod = match pods.get(client, name).await {
        Err(Error::NotFound(_)) => return Ok(Owners::NothingToDo),
        answer => answer?,
    };
    if pod.metadata.uid != uid || pod.metadata.is_deleting() || !pod.is_gated() {
        return Ok(Owners::NothingToDo);
    }
    let mut meta = pod.metadata;
    let mut kinds = Vec::new();
    for _ in 0..OWNERS_MAX {
        let Some(owner) = meta.controller() else { return Ok(Owners::WithoutAppWrapper) };
        let kind = Kind::new(&owner.api_version, &owner.kind);
        let Some(path) = path(client, &kind, namespace).await? else { return Ok(Owners::Deleted) };
        let object: wire::Object = match path.get(client, &owner.name).await {
            Err(Error::NotFound(_)) => return Ok(Owners::Deleted),
            answer => answer?,
        };
        if object.metadata.uid != owner.uid {
            return Ok(Owners::Deleted);
        }
        if is_wrapper(&kind) {
            return Ok(Owners::AppWrapper(kinds));
        }
        kinds.push(kind);
        meta = object.metadata;
    }
    Ok(Owners::WithoutAppWrapper)
}

/// The resource of an owner; none if the cluster does not serve its kind (any more).
async fn path(client: &Client, kind: &Kind, namespace: &str) -> Result<Option<ResourcePath>, Error> {
    if kind.form_error().is_some() {
        return Ok(None);
    }
    let resources = Resources::read(client, &kind.api_version).await?;
    let path = |(plural, namespaced): (&str, bool)| {
        ResourcePath::of(kind, plural, if namespaced { namespace } else { "" })
    };
    Ok(resources.resource(kind).map(path))
}

/// Whether a reference to an object of this kind is one to an AppWrapper.
pub(crate) fn is_wrapper(kind: &Kind) -> bool {
    appwrapper::is_wrapper(kind.group(), &kind.kind)
}
