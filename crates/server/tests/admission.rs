//! Two tenants in two namespaces try to create through AppWrappers what they may not create themselves. The API server
//! in memory asks the webhook as a function; RBAC is that of a cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::appwrapper::{Group, PLURAL};
use apiserver::{ApiServer, Service, User, ValidatingWebhook};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use server::admission::{Admission, WEBHOOK};

struct Cluster {
    service: Service,
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn wrappers() -> ApiResource {
    resource("workload.codeflare.dev/v1beta1", "AppWrapper", PLURAL)
}

fn wrapper(objects: &[Value]) -> Value {
    let items: Vec<_> = objects.iter().map(|object| json!({"generictemplate": object})).collect();
    with_resources(&json!({"GenericItems": items}))
}

fn with_resources(resources: &Value) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": "aw"}, "spec": {"resources": resources},
    })
}

fn object(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}})
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

impl Cluster {
    /// Namespaces `a` and `b`. In `a`, `alice` and the group `devs` may write AppWrappers and create Jobs; alice may
    /// create Roles and `RoleBindings` besides. In `b`, `bob` may write AppWrappers and create Secrets.
    async fn new() -> Self {
        let server = ApiServer::new(apiserver::Config::default());
        let cluster = Self { service: Service::new(server, Arc::new(jiff::Timestamp::now)) };
        controllers::install_crds(cluster.as_admin(), &[Group::Codeflare]).await.unwrap();
        let author = |group: &str, plural: &str| {
            vec![
                rule("workload.codeflare.dev", "appwrappers", &["get", "create", "update", "patch"]),
                rule(group, plural, &["create"]),
            ]
        };
        let mut of_alice = author("batch", "jobs");
        of_alice.push(rule("rbac.authorization.k8s.io", "roles", &["create"]));
        of_alice.push(rule("rbac.authorization.k8s.io", "rolebindings", &["create"]));
        for namespace in ["a", "b"] {
            let name = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            cluster.put(&resource("v1", "Namespace", "namespaces"), "", name).await;
        }
        cluster.grant("a", "User", "alice", of_alice).await;
        cluster.grant("a", "Group", "devs", author("batch", "jobs")).await;
        cluster.grant("b", "User", "bob", author("", "secrets")).await;
        cluster
    }

    /// The cluster with the webhook.
    async fn with_webhook() -> Self {
        let cluster = Self::new().await;
        let admission = Admission::new(cluster.as_admin());
        cluster.review(move |review| {
            let admission = admission.clone();
            Box::pin(async move { admission.review(&review).await })
        });
        cluster
    }

    fn review(&self, review: impl Fn(Value) -> apiserver::Reviewing + Send + Sync + 'static) {
        let webhook = ValidatingWebhook::new(WEBHOOK, "workload.codeflare.dev", PLURAL, review);
        self.service.with(|server, _| server.validate_with(webhook));
    }

    async fn grant(&self, namespace: &str, kind: &str, name: &str, rules: Vec<Value>) {
        let rbac = "rbac.authorization.k8s.io";
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.put(&resource(&format!("{rbac}/v1"), "Role", "roles"), namespace, role).await;
        let binding = json!({
            "metadata": {"name": name}, "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": kind, "name": name}],
        });
        self.put(&resource(&format!("{rbac}/v1"), "RoleBinding", "rolebindings"), namespace, binding).await;
    }

    fn as_admin(&self) -> Client {
        Client::new(self.service.as_user(User::admin()), "default")
    }

    fn api(&self, user: User, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        let client = Client::new(self.service.as_user(user), "default");
        match namespace {
            "" => Api::all_with(client, resource),
            _ => Api::namespaced_with(client, namespace, resource),
        }
    }

    async fn put(&self, resource: &ApiResource, namespace: &str, object: Value) {
        let object = serde_json::from_value(object).unwrap();
        self.api(User::admin(), resource, namespace).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create(
        &self,
        user: User,
        namespace: &str,
        wrapper: &Value,
    ) -> Result<DynamicObject, kube::Error> {
        let object = serde_json::from_value(wrapper.clone()).unwrap();
        self.api(user, &wrappers(), namespace).create(&PostParams::default(), &object).await
    }
}

fn alice() -> User {
    User::new("alice", &[])
}

/// The message of the refusal.
fn refusal(result: Result<DynamicObject, kube::Error>) -> String {
    match result {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn an_author_can_wrap_only_what_the_author_may_create() {
    let cluster = Cluster::with_webhook().await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let job = object("batch/v1", "Job");
    let mut elsewhere = job.clone();
    elsewhere["metadata"]["namespace"] = json!("b");
    let mut binding = object(rbac, "RoleBinding");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"});
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "l"},
        "items": [job, object("apps/v1", "Deployment")]});
    let condensed = json!({"generictemplate": object("v1", "Secret")});
    let legacy = json!({"Items": [{"type": "Pod", "replicas": 2, "template": {"metadata": {"name": "x"}}}]});
    let cases = [
        ("another kind", wrapper(&[object("v1", "Secret")]), "create secrets in namespace a"),
        ("one of several", wrapper(&[job.clone(), object("v1", "Secret")]), "create secrets in namespace a"),
        ("in a list", wrapper(&[list]), "create deployments of apps in namespace a"),
        ("condensed", with_resources(&condensed), "create secrets in namespace a"),
        ("the early form", with_resources(&legacy), "create pods in namespace a"),
        (
            "the group of another kind",
            wrapper(&[object("apps/v1", "Job")]),
            "create all resources of apps in namespace a",
        ),
        ("another namespace", wrapper(&[elsewhere]), "create jobs of batch in namespace b"),
        (
            "a kind of the future",
            wrapper(&[object("example.com/v1", "Widget")]),
            "create all resources of example.com in namespace a",
        ),
        (
            "a role to bind",
            wrapper(&[binding]),
            "bind clusterroles of rbac.authorization.k8s.io admin in namespace a",
        ),
        (
            "a role to escalate",
            wrapper(&[object(rbac, "Role")]),
            "escalate roles of rbac.authorization.k8s.io in namespace a",
        ),
    ];
    for (name, attempt, expected) in cases {
        let message = refusal(cluster.create(alice(), "a", &attempt).await);
        let said = format!(
            "admission webhook \"{WEBHOOK}\" denied the request: user \"alice\" cannot {expected}, which the wrapped"
        );
        assert!(message.starts_with(&said), "{name}: {message}");
    }
}

#[tokio::test]
async fn groups_count_and_an_allowed_author_is_not_held_up() {
    let cluster = Cluster::with_webhook().await;
    let job = wrapper(&[object("batch/v1", "Job")]);
    cluster.create(User::new("carol", &["devs"]), "a", &job).await.unwrap();
    let message = refusal(cluster.create(User::new("carol", &[]), "a", &job).await);
    assert!(message.contains("cannot create resource \"appwrappers\""), "{message}");
    cluster.create(User::new("bob", &[]), "b", &wrapper(&[object("v1", "Secret")])).await.unwrap();
    cluster.create(User::admin(), "default", &wrapper(&[object("v1", "Secret")])).await.unwrap();
}

#[tokio::test]
async fn updates_and_patches_and_applies_are_checked_like_creations() {
    let cluster = Cluster::with_webhook().await;
    let api = cluster.api(alice(), &wrappers(), "a");
    cluster.create(alice(), "a", &wrapper(&[object("batch/v1", "Job")])).await.unwrap();
    let secret = wrapper(&[object("v1", "Secret")]);
    let params = PatchParams::apply("alice").force();
    let patches = [Patch::Merge(secret.clone()), Patch::Apply(secret.clone())];
    for patch in patches {
        let params = if matches!(patch, Patch::Merge(_)) { PatchParams::default() } else { params.clone() };
        let message = refusal(api.patch("aw", &params, &patch).await);
        assert!(message.contains("create secrets in namespace a"), "{message}");
    }
    let mut replaced = api.get("aw").await.unwrap();
    replaced.data["spec"] = secret["spec"].clone();
    let message = refusal(api.replace("aw", &PostParams::default(), &replaced).await);
    assert!(message.contains("create secrets in namespace a"), "{message}");
    let mut applied = secret;
    applied["metadata"]["name"] = json!("new");
    let message = refusal(api.patch("new", &params, &Patch::Apply(applied)).await);
    assert!(message.contains("create secrets in namespace a"), "{message}");
    // What was there is not checked again: rights may have been withdrawn since.
    cluster
        .create(User::admin(), "a", &{
            let mut other = wrapper(&[object("v1", "Secret")]);
            other["metadata"]["name"] = json!("of-admin");
            other
        })
        .await
        .unwrap();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}, "spec": {"priority": 1}}));
    api.patch("of-admin", &PatchParams::default(), &labels).await.unwrap();
    let stored = api.get("aw").await.unwrap();
    assert_eq!(stored.data["spec"]["resources"]["GenericItems"][0]["generictemplate"]["kind"], "Job");
}

#[tokio::test]
async fn a_webhook_that_is_down_refuses_app_wrappers_and_nothing_else() {
    let cluster = Cluster::new().await;
    let unreachable = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("cut off"))
    });
    let admission = Admission::new(Client::new(unreachable, "default"));
    cluster.review(move |review| {
        let admission = admission.clone();
        Box::pin(async move { admission.review(&review).await })
    });
    let message = refusal(cluster.create(alice(), "a", &wrapper(&[object("batch/v1", "Job")])).await);
    assert!(message.contains("the permissions of the author cannot be checked, try again"), "{message}");
    let secret = serde_json::from_value(object("v1", "Secret")).unwrap();
    let secrets = cluster.api(User::new("bob", &[]), &resource("v1", "Secret", "secrets"), "b");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn an_object_that_changes_during_its_review_is_reviewed_again() {
    let cluster = Cluster::new().await;
    cluster.create(alice(), "a", &wrapper(&[object("batch/v1", "Job")])).await.unwrap();
    let (service, reviews) = (cluster.service.clone(), Arc::new(AtomicU32::new(0)));
    let count = reviews.clone();
    cluster.review(move |review| {
        let (service, count) = (service.clone(), count.clone());
        Box::pin(async move {
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                let client = Client::new(service.as_user(User::admin()), "a");
                let patch = Patch::Merge(json!({"status": {"state": "Running"}}));
                let api: Api<DynamicObject> = Api::namespaced_with(client, "a", &wrappers());
                api.patch_status("aw", &PatchParams::default(), &patch).await.unwrap();
            }
            json!({"response": {"uid": review["request"]["uid"], "allowed": true}})
        })
    });
    let patch = Patch::Merge(json!({"spec": {"priority": 7}}));
    let written =
        cluster.api(alice(), &wrappers(), "a").patch("aw", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        (&written.data["spec"]["priority"], &written.data["status"]["state"]),
        (&json!(7), &json!("Running"))
    );
    assert_eq!(reviews.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_webhook_of_an_earlier_controller_is_removed() {
    let cluster = Cluster::new().await;
    let api_version = "admissionregistration.k8s.io/v1";
    let webhooks = resource(api_version, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    for name in ["muster", "other"] {
        let object = json!({"apiVersion": api_version, "kind": webhooks.kind, "metadata": {"name": name}});
        let object = serde_json::from_value(object).unwrap();
        let api: Api<DynamicObject> = Api::all_with(cluster.as_admin(), &webhooks);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    for _ in 0..2 {
        server::remove_webhook(&cluster.as_admin()).await.unwrap();
    }
    let left = Api::<DynamicObject>::all_with(cluster.as_admin(), &webhooks).list(&<_>::default()).await;
    let names: Vec<_> = left.unwrap().items.into_iter().filter_map(|object| object.metadata.name).collect();
    assert_eq!(names, ["other"]);
}
