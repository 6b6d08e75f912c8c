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

fn list_of(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "l"}, "items": items})
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
        controllers::install_crds(
            cluster.as_admin(),
            &[Group::Codeflare],
            api::appwrapper::Columns::default(),
        )
        .await
        .unwrap();
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
    let mut inner = wrapper(&[object("v1", "Secret")]);
    inner["metadata"]["name"] = json!("inner");
    let nested = wrapper(&[wrapper(&[job.clone(), inner])]);
    let mut generated = object("v1", "Secret");
    generated["metadata"] = json!({"generateName": "x-"});
    let list = list_of(&[job.clone(), object("apps/v1", "Deployment")]);
    let condensed = json!({"generictemplate": object("v1", "Secret")});
    let legacy = json!({"Items": [{"type": "Pod", "replicas": 2, "template": {"metadata": {"name": "x"}}}]});
    let cases = [
        ("another kind", wrapper(&[object("v1", "Secret")]), "create secrets in namespace a"),
        ("one of several", wrapper(&[job.clone(), object("v1", "Secret")]), "create secrets in namespace a"),
        ("in a list", wrapper(&[list]), "create deployments of apps in namespace a"),
        ("in an AppWrapper in an AppWrapper", nested, "create secrets in namespace a"),
        ("with a generated name", wrapper(&[generated]), "create secrets in namespace a"),
        ("cluster-scoped", wrapper(&[object("v1", "Namespace")]), "create namespaces in the cluster"),
        (
            "a path instead of a version",
            wrapper(&[list_of(&[object("v1/namespaces/kube-system/secrets?x=", "List")])]),
            "create all resources of v1 in namespace a",
        ),
        (
            "no version at all",
            wrapper(&[list_of(&[object("\u{0}/../\u{1F980} ", "Job")])]),
            "create all resources of \u{0} in namespace a",
        ),
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
async fn an_author_of_everything_in_a_namespace_is_no_author_of_the_cluster() {
    let cluster = Cluster::with_webhook().await;
    cluster.grant("a", "User", "chief", vec![rule("*", "*", &["*"])]).await;
    let chief = || User::new("chief", &[]);
    let rbac = "rbac.authorization.k8s.io/v1";
    for (kind, plural) in
        [(object("v1", "Namespace"), "namespaces"), (object(rbac, "ClusterRole"), "clusterroles")]
    {
        let message = refusal(cluster.create(chief(), "a", &wrapper(&[kind])).await);
        assert!(
            message.contains(&format!("create {plural}")) && message.contains("in the cluster"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn only_the_controller_writes_a_status_where_the_crd_has_no_status_subresource() {
    let cluster = Cluster::with_webhook().await;
    let crds = resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    let crds = cluster.api(User::admin(), &crds, "");
    let name = "appwrappers.workload.codeflare.dev";
    let patch = json!([{"op": "remove", "path": "/spec/versions/0/subresources"}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    crds.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let mut forged = wrapper(&[object("batch/v1", "Job")]);
    forged["status"] = json!({"state": "Running", "canrun": true});
    let refused = "user \"alice\" cannot write the status of an AppWrapper";
    let message = refusal(cluster.create(alice(), "a", &forged).await);
    assert!(message.contains(refused), "{message}");
    cluster.create(alice(), "a", &wrapper(&[object("batch/v1", "Job")])).await.unwrap();
    let status = Patch::Merge(json!({"status": {"state": "Running"}}));
    let patch =
        async |user| cluster.api(user, &wrappers(), "a").patch("aw", &PatchParams::default(), &status).await;
    let message = refusal(patch(alice()).await);
    assert!(message.contains(refused), "{message}");
    patch(User::admin()).await.unwrap();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}, "spec": {"priority": 1}}));
    let api = cluster.api(alice(), &wrappers(), "a");
    api.patch("aw", &PatchParams::default(), &labels).await.unwrap();
}

#[tokio::test]
async fn a_route_with_a_host_needs_the_permission_for_hosts() {
    let cluster = Cluster::with_webhook().await;
    let routes = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "routes.route.openshift.io"},
        "spec": {"group": "route.openshift.io", "scope": "Namespaced",
            "names": {"plural": "routes", "singular": "route", "kind": "Route", "listKind": "RouteList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let crds = resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    cluster.put(&crds, "", routes).await;
    cluster
        .grant(
            "a",
            "User",
            "dora",
            vec![
                rule("workload.codeflare.dev", "appwrappers", &["create"]),
                rule("route.openshift.io", "routes", &["create"]),
            ],
        )
        .await;
    let route = |spec: Value| {
        let mut route = object("route.openshift.io/v1", "Route");
        route["spec"] = spec;
        wrapper(&[route])
    };
    let dora = || User::new("dora", &[]);
    for spec in [json!({"host": "bank.example.com"}), json!({"tls": {"key": "k"}})] {
        let message = refusal(cluster.create(dora(), "a", &route(spec)).await);
        let expected = "cannot create routes/custom-host of route.openshift.io in namespace a";
        assert!(message.contains(expected), "{message}");
    }
    let plain = json!({"to": {"kind": "Service", "name": "s"}, "tls": {"termination": "edge"}});
    cluster.create(dora(), "a", &route(plain)).await.unwrap();
}

#[tokio::test]
async fn a_thousand_items_cost_one_access_review() {
    let cluster = Cluster::new().await;
    let (service, requests) = (cluster.service.as_user(User::admin()), Arc::new(AtomicU32::new(0)));
    let count = requests.clone();
    let counted = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        tower::ServiceExt::oneshot(service.clone(), request)
    });
    let admission = Admission::new(Client::new(counted, "default"));
    let jobs = |count: usize| {
        let job = |number| {
            let mut job = object("batch/v1", "Job");
            job["metadata"]["name"] = json!(format!("job-{number}"));
            job
        };
        wrapper(&(0..count).map(job).collect::<Vec<_>>())
    };
    let review = |object: Value, old: Value| {
        json!({"request": {"uid": "u", "namespace": "a",
        "userInfo": {"username": "alice"}, "object": object, "oldObject": old}})
    };
    let allowed = admission.review(&review(jobs(1_000), Value::Null)).await;
    assert_eq!((&allowed["response"]["allowed"], requests.swap(0, Ordering::Relaxed)), (&json!(true), 2));
    let allowed = admission.review(&review(jobs(1_000), jobs(1_000))).await;
    assert_eq!((&allowed["response"]["allowed"], requests.swap(0, Ordering::Relaxed)), (&json!(true), 0));
    // More than the controller accepts: it creates nothing of it.
    let allowed = admission.review(&review(jobs(10_000), Value::Null)).await;
    assert_eq!((&allowed["response"]["allowed"], requests.load(Ordering::Relaxed)), (&json!(true), 0));
    // Many kinds that do not exist: the first refusal ends it.
    let odd: Vec<Value> = (0..1_000).map(|number| object(&format!("g{number}.com/v1"), "X")).collect();
    let refused = admission.review(&review(wrapper(&odd), Value::Null)).await;
    assert_eq!(refused["response"]["allowed"], false);
    assert!(requests.load(Ordering::Relaxed) < 40, "{requests:?}");
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
