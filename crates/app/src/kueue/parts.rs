//! The parts of the controller, by their names in `--parts`.

use api::kueue::config::FRAMEWORKS;
use api::kueue::jobs::JobKind;
use api::kueue::webhooks::ReviewedKind;

/// A part of the controller.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Dispatches AppWrappers.
    AppWrappers,
    /// Keeps the statuses and finalizers of Kueue's objects.
    Core,
    /// Admits Workloads.
    Scheduler,
    /// Sends the pods of admitted Workloads to their topology domains. The scheduler does it.
    Topologies,
    /// Lets the pods of jobs that change their size run as far as there is quota. The scheduler does it.
    ElasticJobs,
    /// Serves Kueue's webhooks.
    Webhooks,
    /// Answers the admission check that asks for nodes.
    Provisioning,
    /// Answers the admission check that runs Workloads in other clusters.
    Clusters,
    /// Nominates clusters for Workloads. The part above does it.
    Dispatcher,
    /// Starts and stops the jobs of a kind with their Workloads.
    Job(&'static JobKind),
    /// Suspends the jobs of a kind at their creation, and checks them.
    JobWebhook(ReviewedKind),
    /// Starts and stops the pods of Deployments, one by one.
    Deployments,
}

/// Kinds of jobs. A set of pods leaves its pods to the kind of pods.
#[derive(Debug, Default)]
pub(super) struct Kinds<K> {
    pub(super) kinds: Vec<K>,
    /// Pods are among them for sets of pods alone.
    pub(super) pods_of_sets_only: bool,
}

impl<K> Kinds<K> {
    /// With the kind of pods, if sets of pods need it.
    fn complete(mut kinds: Vec<K>, has_sets: bool, is_pod: impl Fn(&K) -> bool, pod: Option<K>) -> Self {
        let pods_of_sets_only = has_sets && !kinds.iter().any(is_pod);
        kinds.extend(pod.filter(|_| pods_of_sets_only));
        Self { kinds, pods_of_sets_only }
    }
}

/// The jobs that are started and stopped.
pub(super) fn managed(parts: &[Part]) -> Kinds<&'static JobKind> {
    let kind = |part: &Part| if let Part::Job(kind) = part { Some(*kind) } else { None };
    let kinds: Vec<_> = parts.iter().filter_map(kind).collect();
    let has_sets = kinds.iter().any(|kind| kind.is_set_of_pods())
        || parts.iter().any(|part| matches!(part, Part::Deployments));
    Kinds::complete(kinds, has_sets, |kind| kind.is_pod(), JobKind::of_framework("pod"))
}

/// The jobs that the webhooks suspend and check.
pub(super) fn reviewed(parts: &[Part]) -> Kinds<ReviewedKind> {
    let kind = |part: &Part| if let Part::JobWebhook(kind) = part { Some(*kind) } else { None };
    let kinds: Vec<_> = parts.iter().filter_map(kind).collect();
    let has_sets = kinds.iter().any(ReviewedKind::is_set_of_pods);
    Kinds::complete(kinds, has_sets, ReviewedKind::is_pod, ReviewedKind::of_framework("pod"))
}

/// Parts of Kueue that Muster does not have yet.
const NOT_BUILT: [&str; 2] = ["concurrentadmission", "failurerecovery"];

impl Part {
    /// The part of this name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        const BUILT: &str = "appwrappers, core, scheduler, tas, elasticjobs, webhooks, provisioning, multikueue, dispatcher, and for a kind of jobs job=NAME and webhook=NAME";
        match name {
            "appwrappers" => return Ok(Self::AppWrappers),
            "core" => return Ok(Self::Core),
            "scheduler" => return Ok(Self::Scheduler),
            "tas" => return Ok(Self::Topologies),
            "elasticjobs" => return Ok(Self::ElasticJobs),
            "webhooks" => return Ok(Self::Webhooks),
            "provisioning" => return Ok(Self::Provisioning),
            "multikueue" => return Ok(Self::Clusters),
            "dispatcher" => return Ok(Self::Dispatcher),
            "job=deployment" => return Ok(Self::Deployments),
            _ => {}
        }
        let [job, webhook] = ["job=", "webhook="].map(|prefix| name.strip_prefix(prefix));
        let Some(framework) = job.or(webhook) else {
            return Err(if NOT_BUILT.contains(&name) {
                format!("the part {name} is not built yet: remove it; built are {BUILT}")
            } else {
                format!("there is no such part; built are {BUILT}")
            });
        };
        let part = if job.is_some() {
            JobKind::of_framework(framework).map(Self::Job)
        } else {
            ReviewedKind::of_framework(framework).map(Self::JobWebhook)
        };
        match part {
            Some(part) => Ok(part),
            None => Err(format!("{framework:?} is no kind of jobs; known are {}", FRAMEWORKS.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_built_is_refused_by_name() {
        for (name, expected) in [
            ("core", "Ok(Core)"),
            ("appwrappers", "Ok(AppWrappers)"),
            ("provisioning", "Ok(Provisioning)"),
            ("job=batch/job", "Ok(Job(JobKind { framework: \"batch/job\","),
            ("webhook=batch/job", "Ok(JobWebhook(ReviewedKind { framework: \"batch/job\","),
            ("webhook=statefulset", "Ok(JobWebhook(ReviewedKind { framework: \"statefulset\","),
            ("tas", "Ok(Topologies)"),
            ("multikueue", "Ok(Clusters)"),
            (
                "failurerecovery",
                "Err(\"the part failurerecovery is not built yet: remove it; built are appwrappers, core, scheduler, tas, elasticjobs, webhooks, provisioning,",
            ),
            (
                "job=trainer.kubeflow.org/trainjob",
                "Ok(Job(JobKind { framework: \"trainer.kubeflow.org/trainjob\",",
            ),
            ("webhook=pods", "Err(\"\\\"pods\\\" is no kind of jobs; known are batch/job, "),
            ("", "Err(\"there is no such part; built are"),
        ] {
            let found = format!("{:?}", Part::parse(name));
            assert!(found.starts_with(expected), "{name}: {found}");
        }
    }

    #[test]
    fn a_set_of_pods_needs_pods() {
        for (names, expected) in [
            (&["webhook=deployment"][..], (&["deployment", "pod"][..], true)),
            (&["webhook=pod", "webhook=statefulset"], (&["pod", "statefulset"], false)),
            (&["webhook=batch/job", "job=batch/job", "core"], (&["batch/job"], false)),
        ] {
            let parts: Vec<Part> = names.iter().map(|name| Part::parse(name).unwrap()).collect();
            let reviewed = reviewed(&parts);
            let frameworks: Vec<_> = reviewed.kinds.iter().map(|kind| kind.framework).collect();
            assert_eq!((frameworks.as_slice(), reviewed.pods_of_sets_only), expected, "{names:?}");
        }
        for (names, expected) in [
            (&["job=deployment"][..], (&["pod"][..], true)),
            (&["job=statefulset", "core"], (&["statefulset", "pod"], true)),
            (&["job=statefulset", "job=pod"], (&["statefulset", "pod"], false)),
        ] {
            let parts: Vec<Part> = names.iter().map(|name| Part::parse(name).unwrap()).collect();
            let managed = managed(&parts);
            let frameworks: Vec<_> = managed.kinds.iter().map(|kind| kind.framework).collect();
            assert_eq!((frameworks.as_slice(), managed.pods_of_sets_only), expected, "{names:?}");
        }
    }
}
