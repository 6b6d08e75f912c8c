//! Objects that a RayJob creates: its RayCluster and its submitter Job.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::auth;
use super::containers::{list, map};
use super::types::{RayCluster, RayJob};
use crate::wire::Owner;

/// The shell of the submitter, which exits at the first error.
const SHELL: [&str; 3] = ["/bin/bash", "-ce", "--"];
/// Name of the submitter container.
pub(super) const SUBMITTER: &str = "ray-job-submitter";
/// Prefix of the annotations of a RayJob that are copied to the pod of its submitter.
const SANDBOX_PREFIX: &str = "sandbox.muster.dev/";

fn originated(job: &RayJob) -> [(&'static str, String); 3] {
    [
        ("app.kubernetes.io/created-by", "kuberay-operator".to_owned()),
        ("ray.io/originated-from-cr-name", job.metadata.name.clone()),
        ("ray.io/originated-from-crd", "RayJob".to_owned()),
    ]
}

fn mode(job: &RayJob) -> &str {
    match job.spec.submission_mode.as_str() {
        "" => "K8sJobMode",
        mode => mode,
    }
}

/// The RayCluster of the job.
pub(super) fn cluster(job: &RayJob, name: &str) -> Value {
    let mut labels: BTreeMap<&str, String> =
        job.metadata.labels.iter().map(|(label, value)| (label.as_str(), value.clone())).collect();
    let [_, name_label, kind_label] = originated(job);
    labels.extend([name_label, kind_label]);
    labels.insert("ray.io/job-submission-mode", mode(job).to_owned());
    let mut annotations = job.metadata.annotations.clone();
    let mut spec = job.spec.ray_cluster_spec.clone();
    write_empty_objects(&mut spec);
    if mode(job) == "SidecarMode" {
        let template = &mut spec["headGroupSpec"]["template"];
        let head = template["spec"]["containers"][0].clone();
        let ports = head["ports"].as_array().into_iter().flatten();
        let dashboard =
            ports.filter(|port| port["name"] == "dashboard").find_map(|port| port["containerPort"].as_u64());
        let mut container = container(&head["image"]);
        container["command"] = json!(SHELL);
        container["args"] = json!([command(job, &format!("127.0.0.1:{}", dashboard.unwrap_or(8265)))]);
        add_job_environment(job, &mut container);
        annotations.insert("ray.io/disable-provisioned-head-restart".to_owned(), "true".to_owned());
        list(&mut template["spec"], "containers").push(container);
        template["spec"]["restartPolicy"] = json!("Never");
        copy_sandbox_annotations(job, &mut template["metadata"], true);
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

/// Adds the empty objects that Go's encoder writes for unset fields.
fn write_empty_objects(spec: &mut Value) {
    let object = |parent: &mut Value, field: &str| {
        map(parent, field);
    };
    let head = &mut spec["headGroupSpec"];
    object(&mut head["template"], "metadata");
    if head["headService"].is_object() {
        object(&mut head["headService"], "metadata");
        object(&mut head["headService"], "spec");
        object(&mut head["headService"]["status"], "loadBalancer");
    }
    for group in spec["workerGroupSpecs"].as_array_mut().into_iter().flatten() {
        object(&mut group["template"], "metadata");
        object(group, "scaleStrategy");
    }
}

/// The submitter Job.
pub(super) fn submitter(job: &RayJob, cluster: &RayCluster) -> Value {
    let head = &cluster.spec.head_group_spec.template["spec"]["containers"][0]["image"];
    let mut template = job.spec.submitter_pod_template.clone();
    if template["spec"]["containers"][0].is_null() {
        template =
            json!({ "metadata": {}, "spec": { "containers": [container(head)], "restartPolicy": "Never" } });
    }
    let address = job.status.dashboard_url.clone().unwrap_or_default();
    let first = &mut template["spec"]["containers"][0];
    if first["command"].is_null() {
        first["command"] = json!(SHELL);
        first["args"] = json!([command(job, &address)]);
    }
    add_job_environment(job, first);
    auth::add_environment(cluster, first);
    copy_sandbox_annotations(job, &mut template["metadata"], false);
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
            "labels": BTreeMap::from(originated(job)),
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayJob", &job.metadata)],
        },
        "spec": {
            "backoffLimit": job.spec.submitter_config["backoffLimit"].as_i64().unwrap_or(2),
            "template": template,
        },
    })
}

/// Copies the sandbox annotations of the job to the pod template. In a head pod, faults apply to the submitter
/// container only.
fn copy_sandbox_annotations(job: &RayJob, meta: &mut Value, in_head: bool) {
    for (name, value) in job.metadata.annotations.iter().filter(|(name, _)| name.starts_with(SANDBOX_PREFIX))
    {
        let named = in_head && name.ends_with("/fail") && !value.contains("container=");
        let value = if named { format!("{value},container={SUBMITTER}") } else { value.clone() };
        map(meta, "annotations").entry(name).or_insert(json!(value));
    }
}

fn container(image: &Value) -> Value {
    json!({
        "name": SUBMITTER,
        "image": image,
        "resources": {
            "requests": { "cpu": "500m", "memory": "200Mi" },
            "limits": { "cpu": "1", "memory": "1Gi" },
        },
    })
}

/// Adds the job id and the dashboard address to the environment of the submitter.
fn add_job_environment(job: &RayJob, container: &mut Value) {
    let variables = [
        ("PYTHONUNBUFFERED", "1"),
        ("RAY_DASHBOARD_ADDRESS", job.status.dashboard_url.as_deref().unwrap_or_default()),
        ("RAY_JOB_SUBMISSION_ID", job.status.job_id.as_deref().unwrap_or_default()),
    ];
    list(container, "env").extend(variables.map(|(name, value)| match value {
        "" => json!({ "name": name }),
        value => json!({ "name": name, "value": value }),
    }));
}

/// The submitter's command. A submitter Job submits the job unless Ray knows it, then follows its logs. A sidecar
/// waits for the dashboard, then submits and follows in one command.
fn command(job: &RayJob, address: &str) -> String {
    let id = job.status.job_id.as_deref().unwrap_or_default();
    let url = format!("http://{address}");
    let spec = &job.spec;
    let mut options = String::new();
    if !spec.runtime_env_yaml.is_empty() {
        let environment: Value = serde_saphyr::from_str(&spec.runtime_env_yaml).unwrap_or_default();
        options.extend([" --runtime-env-json ", &quoted(&as_json(&environment))]);
    }
    if !spec.metadata.is_empty() {
        options.extend([" --metadata-json ", &quoted(&as_json(&json!(spec.metadata)))]);
    }
    options.extend([" --submission-id ", id]);
    for (flag, amount) in
        [("--entrypoint-num-cpus", &spec.entrypoint_cpus), ("--entrypoint-num-gpus", &spec.entrypoint_gpus)]
    {
        if let Some(amount) = amount.as_f64().filter(|amount| *amount > 0.0) {
            options.extend([" ", flag, " ", &format!("{amount:.6}")]);
        }
    }
    if !spec.entrypoint_resources.is_empty() {
        options.extend([" --entrypoint-resources ", &quoted(&spec.entrypoint_resources)]);
    }
    let entrypoint = spec.entrypoint.trim();
    let submit = format!("ray job submit --address {url}");
    if mode(job) == "SidecarMode" {
        let wait = format!("until ray job list --address {url} >/dev/null 2>&1 ; do sleep 2 ; done");
        return format!("{wait} ; {submit}{options} -- {entrypoint} ;");
    }
    format!(
        "if ! ray job status --address {url} {id} >/dev/null 2>&1 ; then {submit} --no-wait{options} -- {entrypoint} ; fi ; \
         ray job logs --address {url} --follow {id}"
    )
}

/// JSON as Go encodes it, with HTML characters escaped.
fn as_json(value: &Value) -> String {
    value.to_string().replace('&', r"\u0026").replace('<', r"\u003c").replace('>', r"\u003e")
}

/// A text as a Go string literal.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str(r"\n"),
            '\r' => quoted.push_str(r"\r"),
            '\t' => quoted.push_str(r"\t"),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}
