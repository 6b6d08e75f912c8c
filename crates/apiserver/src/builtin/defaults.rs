//! Defaults of built-in kinds, and the fields that their create strategies set.
//!
//! This module dispatches by kind. Pods and pod templates are in `pod`, workloads in `workloads`, API Priority and Fairness in
//! `flow_control`, all other kinds in `cluster`.

mod cluster;
mod flow_control;
mod pod;
mod workloads;

use serde_json::Value;

use super::Gvk;

/// Sets the fields that admission and the create strategies set on a new object.
pub(super) fn generate(gvk: Gvk<'_>, new: &mut Value) {
    match (gvk.group, gvk.kind) {
        ("", "Pod") => pod::generate(new),
        ("", "Namespace") => cluster::generate_namespace(new),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => cluster::initial_phase(new),
        ("apps", "DaemonSet") => workloads::generate_daemon_set(new),
        ("batch", "Job") => workloads::generate_job(new),
        _ => {}
    }
}

/// Converts `new` to the form in which it is stored.
pub(super) fn prepare(gvk: Gvk<'_>, new: &mut Value, _: Option<&Value>) {
    match (gvk.group, gvk.kind) {
        ("", "Pod") => pod::pod(new),
        ("", "PodTemplate") => pod::template_of(new),
        ("", "Service") => cluster::service(new),
        ("", "Secret") => cluster::secret(new),
        ("", "Namespace") => cluster::namespace(new),
        ("", "Node") => cluster::node(new),
        ("", "PersistentVolume") => cluster::volume(new),
        ("", "PersistentVolumeClaim") => cluster::claim(new),
        ("", "LimitRange") => cluster::limit_range(new),
        ("", "Endpoints") => cluster::endpoints(new),
        ("", "ReplicationController") => workloads::replication_controller(new),
        ("apps", "Deployment") => workloads::deployment(new),
        ("apps", "ReplicaSet") => workloads::replica_set(new),
        ("apps", "StatefulSet") => workloads::stateful_set(new),
        ("apps", "DaemonSet") => workloads::daemon_set(new),
        ("batch", "Job") => workloads::job(new),
        ("batch", "CronJob") => workloads::cron_job(new),
        ("autoscaling", "HorizontalPodAutoscaler") => cluster::autoscaler(new, gvk.version),
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class(new),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::role_binding(new),
        ("networking.k8s.io", "NetworkPolicy") => cluster::network_policy(new),
        ("networking.k8s.io", "IngressClass") => cluster::ingress_class(new),
        ("storage.k8s.io", "StorageClass") => cluster::storage_class(new),
        ("discovery.k8s.io", "EndpointSlice") => cluster::endpoint_slice(new),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow_control::flow_schema(new),
        ("flowcontrol.apiserver.k8s.io", _) => flow_control::priority_level(new),
        ("admissionregistration.k8s.io", _) => cluster::admission(gvk.kind, new),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => cluster::definition(new),
        _ => {}
    }
}
