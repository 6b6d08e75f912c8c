//! Persistent volume claims, volumes and storage classes, and the nodes on which pods can use them.
//!
//! After kube-scheduler (`plugins/volumebinding`, `volumezone`, `volumerestrictions`).

use std::collections::{BTreeMap, BTreeSet};

use api::pod::{Requirement, Term};
use api::volumes::{ClaimUses, CreatedClaim};

use crate::wire::volumes::{Claim, StorageClass, TopologyTerm, Volume};

/// Labels of a volume without node affinity that name its zones and regions; several values are separated by `__`.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// All watched claims, volumes and storage classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    claims: BTreeMap<(String, String), Claim>,
    claim_keys: BTreeMap<String, (String, String)>,
    by_name: BTreeMap<String, Volume>,
    classes: BTreeMap<String, StorageClass>,
}

/// Why the nodes of pods with claims are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumeObstacle {
    /// The pods cannot start.
    Problem(String),
    /// The pods may start, but the planner cannot know where.
    Unplanned(String),
}

/// The claims of one pod set, with what else decides about them.
pub(crate) struct ClaimQuery<'a> {
    /// Namespace of the gang.
    pub(crate) namespace: &'a str,
    /// The claims.
    pub(crate) uses: &'a ClaimUses,
    /// The number of pods of the pod set.
    pub(crate) pods: u32,
    /// The number of pods of the gang that use each named claim.
    pub(crate) users: &'a BTreeMap<String, u64>,
    /// The claims that the gang itself creates, with their storage class.
    pub(crate) wrapped: &'a BTreeMap<String, Option<String>>,
}

/// The nodes of one claim: one of these terms must match. None: any node.
type Terms = Vec<Term>;

impl Volumes {
    /// Adds or updates a claim. Returns whether it changed.
    pub(crate) fn upsert_claim(&mut self, claim: Claim) -> bool {
        let key = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
        self.claim_keys.insert(claim.metadata.uid.clone(), key.clone());
        let before = self.claims.insert(key.clone(), claim);
        before.is_none_or(|before| {
            let now = &self.claims[&key];
            (&before.spec, &before.status, before.metadata.is_deleting())
                != (&now.spec, &now.status, now.metadata.is_deleting())
        })
    }

    /// Removes a claim.
    pub(crate) fn delete_claim(&mut self, uid: &str) {
        let Some(key) = self.claim_keys.remove(uid) else { return };
        if self.claims.get(&key).is_some_and(|claim| claim.metadata.uid == uid) {
            self.claims.remove(&key);
        }
    }

    /// Adds or updates a volume. Returns whether its nodes changed.
    pub(crate) fn upsert_volume(&mut self, volume: Volume) -> bool {
        let name = volume.metadata.name.clone();
        let before = self.by_name.insert(name.clone(), volume);
        before.is_none_or(|before| nodes_of(&before) != nodes_of(&self.by_name[&name]))
    }

    /// Removes a volume.
    pub(crate) fn delete_volume(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Adds or updates a storage class.
    pub(crate) fn upsert_class(&mut self, class: StorageClass) {
        self.classes.insert(class.metadata.name.clone(), class);
    }

    /// Removes a storage class.
    pub(crate) fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// The nodes of the pods of a pod set: of each of the lists one term must match.
    pub(crate) fn nodes(&self, query: &ClaimQuery<'_>) -> Result<Vec<Terms>, VolumeObstacle> {
        let named = query.uses.named.iter().map(|name| self.nodes_of_named(query, name));
        let created = query.uses.created.iter().map(|created| self.nodes_of_created(query, created));
        let all: Vec<Terms> = named.chain(created).collect::<Result<_, _>>()?;
        Ok(all.into_iter().filter(|terms| !terms.is_empty()).collect())
    }

    /// The named claims that only one pod may use, whatever gang it belongs to.
    pub(crate) fn exclusive(&self, namespace: &str, uses: &ClaimUses) -> BTreeSet<String> {
        let is_exclusive = |name: &&String| {
            let claim = self.claims.get(&(namespace.to_owned(), (*name).clone()));
            claim.is_some_and(Claim::is_exclusive)
        };
        uses.named.iter().filter(is_exclusive).cloned().collect()
    }

    fn nodes_of_named(&self, query: &ClaimQuery<'_>, name: &str) -> Result<Terms, VolumeObstacle> {
        let users = query.users.get(name).copied().unwrap_or(1);
        let Some(claim) = self.claims.get(&(query.namespace.to_owned(), name.to_owned())) else {
            return match query.wrapped.get(name) {
                Some(class) => self.nodes_of_class(name, class.as_deref(), users),
                None => Err(VolumeObstacle::Problem(format!(
                    "claim {name} does not exist in namespace {}: create it",
                    query.namespace
                ))),
            };
        };
        if claim.metadata.is_deleting() {
            return problem(format!("claim {name} is being deleted"));
        }
        if users > 1 && claim.is_exclusive() {
            return problem(format!("claim {name} is ReadWriteOncePod, but {users} pods use it"));
        }
        if claim.status.phase == "Lost" {
            return problem(format!("claim {name} has lost its volume {}", claim.spec.volume_name));
        }
        if !claim.spec.volume_name.is_empty() {
            return match self.by_name.get(&claim.spec.volume_name) {
                Some(volume) => Ok(nodes_of(volume)),
                None => {
                    problem(format!("claim {name}: its volume {} does not exist", claim.spec.volume_name))
                }
            };
        }
        let class = claim.spec.storage_class_name.as_deref();
        match self.class(class) {
            Ok(Some(found)) if found.waits_for_pod() => self.nodes_of_class(name, class, users),
            Ok(_) => problem(format!("claim {name} is not bound to a volume yet")),
            Err(missing) => problem(format!("claim {name}: {missing}")),
        }
    }

    /// The nodes of the pods for which claims are created. The claims of a `StatefulSet` may exist already.
    fn nodes_of_created(
        &self,
        query: &ClaimQuery<'_>,
        created: &CreatedClaim,
    ) -> Result<Terms, VolumeObstacle> {
        let new = || self.nodes_of_class(&created.name, created.class.as_deref(), 1);
        let Some(prefix) = &created.kept_as else { return new() };
        let name = |pod: u32| (query.namespace.to_owned(), format!("{prefix}{pod}"));
        let kept: BTreeSet<u32> =
            (0..query.pods).filter(|pod| self.claims.contains_key(&name(*pod))).collect();
        let mut of_pods = kept.iter().map(|pod| self.nodes_of_named(query, &name(*pod).1));
        let Some(first) = of_pods.next().transpose()? else { return new() };
        let is_complete = kept.len() == usize::try_from(query.pods).unwrap_or(usize::MAX);
        let others = of_pods.collect::<Result<Vec<_>, _>>()?;
        if others.iter().all(|other| *other == first) && (is_complete || new()? == first) {
            return Ok(first);
        }
        unplanned(format!("the claims {prefix}N of its pods have volumes on different nodes"))
    }

    /// The nodes of a claim without a volume that `users` pods use.
    fn nodes_of_class(&self, claim: &str, class: Option<&str>, users: u64) -> Result<Terms, VolumeObstacle> {
        let class = match self.class(class) {
            Ok(Some(class)) => class,
            Ok(None) => {
                return unplanned(format!("claim {claim} has no storage class; its volume is not known yet"));
            }
            Err(missing) => return problem(format!("claim {claim}: {missing}")),
        };
        let name = &class.metadata.name;
        if !class.waits_for_pod() {
            return unplanned(format!(
                "claim {claim}: storage class {name} binds it to a volume that is not known yet"
            ));
        }
        if class.is_static() {
            return unplanned(format!(
                "claim {claim}: storage class {name} binds it to an existing volume when its pod is scheduled"
            ));
        }
        if users > 1 {
            return unplanned(format!(
                "claim {claim} is used by {users} pods, and the first one that is scheduled decides where its volume is"
            ));
        }
        Ok(class.allowed_topologies.iter().map(topology).collect())
    }

    /// The storage class of this name; without a name, the default class. `None`: no class.
    fn class(&self, name: Option<&str>) -> Result<Option<&StorageClass>, String> {
        match name {
            Some("") => Ok(None),
            Some(name) => {
                let found = self.classes.get(name);
                found.map(Some).ok_or_else(|| format!("storage class {name} does not exist: create it"))
            }
            // The latest of several default classes, after the admission plugin DefaultStorageClass.
            None => Ok(self.classes.values().filter(|class| class.is_default()).max_by_key(|class| {
                (&class.metadata.creation_timestamp, std::cmp::Reverse(&class.metadata.name))
            })),
        }
    }
}

fn problem<T>(text: String) -> Result<T, VolumeObstacle> {
    Err(VolumeObstacle::Problem(text))
}

fn unplanned<T>(text: String) -> Result<T, VolumeObstacle> {
    Err(VolumeObstacle::Unplanned(text))
}

/// The nodes that can use a volume.
fn nodes_of(volume: &Volume) -> Terms {
    let terms = api::pod::node_terms(&volume.spec.node_affinity.required.node_selector_terms);
    if !terms.is_empty() {
        return terms;
    }
    let labels = &volume.metadata.labels;
    let zones = ZONE_LABELS.into_iter().filter_map(|key| Some((key, labels.get(key)?)));
    let zones = zones.map(|(key, values)| is_in(key, values.split("__").map(str::to_owned).collect()));
    let expressions: Vec<_> = zones.collect();
    if expressions.is_empty() { Vec::new() } else { vec![Term { expressions, fields: Vec::new() }] }
}

fn topology(term: &TopologyTerm) -> Term {
    let expressions = term.match_label_expressions.iter();
    let expressions = expressions.map(|expression| is_in(&expression.key, expression.values.clone()));
    Term { expressions: expressions.collect(), fields: Vec::new() }
}

fn is_in(key: &str, values: Vec<String>) -> Requirement {
    Requirement { key: key.to_owned(), operator: "In".to_owned(), values }
}
