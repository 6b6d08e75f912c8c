//! What a RayJob makes: its cluster, its submitter, its Service.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::containers::{list, map};
use super::types::{RayCluster, RayJob};
use crate::wire::Owner;

/// Name of the container that submits.
pub(super) const SUBMITTER: &str = "ray-job-submitter";
/// Annotations on the job that its submitter obeys: those of the sandbox.
const OBEYED: &str = "sandbox.muster.dev/";

fn originated(job: &RayJob) -> BTreeMap<&'static str, String> {
    [
        ("app.kubernetes.io/created-by", "kuberay-operator".to_owned()),
        ("ray.io/originated-from-cr-name", job.metadata.name.clone()),
        ("ray.io/originated-from-crd", "RayJob".to_owned()),
    ]
    .into()
}

fn mode(job: &RayJob) -> &str {
    match job.spec.submission_mode.as_str() {
        "" => "K8sJobMode",
        mode => mode,
    }
}

/// The cluster of the job.
pub(super) fn cluster(job: &RayJob, name: &str) -> Value {
    let mut labels: BTreeMap<&str, String> =
        job.metadata.labels.iter().map(|(label, value)| (label.as_str(), value.clone())).collect();
    labels.extend(originated(job));
    labels.remove("app.kubernetes.io/created-by");
    labels.insert("ray.io/job-submission-mode", mode(job).to_owned());
    let mut annotations = job.metadata.annotations.clone();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    let mut spec = job.spec.ray_cluster_spec.clone();
    if mode(job) == "SidecarMode" {
        let template = &mut spec["headGroupSpec"]["template"];
        let mut container = container(job, &template["spec"]["containers"][0]["image"].clone());
        container["args"] = json!([command(job, "127.0.0.1:8265")]);
        list(&mut template["spec"], "containers").push(container);
        template["spec"]["restartPolicy"] = json!("Never");
        obey(job, &mut template["metadata"], true);
    }
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayJob", &job.metadata)],
        },
        "spec": spec,
    })
}

/// The Job that submits.
pub(super) fn submitter(job: &RayJob, cluster: &RayCluster) -> Value {
    let head = &cluster.spec.head_group_spec.template["spec"]["containers"][0]["image"];
    let mut template = job.spec.submitter_pod_template.clone();
    if template["spec"]["containers"][0].is_null() {
        template = json!({ "metadata": {}, "spec": { "containers": [container(job, head)], "restartPolicy": "Never" } });
    }
    let address = job.status.dashboard_url.clone().unwrap_or_default();
    let first = &mut template["spec"]["containers"][0];
    if first["command"].is_null() {
        first["command"] = json!(["/bin/bash", "-ce", "--"]);
        first["args"] = json!([command(job, &address)]);
    }
    let env = list(first, "env");
    for (name, value) in [
        ("PYTHONUNBUFFERED", "1"),
        ("RAY_DASHBOARD_ADDRESS", &address),
        ("RAY_JOB_SUBMISSION_ID", job.status.job_id.as_deref().unwrap_or_default()),
    ] {
        if !env.iter().any(|given| given["name"] == name) {
            env.push(json!({ "name": name, "value": value }));
        }
    }
    obey(job, &mut template["metadata"], false);
    let labels = map(&mut template["metadata"], "labels");
    for (label, value) in originated(job) {
        labels.insert(label.to_owned(), json!(value));
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": originated(job),
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayJob", &job.metadata)],
        },
        "spec": {
            "backoffLimit": job.spec.submitter_config["backoffLimit"].as_i64().unwrap_or(2),
            "template": template,
        },
    })
}

/// Hands the sandbox's annotations of the job on to the pod that submits.
fn obey(job: &RayJob, meta: &mut Value, in_head: bool) {
    let annotations = map(meta, "annotations");
    for (name, value) in job.metadata.annotations.iter().filter(|(name, _)| name.starts_with(OBEYED)) {
        let named = in_head && name.ends_with("/fail") && !value.contains("container=");
        let value = if named { format!("{value},container={SUBMITTER}") } else { value.clone() };
        annotations.entry(name).or_insert(json!(value));
    }
}

fn container(job: &RayJob, image: &Value) -> Value {
    let _ = job;
    json!({
        "name": SUBMITTER,
        "image": image,
        "command": ["/bin/bash", "-ce", "--"],
        "resources": {
            "requests": { "cpu": "500m", "memory": "200Mi" },
            "limits": { "cpu": "1", "memory": "1Gi" },
        },
    })
}

/// Submits unless Ray knows the job, then follows it.
fn command(job: &RayJob, address: &str) -> String {
    let id = job.status.job_id.as_deref().unwrap_or_default();
    let url = format!("http://{address}");
    let spec = &job.spec;
    let mut options = String::new();
    if !spec.runtime_env_yaml.is_empty() {
        let environment: Value = serde_saphyr::from_str(&spec.runtime_env_yaml).unwrap_or_default();
        options.extend([" --runtime-env-json ", &quoted(&environment.to_string())]);
    }
    if !spec.metadata.is_empty() {
        options.extend([" --metadata-json ", &quoted(&json!(spec.metadata).to_string())]);
    }
    for (flag, amount) in
        [("--entrypoint-num-cpus", &spec.entrypoint_cpus), ("--entrypoint-num-gpus", &spec.entrypoint_gpus)]
    {
        if amount.as_f64().is_some_and(|amount| amount > 0.0) {
            options.extend([" ", flag, " ", &amount.to_string()]);
        }
    }
    if !spec.entrypoint_resources.is_empty() {
        options.extend([" --entrypoint-resources ", &quoted(&spec.entrypoint_resources)]);
    }
    let entrypoint = spec.entrypoint.trim_end();
    format!(
        "if ! ray job status --address {url} {id} >/dev/null 2>&1 ; then \
         ray job submit --address {url} --no-wait --submission-id {id}{options} -- {entrypoint} ; fi ; \
         ray job logs --address {url} --follow {id}"
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
