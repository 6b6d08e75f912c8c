//! Kinds of wrapped objects, with their state from discovery and watches.

use std::fmt;

use api::wrapped_kinds::WrappedKind;

/// A kind with its group and version, as in the `apiVersion` and `kind` of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Group and version, such as `ray.io/v1`, or `v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// The state of a kind on this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindState {
    /// Discovery has not answered yet.
    Unknown,
    /// The cluster does not serve it.
    Missing,
    /// The kind is cluster-scoped, so an AppWrapper cannot contain it.
    ClusterScoped,
    /// The cluster serves it without these verbs, so an AppWrapper cannot contain it.
    WithoutVerbs(Vec<String>),
    /// The cluster serves it, and the controller watches it.
    Served {
        /// Name in URLs: the plural.
        plural: String,
        /// Whether the watch has synced.
        listed: bool,
    },
    /// Its discovery, its list or its watch fails. The request is retried.
    Unavailable {
        /// Name in URLs: the plural. None: discovery fails.
        plural: Option<String>,
        /// Says which request fails, and why.
        message: String,
    },
}

/// How an object creates its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodCreation {
    /// All of them, without regard to each other.
    AllAtOnce,
    /// Some only when others are ready, and fewer after a scale-down that the observed fields do not show.
    InSteps,
}

impl KindState {
    /// The name in URLs, if the cluster serves the kind and the kind is namespaced.
    pub fn plural(&self) -> Option<&str> {
        match self {
            Self::Served { plural, .. } => Some(plural),
            Self::Unavailable { plural, .. } => plural.as_deref(),
            Self::Unknown | Self::Missing | Self::ClusterScoped | Self::WithoutVerbs(_) => None,
        }
    }

    /// Whether discovery is to be asked again: another answer makes the kind usable.
    pub fn needs_discovery(&self) -> bool {
        self.plural().is_none()
    }

    /// The message about a request that fails, if one does.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Unavailable { message, .. } => Some(message),
            Self::Unknown
            | Self::Missing
            | Self::ClusterScoped
            | Self::WithoutVerbs(_)
            | Self::Served { .. } => None,
        }
    }
}

impl Kind {
    /// A kind by `apiVersion` and `kind`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into() }
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Whether both are the same kind, in any version.
    pub(crate) fn is_version_of(&self, other: &Self) -> bool {
        self.group() == other.group() && self.kind == other.kind
    }

    /// Whether objects of this kind are pods.
    pub(crate) fn is_pod(&self) -> bool {
        self.group().is_empty() && self.kind == "Pod"
    }

    /// Whether the pods of an object of this kind exist until the object ends. Not so for a `RayJob`, whose operator may
    /// delete the cluster, and for a bare pod.
    pub(crate) fn keeps_pods(&self) -> bool {
        !self.is_pod() && (self.group(), self.kind.as_str()) != ("ray.io", "RayJob")
    }

    /// How an object of this kind creates its pods; `None` if its pods cannot be mapped to pod sets, or may all be gone
    /// before it ends.
    pub(crate) fn pod_creation(&self) -> Option<PodCreation> {
        match (self.group(), self.kind.as_str()) {
            ("batch", "Job") | ("apps", "Deployment" | "ReplicaSet") => Some(PodCreation::AllAtOnce),
            ("apps", "StatefulSet")
            | ("ray.io", "RayCluster" | "RayService")
            | ("jobset.x-k8s.io", "JobSet")
            | ("kubeflow.org", _) => Some(PodCreation::InSteps),
            _ => None,
        }
    }

    /// Why no API server can serve this kind: its `apiVersion` or `kind` is not of the form that Kubernetes requires.
    /// None if the form is valid. Only valid kinds may be part of a URL.
    pub fn form_error(&self) -> Option<String> {
        let (group, version) = match self.api_version.split_once('/') {
            Some((group, version)) => (Some(group), version),
            None => (None, &*self.api_version),
        };
        if !group.is_none_or(is_dns_subdomain) || !is_dns_label(version) {
            return Some(format!(
                "apiVersion {} is neither VERSION nor GROUP/VERSION, such as v1 or batch/v1",
                Quoted(&self.api_version)
            ));
        }
        (!is_dns_label(&self.kind.to_ascii_lowercase())).then(|| {
            format!("kind {} is not a name of letters, digits and -, such as ConfigMap", Quoted(&self.kind))
        })
    }

    /// The kinds of the objects that the operator of this kind creates between the object and its pods.
    pub fn children(&self) -> Vec<Self> {
        let entry = WrappedKind::find(self.group(), &self.kind).into_iter();
        let children = entry.flat_map(|entry| entry.children_of(&self.api_version));
        children.map(|(api_version, kind)| Self::new(api_version, kind)).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.kind, self.api_version)
    }
}

/// A text of any length in quotes, cut after a maximum number of characters.
struct Quoted<'a>(&'a str);

impl Quoted<'_> {
    const CHARACTERS_MAX: usize = 64;
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(Self::CHARACTERS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}… ({} bytes)", &self.0[..end], self.0.len()),
        }
    }
}

/// Whether the text is a label of RFC 1035, which versions and (in any case) kinds are.
fn is_dns_label(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether the text is a subdomain of RFC 1123, which groups are.
fn is_dns_subdomain(text: &str) -> bool {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        part.bytes().all(|b| is_alphanumeric(b) || b == b'-')
            && part.bytes().next().is_some_and(is_alphanumeric)
            && part.bytes().last().is_some_and(is_alphanumeric)
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_an_api_server_can_serve_are_valid() {
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("batch/v1", "Job"),
            ("ray.io/v1alpha1", "RayCluster"),
            ("8.a-b.example.com/v2beta1", "x"),
            ("example.com/stable", "Widget-2"),
        ] {
            assert_eq!(Kind::new(api_version, kind).form_error(), None, "{api_version} {kind}");
        }
        for api_version in [
            "",
            "a b",
            "batch/v1?x=",
            "batch/v1#",
            "../..",
            "..",
            ".",
            "v1/",
            "/v1",
            "/",
            "a/b/c",
            "batch/../v1",
            "a..b/v1",
            "-a/v1",
            "a-/v1",
            "Batch/v1",
            "batch/V1",
            "1",
            "batch/1",
            "batch%2Fv1",
            "v1\n",
            "v1\0",
            "ä/v1",
            "batch\\v1",
            "v1&watch=true",
            &"v".repeat(64),
            &format!("{}/v1", "a".repeat(254)),
        ] {
            let error = Kind::new(api_version, "Job").form_error().expect("it is not valid");
            assert!(error.starts_with("apiVersion \""), "{error}");
        }
        for kind in ["", "a b", "Job/status", "Job?", "../x", "1Job", "Job-", "Jöb", &"J".repeat(10_000)] {
            let error = Kind::new("v1", kind).form_error().expect("it is not valid");
            assert!(error.starts_with("kind \"") && error.len() < 200, "{error}");
        }
    }
}
