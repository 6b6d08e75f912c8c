//! Create, update and patch: the common path of all writes of clients.

mod body;
mod patching;

use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use self::body::check_type;
pub(crate) use self::body::sanitize;
use self::body::{decode, validate};
use self::patching::{PatchDescription, PatchKind, apply_patch};

use crate::convert;
use crate::managed_fields::{FieldManager, track};
use crate::metadata;
use crate::object;
use crate::openapi;
use crate::registry::{Generation, Resource};
use crate::request::{Call, Target};
use crate::response::{Answer, ResponseObject};
use crate::server::ApiServer;
use crate::status::{Cause, Status};
use crate::store::{Object, key_of};
use crate::strategy;

/// Longest prefix of `generateName` that is used, so that the name with its suffix fits into a label value.
const GENERATE_NAME_BYTES_MAX: usize = 58;
/// Longest name of a field manager that is accepted.
const MANAGER_BYTES_MAX: usize = 128;
/// Attempts to find an unused generated name.
const GENERATE_TRIES: usize = 8;

/// An empty list of managed fields in an update clears all field managers. Decoding would drop the empty list.
const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

/// How unknown and duplicate fields are handled (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) now: jiff::Timestamp,
    pub(crate) dry: bool,
    pub(crate) manager: String,
    pub(crate) fields: FieldValidation,
    /// The subresource that is written; empty for the main resource.
    pub(crate) subresource: String,
    /// The write is a server-side apply, which maintains the managed fields itself.
    pub(crate) applied: bool,
    /// For a patch: its result in error messages.
    pub(crate) patch: Option<PatchDescription>,
    /// The options object of the request, for webhooks; `None` for a write of a built-in controller, which no webhook reviews.
    pub(crate) request_options: Option<Value>,
    /// Warnings about duplicate fields, which the decoded value no longer shows: `duplicate field "spec.replicas"`.
    pub(crate) duplicates: Vec<String>,
}

impl WriteOptions {
    pub(crate) fn of(call: &Call<'_>, subresource: &str) -> Result<Self, Status> {
        let fields = match call.query.text("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                return Err(Status::unsupported_option(
                    call.options_kind(),
                    "fieldValidation",
                    other,
                    &known,
                ));
            }
        };
        let agent =
            call.headers.get(http::header::USER_AGENT).and_then(|h| h.to_str().ok()).unwrap_or("unknown");
        let manager = match call.query.text("fieldManager") {
            "" => crate::ssa::manager_of_user_agent(agent),
            named => named.to_owned(),
        };
        if manager.len() > MANAGER_BYTES_MAX {
            let cause = Cause {
                reason: "FieldValueTooLong".into(),
                message: format!("Too long: may not be more than {MANAGER_BYTES_MAX} bytes"),
                field: "fieldManager".into(),
            };
            return Err(Status::invalid("meta.k8s.io", call.options_kind(), "", vec![cause]));
        }
        let json = call.content_type() == "application/json" || call.content_type().ends_with("+json");
        let of_patch = if call.content_type() == "application/json-patch+json" { "json patch " } else { "" };
        let duplicates = if json && fields != FieldValidation::Ignore {
            let found = openapi::duplicate_fields(&call.body).into_iter();
            found.map(|field| format!("{of_patch}duplicate field {field:?}")).collect()
        } else {
            Vec::new()
        };
        Ok(Self {
            now: call.now,
            dry: call.dry_run()?,
            manager,
            fields,
            subresource: subresource.into(),
            applied: false,
            patch: None,
            request_options: Some(request_options(call)),
            duplicates,
        })
    }

    /// Options of a write of a built-in controller.
    pub(crate) fn system(now: jiff::Timestamp) -> Self {
        Self {
            now,
            dry: false,
            manager: "kube-controller-manager".into(),
            fields: FieldValidation::Ignore,
            subresource: String::new(),
            applied: false,
            patch: None,
            request_options: None,
            duplicates: Vec::new(),
        }
    }
    pub(crate) fn field_manager(&self) -> FieldManager<'_> {
        FieldManager { name: &self.manager, subresource: &self.subresource, now: self.now }
    }
}

/// The options object of a write, as webhooks see it.
pub(crate) fn request_options(call: &Call<'_>) -> Value {
    let mut options = json!({"kind": call.options_kind(), "apiVersion": "meta.k8s.io/v1"});
    for field in ["fieldManager", "fieldValidation", "propagationPolicy"] {
        if !call.query.text(field).is_empty() {
            options[field] = call.query.text(field).into();
        }
    }
    if call.query.has("dryRun") {
        options["dryRun"] = json!(["All"]);
    }
    if call.query.has("force") {
        options["force"] = call.query.flag("force").into();
    }
    options
}

impl ApiServer {
    pub(crate) fn create(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let options = WriteOptions::of(call, "")?;
        let value = decode(call, resource)?;
        let shown = self.insert(&options, target, resource, value, &mut call.warnings)?;
        Ok(Answer::object(201, resource, shown))
    }

    pub(crate) fn update(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
        subresource: &str,
    ) -> Result<Answer, Status> {
        let options = WriteOptions::of(call, subresource)?;
        let value = decode(call, resource)?;
        if let Some(name) = &target.name {
            check_name(name, &value)?;
        }
        match self.find(target, resource) {
            Ok(live) => {
                let shown = self.replace(&options, target, resource, &live, value, &mut call.warnings)?;
                Ok(Answer::object(200, resource, shown))
            }
            Err(_) if resource.rules.create_on_update && subresource.is_empty() => {
                let shown = self.insert(&options, target, resource, value, &mut call.warnings)?;
                Ok(Answer::object(201, resource, shown))
            }
            Err(status) => Err(status),
        }
    }

    pub(crate) fn patch(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
        subresource: &str,
    ) -> Result<Answer, Status> {
        let mut options = WriteOptions::of(call, subresource)?;
        let kind = PatchKind::of(call, resource)?;
        options.applied = kind == PatchKind::Apply;
        let force = call.query.flag("force");
        if options.applied && call.query.text("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        if !options.applied && call.query.has("force") {
            let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
        }
        let patch = kind.decode(call)?;
        let live = match self.find(target, resource) {
            Ok(live) => live,
            Err(_) if kind == PatchKind::Apply && subresource.is_empty() => {
                let new = apply_patch(resource, None, &patch, kind, force, &options)?;
                let shown = self.insert(&options, target, resource, new, &mut call.warnings)?;
                return Ok(Answer::object(201, resource, shown));
            }
            Err(status) => return Err(status),
        };
        let old = convert::from_storage(resource, live.value());
        let new = apply_patch(resource, Some(&old), &patch, kind, force, &options)?;
        options.patch = kind.describe(&patch, &new);
        let shown = self.replace(&options, target, resource, &live, new, &mut call.warnings)?;
        Ok(Answer::object(200, resource, shown))
    }

    /// Validates and stores a new object.
    pub(crate) fn insert(
        &mut self,
        options: &WriteOptions,
        target: &Target,
        resource: &Arc<Resource>,
        mut value: Value,
        warnings: &mut Vec<String>,
    ) -> Result<ResponseObject, Status> {
        check_namespace_matches(target, &mut value)?;
        if let Some(name) = &target.name {
            check_name(name, &value)?;
        }
        if !options.applied && !object::text(&value, &["metadata", "resourceVersion"]).is_empty() {
            return Err(Status::other(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let own_uid = object::uid(&value).to_owned();
        if target.name.is_some() && !own_uid.is_empty() {
            let why = if options.applied {
                format!(
                    "uid mismatch: the provided object specified uid {own_uid}, and no existing object was found"
                )
            } else {
                format!("Precondition failed: UID in precondition: {own_uid}, UID in object meta: ")
            };
            return Err(Status::conflict(&resource.group, &resource.plural, object::name(&value), &why));
        }
        self.check_namespace_active(resource, &value)?;
        self.check_definition_active(resource)?;
        metadata::wipe_system_fields(&mut value);
        self.generate_name(resource, &mut value)?;
        object::set(&mut value, &["metadata", "uid"], self.rng.uid());
        object::set(&mut value, &["metadata", "creationTimestamp"], object::stamp(options.now));
        sanitize(options, resource, &mut value, None, warnings)?;
        self.mutate(resource, true, &mut value)?;
        self.mutate_by_webhooks(options, resource, &mut value, None, warnings)?;
        // Fields that the server adds from here on have no field manager.
        if !options.applied {
            track(resource, &options.field_manager(), None, &mut value);
        }
        strategy::on_create(self, resource, &mut value)?;
        if resource.rules.generation != Generation::Never {
            object::set(&mut value, &["metadata", "generation"], 1);
        }
        metadata::remove_empty_fields(&mut value);
        validate(options, resource, &value, None)?;
        self.validate_by_webhooks(options, resource, &value, None, warnings)?;
        let name = object::name(&value).to_owned();
        let key = key_of(object::namespace(&value), &name);
        if let Some(live) = self.store.get(&resource.storage, &key) {
            let status = Status::already_exists(&resource.group, &resource.plural, &name);
            return Err(if live.deleting { status.with_prefix("object is being deleted: ") } else { status });
        }
        let value = self.to_store(resource, value)?;
        self.admit(resource, "", &value, None, warnings)?;
        self.check_quotas(resource, &value, None)?;
        Ok(if options.dry {
            ResponseObject::Unstored(value)
        } else {
            ResponseObject::Stored(self.commit(resource, value, options.now))
        })
    }

    /// Validates and stores an update of an object; a no-op update is not written.
    pub(crate) fn replace(
        &mut self,
        options: &WriteOptions,
        target: &Target,
        resource: &Arc<Resource>,
        live: &Arc<Object>,
        mut new: Value,
        warnings: &mut Vec<String>,
    ) -> Result<ResponseObject, Status> {
        check_namespace_matches(target, &mut new)?;
        check_name(live.name(), &new)?;
        let old = convert::from_storage(resource, live.value());
        let mut causes = check_preconditions(options, resource, live, &new)?;
        let clear_managers =
            object::get(&new, MANAGED_FIELDS).is_some_and(|entries| entries == &Value::Array(Vec::new()));
        sanitize(options, resource, &mut new, Some(&old), warnings)?;
        if clear_managers {
            object::set(&mut new, MANAGED_FIELDS, Value::Array(Vec::new()));
        }
        if options.subresource.is_empty() {
            self.mutate(resource, false, &mut new)?;
        }
        self.mutate_by_webhooks(options, resource, &mut new, Some(&old), warnings)?;
        causes.extend(metadata::preserve_system_fields(&old, &mut new));
        strategy::on_update(self, resource, &old, &mut new, &options.subresource)?;
        metadata::remove_empty_fields(&mut new);
        if !causes.is_empty() {
            return Err(Status::invalid(&resource.group, &resource.kind, live.name(), causes));
        }
        if generation_changes(resource, &old, &new) {
            let generation = object::int(&old, &["metadata", "generation"]).unwrap_or(0);
            object::set(&mut new, &["metadata", "generation"], generation + 1);
        }
        validate(options, resource, &new, Some(&old))?;
        if !options.applied {
            track(resource, &options.field_manager(), Some(&old), &mut new);
        }
        self.validate_by_webhooks(options, resource, &new, Some(&old), warnings)?;
        if new == old {
            return Ok(ResponseObject::Stored(live.clone()));
        }
        let deletion_completes = completes_deletion(&old, &new);
        let new = self.to_store(resource, new)?;
        self.admit(resource, &options.subresource, &new, Some(&live.value()), warnings)?;
        if matches!(&*options.subresource, "" | "resize") {
            self.check_quotas(resource, &new, Some(&live.value()))?;
        }
        Ok(match (options.dry, deletion_completes) {
            (true, _) => ResponseObject::Unstored(new),
            (false, true) => {
                // The last finalizer is removed. The response shows the updated object; the deletion is a separate
                // change.
                self.delete_immediately(resource, &live.key, Some(new.clone()));
                ResponseObject::Unstored(new)
            }
            (false, false) => ResponseObject::Stored(self.commit(resource, new, options.now)),
        })
    }

    /// Converts an object to the storage version, and prunes and defaults it by the schema of that version.
    ///
    /// # Errors
    /// A version of the resource cannot express the object.
    pub(crate) fn to_store(&self, resource: &Resource, value: Value) -> Result<Value, Status> {
        let mut value = convert::to_storage(resource, value)?;
        if resource.custom.is_some()
            && resource.api_version() != resource.stored_as
            && let Some(stored) = self.registry.by_storage(&resource.storage)
        {
            convert::apply_schema(stored, &mut value);
        }
        self.check_readable(resource, &value)?;
        Ok(value)
    }

    /// Generates the name of an object with `generateName` and no name.
    fn generate_name(&mut self, resource: &Resource, value: &mut Value) -> Result<(), Status> {
        let base = object::text(value, &["metadata", "generateName"]);
        if !object::name(value).is_empty() || base.is_empty() {
            return Ok(());
        }
        let base: String = base.chars().take(GENERATE_NAME_BYTES_MAX).collect();
        let namespace = object::namespace(value).to_owned();
        for _ in 0..GENERATE_TRIES {
            let name = format!("{base}{}", self.rng.suffix());
            if self.store.get(&resource.storage, &key_of(&namespace, &name)).is_none() {
                object::set(value, &["metadata", "name"], name);
                return Ok(());
            }
        }
        Err(Status::already_exists(&resource.group, &resource.plural, &base))
    }

    fn check_namespace_active(&self, resource: &Resource, value: &Value) -> Result<(), Status> {
        if !resource.namespaced {
            return Ok(());
        }
        let namespace = object::namespace(value);
        if self.terminating_namespaces.contains(namespace) {
            let name = object::name(value);
            return Err(Status::terminating(&resource.group, &resource.plural, name, namespace));
        }
        match self.store.get("namespaces", namespace) {
            Some(_) => Ok(()),
            None => Err(Status::not_found("", "namespaces", namespace)),
        }
    }
}

/// Sets the namespace of the request path; rejects an object with another namespace.
fn check_namespace_matches(target: &Target, value: &mut Value) -> Result<(), Status> {
    let given = object::namespace(value).to_owned();
    match &target.namespace {
        Some(namespace) if given.is_empty() => {
            object::set(value, &["metadata", "namespace"], namespace.as_str());
        }
        Some(namespace) if *namespace != given => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Some(_) | None => {}
    }
    Ok(())
}

fn check_name(name: &str, value: &Value) -> Result<(), Status> {
    let given = object::name(value);
    if given == name {
        return Ok(());
    }
    if given.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    Err(Status::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({name})"
    )))
}

/// Optimistic concurrency control: a uid or resource version in the update has to match the stored object.
fn check_preconditions(
    options: &WriteOptions,
    resource: &Resource,
    live: &Object,
    new: &Value,
) -> Result<Vec<Cause>, Status> {
    let conflict = |why: &str| Status::conflict(&resource.group, &resource.plural, live.name(), why);
    let uid = object::uid(new);
    if !uid.is_empty() && uid != &*live.uid {
        if options.patch.is_some() || options.applied {
            return Ok(vec![Cause::invalid("metadata.uid", &uid.into(), "field is immutable")]);
        }
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid);
        return Err(conflict(&why));
    }
    let version = object::text(new, &["metadata", "resourceVersion"]);
    if version.is_empty() && !resource.rules.unconditional {
        let why = "must be specified for an update";
        // kube-apiserver names custom resources by their plural here, and prints the number in another format.
        let (kind, zero) = match resource.custom {
            Some(_) => (&resource.plural, "0"),
            None => (&resource.kind, "0x0"),
        };
        let cause = Cause {
            reason: "FieldValueInvalid".into(),
            message: format!("Invalid value: {zero}: {why}"),
            field: "metadata.resourceVersion".into(),
        };
        return Err(Status::invalid(&resource.group, kind, live.name(), vec![cause]));
    }
    if !version.is_empty() && version != live.revision.to_string() {
        return Err(Status::modified(&resource.group, &resource.plural, live.name()));
    }
    Ok(Vec::new())
}

fn generation_changes(resource: &Resource, old: &Value, new: &Value) -> bool {
    match resource.rules.generation {
        Generation::Never => false,
        Generation::Spec => {
            let annotations = |value| object::map(value, &["metadata", "annotations"]);
            let annotated = &*resource.storage == "deployments.apps" && annotations(old) != annotations(new);
            annotated || strategy::GENERATION_FIELDS.iter().any(|part| old.get(part) != new.get(part))
        }
        Generation::Content => {
            let ignored = |key: &str| key == "metadata" || (key == "status" && resource.has_status());
            let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
            let old = old.iter().filter(|(key, _)| !ignored(key));
            !old.eq(new.iter().filter(|(key, _)| !ignored(key)))
        }
    }
}

/// Whether the update removes the last finalizer of an object that is being deleted.
fn completes_deletion(old: &Value, new: &Value) -> bool {
    object::get(old, &["metadata", "deletionTimestamp"]).is_some()
        && object::items(new, &["metadata", "finalizers"]).is_empty()
        && object::int(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) == 0
        && object::items(new, &["spec", "finalizers"]).is_empty()
}
