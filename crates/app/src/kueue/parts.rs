//! The parts of the controller, by their names in `--parts`.

use api::kueue::config::FRAMEWORKS;
use api::kueue::jobs::{JOB_KINDS, JobKind};

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
    /// Serves Kueue's webhooks.
    Webhooks,
    /// Answers the admission check that asks for nodes.
    Provisioning,
    /// Starts and stops the jobs of a kind with their Workloads.
    Job(&'static JobKind),
    /// Suspends the jobs of a kind at their creation, and checks them.
    JobWebhook(&'static JobKind),
}

/// Parts of Kueue that Muster does not have yet.
const NOT_BUILT: [&str; 5] =
    ["elasticjobs", "concurrentadmission", "failurerecovery", "multikueue", "dispatcher"];

impl Part {
    /// The part of this name.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        const BUILT: &str = "appwrappers, core, scheduler, tas, webhooks, provisioning, and for a kind of jobs job=NAME and webhook=NAME";
        match name {
            "appwrappers" => return Ok(Self::AppWrappers),
            "core" => return Ok(Self::Core),
            "scheduler" => return Ok(Self::Scheduler),
            "tas" => return Ok(Self::Topologies),
            "webhooks" => return Ok(Self::Webhooks),
            "provisioning" => return Ok(Self::Provisioning),
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
        match JobKind::of_framework(framework) {
            Some(kind) if job.is_some() => Ok(Self::Job(kind)),
            Some(kind) => Ok(Self::JobWebhook(kind)),
            None if FRAMEWORKS.contains(&framework) => {
                let built: Vec<_> = JOB_KINDS.iter().map(|kind| kind.framework).collect();
                Err(format!(
                    "the part {name} is not built yet: remove it; the kinds of jobs that are built are {}",
                    built.join(", ")
                ))
            }
            None => Err(format!("{framework:?} is no kind of jobs; known are {}", FRAMEWORKS.join(", "))),
        }
    }
}
