//! The persistent volume claims that a pod uses. They decide where it can run.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::value::{at, list, text};

/// The claims of the pods of a pod set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimUses {
    /// Claims by name: all pods use the same.
    pub named: BTreeSet<String>,
    /// Claims that are created for each pod.
    pub created: Vec<CreatedClaim>,
}

/// A claim that is created for each pod: an ephemeral volume, or a `volumeClaimTemplate` of a `StatefulSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedClaim {
    /// Name of the volume or template.
    pub name: String,
    /// Storage class; `None`: the default class. Empty: none.
    pub class: Option<String>,
    /// The claims of a `StatefulSet` remain after their pods. The name of one begins with this, and the ordinal of its
    /// pod follows.
    pub kept_as: Option<String>,
}

impl ClaimUses {
    /// Parses the volumes of a pod spec.
    pub fn read(spec: &Value) -> Self {
        let volumes = list(spec, &["volumes"]);
        let claim = |volume| text(volume, &["persistentVolumeClaim", "claimName"]).map(str::to_owned);
        let ephemeral = volumes.iter().filter(|volume| at(volume, &["ephemeral"]).is_object());
        let created = ephemeral.map(|volume| CreatedClaim {
            name: text(volume, &["name"]).unwrap_or_default().to_owned(),
            class: class(at(volume, &["ephemeral", "volumeClaimTemplate"])),
            kept_as: None,
        });
        Self { named: volumes.iter().filter_map(claim).collect(), created: created.collect() }
    }

    /// Adds the claims of the pods of a wrapped object with this name, if it is a `StatefulSet`.
    #[must_use]
    pub fn with_templates_of(mut self, object: &Value, name: &str) -> Self {
        for template in templates(object) {
            let claim = text(template, &["metadata", "name"]).unwrap_or_default();
            // The volume of the template replaces a volume of this name.
            self.created.push(CreatedClaim {
                name: claim.to_owned(),
                class: class(template),
                kept_as: Some(format!("{claim}-{name}-")),
            });
        }
        self
    }

    /// Whether the pods use no claim.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.created.is_empty()
    }
}

/// The storage class of a claim or of a claim template; `None`: the default class. Empty: none.
pub fn class(claim: &Value) -> Option<String> {
    at(claim, &["spec", "storageClassName"]).as_str().map(str::to_owned)
}

/// The claim templates of a `StatefulSet`.
pub(crate) fn templates(object: &Value) -> &[Value] {
    match text(object, &["kind"]) {
        Some("StatefulSet") => list(object, &["spec", "volumeClaimTemplates"]),
        _ => &[],
    }
}
