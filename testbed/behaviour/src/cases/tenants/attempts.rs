//! What a tenant tries, and what comes of it with the webhook and without it. `docs/security.md` has this table.
//!
//! The tenant may write AppWrappers, create and patch Jobs, and create Roles and `RoleBindings`. The controller has the published rights: it may
//! create `ConfigMaps` ([`FORBIDDEN`] to the tenant), and no Secrets.

use serde_json::{Value, json};

use super::running;
use crate::fixture::Fixture;
use crate::objects::{JOB, Kind, WRAPPER, config_map, job, with, wrap};

/// The kind that the controller may create and the tenant may not.
pub const FORBIDDEN: Kind = Kind("v1", "ConfigMap");
/// The AppWrappers that attempts change: of a Job that does not fit.
pub const CHANGED: [&str; 5] = ["try-merge", "try-json", "try-apply", "try-put", "try-status"];

/// The tenant, in the namespace of the fixture.
pub const TENANT: &str = "alice";
/// The tenant with the same rights in the other namespace.
pub const OTHER_TENANT: &str = "bob";
/// Stands for the uid of the AppWrapper `try-status` in the body of a request.
pub const UID: &str = "uid-of-try-status";
/// The attempt that is tried once another gang of the tenant has run longer than it declared.
pub(super) const OVERRUN: &str = "try-pass";
/// A node that no plan contains.
pub const ELSEWHERE: &str = "elsewhere";

/// One attempt. Its AppWrapper and the object that the tenant wants have the same name.
pub struct Attempt {
    /// The name of the AppWrapper.
    pub name: &'static str,
    /// What the tenant tries, for the table.
    pub what: &'static str,
    /// The request of the tenant, in the namespace of the fixture; the other namespace is that of another tenant.
    pub request: fn(&Fixture<'_>, &str) -> Request,
    /// What comes of it.
    pub with_webhook: Outcome,
    /// The same without the webhook.
    pub without_webhook: Outcome,
}

/// What comes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The API server refuses it with a message that contains this.
    Refused(&'static str),
    /// The gang does not start, and its message or a condition contains this.
    Message(&'static str),
    /// It has no effect, and an Event with this reason says so.
    Event(&'static str),
    /// It has no effect.
    Nothing,
    /// Its Job is created, with the assignment of the plan.
    Planned,
    /// A running gang keeps what it holds: another gang of its quota group waits, with a message that contains this.
    Waits(&'static str),
    /// A running gang takes no other places: another gang starts there.
    Starts,
    /// A running gang keeps the priority of its admission: a gang of a higher one preempts it.
    Preempted,
    /// The controller creates the object. Only without the webhook: this is what it is for.
    Created,
}

impl Outcome {
    /// Its text in the table.
    pub fn text(self) -> String {
        match self {
            Self::Refused(text) => format!("refused: `… {text} …`"),
            Self::Message(text) => format!("does not start: `… {text} …`"),
            Self::Event(reason) => format!("no effect, Event `{reason}`"),
            Self::Nothing => "no effect".into(),
            Self::Planned => "no effect: its pods go where the plan says".into(),
            Self::Waits(text) => format!("no effect: the next gang waits, `… {text} …`"),
            Self::Starts => "no effect: another gang starts on that node".into(),
            Self::Preempted => {
                "no effect: a gang of a higher priority than that of its admission preempts it".into()
            }
            Self::Created => "**not refused**: the object is created".into(),
        }
    }
}

/// A request.
pub struct Request {
    /// The user; [`TENANT`] or [`OTHER_TENANT`].
    pub(super) user: &'static str,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) body: Value,
}

impl Request {
    pub(super) fn create(path: String, body: Value) -> Self {
        Self { user: TENANT, method: "POST", path, content_type: "application/json", body }
    }

    /// The same request of the tenant of the other namespace.
    fn of_other(self) -> Self {
        Self { user: OTHER_TENANT, ..self }
    }

    pub(super) fn dry(self) -> Self {
        Self { path: self.path + "?dryRun=All", ..self }
    }
}

/// An AppWrapper of an object that the tenant may not create.
pub(super) fn unauthorized(name: &str) -> Value {
    wrap(name, [config_map(name)])
}

fn submit(fixture: &Fixture<'_>, wrapper: Value) -> Request {
    Request::create(fixture.path(WRAPPER, ""), wrapper)
}

fn change(fixture: &Fixture<'_>, name: &str, content_type: &'static str, body: Value) -> Request {
    Request { user: TENANT, method: "PATCH", path: fixture.path(WRAPPER, name), content_type, body }
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn resources(name: &str, resources: Value) -> Value {
    with(wrap(name, []), "/spec/resources", resources)
}

/// A Job that does not fit.
fn large(name: &str) -> Value {
    job(name, 1, "cpu=100", "1h")
}

const MERGE: &str = "application/merge-patch+json";
const MAY_NOT: Outcome = Outcome::Refused("cannot create configmaps in namespace");
const NO_RIGHT: Outcome = Outcome::Message("not allowed");
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// All attempts.
pub fn all() -> &'static [Attempt] {
    macro_rules! attempts {
        ($($name:expr, $what:literal, |$f:ident, $other:ident| $request:expr, $with:expr, $without:expr;)*) => {
            &[$(Attempt {
                name: $name, what: $what, request: |$f, $other| { let _ = (&$f, &$other); $request },
                with_webhook: $with, without_webhook: $without,
            }),*]
        };
    }
    attempts! {
        "try-kind", "wrap a kind that only the controller may create",
            |f, other| submit(f, unauthorized("try-kind")), MAY_NOT, Outcome::Created;
        "try-list", "the same in a `List` beside a Job",
            |f, other| submit(f, wrap("try-list", [json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "l"},
                "items": [config_map("try-list")]})])), MAY_NOT, Outcome::Created;
        "try-condensed", "the same in the condensed form",
            |f, other| submit(f, resources("try-condensed", json!({"generictemplate": object("v1", "ConfigMap", "try-condensed")}))),
            MAY_NOT, Outcome::Created;
        "try-legacy", "the same in the form before 2023",
            |f, other| submit(f, resources("try-legacy", json!({"Items": [{"type": "ConfigMap", "template": {"metadata": {"name": "try-legacy"}}}]}))),
            MAY_NOT, Outcome::Created;
        "try-merge", "the same later, by a merge patch",
            |f, other| change(f, "try-merge", "application/merge-patch+json", json!({"spec": unauthorized("try-merge")["spec"]})),
            MAY_NOT, Outcome::Created;
        "try-json", "by a JSON patch",
            |f, other| change(f, "try-json", "application/json-patch+json",
                json!([{"op": "replace", "path": "/spec/resources", "value": unauthorized("try-json")["spec"]["resources"]}])),
            MAY_NOT, Outcome::Created;
        "try-apply", "by a server-side apply",
            |f, other| Request { path: f.path(WRAPPER, "try-apply") + "?fieldManager=alice&force=true",
                ..change(f, "", "application/apply-patch+yaml", unauthorized("try-apply")) },
            MAY_NOT, Outcome::Created;
        "try-dry", "in a dry run",
            |f, other| submit(f, unauthorized("try-dry")).dry(), MAY_NOT, Outcome::Nothing;
        "try-secret", "wrap a Secret",
            |f, other| submit(f, wrap("try-secret", [object("v1", "Secret", "try-secret")])),
            Outcome::Refused("cannot create secrets in namespace"), NO_RIGHT;
        "try-generated", "a Secret with a generated name",
            |f, other| submit(f, wrap("try-generated", [json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "try-"}})])),
            Outcome::Refused("cannot create secrets in namespace"), Outcome::Message("");
        "try-other", "wrap an object of another namespace",
            |f, other| submit(f, wrap("try-other", [with(running::job_on("try-other", 1, &["one"]), "/metadata/namespace", json!(other))])),
            Outcome::Refused("cannot create jobs of batch in namespace"), Outcome::Message("namespace");
        "try-cluster", "wrap a cluster-scoped kind",
            |f, other| submit(f, wrap("try-cluster", [object("v1", "Namespace", "try-cluster")])),
            Outcome::Refused("cannot create namespaces in the cluster"), Outcome::Message("is cluster-scoped");
        "try-nested", "wrap an AppWrapper that wraps a Secret",
            |f, other| submit(f, wrap("try-nested", [wrap("try-inner", [object("v1", "Secret", "try-nested")])])),
            Outcome::Refused("cannot create secrets in namespace"), NO_RIGHT;
        "try-role", "wrap a Role with all rights",
            |f, other| submit(f, wrap("try-role", [with(object(RBAC, "Role", "try-role"), "/rules",
                json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))])),
            Outcome::Refused("cannot escalate roles of"), NO_RIGHT;
        "try-bind", "wrap a RoleBinding to `cluster-admin`",
            |f, other| submit(f, wrap("try-bind", [with(object(RBAC, "RoleBinding", "try-bind"), "/roleRef",
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}))])),
            Outcome::Refused("cannot bind clusterroles of"), NO_RIGHT;
        "try-unknown", "wrap a kind that is not served yet",
            |f, other| submit(f, wrap("try-unknown", [object("example.com/v1", "Widget", "try-unknown")])),
            Outcome::Refused("cannot create all resources of example.com"), Outcome::Message("serves no");
        "try-binding", "wrap a Binding, which binds a pod to a node",
            |f, other| submit(f, wrap("try-binding", [object("v1", "Binding", "try-binding")])),
            Outcome::Refused("cannot create bindings in namespace"), Outcome::Message("without the verbs");
        "try-eviction", "wrap a kind that is a subresource only",
            |f, other| submit(f, wrap("try-eviction", [object("policy/v1", "Eviction", "try-eviction")])),
            Outcome::Refused("cannot create all resources of policy"), Outcome::Message("serves no");
        "try-elsewhere", "create an AppWrapper in another namespace",
            |f, other| Request::create(format!("/apis/{}/namespaces/{other}/appwrappers", WRAPPER.0), unauthorized("try-elsewhere")),
            Outcome::Refused("cannot create resource \"appwrappers\""), Outcome::Refused("cannot create resource \"appwrappers\"");
        "try-status", "write the status",
            |f, other| Request { path: f.path(WRAPPER, "try-status") + "/status",
                ..change(f, "", "application/merge-patch+json", json!({"status": {"state": "Running", "canrun": true}})) },
            Outcome::Refused("cannot patch resource \"appwrappers/status\""), Outcome::Refused("cannot patch resource \"appwrappers/status\"");
        "try-forged", "create with a status and conditions",
            |f, other| submit(f, with(wrap("try-forged", [large("try-forged")]), "/status", json!({"state": "Running", "canrun": true,
                "queuejobstate": "Running", "conditions": [{"type": "Dispatched", "status": "True", "reason": "AppWrapperRunnable"},
                    {"type": "PlacesReserved", "status": "True", "reason": "Admitted", "message": "places sha256:0"}]}))),
            Outcome::Message("cpu"), Outcome::Message("cpu");
        "try-priority", "declare a priority above `muster.dev/priority-max` of the namespace",
            |f, other| submit(f, with(wrap("try-priority", [large("try-priority")]), "/spec/priority", json!(1_000_000))),
            Outcome::Event("PriorityLimited"), Outcome::Event("PriorityLimited");
        "try-protected", "declare `muster.dev/protected` without the permission of the namespace",
            |f, other| submit(f, with(wrap("try-protected", [large("try-protected")]), "/metadata/annotations",
                json!({"muster.dev/protected": "true"}))),
            Outcome::Event("ProtectionNotAllowed"), Outcome::Event("ProtectionNotAllowed");
        "try-assignment", "wrap a Job with a `muster.dev/assignment` of another node",
            |f, other| submit(f, wrap("try-assignment", [with(running::job_on("try-assignment", 1, &["one"]), "/metadata/annotations",
                json!({"muster.dev/assignment": format!("[{{\"{ELSEWHERE}\":1}}]")}))])),
            Outcome::Planned, Outcome::Planned;
        "try-owner", "create a Job in another namespace that names the AppWrapper of a tenant here as its owner",
            |f, other| Request::create(format!("/apis/batch/v1/namespaces/{other}/jobs"),
                with(running::job_on("try-owner", 1, &["one"]), "/metadata/ownerReferences", json!([{"apiVersion": WRAPPER.0,
                    "kind": "AppWrapper", "name": "try-status", "uid": UID, "controller": true}]))).of_other(),
            Outcome::Nothing, Outcome::Nothing;
        "try-neighbour", "create an AppWrapper here with rights in another namespace only",
            |f, other| submit(f, unauthorized("try-neighbour")).of_other(),
            Outcome::Refused("cannot create resource \"appwrappers\""), Outcome::Refused("cannot create resource \"appwrappers\"");
        "try-status", "change an AppWrapper here in the same way",
            |f, other| change(f, "try-status", "application/merge-patch+json", json!({"spec": {"priority": 9}})).of_other(),
            Outcome::Refused("cannot patch resource \"appwrappers\""), Outcome::Refused("cannot patch resource \"appwrappers\"");
        "try-status", "delete an AppWrapper here in the same way",
            |f, other| Request { method: "DELETE", content_type: "application/json",
                ..change(f, "try-status", "", json!({})) }.of_other(),
            Outcome::Refused("cannot delete resource \"appwrappers\""), Outcome::Refused("cannot delete resource \"appwrappers\"");
        "try-many", "create an AppWrapper of 5,000 Jobs",
            |f, other| submit(f, wrap("try-many", (0..5_000).map(|_| object("batch/v1", "Job", "x")))),
            Outcome::Message("5000 objects"), Outcome::Message("5000 objects");
        "try-huge", "create an AppWrapper of 1 MiB",
            |f, other| submit(f, wrap("try-huge", [with(large("try-huge"), "/spec/template/spec/containers/0/command",
                json!(["x".repeat(1 << 20)]))])),
            Outcome::Message("cpu"), Outcome::Message("cpu");
        "run-label", "label a running gang for another quota group",
            |f, other| change(f, "run-label", MERGE, running::other_group()),
            Outcome::Waits("quota_gang/label has 0 of at most 1 left"), Outcome::Waits("quota_gang/label has 0 of at most 1 left");
        "try-group", "label a gang for another quota group than that of the namespace",
            |f, other| submit(f, running::of_other_group("try-group")),
            Outcome::Message("quota_namespace/red has at most 50"), Outcome::Message("quota_namespace/red has at most 50");
        "run-spec", "shrink the spec of a running gang",
            |f, other| change(f, "run-spec", MERGE, running::smaller()),
            Outcome::Waits("quota_gang/spec has 0 of at most 2 left"), Outcome::Waits("quota_gang/spec has 0 of at most 2 left");
        "run-priority", "raise the priority of a running gang",
            |f, other| change(f, "run-priority", MERGE, json!({"spec": {"priority": 5}})),
            Outcome::Preempted, Outcome::Preempted;
        "run-places", "write another node into the `muster.dev/assignment` of a running Job",
            |f, other| Request { path: f.path(JOB, "run-places"), ..change(f, "", MERGE, running::forged_places()) },
            Outcome::Starts, Outcome::Starts;
        OVERRUN, "pass others by a declared run time, after a gang ran longer than it had declared",
            |f, other| submit(f, running::probe(running::OVERRUNS, OVERRUN)),
            Outcome::Message("fits, but would delay"), Outcome::Message("fits, but would delay");
    }
}

/// The table of the attempts, in Markdown.
pub fn table() -> String {
    let head = "| a tenant tries to | with the webhook | without it |\n| --- | --- | --- |\n";
    let row = |attempt: &Attempt| {
        let Attempt { what, with_webhook, without_webhook, .. } = attempt;
        format!("| {what} | {} | {} |\n", with_webhook.text(), without_webhook.text())
    };
    all().iter().map(row).fold(head.to_owned(), |table, row| table + &row)
}
