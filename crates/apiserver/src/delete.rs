//! DELETE of objects and collections: delete options, preconditions, grace periods of pods, finalizers and propagation
//! policy.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::list_options::Filter;
use crate::object;
use crate::page::Page;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::{Answer, ResponseObject};
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::Object;
use crate::strategy::definitions;

/// Namespaces that cannot be deleted.
const IMMORTAL_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The propagation policy of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Determined by the finalizers of the object, else by the default of its kind.
    Default,
    Orphan,
    Background,
    Foreground,
}

#[derive(Debug, Clone)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Propagation,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) dry: bool,
    /// The client sent the deprecated `orphanDependents: false`: the response is 202 if the object is not deleted
    /// immediately.
    pub(crate) accepted: bool,
}

impl Default for DeleteOptions {
    fn default() -> Self {
        Self {
            grace_seconds: None,
            propagation: Propagation::Default,
            uid: None,
            revision: None,
            dry: false,
            accepted: false,
        }
    }
}

impl DeleteOptions {
    /// Background propagation, regardless of the default of the kind.
    pub(crate) fn background() -> Self {
        Self { propagation: Propagation::Background, ..Self::default() }
    }

    /// Decodes the options from the body if there is one, else from the query.
    fn of(call: &Call<'_>) -> Result<Self, Status> {
        let query = &call.query;
        let body = call.decode_body()?;
        let mut options = if body.is_null() {
            let propagation = match query.text("propagationPolicy") {
                "" => Value::Null,
                policy => policy.into(),
            };
            let orphan = query.has("orphanDependents").then(|| query.flag("orphanDependents"));
            Self::from_value(Some(&json!({
                "gracePeriodSeconds": query.number("gracePeriodSeconds")?,
                "propagationPolicy": propagation,
                "orphanDependents": orphan,
            })))?
        } else {
            Self::from_value(Some(&body))?
        };
        options.dry |= call.dry_run()?;
        Ok(options)
    }

    /// Decodes a `DeleteOptions` object.
    pub(crate) fn from_value(value: Option<&Value>) -> Result<Self, Status> {
        let Some(value) = value else { return Ok(Self::default()) };
        let invalid = |why: String| Status::bad_request(format!("invalid DeleteOptions: {why}"));
        let kind = object::text(value, &["kind"]);
        if !value.is_object() || !(kind.is_empty() || kind == "DeleteOptions") {
            return Err(invalid(format!("unexpected kind {kind:?}")));
        }
        let mut dry = false;
        for stage in object::texts(value, &["dryRun"]) {
            match stage {
                "All" => dry = true,
                other => {
                    return Err(invalid(format!("Unsupported value: {other:?}: supported values: \"All\"")));
                }
            }
        }
        let orphan = object::get(value, &["orphanDependents"]).and_then(Value::as_bool);
        let policy = object::text(value, &["propagationPolicy"]);
        let propagation = match (policy, orphan) {
            ("", None) => Propagation::Default,
            ("", Some(true)) | ("Orphan", None) => Propagation::Orphan,
            ("", Some(false)) | ("Background", None) => Propagation::Background,
            ("Foreground", None) => Propagation::Foreground,
            (_, Some(_)) => {
                return Err(invalid("orphanDependents and deletionPropagation cannot be both set".into()));
            }
            (other, None) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                return Err(Status::unsupported_option("DeleteOptions", "propagationPolicy", other, &known));
            }
        };
        let text = |path: &[&str]| object::get(value, path).and_then(Value::as_str).map(String::from);
        Ok(Self {
            grace_seconds: object::int(value, &["gracePeriodSeconds"]),
            propagation,
            uid: text(&["preconditions", "uid"]),
            revision: text(&["preconditions", "resourceVersion"]),
            dry,
            accepted: orphan == Some(false),
        })
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is deleted; holds its last state.
    Immediately(Arc<Object>),
    /// The object has a `deletionTimestamp`; it is deleted when the grace period ends and no finalizer is left.
    Terminating(Arc<Object>),
}

impl ApiServer {
    pub(crate) fn delete(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let options = DeleteOptions::of(call)?;
        if &*resource.storage == "namespaces"
            && let Some(name) = target.name.as_deref().filter(|name| IMMORTAL_NAMESPACES.contains(name))
        {
            return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        let live = self.find(target, resource)?;
        if resource.plural == "jobs"
            && options.propagation == Propagation::Default
            && live.finalizers.is_empty()
        {
            call.warnings.push(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning"
                    .into(),
            );
        }
        self.validate_deletion(call, resource, std::slice::from_ref(&live), options.dry)?;
        let deleted = self.delete_object(call.now, resource, &live, &options)?;
        Ok(match deleted {
            Deleted::Immediately(last) if resource.rules.returns_deleted => {
                Answer::object(200, resource, ResponseObject::Stored(last))
            }
            Deleted::Immediately(last) => {
                Answer::Status(Status::success(&resource.group, &resource.plural, last.name(), &last.uid))
            }
            Deleted::Terminating(object) => {
                let code = if options.accepted { 202 } else { 200 };
                Answer::object(code, resource, ResponseObject::Stored(object))
            }
        })
    }

    pub(crate) fn delete_collection(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let options = DeleteOptions::of(call)?;
        let filter = Filter::parse(target, &call.query, resource)?;
        let selected: Vec<Arc<Object>> = self.selected(resource, &filter).cloned().collect();
        self.validate_deletion(call, resource, &selected, options.dry)?;
        for object in &selected {
            self.delete_object(call.now, resource, object, &options)?;
        }
        let revision = self.store.revision();
        let page = Page { objects: selected, revision, continue_token: String::new(), remaining: None };
        Ok(Answer::List { resource: resource.clone(), page })
    }

    /// Deletes an object immediately, or sets its `deletionTimestamp` if a grace period or finalizers delay the
    /// deletion.
    pub(crate) fn delete_object(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        live: &Arc<Object>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        check_preconditions(resource, live, options)?;
        let mut value = live.value();
        let pod = resource.plural == "pods" && resource.group.is_empty();
        let grace = if pod { grace_of(&value, options) } else { 0 };
        if live.deleting {
            return Ok(self.shorten_grace_period(now, resource, live, value, options));
        }
        let finalizers = finalizers(resource, &value, options);
        if finalizers.is_empty() {
            object::remove(&mut value, &["metadata", "finalizers"]);
        } else {
            object::set(&mut value, &["metadata", "finalizers"], json!(finalizers));
        }
        let namespace = resource.plural == "namespaces" && resource.group.is_empty();
        let definition = &*resource.storage == definitions::STORAGE;
        let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        object::set(&mut value, &["metadata", "deletionTimestamp"], object::stamp(at));
        object::set(&mut value, &["metadata", "deletionGracePeriodSeconds"], grace);
        if let Some(generation) = object::int(&value, &["metadata", "generation"])
            && !definition
        {
            object::set(&mut value, &["metadata", "generation"], generation + 1);
        }
        if definition {
            definitions::on_delete(&mut value, now);
        }
        // Namespaces and definitions have no grace period.
        if namespace || definition {
            object::remove(&mut value, &["metadata", "deletionGracePeriodSeconds"]);
        }
        if namespace {
            object::set(&mut value, &["status", "phase"], "Terminating");
        }
        let stays = grace > 0 || namespace || !object::items(&value, &["metadata", "finalizers"]).is_empty();
        if options.dry {
            return Ok(if stays {
                Deleted::Terminating(live.clone())
            } else {
                Deleted::Immediately(live.clone())
            });
        }
        if stays {
            return Ok(Deleted::Terminating(self.commit(resource, value, now)));
        }
        let last = if pod { Some(value) } else { None };
        Ok(Deleted::Immediately(self.delete_immediately(resource, &live.key, last)))
    }

    /// Handles the deletion of an object that is already being deleted: it can only shorten the grace period.
    fn shorten_grace_period(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        live: &Arc<Object>,
        mut value: Value,
        options: &DeleteOptions,
    ) -> Deleted {
        let before = object::int(&value, &["metadata", "deletionGracePeriodSeconds"]);
        let (Some(before), Some(asked)) = (before, options.grace_seconds) else {
            return Deleted::Terminating(live.clone());
        };
        let asked = if asked < 0 { 1 } else { asked };
        if options.dry || (asked >= before && !(asked == 0 && live.finalizers.is_empty())) {
            return Deleted::Terminating(live.clone());
        }
        if asked == 0 && live.finalizers.is_empty() {
            object::set(&mut value, &["metadata", "deletionGracePeriodSeconds"], 0);
            return Deleted::Immediately(self.delete_immediately(resource, &live.key, Some(value)));
        }
        let marked =
            object::parse_stamp(object::text(&value, &["metadata", "deletionTimestamp"])).unwrap_or(now);
        let at = marked.checked_sub(SignedDuration::from_secs(before - asked)).unwrap_or(now);
        object::set(&mut value, &["metadata", "deletionTimestamp"], object::stamp(at));
        object::set(&mut value, &["metadata", "deletionGracePeriodSeconds"], asked);
        Deleted::Terminating(self.commit(resource, value, now))
    }
}

/// Checks the uid and the resource version that the client expects. Returns status 409 if one differs.
pub(crate) fn check_preconditions(
    resource: &Resource,
    live: &Object,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let failed = |what: &str, wanted: &str, found: &str, fate: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {fate}"
        );
        Err(Status::conflict(&resource.group, &resource.kind, live.name(), &why))
    };
    let revision = live.revision.to_string();
    match (&options.uid, &options.revision) {
        (Some(uid), _) if *uid != *live.uid => failed("UID", uid, &live.uid, "deleted and then recreated"),
        (_, Some(wanted)) if *wanted != revision => failed("ResourceVersion", wanted, &revision, "modified"),
        _ => Ok(()),
    }
}

/// Grace period of a pod in seconds: 0 if the pod is not bound to a node or has terminated.
fn grace_of(pod: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if object::text(pod, &["spec", "nodeName"]).is_empty() || ended {
        return 0;
    }
    let own = object::int(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(30);
    match options.grace_seconds.unwrap_or(own) {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// The finalizers of an object after its deletion with these options has started.
fn finalizers(resource: &Resource, value: &Value, options: &DeleteOptions) -> Vec<String> {
    let has = |finalizer: &str| object::texts(value, &["metadata", "finalizers"]).any(|f| f == finalizer);
    let propagation = match options.propagation {
        Propagation::Default if has(ORPHAN) => Propagation::Orphan,
        Propagation::Default if has(FOREGROUND) => Propagation::Foreground,
        Propagation::Default if resource.rules.orphans => Propagation::Orphan,
        Propagation::Default => Propagation::Background,
        chosen @ (Propagation::Orphan | Propagation::Background | Propagation::Foreground) => chosen,
    };
    let mut all: Vec<String> = object::texts(value, &["metadata", "finalizers"])
        .filter(|f| *f != ORPHAN && *f != FOREGROUND)
        .map(String::from)
        .collect();
    match propagation {
        Propagation::Orphan => all.push(ORPHAN.into()),
        Propagation::Foreground => all.push(FOREGROUND.into()),
        Propagation::Default | Propagation::Background => {}
    }
    all
}
