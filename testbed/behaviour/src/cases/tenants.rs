//! A tenant with rights in one namespace tries to do more than it may, with the webhook and without it. The table of attempts
//! is that of `docs/security.md`. What comes of them is checked before and after a restart of the controller.

pub mod attempts;
mod running;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use serde_json::{Value, json};

use self::attempts::{Attempt, OTHER_TENANT, Outcome, Request, TENANT};
use crate::balancer::free_port;
use crate::environment::{Controller, Flags, Review};
use crate::fixture::Fixture;
use crate::objects::{JOB, Kind, WRAPPER, job, wrap};

/// The group and version of roles.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Life of certificates that are not renewed during a case.
pub(super) const LONG: std::time::Duration = std::time::Duration::from_hours(1);

pub(super) async fn a_tenant_does_no_more_through_an_app_wrapper_with_the_webhook(
    fixture: &Fixture<'_>,
) -> Result<()> {
    let port = free_port().await?;
    try_all(fixture, Some(Review { port, service_port: port, certificate_life: LONG })).await
}

pub(super) async fn a_tenant_does_what_the_table_says_without_the_webhook(
    fixture: &Fixture<'_>,
) -> Result<()> {
    try_all(fixture, None).await
}

/// Tries all attempts at once, then checks what has become of each, before and after a restart of the controller.
async fn try_all(fixture: &Fixture<'_>, review: Option<Review>) -> Result<()> {
    fixture.controller().kill().await?;
    let flags = Flags { preemption: true, quota: true, review, ..Flags::default() };
    let controller = fixture.controller().replica(flags).await?;
    controller.start().await?;
    let tenant = Tenant { fixture, other: format!("{}-b", fixture.namespace()) };
    tenant.prepare(review.is_some()).await?;
    let tried = tenant.try_all(&*controller, review.is_some()).await;
    let removed = tenant.remove_other().await;
    tried.and(removed)
}

/// When the outcome of an attempt is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The controller has run since before the attempts.
    Tried,
    /// It was restarted after them.
    Restarted,
}

struct Tenant<'a> {
    fixture: &'a Fixture<'a>,
    /// The namespace of another tenant.
    other: String,
}

impl Tenant<'_> {
    /// The tenants with their rights, and what attempts change.
    async fn prepare(&self, has_webhook: bool) -> Result<()> {
        let fixture = self.fixture;
        let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.other}});
        fixture.call("POST", "/api/v1/namespaces", Some(&other)).await?;
        let limits = json!({"metadata": {"annotations": {"muster.dev/priority-max": "5"}}});
        fixture.call("PATCH", &format!("/api/v1/namespaces/{}", fixture.namespace()), Some(&limits)).await?;
        for (namespace, user) in [(fixture.namespace(), TENANT), (&*self.other, OTHER_TENANT)] {
            self.grant(namespace, user).await?;
        }
        fixture.node("one", "cpu=2").await?;
        self.start_gangs().await?;
        // What later attempts change. It does not fit.
        let waits = |name: &str| wrap(name, [job(name, 1, "cpu=100", "1h")]);
        for name in attempts::CHANGED {
            let create = Request::create(fixture.path(WRAPPER, ""), waits(name));
            fixture
                .eventually(&format!("AppWrapper {name} of the tenant"), async || {
                    Ok(self.send(&create).await?.ok())
                })
                .await?;
        }
        if has_webhook {
            let probe = Request::create(fixture.path(WRAPPER, ""), attempts::unauthorized("probe")).dry();
            fixture.eventually("the webhook reviews", async || Ok(self.send(&probe).await?.err())).await?;
        }
        Ok(())
    }

    /// Deletes the namespace of the other tenant, and waits until its pods are gone.
    async fn remove_other(&self) -> Result<()> {
        let fixture = self.fixture;
        let wrappers = format!("/apis/{}/namespaces/{}/appwrappers", WRAPPER.0, self.other);
        fixture.call("DELETE", &wrappers, None).await?;
        fixture.call("DELETE", &format!("/apis/batch/v1/namespaces/{}/jobs", self.other), None).await?;
        let pods = format!("/api/v1/namespaces/{}/pods", self.other);
        fixture
            .eventually("removal of the gangs of the other tenant", async || {
                let mut left = 0;
                for path in [&wrappers, &pods] {
                    let list = fixture.call("GET", path, None).await?;
                    left += list["items"].as_array().map_or(0, Vec::len);
                }
                Ok((left == 0).then_some(()))
            })
            .await?;
        fixture.call("DELETE", &format!("/api/v1/namespaces/{}", self.other), None).await.map(drop)
    }

    /// The rights of a tenant: AppWrappers, Jobs, Roles and `RoleBindings` in its namespace.
    async fn grant(&self, namespace: &str, user: &str) -> Result<()> {
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let role = json!({"metadata": {"name": user}, "rules": [
            rule("workload.codeflare.dev", &["appwrappers"], &["get", "create", "update", "patch", "delete"]),
            rule("batch", &["jobs"], &["create", "patch"]),
            rule(RBAC, &["roles", "rolebindings"], &["create"]),
        ]});
        let binding = json!({"metadata": {"name": user},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}]});
        let roles = format!("/apis/{RBAC}/v1/namespaces/{namespace}");
        self.fixture.call("POST", &format!("{roles}/roles"), Some(&role)).await?;
        self.fixture.call("POST", &format!("{roles}/rolebindings"), Some(&binding)).await.map(drop)
    }

    async fn send(&self, request: &Request) -> Result<std::result::Result<Value, String>> {
        let Request { user, method, path, content_type, body } = request;
        self.fixture.call_as(user, method, path, (content_type, body)).await
    }

    async fn try_all(&self, controller: &dyn Controller, has_webhook: bool) -> Result<()> {
        let mut accepted = Vec::new();
        let owner = self.fixture.get(WRAPPER, "try-status").await?.context("no AppWrapper try-status")?;
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        for attempt in attempts::all() {
            if attempt.name == attempts::OVERRUN {
                self.wait_overrun().await?;
            }
            let expected = if has_webhook { attempt.with_webhook } else { attempt.without_webhook };
            let mut request = (attempt.request)(self.fixture, &self.other);
            request.body = serde_json::from_str(&request.body.to_string().replace(attempts::UID, uid))?;
            let what = attempt.what;
            match (self.send(&request).await.context(what)?, expected) {
                (Err(message), Outcome::Refused(text)) => {
                    ensure!(message.contains(text), "{what}: refused with {message:?}, not with {text:?}");
                }
                (Ok(_), Outcome::Refused(text)) => {
                    anyhow::bail!("{what}: accepted, not refused with {text:?}")
                }
                (Err(message), _) => anyhow::bail!("{what}: refused with {message:?}"),
                (Ok(_), outcome) => accepted.push((attempt, outcome)),
            }
        }
        for stage in [Stage::Tried, Stage::Restarted] {
            if stage == Stage::Restarted {
                controller.kill().await?;
                controller.start().await?;
            }
            for (attempt, outcome) in &accepted {
                let checked = self.check(attempt, *outcome, stage).await;
                checked.with_context(|| format!("{} ({stage:?})", attempt.what))?;
            }
        }
        self.check_objects(&owner).await
    }

    /// Checks that nothing exists that must not. `owner` is an AppWrapper that other tenants tried to change.
    async fn check_objects(&self, owner: &Value) -> Result<()> {
        let is_tried = |object: &&Value| crate::objects::name(object).starts_with("try-");
        let is_planned = |object: &Value| crate::objects::name(object) == "try-assignment";
        self.fixture
            .keeps(JOB, "no Job of a gang that waits exists", |jobs| {
                jobs.iter().filter(is_tried).all(is_planned)
            })
            .await?;
        let now =
            self.fixture.get(WRAPPER, "try-status").await?.context("AppWrapper try-status was deleted")?;
        let has_started = now["status"]["canrun"] == true || now["spec"] != owner["spec"];
        ensure!(!has_started, "the AppWrapper of the tenant changed: {now}");
        let roles = [Kind("rbac.authorization.k8s.io/v1", "Role"), Kind("v1", "Secret")];
        for kind in roles {
            let named = self.fixture.list(kind).await?;
            ensure!(!named.iter().any(|object| is_tried(&object)), "a {} was created", kind.1);
        }
        Ok(())
    }

    /// Checks what has become of an attempt that the API server accepted.
    async fn check(&self, attempt: &Attempt, outcome: Outcome, stage: Stage) -> Result<()> {
        let (fixture, name) = (self.fixture, attempt.name);
        match outcome {
            Outcome::Refused(_) => Ok(()),
            Outcome::Created => {
                fixture.wait(attempts::FORBIDDEN, name, "it was created", |_| true).map(drop_value).await
            }
            Outcome::Message(text) => {
                let says = |wrapper: &Value| {
                    let message = wrapper["status"]["message"].as_str().unwrap_or_default();
                    let conditions = wrapper["status"]["conditions"].to_string();
                    message.contains(text) || conditions.contains(text)
                };
                let found = fixture.wait(WRAPPER, name, &format!("its message has {text:?}"), says).await?;
                let state = &found["status"]["state"];
                ensure!(state == "Pending" || state == "Failed", "its state is {state}");
                Ok(())
            }
            Outcome::Event(reason) => fixture.wait_event(name, reason).await.map(drop),
            Outcome::Planned => {
                let is_planned = |job: &Value| {
                    let places = job["metadata"]["annotations"]["muster.dev/assignment"].as_str();
                    places.is_some_and(|places| !places.contains(attempts::ELSEWHERE))
                };
                fixture.wait(JOB, name, "it has the planned places", is_planned).map(drop_value).await
            }
            Outcome::Waits(text) => {
                let probe = self.submit_probe(name, stage).await?;
                let told = fixture.wait_queued(&probe).await?;
                ensure!(told.contains(text), "the message of {probe} is {told:?}");
                Ok(())
            }
            Outcome::Starts => {
                let probe = self.submit_probe(name, stage).await?;
                fixture.wait_state(&probe, "Running/Running").await.map(drop)
            }
            Outcome::Preempted if stage == Stage::Tried => Ok(()), // Once is enough: it ends the gang.
            Outcome::Preempted => {
                self.submit_probe(name, stage).await?;
                let text = "whose priority is 3; the priority of this gang is 0";
                let is_told = |wrapper: &Value| wrapper["status"]["conditions"].to_string().contains(text);
                fixture.wait(WRAPPER, name, "it was preempted", is_told).map(drop_value).await
            }
            Outcome::Nothing => {
                ensure!(fixture.get(attempts::FORBIDDEN, name).await?.is_none(), "it was created");
                Ok(())
            }
        }
    }
}

fn drop_value(found: Result<Value>) -> Result<()> {
    found.map(drop)
}
