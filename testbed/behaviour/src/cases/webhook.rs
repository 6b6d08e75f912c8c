//! The webhook of several replicas, as the API server calls it over HTTPS: for controllers that are processes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::tenants::LONG;
use crate::balancer::{Balancer, free_port};
use crate::environment::{Controller, Flags, LeaderElection, Review};
use crate::fixture::{Fixture, WEBHOOK};
use crate::objects::{CONFIG_MAP, JOB, WRAPPER, config_map, job, wrap};

/// The certificate of the replicas.
const SECRET: &str = "/api/v1/namespaces/muster/secrets/muster-certificate";

/// Two replicas behind one Service.
struct Replicas {
    first: Box<dyn Controller>,
    second: Box<dyn Controller>,
    _balancer: Balancer,
}

impl Replicas {
    async fn start(fixture: &Fixture<'_>, certificate_life: Duration) -> Result<Self> {
        fixture.controller().kill().await?;
        let ports = [free_port().await?, free_port().await?];
        let balancer = Balancer::start(ports.to_vec()).await?;
        let reviewing = |port| Flags {
            leader_election: LeaderElection::Enabled,
            review: Some(Review { port, service_port: balancer.port, certificate_life }),
            ..Flags::default()
        };
        let first = fixture.controller().replica(reviewing(ports[0])).await?;
        let second = fixture.controller().replica(reviewing(ports[1])).await?;
        first.start().await?;
        fixture.eventually("a refusal of the webhook", async || Ok(refusal(fixture, "probe").await?)).await?;
        second.start().await?;
        Ok(Self { first, second, _balancer: balancer })
    }
}

/// The refusal of what a user without rights to it wraps, in a dry run.
async fn refusal(fixture: &Fixture<'_>, name: &str) -> Result<Option<String>> {
    let wrapper = wrap(name, [json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})]);
    let path = format!("{}?dryRun=All", fixture.path(WRAPPER, ""));
    let sent = fixture.call_as(AUTHOR, "POST", &path, ("application/json", &wrapper)).await?;
    Ok(sent.err().filter(|message| message.contains("cannot create secrets")))
}

/// May write AppWrappers, and nothing else.
const AUTHOR: &str = "author";

async fn allow_author(fixture: &Fixture<'_>) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": AUTHOR}, "rules": [
        {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["create"]}]});
    let binding = json!({"metadata": {"name": AUTHOR}, "roleRef": {"apiGroup": rbac, "kind": "Role", "name": AUTHOR},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": AUTHOR}]});
    let path = format!("/apis/{rbac}/v1/namespaces/{}", fixture.namespace());
    fixture.call("POST", &format!("{path}/roles"), Some(&role)).await?;
    fixture.call("POST", &format!("{path}/rolebindings"), Some(&binding)).await?;
    Ok(())
}

/// Writers that create AppWrappers one after the other, and try to wrap what they may not.
struct Load<'a> {
    fixture: &'a Fixture<'a>,
    created: usize,
    failed: Vec<String>,
    certificates: BTreeSet<String>,
}

impl Load<'_> {
    /// Creates AppWrappers until this many certificates were served in all.
    async fn until(&mut self, certificates: usize) -> Result<()> {
        let mut rounds = 0;
        while self.certificates.len() < certificates {
            rounds += 1;
            ensure!(
                rounds < 20_000,
                "{} certificates after {} AppWrappers",
                self.certificates.len(),
                self.created
            );
            self.round().await?;
        }
        Ok(())
    }

    async fn round(&mut self) -> Result<()> {
        let names: Vec<String> = (0..4).map(|at| format!("load-{}", self.created + at)).collect();
        let path = format!("{}?dryRun=All", self.fixture.path(WRAPPER, ""));
        let wrappers: Vec<Value> = names.iter().map(|name| wrap(name, [config_map(name)])).collect();
        let creations = wrappers.iter().map(|wrapper| self.fixture.call("POST", &path, Some(wrapper)));
        let failed = futures::future::join_all(creations).await.into_iter().filter_map(Result::err);
        self.failed.extend(failed.map(|error| format!("{error:#}")));
        self.created += names.len();
        if refusal(self.fixture, "unchecked").await?.is_none() {
            self.failed.push("an AppWrapper was not reviewed".into());
        }
        let secret = self.fixture.call("GET", SECRET, None).await?;
        self.certificates.insert(secret["data"]["tls.crt"].to_string());
        Ok(())
    }
}

pub(super) async fn renewed_certificates_and_a_new_leader_hold_up_no_author(
    fixture: &Fixture<'_>,
) -> Result<()> {
    allow_author(fixture).await?;
    let replicas = Replicas::start(fixture, Duration::from_secs(18)).await?;
    let mut load = Load { fixture, created: 0, failed: Vec::new(), certificates: BTreeSet::new() };
    load.until(3).await?;
    ensure!(load.failed.is_empty(), "of {} creations failed {:?}", load.created, load.failed);
    // The leader ends; the other replica answers before and after it leads.
    replicas.first.terminate().await?;
    load.until(5).await?;
    ensure!(load.failed.is_empty(), "of {} creations failed {:?} after SIGTERM", load.created, load.failed);
    // The leader is killed: requests that it had received are lost, and refused by the failure policy.
    replicas.first.start().await?;
    load.until(6).await?;
    replicas.second.kill().await?;
    load.until(8).await?;
    ensure!(load.failed.len() <= 5, "of {} creations failed {:?} after a kill", load.created, load.failed);
    let bundle =
        |object: &Value| object["webhooks"][0]["clientConfig"]["caBundle"].as_str().map_or(0, str::len);
    ensure!(
        bundle(&fixture.call("GET", WEBHOOK, None).await?) > 1_000,
        "caBundle has the old and the new authority"
    );
    eprintln!(
        "        {} creations, {} certificates, lost with the kill: {:?}",
        load.created,
        load.certificates.len(),
        load.failed
    );
    Ok(())
}

pub(super) async fn without_a_replica_only_app_wrappers_are_refused(fixture: &Fixture<'_>) -> Result<()> {
    allow_author(fixture).await?;
    let replicas = Replicas::start(fixture, LONG).await?;
    fixture.submit([wrap("before", [job("before", 1, "cpu=100", "1h")])]).await?;
    replicas.first.kill().await?;
    replicas.second.kill().await?;
    let message = fixture.rejection(&wrap("after", [config_map("after")])).await?;
    ensure!(message.contains("failed calling webhook \"appwrappers.muster.dev\""), "{message}");
    fixture.submit([config_map("free"), job("free", 1, "cpu=1", "1h")]).await?;
    for kind in [CONFIG_MAP, JOB] {
        fixture.patch(kind, "free", &json!({"metadata": {"labels": {"a": "b"}}})).await?;
        fixture.delete(kind, "free").await?;
    }
    // Labels, the status and the deletion of an AppWrapper need no review.
    fixture.patch(WRAPPER, "before", &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    let status = format!("{}/status", fixture.path(WRAPPER, "before"));
    fixture.call("PATCH", &status, Some(&json!({"status": {"message": "by hand"}}))).await?;
    let spec = fixture.patch(WRAPPER, "before", &json!({"spec": {"priority": 3}})).await;
    ensure!(spec.is_err(), "a changed spec was not reviewed");
    fixture.delete(WRAPPER, "before").await?;
    replicas.second.start().await?;
    fixture
        .eventually("the webhook of the replica that was started again", async || {
            let dry = format!("{}?dryRun=All", fixture.path(WRAPPER, ""));
            Ok(fixture.call("POST", &dry, Some(&wrap("after", [config_map("after")]))).await.ok())
        })
        .await?;
    Ok(())
}
