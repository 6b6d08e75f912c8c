//! The systems that a cluster has: Kueue, MCAD, the controller of AppWrappers 1.2, and Muster; their versions, and whether they run.

use serde_json::{Map, Value, json};

use super::cluster::{API_SERVICES, Cluster, DEFINITIONS, DEPLOYMENTS, WEBHOOKS, items, served, text};
use super::finding::{Finding, Subject};
use super::read::WEBHOOK_SERVICE;

/// A system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Software {
    Kueue,
    Mcad,
    /// The controller of AppWrappers `v1beta2`.
    AppWrapper,
    Muster,
}

impl Software {
    const ALL: [Self; 4] = [Self::Kueue, Self::Mcad, Self::AppWrapper, Self::Muster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kueue => "Kueue",
            Self::Mcad => "MCAD",
            Self::AppWrapper => "AppWrapper",
            Self::Muster => "Muster",
        }
    }

    /// The version that Muster is compared with: major and minor.
    fn known_version(self) -> Option<&'static str> {
        match self {
            Self::Kueue => Some("0.19"),
            Self::Mcad => Some("1.40"),
            Self::AppWrapper => Some("1.2"),
            Self::Muster => None,
        }
    }

    /// The names that its Deployment has in its own manifests, and the last part of the names of its images.
    fn names(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Kueue => (&["kueue-controller-manager"], &["kueue"]),
            Self::Mcad => (&["mcad-controller"], &["mcad-controller", "multi-cluster-app-dispatcher"]),
            Self::AppWrapper => (
                &["appwrapper-controller-manager", "codeflare-operator-manager"],
                &["appwrapper", "codeflare-operator"],
            ),
            Self::Muster => (&["muster"], &["muster"]),
        }
    }

    /// Where its own manifests put its Deployment.
    pub(crate) fn default_deployment(self) -> (&'static str, &'static str) {
        match self {
            Self::Kueue => ("kueue-system", "kueue-controller-manager"),
            Self::Mcad => ("kube-system", "mcad-controller"),
            Self::AppWrapper => ("appwrapper-system", "appwrapper-controller-manager"),
            Self::Muster => ("muster-system", "muster"),
        }
    }

    /// The definitions by which its objects are known, with their versions.
    fn definitions(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Kueue => {
                &[("workloads.kueue.x-k8s.io", "v1beta2"), ("workloads.kueue.x-k8s.io", "v1beta1")]
            }
            Self::Mcad => {
                &[("appwrappers.mcad.ibm.com", "v1beta1"), ("appwrappers.workload.codeflare.dev", "v1beta1")]
            }
            Self::AppWrapper => &[("appwrappers.workload.codeflare.dev", "v1beta2")],
            Self::Muster => &[],
        }
    }
}

/// The Deployment of a system.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deployment {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The tag of its image, without `v`; empty if there is none.
    pub(crate) version: String,
    /// How many replicas it is to have.
    pub(crate) wanted: u64,
    pub(crate) ready: u64,
    /// What would start it again when it is stopped; empty if nothing is known.
    keeper: String,
    /// The spec of its pods.
    pub(crate) pods: Value,
}

/// A system that is there: its Deployment, or its definitions alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct System {
    pub(crate) software: Software,
    pub(crate) deployment: Option<Deployment>,
    /// Its definitions with the served and the stored versions, as text.
    pub(crate) definitions: Vec<String>,
}

/// The systems of a cluster.
pub(crate) fn systems(cluster: &Cluster) -> Vec<System> {
    let found = Software::ALL.map(|software| {
        let deployment = deployment(cluster, software);
        let definitions = definitions(cluster, software);
        (deployment.is_some() || !definitions.is_empty()).then_some(System {
            software,
            deployment,
            definitions,
        })
    });
    found.into_iter().flatten().collect()
}

/// The one of a kind.
pub(crate) fn find(systems: &[System], software: Software) -> Option<&System> {
    systems.iter().find(|system| system.software == software)
}

fn deployment(cluster: &Cluster, software: Software) -> Option<Deployment> {
    let mut all: Vec<&Value> =
        cluster.of(DEPLOYMENTS).iter().filter(|found| is_of(found, software)).collect();
    // One that runs, and one with the name of its manifests, tells more than another one.
    let rank = |found: &&Value| {
        let (names, _) = software.names();
        let is_stopped = found["spec"]["replicas"] == 0;
        (is_stopped, !names.contains(&text(&found["metadata"]["name"])))
    };
    all.sort_by_key(rank);
    let found = all.first()?;
    let pods = found["spec"]["template"]["spec"].clone();
    Some(Deployment {
        namespace: text(&found["metadata"]["namespace"]).into(),
        name: text(&found["metadata"]["name"]).into(),
        version: version(image(&pods, software)),
        wanted: found["spec"]["replicas"].as_u64().unwrap_or(1),
        ready: found["status"]["readyReplicas"].as_u64().unwrap_or(0),
        keeper: keeper(&found["metadata"]),
        pods,
    })
}

/// What keeps an object as it is: its owner, or a tool that applies it from a repository.
fn keeper(meta: &Value) -> String {
    let owner = items(&meta["ownerReferences"]).next();
    if let Some(owner) = owner {
        return format!("its owner, the {} {},", text(&owner["kind"]), text(&owner["name"]));
    }
    let keys = ["labels", "annotations"].into_iter().filter_map(|field| meta[field].as_object());
    let keys: Vec<&String> = keys.flat_map(Map::keys).collect();
    let tools = [("argocd.argoproj.io/", "Argo CD"), ("toolkit.fluxcd.io/", "Flux")];
    let tool = tools.into_iter().find(|(mark, _)| keys.iter().any(|key| key.contains(mark)));
    tool.map_or_else(String::new, |(_, tool)| tool.into())
}

fn is_of(deployment: &Value, software: Software) -> bool {
    let (names, images) = software.names();
    let name = text(&deployment["metadata"]["name"]);
    if software == Software::Muster {
        return name == "muster" && deployment["metadata"]["labels"]["app.kubernetes.io/name"] == "muster";
    }
    let containers = items(&deployment["spec"]["template"]["spec"]["containers"]);
    let mut repositories = containers.map(|container| repository(text(&container["image"])));
    names.contains(&name) || repositories.any(|repository| images.contains(&repository))
}

/// The image of the container that is the system: the one of its name, or else the first.
fn image(pods: &Value, software: Software) -> &str {
    let (_, images) = software.names();
    let all = || items(&pods["containers"]).map(|container| text(&container["image"]));
    let named = all().find(|image| images.contains(&repository(image)));
    named.or_else(|| all().next()).unwrap_or_default()
}

/// The last part of the name of an image, without tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

/// The tag of an image without `v`; empty if it has none.
fn version(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    tag.strip_prefix('v').unwrap_or(tag).into()
}

fn definitions(cluster: &Cluster, software: Software) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for (name, version) in software.definitions() {
        let found = cluster.definition(name).filter(|found| served(found).contains(version));
        if found.is_some() && !names.contains(name) {
            names.push(name);
        }
    }
    let described = names.into_iter().filter_map(|name| {
        let definition = cluster.definition(name)?;
        let stored: Vec<&str> = items(&definition["status"]["storedVersions"]).map(text).collect();
        let owner = &definition["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        let of_muster = if owner == "muster" { ", created by Muster" } else { "" };
        Some(format!(
            "{name}: serves {}, stores {}{of_muster}",
            served(definition).join(" and "),
            stored.join(" and ")
        ))
    });
    described.collect()
}

impl System {
    /// The state of its controller in a few words.
    pub(crate) fn state(&self) -> String {
        let Some(Deployment { namespace, name, version, wanted, ready, .. }) = &self.deployment else {
            return "no Deployment of it was found".into();
        };
        let version = if version.is_empty() { "of an unknown version".into() } else { format!("v{version}") };
        let runs = match (wanted, ready) {
            (0, _) => "is stopped".into(),
            (_, 0) => format!("is not ready: 0 of {wanted} replicas"),
            _ => format!("runs: {ready} of {wanted} replicas are ready"),
        };
        format!("{version}, Deployment {namespace}/{name} {runs}")
    }

    /// Whether its controller is to run.
    pub(crate) fn runs(&self) -> bool {
        self.deployment.as_ref().is_some_and(|found| found.wanted > 0)
    }

    /// The system in JSON.
    pub(crate) fn value(&self) -> Value {
        let deployment = self.deployment.as_ref().map(|found| {
            json!({"namespace": found.namespace, "name": found.name, "version": found.version,
                "replicas": found.wanted, "readyReplicas": found.ready})
        });
        json!({"name": self.software.name(), "deployment": deployment, "definitions": self.definitions})
    }

    fn subject(&self) -> Subject {
        let named = |found: &Deployment| Subject {
            kind: "Deployment".into(),
            namespace: found.namespace.clone(),
            name: found.name.clone(),
        };
        self.deployment.as_ref().map_or_else(|| Subject::new("System", self.software.name()), named)
    }
}

/// What is found about the systems themselves: versions, definitions, and what stays registered at the API server.
pub(crate) fn findings(cluster: &Cluster, systems: &[System]) -> Vec<Finding> {
    let mut found: Vec<Finding> = systems.iter().filter_map(other_version).collect();
    found.extend(older_definitions(cluster));
    found.extend(systems.iter().filter_map(kept_running));
    found.extend(embedded_mcad(cluster, systems));
    found.extend(unknown_labels(cluster, systems));
    found.extend(both_run(systems));
    found.extend(webhooks(cluster, systems));
    found.extend(api_services(cluster));
    found
}

fn other_version(system: &System) -> Option<Finding> {
    let known = system.software.known_version()?;
    let version = &system.deployment.as_ref()?.version;
    // A tag that is no version, such as `latest`, tells nothing.
    let is_version = version.starts_with(|first: char| first.is_ascii_digit()) && version.contains('.');
    let is_known =
        version.strip_prefix(known).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()));
    if is_known {
        return None;
    }
    let name = system.software.name();
    let what = if is_version {
        format!(
            "{name} {version}: this check knows {name} {known}, and fields and settings of others may be missing in it"
        )
    } else {
        format!("its version is not known: this check is for {name} {known}")
    };
    Some(Finding::differs(system.subject(), what))
}

/// Kueue's definitions without the version in which Muster reads its objects.
fn older_definitions(cluster: &Cluster) -> Option<Finding> {
    let definition = cluster.definition("workloads.kueue.x-k8s.io")?;
    if served(definition).contains(&api::kueue::V1BETA2) {
        return None;
    }
    Some(Finding::to_do(
        Subject::of(definition),
        "serves no v1beta2, in which Muster reads and writes",
        "update Kueue to 0.19 first, with its definitions",
    ))
}

/// A Deployment that the commands stop, and something else starts again.
fn kept_running(system: &System) -> Option<Finding> {
    let keeper = &system.deployment.as_ref()?.keeper;
    let is_stopped = matches!(system.software, Software::Kueue | Software::Mcad);
    let what = format!("{keeper} would start it again after the first command");
    (is_stopped && !keeper.is_empty())
        .then(|| Finding::to_do(system.subject(), what, "have that scale it to 0, or stop it before"))
}

/// An operator of CodeFlare that has MCAD in it, and not the controller of AppWrappers `v1beta2`.
fn embedded_mcad(cluster: &Cluster, systems: &[System]) -> Option<Finding> {
    let system = find(systems, Software::AppWrapper)?;
    let is_operator = system.deployment.as_ref()?.name.starts_with("codeflare-operator");
    let is_new = cluster.serves("appwrappers.workload.codeflare.dev", "v1beta2");
    let what = "may have MCAD in it, because only AppWrappers v1beta1 are served: both would start the same AppWrappers";
    (is_operator && !is_new && system.runs())
        .then(|| Finding::to_do(system.subject(), what, "stop it before Muster is installed"))
}

/// The Service of Kueue's webhooks, if its labels are not known.
fn unknown_labels(cluster: &Cluster, systems: &[System]) -> Option<Finding> {
    let namespace = &find(systems, Software::Kueue)?.deployment.as_ref()?.namespace;
    if cluster.named("services", namespace, WEBHOOK_SERVICE).is_some() {
        return None;
    }
    let subject =
        Subject { kind: "Service".into(), namespace: namespace.clone(), name: WEBHOOK_SERVICE.into() };
    let what = "was not read: the labels that it selects are not known, and the command lacks them";
    Some(Finding::to_do(
        subject,
        what,
        "set podLabels to its selector; without the Service, install without kueue.inPlace",
    ))
}

/// A Muster that runs beside another controller of the same objects.
fn both_run(systems: &[System]) -> Vec<Finding> {
    if !find(systems, Software::Muster).is_some_and(System::runs) {
        return Vec::new();
    }
    let is_rival = |system: &&System| system.software == Software::Mcad && system.runs();
    let told = |system: &System| {
        let what =
            "runs beside Muster, and neither waits for the other: both would start the same AppWrappers";
        Finding::to_do(system.subject(), what, "stop one of them")
    };
    systems.iter().filter(is_rival).map(told).collect()
}

/// The webhook configurations of the systems.
fn webhooks(cluster: &Cluster, systems: &[System]) -> Vec<Finding> {
    let mut found = Vec::new();
    for configuration in WEBHOOKS.iter().flat_map(|resource| cluster.of(resource)) {
        let services = || {
            items(&configuration["webhooks"]).map(|webhook| text(&webhook["clientConfig"]["service"]["name"]))
        };
        let subject = Subject::of(configuration);
        if services().any(|service| service == WEBHOOK_SERVICE) {
            let what = "stays; Muster answers it in Kueue's place, with a certificate of its own where Kueue's is not valid";
            found.push(Finding::kept(subject, what));
        } else if services().any(|service| service.contains("appwrapper-webhook")) {
            let runs = find(systems, Software::AppWrapper).is_some_and(System::runs);
            found.push(if runs {
                Finding::kept(subject, "stays; the controller of AppWrappers goes on to answer it")
            } else {
                let what = "nobody answers it while the controller of AppWrappers is stopped, so that no AppWrapper can be written";
                let remedy = format!("start that controller, or delete the {} {}", subject.kind, subject.name);
                Finding::to_do(subject, what, remedy)
            });
        }
    }
    found
}

/// The APIs that the systems serve through the API server.
fn api_services(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for service in cluster.of(API_SERVICES) {
        let (group, subject) = (text(&service["spec"]["group"]), Subject::of(service));
        let by = text(&service["spec"]["service"]["name"]);
        if group == "visibility.kueue.x-k8s.io" {
            found.push(if by == "muster" {
                Finding::kept(subject, "is served by Muster already")
            } else {
                Finding::kept(
                    subject,
                    "stays; Muster serves it in Kueue's place, and leads it to its own Service",
                )
            });
        } else if matches!(group, "custom.metrics.k8s.io" | "external.metrics.k8s.io")
            && by == "custom-metrics-apiserver"
        {
            let what = "nobody answers it when MCAD is stopped, and then no namespace can be deleted";
            let remedy = format!("kubectl delete apiservice {}", subject.name);
            found.push(Finding::to_do(subject, what, remedy));
        }
    }
    found
}

/// Whether the definitions could be read, so that a system without a Deployment would be found.
pub(crate) fn reads_definitions(cluster: &Cluster) -> bool {
    !cluster.unread.iter().any(|unread| unread.resource == DEFINITIONS)
}
