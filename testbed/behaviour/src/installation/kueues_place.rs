//! The chart in the place of a running Kueue, with the steps of `docs/install.md`, and the way back. Kueue is that of its own
//! chart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::cluster::text;
use super::release::Release;
use super::{JOBS, PODS, Progress, TENANT};
use crate::objects;

const NAMESPACE: &str = "kueue-system";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIGURATIONS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kueue-validating-webhook-configuration",
];
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SECRET: &str = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert";
const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";

/// Runs the checks. `chart` is Kueue's.
pub(super) async fn run(release: &Release, chart: &Path, done: &Progress) -> Result<()> {
    let place = Release { namespace: NAMESPACE.to_owned(), ..release.clone() };
    place.kueue_by_helm("install", chart, &["--create-namespace"]).await?;
    place.queues("5").await?;
    place.submit("first").await?;
    place.running("first", 2).await?;
    place.submit("second").await?;
    place.running("second", 2).await?;
    let single = place.cluster.create(PODS, &queued(objects::pod("single", "cpu=1"))).await?;
    ensure!(!single["spec"]["schedulingGates"].is_null(), "Kueue's webhook does not hold a pod: {single}");
    place.pod_runs("single").await?;
    for name in ["third", "fourth"] {
        place.submit(name).await?;
    }
    place.prepare_racks().await?;
    place.submit_to_rack("whole", 2).await?;
    let whole = place.nodes_of("whole", 2).await?;
    place.submit_to_rack("half", 1).await?;
    let half = place.nodes_of("half", 1).await?;
    place.submit_to_rack("next", 2).await?;
    let before = place.installed().await?;
    place.versions().await?;
    done.say("Kueue runs Jobs, and others wait in its queue");

    place.install_muster().await?;
    place.waits_for_kueue().await?;
    place.is_kept(&before).await?;
    place.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
    place.is_kept(&before).await?;
    done.say("beside a Kueue that runs, Muster waits for its lease and says so");

    place.scale_kueue(0).await?;
    let authorities = place.authorities().await?;
    place.cluster.patch(SECRET, &json!({"data": null})).await?;
    place.install_muster().await?;
    place.ready(2).await?;
    place.muster_leads().await?;
    place.has_another_authority(&authorities).await?;
    place.is_kept(&before).await?;
    place.versions().await?;
    place.shows_what_waits("muster").await?;
    done.say("in Kueue's place, running Jobs run on, and definitions and configurations are Kueue's");
    place.admits(&before).await?;
    done.say("what waited is admitted in its order, and new Jobs and pods wait");
    ensure!(place.nodes_of("whole", 2).await? == whole, "pods in a rack have moved");
    ensure!(place.nodes_of("half", 1).await? == half, "a pod in a rack has moved");
    place.waits("next").await?;
    place.end("half").await?;
    let next = place.nodes_of("next", 2).await?;
    place.submit_to_rack("last", 2).await?;
    done.say("Jobs in racks stay where Kueue has put them, and the next one gets the rack that is free");
    place.refuses_an_impossible_queue().await?;
    place.deletes_a_namespace().await?;
    done.say("Kueue's webhooks are answered with a new certificate, and namespaces can be deleted");

    let before = place.installed().await?;
    place.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
    place.kueue_by_helm("upgrade", chart, &[]).await?;
    place.is_kept(&before).await?;
    place.versions().await?;
    place.shows_what_waits("kueue-visibility-server").await?;
    place.returns().await?;
    ensure!(place.nodes_of("next", 2).await? == next, "pods in a rack have moved");
    place.waits("last").await?;
    place.end("whole").await?;
    place.nodes_of("last", 2).await?;
    place.deletes_a_namespace().await?;
    place.nothing_is_registered().await?;
    place.no_object_is_left().await?;
    done.say("after the way back, Kueue admits what waited, and nothing of Muster is left");
    place.remove_kueue().await
}

/// An object in the queue.
pub(super) fn queued(mut object: Value) -> Value {
    object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q".into();
    object
}

/// Removes the authorities, which the controller in charge writes.
fn without_authorities(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.remove("caBundle");
        object.values_mut().for_each(without_authorities);
    }
    value.as_array_mut().into_iter().flatten().for_each(without_authorities);
}

/// The authorities in an object.
fn authorities(value: &Value, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        if key == "caBundle" {
            found.insert(text(value).to_owned());
        }
        authorities(value, found);
    }
    value.as_array().into_iter().flatten().for_each(|value| authorities(value, found));
}

/// What must not change.
struct Installed {
    /// Definitions and configurations, without authorities.
    objects: Vec<Value>,
    /// The pods of tenants that run, with their names.
    running: BTreeMap<String, String>,
}

impl Release {
    /// Installs Kueue, or brings back what is missing of its objects.
    async fn kueue_by_helm(&self, command: &str, chart: &Path, flags: &[&str]) -> Result<()> {
        let values = std::fs::read_to_string(chart.join("values.yaml"))?;
        let values: Value = serde_saphyr::from_str(&values)?;
        let configuration = text(&values["managerConfig"]["controllerManagerConfigYaml"]);
        let mut configuration: Value = serde_saphyr::from_str(configuration)?;
        // The node puts the address of the process in the place of 0.0.0.0.
        configuration["health"]["healthProbeBindAddress"] = "0.0.0.0:8081".into();
        configuration["metrics"]["bindAddress"] = "0.0.0.0:8443".into();
        configuration["visibilityServer"]["bindAddress"] = "0.0.0.0".into();
        let values = self.options.dir.join("kueue-values.json");
        let content = json!({"managerConfig": {"controllerManagerConfigYaml": configuration.to_string()}});
        std::fs::write(&values, content.to_string())?;
        let values = values.display().to_string();
        let flags: Vec<&str> = flags.iter().copied().chain(["--values", &values]).collect();
        self.helm(&[command, "kueue"], Some(chart), &flags).await?;
        self.kueue_is_ready().await
    }

    async fn kueue_pods(&self) -> Result<Vec<Value>> {
        let pods = self.cluster.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await?;
        Ok(pods
            .into_iter()
            .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/instance"] == "kueue")
            .filter(|pod| pod["metadata"]["labels"]["muster.dev/controller"].is_null())
            .collect())
    }

    async fn kueue_is_ready(&self) -> Result<()> {
        self.cluster
            .until("a ready Kueue", async || {
                let pods = self.kueue_pods().await?;
                let is_ready = |pod: &Value| self.node.is_ready(text(&pod["status"]["podIP"]));
                Ok((pods.len() == 1 && pods.iter().all(is_ready)).then_some(()))
            })
            .await
    }

    async fn scale_kueue(&self, replicas: usize) -> Result<()> {
        let path = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager/scale";
        self.cluster.patch(path, &json!({"spec": {"replicas": replicas}})).await?;
        self.cluster
            .until("the pods of Kueue", async || {
                Ok((self.kueue_pods().await?.len() == replicas).then_some(()))
            })
            .await
    }

    /// A queue with room for so many CPUs.
    pub(super) async fn queues(&self, cpus: &str) -> Result<()> {
        self.queue(["default", "all", "q"], json!({}), cpus).await
    }

    /// A flavor, a ClusterQueue with so many CPUs of it, and a LocalQueue, with these names.
    pub(super) async fn queue(&self, names: [&str; 3], flavor: Value, cpus: &str) -> Result<()> {
        let of = |kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
        };
        let [of_flavor, all, local] = names;
        let quota = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
            "flavors": [{"name": of_flavor, "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}]});
        let objects = [
            ("resourceflavors", of("ResourceFlavor", of_flavor, flavor)),
            ("clusterqueues", of("ClusterQueue", all, quota)),
            ("namespaces/team/localqueues", of("LocalQueue", local, json!({"clusterQueue": all}))),
        ];
        for (path, object) in objects {
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/{path}");
            // The Service leads to Kueue a moment after it is ready.
            self.cluster.until(&path, async || self.cluster.create(&path, &object).await.map(Some)).await?;
        }
        Ok(())
    }

    /// Creates a Job of two CPUs, which the webhook suspends. Its Workload is older than later ones: the API server counts
    /// whole seconds.
    async fn submit(&self, name: &str) -> Result<()> {
        let job = self.cluster.create(JOBS, &queued(objects::job(name, 2, "cpu=1", "10m"))).await?;
        ensure!(job["spec"]["suspend"] == true, "the webhook has not suspended the Job: {job}");
        let what = format!("the Workload of {name}");
        self.cluster
            .until(&what, async || {
                let workloads = self.cluster.list("/apis/kueue.x-k8s.io/v1beta2/workloads").await?;
                let owner = |workload: &Value| workload["metadata"]["ownerReferences"][0]["name"] == name;
                let created = workloads
                    .iter()
                    .find(|of| owner(of))
                    .map(|of| text(&of["metadata"]["creationTimestamp"]));
                let created: Option<jiff::Timestamp> = created.map(str::parse).transpose()?;
                Ok(created
                    .is_some_and(|at| at.as_second() < jiff::Timestamp::now().as_second())
                    .then_some(()))
            })
            .await
    }

    async fn pod_runs(&self, name: &str) -> Result<()> {
        let path = format!("{PODS}/{name}");
        self.cluster
            .until(&format!("pod {name}"), async || {
                let pod = self.cluster.get(&path).await?.unwrap_or_default();
                Ok((pod["status"]["phase"] == "Running").then_some(()))
            })
            .await
    }

    /// Both versions can be read.
    async fn versions(&self) -> Result<()> {
        for version in ["v1beta1", "v1beta2"] {
            let queues = self.cluster.get(&format!("/apis/kueue.x-k8s.io/{version}/clusterqueues")).await?;
            let queues = queues.context("a version is not served")?;
            ensure!(queues["items"].as_array().is_some_and(|items| items.len() == 2), "{version}: {queues}");
        }
        Ok(())
    }

    /// Kueue's visibility API lists what waits in the queue, in both versions, and is served by this Service.
    async fn shows_what_waits(&self, service: &str) -> Result<()> {
        let queue = self.cluster.get(&format!("{QUEUES}/all")).await?.unwrap_or_default();
        let waiting = queue["status"]["pendingWorkloads"].as_u64().unwrap_or_default();
        for version in ["v1beta1", "v1beta2"] {
            let path = format!("{API_SERVICES}/{version}.visibility.kueue.x-k8s.io");
            self.cluster
                .until(&format!("{path} of {service}"), async || {
                    let found = self.cluster.get(&path).await?.unwrap_or_default();
                    Ok((found["spec"]["service"]["name"] == service).then_some(()))
                })
                .await?;
            let path =
                format!("/apis/visibility.kueue.x-k8s.io/{version}/clusterqueues/all/pendingworkloads");
            self.cluster
                .until(&format!("{waiting} Workloads at {path}"), async || {
                    let found = self.cluster.get(&path).await?.unwrap_or_default();
                    let count = found["items"].as_array().map_or(0, Vec::len);
                    Ok((waiting > 0 && count as u64 == waiting).then_some(()))
                })
                .await?;
        }
        Ok(())
    }

    /// With the flags of `docs/install.md`.
    async fn install_muster(&self) -> Result<()> {
        let flags = [
            "--set",
            "appWrappers.enabled=false",
            "--set",
            "kueue.enabled=true",
            "--set",
            "kueue.inPlace=true",
            "--set",
            "kueue.jobs={batch/job,pod}",
            "--set",
            "podLabels.app\\.kubernetes\\.io/instance=kueue",
        ];
        self.helm(&["install", "muster"], Some(&self.options.chart), &flags).await.map(drop)
    }

    async fn holder(&self) -> Result<String> {
        let lease = self.cluster.get(LEASE).await?.unwrap_or_default();
        Ok(text(&lease["spec"]["holderIdentity"]).to_owned())
    }

    async fn waits_for_kueue(&self) -> Result<()> {
        let holder = self.holder().await?;
        let replicas = self.ready(2).await?;
        for replica in replicas {
            let log = self.options.dir.join(&replica).join("log");
            self.cluster
                .until(&format!("{replica} says that it waits"), async || {
                    let log = std::fs::read_to_string(&log)?;
                    Ok(log.contains(&holder).then_some(()))
                })
                .await?;
        }
        self.submit("beside").await?;
        self.cluster.delete(&format!("{JOBS}/beside?propagationPolicy=Background")).await?;
        ensure!(self.holder().await? == holder, "Kueue has lost its lease");
        Ok(())
    }

    async fn muster_leads(&self) -> Result<()> {
        let replicas = self.ready(2).await?;
        self.cluster
            .until("a replica with Kueue's lease", async || {
                let holder = self.holder().await?;
                Ok(replicas.iter().any(|replica| holder.starts_with(replica)).then_some(()))
            })
            .await
    }

    /// Kueue's definitions and webhook configurations.
    async fn registered(&self) -> Result<Vec<Value>> {
        let definitions = self.cluster.list(DEFINITIONS).await?;
        let definitions = definitions.into_iter().filter(|of| of["spec"]["group"] == "kueue.x-k8s.io");
        let mut found: Vec<_> = definitions.collect();
        for path in CONFIGURATIONS {
            found.push(self.cluster.get(path).await?.with_context(|| format!("{path} is gone"))?);
        }
        Ok(found)
    }

    /// The authorities of webhooks and conversions.
    async fn authorities(&self) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for object in self.registered().await? {
            authorities(&object, &mut found);
        }
        Ok(found)
    }

    async fn installed(&self) -> Result<Installed> {
        let mut objects = Vec::new();
        for object in self.registered().await? {
            let meta = &object["metadata"];
            let mut kept = json!({"name": meta["name"], "uid": meta["uid"], "labels": meta["labels"],
                "spec": object["spec"], "webhooks": object["webhooks"]});
            without_authorities(&mut kept);
            objects.push(kept);
        }
        let pods = self.cluster.list(PODS).await?;
        let running = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running")
            .map(|pod| (text(&pod["metadata"]["uid"]).to_owned(), text(&pod["metadata"]["name"]).to_owned()));
        Ok(Installed { objects, running: running.collect() })
    }

    /// Whether the pods run on, and Kueue's objects are the same.
    async fn is_kept(&self, before: &Installed) -> Result<()> {
        let now = self.installed().await?;
        ensure!(now.running == before.running, "{:?} ran, now {:?} run", before.running, now.running);
        for (before, now) in before.objects.iter().zip(&now.objects) {
            ensure!(before == now, "an object of Kueue is another one: {before}, now {now}");
        }
        ensure!(now.objects.len() == before.objects.len(), "the number of Kueue's objects has changed");
        Ok(())
    }

    async fn waits(&self, name: &str) -> Result<()> {
        let job = self.cluster.get(&format!("{JOBS}/{name}")).await?.unwrap_or_default();
        ensure!(job["spec"]["suspend"] == true, "{name} does not wait: {job}");
        Ok(())
    }

    async fn end(&self, name: &str) -> Result<()> {
        self.cluster.delete(&format!("{JOBS}/{name}?propagationPolicy=Background")).await
    }

    /// Quota is released, and goes to the Job that has waited longest.
    async fn admits(&self, before: &Installed) -> Result<()> {
        self.submit("fifth").await?;
        self.end("first").await?;
        self.running("third", 2).await?;
        for name in ["fourth", "fifth"] {
            self.waits(name).await?;
        }
        let pod = self.cluster.create(PODS, &queued(objects::pod("later", "cpu=1"))).await?;
        ensure!(!pod["spec"]["schedulingGates"].is_null(), "the pod does not wait in its queue: {pod}");
        self.cluster.delete(&format!("{PODS}/single")).await?;
        // The pod fits beside the Jobs, which are too large.
        self.pod_runs("later").await?;
        let now = self.installed().await?;
        let second = before.running.iter().filter(|(_, name)| name.starts_with("second"));
        for (uid, name) in second {
            ensure!(now.running.contains_key(uid), "{name} was restarted");
        }
        // Objects without a queue are created as they are.
        self.cluster.create(PODS, &objects::pod("free", "cpu=1")).await?;
        self.pod_runs("free").await?;
        let deployment = objects::deployment("free", 1, "cpu=1");
        self.cluster.create("/apis/apps/v1/namespaces/team/deployments", &deployment).await?;
        self.cluster.delete("/apis/apps/v1/namespaces/team/deployments/free").await?;
        self.cluster.delete(&format!("{PODS}/free")).await
    }

    /// Without a valid certificate of Kueue, the leader makes one, and registers its authority everywhere. Kueue finds it when
    /// it returns.
    async fn has_another_authority(&self, before: &BTreeSet<String>) -> Result<()> {
        ensure!(before.len() == 1, "there are {} authorities", before.len());
        self.cluster
            .until("another authority", async || {
                let now = self.authorities().await?;
                Ok((now.len() == 1 && now != *before).then_some(()))
            })
            .await
    }

    async fn refuses_an_impossible_queue(&self) -> Result<()> {
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "bad"},
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default",
                "resources": [{"name": "memory", "nominalQuota": "5"}]}]}]}});
        let created = self.cluster.create(QUEUES, &queue).await;
        ensure!(created.is_err(), "an impossible queue was created");
        Ok(())
    }

    /// An aggregated API that nobody serves would hold it for ever.
    async fn deletes_a_namespace(&self) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short-lived"}});
        self.cluster.create("/api/v1/namespaces", &namespace).await?;
        self.cluster.delete("/api/v1/namespaces/short-lived").await?;
        self.cluster
            .until("a namespace that is gone", async || {
                match self.cluster.get("/api/v1/namespaces/short-lived").await? {
                    None => Ok(Some(())),
                    Some(namespace) => anyhow::bail!("{}", namespace["status"]),
                }
            })
            .await
    }

    /// Kueue works as before, with what Muster has admitted and with what waits.
    async fn returns(&self) -> Result<()> {
        // The Service leads to Kueue a moment after it is ready.
        self.cluster.until("a Job under Kueue", async || self.submit("sixth").await.map(Some)).await?;
        self.end("second").await?;
        self.running("fourth", 2).await?;
        for name in ["fifth", "sixth"] {
            self.waits(name).await?;
        }
        self.end("third").await?;
        self.running("fifth", 2).await
    }

    /// What the chart and the leader have created is gone.
    async fn no_object_is_left(&self) -> Result<()> {
        for kind in ["secrets", "services", "configmaps", "serviceaccounts", "pods"] {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/{kind}");
            for object in self.cluster.list(&path).await? {
                let name = text(&object["metadata"]["name"]);
                ensure!(!name.contains("muster"), "{kind} {name} is left");
            }
        }
        Ok(())
    }

    /// Nothing of Kueue is left for later checks.
    async fn remove_kueue(&self) -> Result<()> {
        for path in [JOBS, PODS] {
            for object in self.cluster.list(path).await? {
                let name = text(&object["metadata"]["name"]);
                self.cluster.delete(&format!("{path}/{name}?propagationPolicy=Background")).await?;
            }
        }
        let gone = async |path: &str| {
            self.cluster
                .until(&format!("the end of {path}"), async || {
                    Ok(self.cluster.list(path).await?.is_empty().then_some(()))
                })
                .await
        };
        gone(PODS).await?;
        gone("/apis/kueue.x-k8s.io/v1beta2/workloads").await?;
        self.remove_racks().await?;
        for (path, name) in [
            (format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{TENANT}/localqueues"), "q"),
            (QUEUES.to_owned(), "all"),
            ("/apis/kueue.x-k8s.io/v1beta2/resourceflavors".to_owned(), "default"),
        ] {
            self.cluster.delete(&format!("{path}/{name}")).await?;
            gone(&path).await?;
        }
        self.helm(&["uninstall", "kueue"], None, &[]).await.map(drop)
    }
}
