//! `ResourceQuota`: refuses what a quota of the namespace does not allow, and keeps `status.used`. After the admission plugin
//! `ResourceQuota` and the controller `resourcequota` of Kubernetes.
//!
//! The used amounts change with every write, because all writes pass through this server. Not served: the amounts of device
//! classes.

mod scopes;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use self::usage::{Amounts, covers, listed, shown};
use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;

pub(crate) const STORAGE: &str = "resourcequotas";

impl ApiServer {
    /// Whether a namespace has quotas.
    pub(crate) fn has_quotas(&self, namespace: &str) -> bool {
        !namespace.is_empty() && self.store.range(STORAGE, Some(namespace), None).next().is_some()
    }

    fn quotas(&self, namespace: &str) -> impl Iterator<Item = Value> {
        self.store.range(STORAGE, Some(namespace), None).map(|quota| quota.value())
    }

    /// Checks that the quotas of its namespace allow an object, or its update.
    pub(crate) fn check_quotas(
        &self,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let namespace = object::namespace(new);
        if namespace.is_empty() || (old.is_some() && !usage::changes(&resource.storage)) {
            return Ok(());
        }
        for quota in self.quotas(namespace) {
            check(&resource.storage, &quota, new, old).map_err(|why| {
                Status::forbidden(&resource.group, &resource.plural, object::name(new), &why)
            })?;
        }
        Ok(())
    }

    /// Changes the used amounts of the quotas of a namespace after an object was written or deleted.
    pub(crate) fn charge_quotas(
        &mut self,
        resource: &Resource,
        namespace: &str,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let quotas: Vec<Value> = self.quotas(namespace).collect();
        for mut quota in quotas {
            let hard = quota["status"]["hard"].clone();
            let of = |object: Option<&Value>| {
                object.map(|object| charge(&resource.storage, &quota, &hard, object))
            };
            let (before, after) = (of(old).unwrap_or_default(), of(new).unwrap_or_default());
            if before == after {
                continue;
            }
            let mut used = listed(&quota["status"]["used"]);
            usage::subtract(&mut used, &before);
            usage::add(&mut used, &after);
            quota["status"]["used"] = json!(used);
            self.store_quota(quota);
        }
    }

    /// Counts the used amounts of a quota anew, after it was written.
    pub(crate) fn count_quota(&mut self, key: &str) {
        let Some(mut quota) = self.store.get(STORAGE, key).map(|quota| quota.value()) else { return };
        let hard = quota["spec"]["hard"].clone();
        let mut used: Amounts = listed(&hard).into_keys().map(|name| (name, "0".to_owned())).collect();
        for storage in storages(&used) {
            for object in self.store.range(&storage, Some(object::namespace(&quota)), None) {
                usage::add(&mut used, &charge(&storage, &quota, &hard, &object.value()));
            }
        }
        let hard = if hard.is_object() { hard } else { json!({}) };
        let status = json!({ "hard": hard, "used": used });
        if quota["status"] != status {
            quota["status"] = status;
            self.store_quota(quota);
        }
    }

    fn store_quota(&mut self, quota: Value) {
        let Some(resource) = self.registry.by_storage(STORAGE).cloned() else { return };
        self.store.put(&resource.storage, quota, |quota| resource.field_values(quota));
    }
}

/// The resources whose objects a quota of these names counts.
fn storages(names: &Amounts) -> BTreeSet<Arc<str>> {
    let counted = names.keys().filter_map(|name| name.strip_prefix("count/"));
    let typed = usage::TYPED.into_iter().filter(|storage| names.keys().any(|name| covers(storage, name)));
    counted.chain(typed).map(Arc::from).collect()
}

/// What a quota counts of an object.
fn charge(storage: &str, quota: &Value, hard: &Value, object: &Value) -> Amounts {
    let mut usage =
        if scopes::match_all(storage, quota, object) { usage::of(storage, object) } else { Amounts::new() };
    usage.retain(|name, _| hard.get(name).is_some());
    usage
}

/// Why a quota forbids an object or its update, if it does.
fn check(storage: &str, quota: &Value, new: &Value, old: Option<&Value>) -> Result<(), String> {
    let (hard, used) = (listed(&quota["status"]["hard"]), listed(&quota["status"]["used"]));
    let name = object::name(quota);
    if !hard.keys().any(|resource| covers(storage, resource)) || !scopes::match_all(storage, quota, new) {
        return Ok(());
    }
    let old = old.filter(|old| scopes::match_all(storage, quota, old));
    if storage == "pods" && old.is_none() {
        missing(&hard, new)
            .map_or(Ok(()), |what| Err(format!("failed quota: {name}: must specify {what}")))?;
    }
    let mut delta = usage::of(storage, new);
    if let Some(old) = old {
        usage::subtract(&mut delta, &usage::of(storage, old));
    }
    let (mut asked, mut have, mut limits) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (resource, amount) in delta.into_iter().filter(|(_, amount)| usage::nanos(amount) > 0) {
        let Some(limit) = hard.get(&resource) else { continue };
        let before = used.get(&resource).map_or("0", String::as_str);
        if usage::nanos(before).saturating_add(usage::nanos(&amount)) > usage::nanos(limit) {
            have.insert(resource.clone(), before.to_owned());
            limits.insert(resource.clone(), limit.clone());
            asked.insert(resource, amount);
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let (asked, have, limits) = (shown(&asked), shown(&have), shown(&limits));
    Err(format!("exceeded quota: {name}, requested: {asked}, used: {have}, limited: {limits}"))
}

/// The amounts that a quota limits and containers of a pod do not state, with these containers. A pod with amounts of its own
/// need not state them.
fn missing(hard: &Amounts, pod: &Value) -> Option<String> {
    const STATED: [&str; 6] =
        ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let has_own = |field: &&str| !listed(&pod["spec"]["resources"][*field]).is_empty();
    if ["requests", "limits"].iter().any(has_own) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = object::items(pod, &["spec", "containers"]).iter();
    for container in containers.chain(object::items(pod, &["spec", "initContainers"])) {
        for name in STATED.into_iter().filter(|name| hard.contains_key(*name)) {
            let (field, resource) = name.split_once('.').unwrap_or(("requests", name));
            if container["resources"][field][resource].is_null() {
                missing.entry(name).or_default().insert(object::text(container, &["name"]));
            }
        }
    }
    let of = missing.iter().map(|(resource, containers)| {
        format!("{resource} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
    });
    (!missing.is_empty()).then(|| of.collect::<Vec<_>>().join("; "))
}
