//! Asks the API server what admission makes of the pods of a template: one dry run for all equal templates of a namespace.
//!
//! A refused or failed dry run is repeated with backoff as long as a gang waits for it. Gangs of other templates do not wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::appwrapper::{AppWrapper, Spec};
use api::{demand, dry_run};
use index::{DryRun, DryRunAnswer, Index, Kind, TemplateId};
use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use super::State;
use crate::api_calls::ResourcePath;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::observations::Observation;

/// Backoff between two dry runs of one template.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// Maximum number of dry runs at the same time.
const REQUESTS_MAX: usize = 16;
/// Maximum number of dry runs in a namespace at the same time: a webhook that does not answer holds up no other namespace.
const REQUESTS_OF_NAMESPACE_MAX: usize = 2;
/// After so many attempts without an answer, a gang is planned without one.
const ATTEMPTS_MAX: u32 = 3;
/// Delay after which another AppWrapper with the template is tried, if the first one is gone.
const AFTER_GONE: Duration = Duration::from_millis(200);
/// Maximum length of the prefix of a generated name, as in Kubernetes.
const PREFIX_MAX: usize = 58;

/// The dry runs that are under way.
#[derive(Debug)]
pub(super) struct DryRuns {
    running: BTreeMap<(TemplateId, u64), AbortHandle>,
    permits: Arc<Semaphore>,
    /// By namespace with a dry run.
    of_namespaces: BTreeMap<String, Arc<Semaphore>>,
}

impl Default for DryRuns {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        Self { running: BTreeMap::new(), permits, of_namespaces: BTreeMap::new() }
    }
}

/// What limits the dry runs of a namespace, and all.
type Permits = [Arc<Semaphore>; 2];

impl DryRuns {
    fn permits(&mut self, namespace: &str) -> Permits {
        let new = || Arc::new(Semaphore::new(REQUESTS_OF_NAMESPACE_MAX));
        let own = self.of_namespaces.entry(namespace.to_owned()).or_insert_with(new);
        [own.clone(), self.permits.clone()]
    }
}

impl State {
    /// Starts the dry runs that are needed, and ends those that are not needed any more.
    pub(super) fn start_dry_runs(&mut self) {
        let wanted = Self::index(&self.index).wanted_dry_runs();
        if wanted.is_empty() && self.dry_runs.running.is_empty() {
            self.dry_runs.of_namespaces.clear();
            return;
        }
        let mut running = std::mem::take(&mut self.dry_runs.running);
        for run in wanted {
            let key = (run.id.clone(), run.generation);
            let task = running.remove(&key).unwrap_or_else(|| {
                let permits = self.dry_runs.permits(&run.id.namespace);
                self.tasks.spawn(ask(self.client.clone(), run, permits, self.observations.clone()))
            });
            self.dry_runs.running.insert(key, task);
        }
        for task in running.values() {
            task.abort();
        }
    }

    /// Applies the answer to a dry run; none if the AppWrapper is gone whose template was to be asked for.
    pub(super) fn dry_run_done(
        &mut self,
        index: &mut Index,
        id: &TemplateId,
        generation: u64,
        answer: Option<DryRunAnswer>,
    ) {
        if matches!(answer, None | Some(DryRunAnswer::Admitted(_))) {
            self.dry_runs.running.remove(&(id.clone(), generation));
        }
        if let Some(DryRunAnswer::Failed(why)) = &answer {
            tracing::warn!(namespace = id.namespace, why, "a dry run of a pod fails, retrying");
        }
        if let Some(answer) = answer {
            index.dry_run_done(id, generation, answer);
        }
    }
}

/// What one attempt results in.
enum Reply {
    Answer(DryRunAnswer),
    /// The API server or a webhook does not answer at present; why.
    Unavailable(String),
    /// The AppWrapper does not exist, or has another template now.
    Gone,
}

/// Asks until the pod is admitted. Reports every answer.
async fn ask(client: Client, run: DryRun, permits: Permits, observations: UnboundedSender<Observation>) {
    // The receiver is gone when the controller has ended.
    let report =
        |answer| drop(observations.send(Observation::DryRunDone(run.id.clone(), run.generation, answer)));
    for (attempt, delay) in (1..).zip(BACKOFF) {
        let reply = {
            let [own, all] = &permits;
            let (_own, _all) = (own.acquire().await, all.acquire().await);
            ask_once(&client, &run).await
        };
        match reply {
            Reply::Answer(answer @ DryRunAnswer::Admitted(_)) => return report(Some(answer)),
            Reply::Answer(answer) => report(Some(answer)),
            Reply::Unavailable(why) if attempt >= ATTEMPTS_MAX => report(Some(DryRunAnswer::Failed(why))),
            Reply::Unavailable(_) => {}
            Reply::Gone => {
                tokio::time::sleep(AFTER_GONE).await;
                return report(None);
            }
        }
        tokio::time::sleep(delay).await;
    }
}

async fn ask_once(client: &Client, run: &DryRun) -> Reply {
    let key = &run.wrapper;
    let path = ResourcePath::wrappers(key.group, &key.namespace);
    let wrapper: AppWrapper = match path.get(client, &key.name).await {
        Ok(wrapper) => wrapper,
        Err(Error::NotFound(_)) => return Reply::Gone,
        Err(error) => return Reply::Unavailable(error.to_string()),
    };
    let Some((pod, is_faithful)) = pod_of(&wrapper, run) else { return Reply::Gone };
    let pods = ResourcePath::of(&Kind::new("v1", "Pod"), "pods", &key.namespace);
    match pods.create_dry_run::<Value>(client, &pod).await {
        Ok(answer) => match dry_run::read(&pod, &answer) {
            Ok(admitted) => Reply::Answer(DryRunAnswer::Admitted(Box::new(admitted))),
            Err(error) => Reply::Answer(DryRunAnswer::Failed(error.to_string())),
        },
        Err(error) => {
            let prefix = pod["metadata"]["generateName"].as_str().unwrap_or_default();
            reply_to(&error, is_faithful, prefix)
        }
    }
}

/// The pod to ask for, and whether it is like those that will be created; `None` if the AppWrapper has the template no longer.
fn pod_of(wrapper: &AppWrapper, run: &DryRun) -> Option<(Value, bool)> {
    let meta = &wrapper.metadata;
    let spec = Spec::read(&wrapper.spec, &meta.name).ok().filter(|_| meta.uid == run.uid)?;
    let demand = demand::of_spec(&spec).ok()?;
    let objects: Vec<&Value> = spec.objects().collect();
    let set = demand.pod_sets.get(run.set)?;
    let object = objects.get(set.object)?;
    let pod = dry_run::pod(meta, &objects, set).filter(|_| run.id.is_of(object, set))?;
    Some((pod, dry_run::is_faithful(object)))
}

/// What an error says about the pods that will be created.
///
/// A quota that is exhausted at present is no refusal: preemption may free it. A webhook that cannot be called keeps pods
/// from being created, like one that refuses them; one with side effects says nothing about a dry run.
fn reply_to(error: &Error, is_faithful: bool, prefix: &str) -> Reply {
    let text = without_generated_name(&error.to_string(), prefix);
    let says_nothing = ["does not support dry run", "exceeded quota"].iter().any(|part| text.contains(part));
    match error {
        Error::Refused(_) | Error::NotAdmitted(_) if says_nothing => {
            Reply::Answer(DryRunAnswer::Failed(text))
        }
        Error::NotAdmitted(_) => Reply::Answer(DryRunAnswer::Refused(text)),
        Error::Refused(_) if is_faithful => Reply::Answer(DryRunAnswer::Refused(text)),
        Error::Refused(_) | Error::NotAllowed(_) => Reply::Answer(DryRunAnswer::Failed(text)),
        Error::Failing(_) if text.contains("failed calling webhook") => {
            Reply::Answer(DryRunAnswer::Refused(text))
        }
        Error::Failing(_)
        | Error::Conflict(_)
        | Error::Exists(_)
        | Error::NotFound(_)
        | Error::Unreachable(_)
        | Error::LeaseLost(_)
        | Error::NotEstablished { .. } => Reply::Unavailable(text),
    }
}

/// The text without the random part of the name of the pod, so that equal answers have equal texts.
fn without_generated_name(text: &str, prefix: &str) -> String {
    let quoted: String = std::iter::once('"').chain(prefix.chars().take(PREFIX_MAX)).collect();
    let mut parts = text.split(quoted.as_str());
    let mut shortened = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once('"').map_or(part, |(_, rest)| rest);
        shortened.extend([&quoted, "*\"", rest]);
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_same_text_each_time() {
        let text = |name: &str| format!("pods \"{name}\" is forbidden: maximum cpu usage per Pod is 1");
        let without = without_generated_name(&text("job-x7k2p"), "job-");
        assert_eq!(without, text("job-*"));
        assert_eq!(without, without_generated_name(&text("job-8c4zz"), "job-"));
    }

    #[test]
    fn an_error_is_a_refusal_if_the_pods_would_be_refused_too() {
        let refused = |text: &str| Error::Refused(text.into());
        let not_admitted = |text: &str| Error::NotAdmitted(text.into());
        let webhook = "Internal error occurred: failed calling webhook \"w\": connection refused";
        let cases = [
            (not_admitted("pods \"p\" is forbidden: maximum cpu usage per Pod is 1"), true, "refused"),
            (not_admitted("admission webhook \"w\" denied the request"), false, "refused"),
            (refused("Pod \"p\" is invalid"), true, "refused"),
            (refused("Pod \"p\" is invalid"), false, "failed"),
            (refused("admission webhook \"w\" does not support dry run"), true, "failed"),
            (not_admitted("pods \"p\" is forbidden: exceeded quota: q"), true, "failed"),
            (Error::Failing(webhook.into()), true, "refused"),
            (Error::Failing("too many requests".into()), true, "unavailable"),
            (Error::Unreachable("no answer within 30 s".into()), true, "unavailable"),
        ];
        for (error, is_faithful, expected) in cases {
            let found = match reply_to(&error, is_faithful, "p-") {
                Reply::Answer(DryRunAnswer::Refused(_)) => "refused",
                Reply::Answer(DryRunAnswer::Failed(_)) => "failed",
                Reply::Answer(DryRunAnswer::Admitted(_)) | Reply::Gone => "other",
                Reply::Unavailable(_) => "unavailable",
            };
            assert_eq!(found, expected, "{error}");
        }
    }
}
