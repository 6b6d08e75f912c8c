//! `pods/log`: the log of a container, as appended by the simulated kubelet.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object;
use crate::registry::Resource;
use crate::request::{Call, Target};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::Status;

/// Maximum number of lines that are kept for one container.
const LINES_MAX: usize = 10_000;

impl ApiServer {
    /// Appends lines to the log of a container. The log is deleted with the pod.
    pub fn append_log(&mut self, now: Timestamp, pod_uid: &str, container: &str, text: &str) {
        let key = (pod_uid.to_owned(), container.to_owned());
        let lines = self.logs.entry(key).or_default();
        lines.extend(text.lines().map(|line| (now, line.to_owned())));
        let excess = lines.len().saturating_sub(LINES_MAX);
        lines.drain(..excess);
    }

    pub(crate) fn forget_logs(&mut self, pod_uid: &str) {
        let from = (pod_uid.to_owned(), String::new());
        let containers: Vec<_> = self
            .logs
            .range(from..)
            .map(|(key, _)| key.clone())
            .take_while(|(uid, _)| uid == pod_uid)
            .collect();
        for key in containers {
            self.logs.remove(&key);
        }
    }

    pub(super) fn read_log(
        &mut self,
        call: &Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let live = self.find(target, resource)?;
        let pod = live.value();
        let container = container(&pod, call.query.text("container"))?;
        let name = live.name();
        if object::text(&pod, &["spec", "nodeName"]).is_empty() {
            return Ok(Answer::text("")); // An unscheduled pod has no log.
        }
        if !has_started(&pod, &container) {
            let reason = waiting_reason(&pod, &container);
            return Err(Status::bad_request(format!(
                "container {container:?} in pod {name:?} is waiting to start: {reason}"
            )));
        }
        let query = &call.query;
        let since = match (query.number("sinceSeconds")?, object::parse_stamp(query.text("sinceTime"))) {
            (Some(seconds), _) => call.now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
            (None, since) => since,
        };
        let lines = self.logs.get(&(live.uid.to_string(), container)).map(Vec::as_slice).unwrap_or_default();
        let lines: Vec<_> = lines.iter().filter(|(at, _)| since.is_none_or(|since| *at >= since)).collect();
        let tail = query.number("tailLines")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(0));
        let mut text = String::new();
        for (at, line) in &lines[lines.len().saturating_sub(tail)..] {
            if query.flag("timestamps") {
                text.push_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
            }
            text.push_str(line);
            text.push('\n');
        }
        if let Some(limit) = query.number("limitBytes")? {
            let mut end = usize::try_from(limit).unwrap_or(0).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Ok(Answer::text(text))
    }
}

/// All containers of a pod: init, regular and ephemeral ones.
fn containers(pod: &Value) -> impl Iterator<Item = &str> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|key| object::items(pod, &["spec", key]))
        .map(|container| object::text(container, &["name"]))
}

/// The container with the given name, or the only container if the name is empty.
fn container(pod: &Value, named: &str) -> Result<String, Status> {
    let pod_name = object::name(pod);
    if !named.is_empty() {
        let known = containers(pod).any(|name| name == named);
        let unknown = || Status::bad_request(format!("container {named} is not valid for pod {pod_name}"));
        return known.then(|| named.to_owned()).ok_or_else(unknown);
    }
    let main: Vec<&str> =
        object::items(pod, &["spec", "containers"]).iter().map(|c| object::text(c, &["name"])).collect();
    match main.as_slice() {
        [only] => Ok((*only).to_owned()),
        several => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            several.join(" ")
        ))),
    }
}

fn status_of<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .flat_map(|key| object::items(pod, &["status", key]))
        .find(|status| object::text(status, &["name"]) == container)
}

fn has_started(pod: &Value, container: &str) -> bool {
    status_of(pod, container).is_some_and(|status| {
        ["running", "terminated"].iter().any(|state| object::get(status, &["state", state]).is_some())
            || object::get(status, &["lastState", "terminated"]).is_some()
    })
}

fn waiting_reason(pod: &Value, container: &str) -> String {
    let reason =
        status_of(pod, container).map(|status| object::text(status, &["state", "waiting", "reason"]));
    reason.filter(|reason| !reason.is_empty()).unwrap_or("ContainerCreating").to_owned()
}
