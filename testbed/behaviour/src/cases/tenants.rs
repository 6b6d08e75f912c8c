//! A tenant with rights in one namespace tries to do more than it may, with the webhook and without it. The table of attempts
//! is that of `docs/security.md`.

pub mod attempts;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use serde_json::{Value, json};

use self::attempts::{Attempt, OTHER_TENANT, Outcome, Request, TENANT};
use crate::balancer::free_port;
use crate::environment::{Controller, Review};
use crate::fixture::Fixture;
use crate::objects::{JOB, Kind, WRAPPER, job, wrap};

/// The group and version of roles.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Life of certificates that are not renewed during a case.
pub(super) const LONG: std::time::Duration = std::time::Duration::from_hours(1);

pub(super) async fn a_tenant_does_no_more_through_an_app_wrapper_with_the_webhook(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.controller().kill().await?;
    let port = free_port().await?;
    let review = Review { port, service_port: port, certificate_life: LONG };
    let controller = fixture.controller().reviewer(review).await?;
    controller.start().await?;
    try_all(fixture, Some(&*controller)).await
}

pub(super) async fn a_tenant_does_what_the_table_says_without_the_webhook(
    fixture: &Fixture<'_>,
) -> Result<()> {
    try_all(fixture, None).await
}

/// Tries all attempts at once, then checks what has become of each. `reviewer`: the controller with the webhook.
async fn try_all(fixture: &Fixture<'_>, reviewer: Option<&dyn Controller>) -> Result<()> {
    let tenant = Tenant { fixture, other: format!("{}-b", fixture.namespace()) };
    tenant.prepare(reviewer.is_some()).await?;
    let tried = tenant.try_all(reviewer.is_some()).await;
    let namespace = format!("/api/v1/namespaces/{}", tenant.other);
    fixture.call("DELETE", &namespace, None).await?;
    tried
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

    /// The rights of a tenant: AppWrappers, Jobs, Roles and `RoleBindings` in its namespace.
    async fn grant(&self, namespace: &str, user: &str) -> Result<()> {
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let role = json!({"metadata": {"name": user}, "rules": [
            rule("workload.codeflare.dev", &["appwrappers"], &["get", "create", "update", "patch", "delete"]),
            rule("batch", &["jobs"], &["create"]),
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

    async fn try_all(&self, has_webhook: bool) -> Result<()> {
        let mut accepted = Vec::new();
        let owner = self.fixture.get(WRAPPER, "try-status").await?.context("no AppWrapper try-status")?;
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        for attempt in attempts::all() {
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
        for (attempt, outcome) in accepted {
            self.check(attempt, outcome).await.context(attempt.what)?;
        }
        let now =
            self.fixture.get(WRAPPER, "try-status").await?.context("AppWrapper try-status was deleted")?;
        let has_started = now["status"]["canrun"] == true || now["spec"] != owner["spec"];
        ensure!(!has_started, "the AppWrapper of the tenant changed: {now}");
        let roles = [Kind("rbac.authorization.k8s.io/v1", "Role"), Kind("v1", "Secret")];
        for kind in roles {
            let named = self.fixture.list(kind).await?;
            let is_tried = |object: &&Value| crate::objects::name(object).starts_with("try-");
            ensure!(!named.iter().any(|object| is_tried(&object)), "a {} was created", kind.1);
        }
        Ok(())
    }

    /// Checks what has become of an attempt that the API server accepted.
    async fn check(&self, attempt: &Attempt, outcome: Outcome) -> Result<()> {
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
