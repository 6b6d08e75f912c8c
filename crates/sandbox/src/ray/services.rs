//! Services, Ingress and RBAC objects of a Ray cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::containers::{head_service, list, map};
use super::pods::label_value;
use super::types::{RayCluster, RayJob};
use crate::cluster::Kind;
use crate::wire::Owner;

/// Default ports of the head.
const DEFAULT_PORTS: [(&str, u16); 4] =
    [("client", 10001), ("dashboard", 8265), ("gcs-server", 6379), ("serve", 8000)];

/// Ports of the head container, by name.
pub(super) fn head_ports(cluster: &RayCluster) -> BTreeMap<String, u16> {
    let container = &cluster.spec.head_group_spec.template["spec"]["containers"][0];
    let declared = container["ports"].as_array().into_iter().flatten();
    let mut ports: BTreeMap<String, u16> = declared
        .filter_map(|port| {
            let number = u16::try_from(port["containerPort"].as_u64()?).ok()?;
            let name = port["name"].as_str().filter(|name| !name.is_empty());
            Some((name.map_or_else(|| format!("{number}-port"), str::to_owned), number))
        })
        .collect();
    if ports.is_empty() {
        ports = DEFAULT_PORTS.map(|(name, port)| (name.to_owned(), port)).into();
    }
    ports.entry("metrics".to_owned()).or_insert(8080);
    ports
}

/// The dashboard port of the head.
pub(super) fn dashboard_port(cluster: &RayCluster) -> u16 {
    head_ports(cluster).get("dashboard").copied().unwrap_or(8265)
}

/// The Services of a cluster in creation order, with the reason of the event for their creation.
pub(super) fn services(cluster: &RayCluster) -> Vec<(Kind, Option<&'static str>, Value)> {
    let name = &cluster.metadata.name;
    let created = Some("CreatedService");
    let mut services = vec![(Kind::SERVICE, created, head(cluster))];
    if cluster.spec.worker_group_specs.iter().any(|group| group.hosts() > 1) {
        let spec = json!({
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": { "ray.io/cluster": name, "ray.io/node-type": "worker" },
            "type": "ClusterIP",
        });
        let labels = json!({ "ray.io/headless-worker-svc": name });
        services.push((Kind::SERVICE, created, owned(cluster, &format!("{name}-headless"), &labels, &spec)));
    }
    if cluster.metadata.annotation("ray.io/enable-serve-service") == Some("true") {
        let serves = |name: &str| name == "serve" || name.starts_with("serve-");
        let ports = head_ports(cluster).into_iter().filter(|(name, _)| serves(name));
        let ports: Vec<Value> = ports.map(|(name, port)| json!({ "name": name, "port": port })).collect();
        let labels = json!({
            "ray.io/originated-from-cr-name": name,
            "ray.io/originated-from-crd": "RayCluster",
            "ray.io/serve": format!("{name}-serve"),
        });
        let mut spec = json!({ "ports": ports, "selector": { "ray.io/cluster": name } });
        set_type(cluster, &mut spec);
        services.push((Kind::SERVICE, None, owned(cluster, &format!("{name}-serve-svc"), &labels, &spec)));
    }
    services
}

fn owned(cluster: &RayCluster, name: &str, labels: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace,
            "labels": labels,
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
        },
        "spec": spec,
    })
}

fn set_type(cluster: &RayCluster, spec: &mut Value) {
    let kind = &cluster.spec.head_group_spec.service_type;
    if !kind.is_empty() {
        spec["type"] = json!(kind);
    }
}

/// The head Service of a cluster. The pod template sets the application label, and `headService` can set most other
/// fields.
fn head(cluster: &RayCluster) -> Value {
    let template = &cluster.spec.head_group_spec.template["metadata"]["labels"];
    let application = template["app.kubernetes.io/name"].as_str().unwrap_or("kuberay");
    let mut service = base_head_service(cluster, application);
    for (name, value) in &cluster.spec.head_service_annotations {
        map(&mut service["metadata"], "annotations").insert(name.clone(), json!(value));
    }
    service
}

/// The head Service of a RayJob. It selects the head of its current cluster.
pub(super) fn of_job(job: &RayJob, cluster: &RayCluster) -> Value {
    let name = &job.metadata.name;
    let mut service = base_head_service(cluster, "kuberay");
    let meta = &mut service["metadata"];
    meta["name"] = json!(format!("{name}-head-svc"));
    meta["labels"] = json!({
        "ray.io/originated-from-cr-name": name,
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/node-type": "head",
        "ray.io/identifier": label_value(&format!("{name}-head")),
    });
    meta["ownerReferences"] = json!([Owner::controller_of("ray.io/v1", "RayJob", &job.metadata)]);
    service
}

fn base_head_service(cluster: &RayCluster, application: &str) -> Value {
    let group = &cluster.spec.head_group_spec;
    let ports = head_ports(cluster).into_iter().map(|(name, port)| {
        json!({ "name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": "tcp" })
    });
    let mut selector = labels(cluster, application);
    selector["ray.io/node-type"] = json!("head");
    if group.head_service.is_null() {
        let mut spec = json!({ "ports": ports.collect::<Vec<_>>(), "selector": selector });
        set_type(cluster, &mut spec);
        if is_headless(cluster) {
            spec["clusterIP"] = json!("None");
            spec["publishNotReadyAddresses"] = json!(true);
        }
        return owned(cluster, &head_service(cluster), &selector, &spec);
    }
    let mut service = owned(cluster, &head_service(cluster), &json!({}), &group.head_service["spec"]);
    let given = &group.head_service["metadata"];
    service["metadata"]["annotations"] = given["annotations"].clone();
    service["metadata"]["labels"] = given["labels"].clone();
    let labels = map(&mut service["metadata"], "labels");
    labels.extend(selector.as_object().cloned().unwrap_or_default());
    let spec = &mut service["spec"];
    spec["selector"] = selector;
    list(spec, "ports").extend(ports);
    if spec["type"].as_str().is_none_or(str::is_empty) {
        set_type(cluster, spec);
    }
    service
}

fn labels(cluster: &RayCluster, application: &str) -> Value {
    let name = &cluster.metadata.name;
    json!({
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": application,
        "ray.io/cluster": name,
        "ray.io/identifier": label_value(&format!("{name}-head")),
    })
}

/// Whether the head Service is headless.
pub(super) fn is_headless(cluster: &RayCluster) -> bool {
    let group = &cluster.spec.head_group_spec;
    group.head_service.is_null() && matches!(group.service_type.as_str(), "" | "ClusterIP")
}

/// The Ingress of the dashboard, if enabled.
pub(super) fn ingress(cluster: &RayCluster) -> Option<Value> {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let name = &cluster.metadata.name;
    if !cluster.spec.head_group_spec.enable_ingress {
        return None;
    }
    let mut annotations = cluster.metadata.annotations.clone();
    let class = annotations.remove(CLASS);
    let port = dashboard_port(cluster);
    let backend = json!({ "service": { "name": head_service(cluster), "port": { "number": port } } });
    let path = json!({ "path": format!("/{name}/(.*)"), "pathType": "Exact", "backend": backend });
    let labels = labels(cluster, "kuberay");
    let spec = json!({ "rules": [{ "http": { "paths": [path] } }] });
    let mut ingress = owned(cluster, &format!("{name}-head-ingress"), &labels, &spec);
    ingress["apiVersion"] = json!(Kind::INGRESS.api_version);
    ingress["kind"] = json!("Ingress");
    ingress["metadata"]["annotations"] = json!(annotations);
    if let Some(class) = class {
        ingress["spec"]["ingressClassName"] = json!(class);
    }
    Some(ingress)
}

/// `ServiceAccount`, Role and `RoleBinding` of the autoscaler, with the reason of the event for their creation.
pub(super) fn autoscaler_rbac(cluster: &RayCluster) -> Vec<(Kind, Option<&'static str>, Value)> {
    if !cluster.spec.enable_in_tree_autoscaling {
        return Vec::new();
    }
    let name = &cluster.metadata.name;
    let named = cluster.spec.head_group_spec.template["spec"]["serviceAccountName"].as_str();
    let account = named.filter(|account| !account.is_empty()).unwrap_or(name);
    let meta = json!({
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": {
            "app.kubernetes.io/created-by": "kuberay-operator",
            "app.kubernetes.io/name": "kuberay",
            "ray.io/cluster": name,
        },
        "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
    });
    let rbac = "rbac.authorization.k8s.io";
    let mut autoscaler_rbac = vec![
        (
            Kind::SERVICE_ACCOUNT,
            Some("CreatedServiceAccount"),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta,
            }),
        ),
        (
            Kind::ROLE,
            Some("CreatedRole"),
            json!({
                "apiVersion": Kind::ROLE.api_version, "kind": "Role", "metadata": meta,
                "rules": [
                    { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"] },
                    { "apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"] },
                    { "apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"] },
                ],
            }),
        ),
        (
            Kind::ROLE_BINDING,
            Some("CreatedRoleBinding"),
            json!({
                "apiVersion": Kind::ROLE_BINDING.api_version, "kind": "RoleBinding", "metadata": meta,
                "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": cluster.metadata.namespace }],
                "roleRef": { "apiGroup": rbac, "kind": "Role", "name": name },
            }),
        ),
    ];
    // The operator does not create a ServiceAccount that the spec names.
    autoscaler_rbac.retain(|(kind, ..)| *kind != Kind::SERVICE_ACCOUNT || account == name);
    autoscaler_rbac
}
