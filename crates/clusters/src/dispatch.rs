//! The next write about a Workload at the hub: a function of what was observed. Which clusters are nominated, which of them is chosen, what the
//! check says, what comes back of the job, and the end. After `pkg/controller/admissionchecks/multikueue/workload.go` of Kueue v0.19.

use api::MicroTime;
use api::kueue::status::{ADMITTED, CheckState, Condition, EVICTED, FINISHED, seconds, set_condition};
use controllers::Whole;
use serde_json::{Value, json};

use crate::config::{ClustersConfig, Dispatcher};
use crate::hub::{JobOf, Local, status_of};
use crate::objects::{Memory, Objects};
use crate::watch::Key;
use crate::worker::{MayRun, Worker, is_copy_of};

/// The most clusters that a Workload may name.
const NOMINATED_MAX: usize = 20;
/// How long the nominated clusters have time before more are nominated, in microseconds.
const ROUND_US: i64 = 300_000_000;

/// What is to be done about a Workload at the hub.
#[derive(Debug)]
pub(crate) enum Decision {
    Write(HubWrite),
    /// Nothing before then.
    At(MicroTime),
    Nothing,
}

/// A write at the hub.
#[derive(Debug)]
pub(crate) enum HubWrite {
    /// Changes the status of a Workload, then tells it in an Event. With the cluster in which it begins to run by this.
    Status { whole: Box<Whole>, patch: Value, told: Option<Told>, admitted_in: Option<String> },
    /// Names clusters, if the job is not run by its own controller.
    Nominate { whole: Box<Whole>, job: JobOf, names: Vec<String> },
    /// Copies the status of the job from a cluster.
    SyncJob { job: JobOf, status: Value, is_end: bool, seen: SeenJob },
    /// Says that the job has no pods any more, and then that its Workload has no cluster, if one was chosen.
    StopJob { job: JobOf, stop: String, chosen: Option<Box<Whole>> },
}

/// An Event about a Workload.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) is_warning: bool,
    pub(crate) text: String,
}

/// A version of a job in a cluster: cluster, uid and resource version.
pub(crate) type SeenJob = (String, String, String);

/// The next write.
pub(crate) fn decide(objects: &Objects, config: &ClustersConfig, key: &Key, now: MicroTime) -> Decision {
    let Some(local) = objects.hub.local(key) else { return Decision::Nothing };
    if local.is_finished() {
        return Decision::Nothing;
    }
    // What runs in a cluster is stopped there also if its queue has no check of clusters any more.
    let stops = local.has_quota() && local.is_evicted()
        || local.whole.metadata.is_deleting() && local.status.cluster_name.is_some();
    let check = match local.check(&objects.hub) {
        Some(check) if stops || check.state != "Rejected" => check.clone(),
        None if stops => CheckState::default(),
        Some(_) | None => return Decision::Nothing,
    };
    let view = View { objects, config, key, local: &local, check: &check, now };
    let job = match local.job() {
        Ok(job) if stops => return view.stop(&job),
        Err(_) if stops => return Decision::Nothing,
        Err(why) => return view.judge("Rejected", why),
        Ok(_) if let Some(why) = view.memory().and_then(|memory| memory.unmanaged.as_ref()) => {
            return view.judge("Rejected", format!("The owner is not managed by Kueue: {why}"));
        }
        Ok(job) => job,
    };
    match &local.status.cluster_name {
        _ if !local.has_quota() || local.whole.metadata.is_deleting() => Decision::Nothing,
        Some(cluster) => view.follow(cluster, &job),
        None => view.dispatch(&job),
    }
}

struct View<'a> {
    objects: &'a Objects,
    config: &'a ClustersConfig,
    key: &'a Key,
    local: &'a Local<'a>,
    check: &'a CheckState,
    now: MicroTime,
}

impl View<'_> {
    fn memory(&self) -> Option<&Memory> {
        self.objects.memory(self.key)
    }

    fn write(&self, patch: Value, told: Option<Told>) -> Decision {
        let whole = Box::new(self.local.whole.clone());
        Decision::Write(HubWrite::Status { whole, patch, told, admitted_in: None })
    }

    /// The checks with another state of this one.
    fn checks(&self, state: &str, message: String) -> Value {
        let mut judged = CheckState { state: state.into(), message, ..self.check.clone() };
        if state != self.check.state {
            judged.last_transition_time = seconds(self.now);
        }
        let known = self.local.status.admission_checks.iter();
        json!(known.map(|check| if check.name == judged.name { &judged } else { check }).collect::<Vec<_>>())
    }

    fn judge(&self, state: &str, message: String) -> Decision {
        if self.check.state == state && self.check.message == message {
            return Decision::Nothing;
        }
        let text = message.clone();
        let told = (self.check.state != state).then_some(Told { is_warning: state == "Rejected", text });
        self.write(json!({"admissionChecks": self.checks(state, message)}), told)
    }

    fn retry(&self, why: impl Into<String>) -> Decision {
        if self.check.state == "Retry" { Decision::Nothing } else { self.judge("Retry", why.into()) }
    }

    /// Where the pods may run, beside a cluster.
    fn may_run(&self, beside: Option<&str>) -> Option<MayRun> {
        let status = &self.local.status;
        let ran = |cluster: &str| {
            let is_there = self.is_deleting() && status.cluster_name.as_deref() == Some(cluster);
            is_there || !status.scheduling_stats.evictions.is_empty()
        };
        let others = self.objects.workers.iter().filter(|(name, _)| Some(name.as_str()) != beside);
        let may = others.filter_map(|(name, worker)| {
            worker.may_run(self.key, ran(name), self.now, self.config.worker_lost_us)
        });
        // The first one that runs decides; else the last one that may.
        may.reduce(|one, other| {
            if one == MayRun::Runs {
                one
            } else if other == MayRun::Runs {
                other
            } else {
                one.max(other)
            }
        })
    }

    /// An evicted Workload keeps its quota, and one that is to be deleted is there, until no cluster runs its job.
    fn stop(&self, job: &JobOf) -> Decision {
        match self.may_run(None) {
            Some(MayRun::Runs) => Decision::Nothing,
            Some(MayRun::Until(time)) => Decision::At(time),
            None => {
                let evicted = self.local.status.condition(EVICTED).filter(|evicted| evicted.is_true());
                let since = evicted.map(|evicted| evicted.last_transition_time.clone()).unwrap_or_default();
                let chosen = self.local.status.cluster_name.is_some();
                let chosen = chosen.then(|| Box::new(self.local.whole.clone()));
                let stop = format!("{} {since} {}", self.local.uid(), chosen.is_some());
                if self.memory().is_some_and(|memory| memory.stopped.as_ref() == Some(&stop)) {
                    return Decision::Nothing;
                }
                Decision::Write(HubWrite::StopJob { job: job.clone(), stop, chosen })
            }
        }
    }

    fn is_deleting(&self) -> bool {
        self.local.whole.metadata.is_deleting()
    }

    /// A cluster is chosen.
    fn follow(&self, cluster: &str, job: &JobOf) -> Decision {
        if self.check.state == "Retry" {
            return Decision::Nothing;
        }
        let worker = self.objects.workers.get(cluster);
        let Some(worker) = worker.filter(|worker| worker.is_connected()) else {
            let lost = worker.and_then(|worker| worker.lost_since).unwrap_or(self.objects.started);
            let until = MicroTime(lost.0 + self.config.worker_lost_us);
            return if until > self.now { Decision::At(until) } else { self.retry("Reserving remote lost") };
        };
        let there = worker.workloads.get(self.key).filter(|there| is_copy_of(there, self.local.uid()));
        let copy = self.copy(worker, job);
        let is_ready = self.check.state == "Ready";
        let Some((there, status)) = there.map(|there| (there, status_of(there))) else {
            return self.retry("Reserving remote no longer exists or is not admitted");
        };
        if is_ready && copy.is_none() {
            return self.retry(format!("The {} is gone on worker cluster: {cluster:?}", job.kind.0.kind));
        }
        let seen = copy.map(|copy| {
            (cluster.to_owned(), copy.metadata.uid.clone(), copy.metadata.resource_version.clone())
        });
        let is_synced = seen.is_none() || self.memory().is_some_and(|memory| memory.synced == seen);
        let sync = |is_end| {
            let (copy, seen) = copy.zip(seen.clone()).filter(|_| !is_synced)?;
            let status = copy.value["status"].clone();
            Some(Decision::Write(HubWrite::SyncJob { job: job.clone(), status, is_end, seen }))
        };
        if let Some(finished) = status.condition(FINISHED).filter(|finished| finished.is_true()) {
            return sync(true).unwrap_or_else(|| self.finish(finished));
        }
        if status.is(EVICTED) {
            let state = &self.check.state;
            return self.retry(format!(
                "Workload evicted on worker cluster: {cluster:?}, resetting for re-admission. Previously: {state:?}"
            ));
        }
        if !status.is(ADMITTED) || there.metadata.is_deleting() {
            return self.retry("Reserving remote no longer exists or is not admitted");
        }
        if copy.is_none() {
            return self.tell_refusals(&[cluster]);
        }
        if !is_ready {
            let mut decision = self.judge("Ready", format!("The workload got reservation on {cluster:?}"));
            if let Decision::Write(HubWrite::Status { admitted_in, .. }) = &mut decision {
                *admitted_in = Some(cluster.to_owned());
            }
            return decision;
        }
        sync(false).unwrap_or(Decision::Nothing)
    }

    fn copy<'b>(&self, worker: &'b Worker, job: &JobOf) -> Option<&'b Whole> {
        let mut jobs = worker.jobs_of(self.key).map(|(_, copy)| copy);
        jobs.find(|copy| copy.metadata.name == job.key.name && is_copy_of(copy, &job.uid))
    }

    fn finish(&self, finished: &Condition) -> Decision {
        let mut conditions = self.local.status.conditions.clone();
        let generation = self.local.whole.metadata.generation;
        let copy = Condition::new(FINISHED, true, &finished.reason, &finished.message, generation, self.now);
        set_condition(&mut conditions, copy);
        self.write(json!({"conditions": conditions}), None)
    }

    /// No cluster is chosen.
    fn dispatch(&self, job: &JobOf) -> Decision {
        let others = self.local.status.admission_checks.iter().filter(|check| check.name != self.check.name);
        if self.check.state == "Ready" {
            return self.retry("Reserving remote lost");
        }
        if self.check.state != "Pending" || others.into_iter().any(|check| check.state != "Ready") {
            return Decision::Nothing;
        }
        let Ok(clusters) = self.objects.hub.clusters_of(&self.check.name) else { return Decision::Nothing };
        let connected: Vec<&str> = clusters.into_iter().filter(|name| self.is_connected(name)).collect();
        if let Some(cluster) = self.first_admitted(&connected) {
            // The choice is written before anything runs there, and not while something may run elsewhere.
            return match self.may_run(Some(cluster)) {
                Some(MayRun::Runs) => Decision::Nothing,
                Some(MayRun::Until(time)) => Decision::At(time),
                None => self.write(json!({"clusterName": cluster, "nominatedClusterNames": null}), None),
            };
        }
        let nominated = &self.local.status.nominated_cluster_names;
        match self.nominate(&connected) {
            Nomination::Write(names) if names != *nominated => {
                let whole = Box::new(self.local.whole.clone());
                Decision::Write(HubWrite::Nominate { whole, job: job.clone(), names })
            }
            Nomination::At(time) if nominated.is_empty() => Decision::At(time),
            nomination @ (Nomination::Write(_) | Nomination::At(_) | Nomination::Nothing) => {
                let names: Vec<&str> = nominated.iter().map(String::as_str).collect();
                match (self.tell_refusals(&names), nomination) {
                    (Decision::Nothing, Nomination::At(time)) => Decision::At(time),
                    (decision, _) => decision,
                }
            }
        }
    }

    fn is_connected(&self, name: &str) -> bool {
        self.objects.hub.clusters.contains_key(name)
            && self.objects.workers.get(name).is_some_and(Worker::is_connected)
    }

    /// Of the clusters that have admitted the Workload, the first one.
    fn first_admitted<'b>(&self, clusters: &[&'b str]) -> Option<&'b str> {
        let nominated = &self.local.status.nominated_cluster_names;
        let admitted = clusters.iter().filter_map(|name| {
            let there = self.objects.workers.get(*name)?.workloads.get(self.key)?;
            let status = status_of(there);
            let is_ours = there.metadata.annotations.get(api::kueue::jobs::remote::ORIGIN_UID);
            let counts = is_ours.is_none_or(|uid| uid == self.local.uid())
                && nominated.iter().any(|nominated| nominated == name)
                && !there.metadata.is_deleting()
                && !status.is(EVICTED)
                && !status.is(FINISHED);
            let condition = status.condition(ADMITTED).filter(|admitted| counts && admitted.is_true())?;
            Some((condition.since(), *name))
        });
        admitted.reduce(|first, next| if next.0 < first.0 { next } else { first }).map(|(_, name)| name)
    }

    /// Which clusters are to be nominated.
    fn nominate(&self, connected: &[&str]) -> Nomination {
        let nominated = &self.local.status.nominated_cluster_names;
        match self.config.dispatcher {
            Dispatcher::External => Nomination::Nothing,
            Dispatcher::AllAtOnce => {
                Nomination::Write(connected.iter().take(NOMINATED_MAX).map(ToString::to_string).collect())
            }
            Dispatcher::Incremental { step } => {
                let begun = self.memory().and_then(|memory| memory.nominated);
                // After a restart, the round begins anew.
                let until = begun.map_or(self.objects.started.0 + ROUND_US, |begun| begun.0 + ROUND_US);
                if !nominated.is_empty() && until > self.now.0 {
                    return Nomination::At(MicroTime(until));
                }
                let more = connected.iter().filter(|name| !nominated.iter().any(|known| known == *name));
                let names = nominated.iter().cloned().chain(more.take(step).map(ToString::to_string));
                Nomination::Write(names.take(NOMINATED_MAX).collect())
            }
        }
    }

    /// Says on the check why clusters have not taken the Workload or its job.
    fn tell_refusals(&self, clusters: &[&str]) -> Decision {
        let is_stopped = |cluster: &str| {
            let there = self.objects.workers.get(cluster).and_then(|worker| worker.workloads.get(self.key));
            there.is_some_and(|there| there.value["spec"]["active"] == false)
        };
        let why = clusters.iter().filter_map(|cluster| {
            if is_stopped(cluster) {
                return Some(format!("{cluster}: the workload is deactivated there (spec.active is false)"));
            }
            let refused = self.memory()?.refusals.get(*cluster)?;
            Some(format!("{cluster}: {refused}"))
        });
        let text = why.collect::<Vec<_>>().join("; ");
        if text.is_empty() { Decision::Nothing } else { self.judge("Pending", text) }
    }
}

enum Nomination {
    Write(Vec<String>),
    At(MicroTime),
    Nothing,
}
