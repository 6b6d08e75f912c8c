//! The operator of Spark applications: a pod of the driver, and those of the executors while the driver runs. After the Spark operator
//! v2. An application that fails is not submitted again.

use serde_json::{Map, Value, json};

use super::super::Integration as _;
use super::super::spark::{ROLES, SparkApplication, pod_template};
use super::{Column, Operator, Seen, SeenPod, known_status, label, name, pod};

/// The label of pods with their role.
const ROLE: &str = "spark-role";
/// The label of pods with the name of their application.
const APPLICATION: &str = "sparkoperator.k8s.io/app-name";
/// The annotation of pods with the time that they run, in a simulated cluster.
const RUN_TIME: &str = "sandbox.muster.dev/run-time";
/// An executor ends with its driver.
const WITHOUT_END: &str = "87600h";

impl Operator for SparkApplication {
    fn short_names(&self) -> &'static [&'static str] {
        &["sparkapp"]
    }

    fn columns(&self) -> &'static [Column] {
        &[
            ("Status", "string", ".status.applicationState.state"),
            ("Attempts", "string", ".status.executionAttempts"),
            ("Start", "string", ".status.lastSubmissionAttemptTime"),
            ("Finish", "string", ".status.terminationTime"),
        ]
    }

    fn objects(&self, app: &Value, seen: &Seen<'_>) -> Vec<Value> {
        let pods = self.pod_sets(app).into_iter().flat_map(|set| {
            let role = set["name"].as_str().unwrap_or_default().to_owned();
            let is_driver = role == ROLES[0];
            let count = u32::try_from(set["count"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
            let template = pod_template(app, &role);
            let of_index = move |index: u32| {
                let suffix = if is_driver { "driver".to_owned() } else { format!("exec-{}", index + 1) };
                let mut pod = pod(&format!("{}-{suffix}", name(app)), &role, &template);
                label(&mut pod, ROLE, &role);
                label(&mut pod, APPLICATION, name(app));
                if !is_driver && pod["metadata"]["annotations"][RUN_TIME].is_null() {
                    pod["metadata"]["annotations"][RUN_TIME] = WITHOUT_END.into();
                }
                pod
            };
            (0..count.min(seen.most_pods)).map(of_index).collect::<Vec<_>>()
        });
        pods.collect()
    }

    fn wants(&self, _: &Value, seen: &Seen<'_>, object: &Value) -> bool {
        object["metadata"]["labels"][ROLE] == ROLES[0]
            || driver(seen).is_some_and(|driver| driver.phase == "Running")
    }

    fn status(&self, app: &Value, seen: &Seen<'_>) -> Value {
        let mut status = known_status(app);
        if self.finished(app).is_some() {
            return status;
        }
        let driver = driver(seen);
        let phase = driver.map(|driver| driver.phase);
        let (state, error) = match phase {
            Some(_) if self.is_suspended(app) => ("SUSPENDING", ""),
            None if self.is_suspended(app) => ("SUSPENDED", ""),
            Some("Running") => ("RUNNING", ""),
            Some("Succeeded") => ("COMPLETED", ""),
            Some("Failed") => ("FAILED", "driver container failed"),
            Some(_) => ("SUBMITTED", ""),
            None => ("", ""),
        };
        status["applicationState"] = json!({"state": state});
        if !error.is_empty() {
            status["applicationState"]["errorMessage"] = error.into();
        }
        if let Some(driver) = driver.filter(|_| state == "SUBMITTED" && status["driverInfo"].is_null()) {
            status["driverInfo"] = json!({"podName": driver.name});
            status["lastSubmissionAttemptTime"] = json!(seen.now);
            status["executionAttempts"] = 1.into();
            status["submissionAttempts"] = 1.into();
        }
        if state == "SUSPENDED" {
            for field in ["driverInfo", "executorState", "lastSubmissionAttemptTime"] {
                status.as_object_mut().map(|status| status.remove(field));
            }
        }
        if state == "COMPLETED" || state == "FAILED" {
            status["terminationTime"] = json!(seen.now);
        }
        let executors = seen.pods.iter().filter(|pod| pod.is_of(ROLES[1]));
        let executors: Map<String, Value> =
            executors.map(|pod| (pod.name.to_owned(), executor_state(pod).into())).collect();
        if !executors.is_empty() {
            status["executorState"] = executors.into();
        }
        status
    }
}

fn driver<'a>(seen: &'a Seen<'_>) -> Option<&'a SeenPod<'a>> {
    seen.pods.iter().find(|pod| pod.is_of(ROLES[0]))
}

fn executor_state(pod: &SeenPod<'_>) -> &'static str {
    match pod.phase {
        "Running" => "RUNNING",
        "Succeeded" => "COMPLETED",
        "Failed" => "FAILED",
        _ => "PENDING",
    }
}
