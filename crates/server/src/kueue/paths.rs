//! The paths of Kueue's webhooks (`config/components/webhook/manifests.yaml` of v0.19.1: 21 that default, 22 that
//! validate; and `/convert` in its definitions).

/// What answers at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// The conversion of Kueue's kinds.
    Convert,
    /// Defaults of a resource of Kueue, by its plural name.
    Default(&'static str),
    /// Validation of a resource of Kueue, by its plural name.
    Validate(&'static str),
    /// Defaults of jobs, by the plural name of their resource.
    DefaultJob(&'static str),
    /// Validation of jobs, by the plural name of their resource.
    ValidateJob(&'static str),
}

/// Kueue's kinds with webhooks: the end of the path, the resource, and whether it has defaults.
const OWN: [(&str, &str, bool); 4] = [
    ("kueue-x-k8s-io-v1beta2-clusterqueue", "clusterqueues", true),
    ("kueue-x-k8s-io-v1beta2-cohort", "cohorts", false),
    ("kueue-x-k8s-io-v1beta2-resourceflavor", "resourceflavors", true),
    ("kueue-x-k8s-io-v1beta2-workload", "workloads", true),
];

/// The kinds of jobs with rules: the end of the path, and the resource.
const JOBS: [(&str, &str); 18] = [
    ("-v1-pod", "pods"),
    ("apps-v1-deployment", "deployments"),
    ("apps-v1-statefulset", "statefulsets"),
    ("batch-v1-job", "jobs"),
    ("jobset-x-k8s-io-v1alpha2-jobset", "jobsets"),
    ("kubeflow-org-v1-jaxjob", "jaxjobs"),
    ("kubeflow-org-v1-paddlejob", "paddlejobs"),
    ("kubeflow-org-v1-pytorchjob", "pytorchjobs"),
    ("kubeflow-org-v1-tfjob", "tfjobs"),
    ("kubeflow-org-v1-xgboostjob", "xgboostjobs"),
    ("kubeflow-org-v2beta1-mpijob", "mpijobs"),
    ("ray-io-v1-raycluster", "rayclusters"),
    ("ray-io-v1-rayjob", "rayjobs"),
    ("leaderworkerset-x-k8s-io-v1-leaderworkerset", "leaderworkersets"),
    ("ray-io-v1-rayservice", "rayservices"),
    ("trainer-kubeflow-org-v1alpha1-trainjob", "trainjobs"),
    ("workload-codeflare-dev-v1beta2-appwrapper", "appwrappers"),
    ("sparkoperator-k8s-io-v1beta2-sparkapplication", "sparkapplications"),
];

/// The paths of all admission webhooks, and what answers there.
pub(super) fn all() -> impl Iterator<Item = (String, Hook)> {
    let jobs = || JOBS.iter().map(|&(kind, _)| kind);
    let kinds = move || OWN.iter().map(|&(kind, ..)| kind).chain(jobs());
    let paths = ["mutate", "validate"]
        .into_iter()
        .flat_map(move |verb| kinds().map(move |kind| format!("/{verb}-{kind}")));
    paths.filter_map(|path| hook(&path).map(|hook| (path, hook)))
}

/// What answers at a path; `None` if no webhook of Kueue has it.
pub(super) fn hook(path: &str) -> Option<Hook> {
    if path == "/convert" {
        return Some(Hook::Convert);
    }
    let (mutates, kind) = match path.strip_prefix("/mutate-") {
        Some(kind) => (true, kind),
        None => (false, path.strip_prefix("/validate-")?),
    };
    if let Some(&(_, resource)) = JOBS.iter().find(|(known, _)| *known == kind) {
        return Some(if mutates { Hook::DefaultJob(resource) } else { Hook::ValidateJob(resource) });
    }
    let &(_, resource, has_defaults) = OWN.iter().find(|(own, ..)| *own == kind)?;
    match (mutates, has_defaults) {
        (false, _) => Some(Hook::Validate(resource)),
        (true, true) => Some(Hook::Default(resource)),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kueue_has_43_paths_and_the_conversion() {
        let served = |verb: &str| all().filter(|(path, _)| path.starts_with(verb)).count();
        assert_eq!((served("/mutate-"), served("/validate-")), (21, 22));
        assert_eq!(hook("/convert"), Some(Hook::Convert));
    }

    #[test]
    fn the_rules_of_every_kind_of_jobs_are_served() {
        for kind in api::kueue::webhooks::ReviewedKind::all() {
            let group = kind.group().replace('.', "-");
            let path = format!("/validate-{group}-{}-{}", kind.version(), kind.kind.to_lowercase());
            assert_eq!(hook(&path), Some(Hook::ValidateJob(kind.plural)), "{path}");
        }
    }

    #[test]
    fn a_path_is_exact() {
        for (path, expected) in [
            ("/mutate-kueue-x-k8s-io-v1beta2-workload", Some(Hook::Default("workloads"))),
            ("/validate-kueue-x-k8s-io-v1beta2-cohort", Some(Hook::Validate("cohorts"))),
            ("/mutate-kueue-x-k8s-io-v1beta2-cohort", None),
            ("/validate--v1-pod", Some(Hook::ValidateJob("pods"))),
            (
                "/validate-sparkoperator-k8s-io-v1beta2-sparkapplication",
                Some(Hook::ValidateJob("sparkapplications")),
            ),
            ("/validate-v1-pod", None),
            ("/validate-kueue-x-k8s-io-v1beta1-workload", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(hook(path), expected, "{path}");
        }
    }
}
