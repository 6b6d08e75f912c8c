//! The commands that put Muster in the place of what runs in a cluster.

use std::collections::BTreeSet;

use api::appwrapper::Group;
use serde_json::{Value, json};

use super::cluster::{Cluster, text};
use super::mcad::McadSettings;
use super::objects::remote_checks;
use super::read::WEBHOOK_SERVICE;
use super::settings::Settings;
use super::systems::{Deployment, Software, System, find};
use super::wrappers::Wraps;

/// The labels that the chart gives pods in Kueue's place without being told.
const OF_CHART: [&str; 2] = ["app.kubernetes.io/name", "control-plane"];

/// What the commands are made of.
pub(crate) struct Plan<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) systems: &'a [System],
    pub(crate) kueue: Option<&'a Settings>,
    pub(crate) provisions: bool,
    pub(crate) mcad: &'a McadSettings,
    /// There are AppWrappers that Muster would manage.
    pub(crate) has_wrappers: bool,
    pub(crate) groups: &'a BTreeSet<Group>,
    pub(crate) wraps: &'a Wraps,
}

/// Commands with the name of the section of `docs/install.md` about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) section: &'static str,
    pub(crate) lines: Vec<String>,
}

impl Commands {
    /// The commands in JSON.
    pub(crate) fn value(&self) -> Value {
        json!({"section": self.section, "lines": self.lines})
    }
}

impl Plan<'_> {
    fn deployment(&self, software: Software) -> Option<&Deployment> {
        find(self.systems, software)?.deployment.as_ref()
    }

    /// The commands; `None` if there is nothing whose place Muster would take.
    pub(crate) fn commands(&self) -> Option<Commands> {
        let kueue = self.kueue.zip(self.deployment(Software::Kueue));
        let mcad = self.deployment(Software::Mcad);
        let manages_wrappers = mcad.is_some() || self.has_wrappers;
        let section = match (kueue.is_some(), manages_wrappers) {
            (true, true) => "In Kueue's place, and in MCAD's",
            (true, false) => "In Kueue's place",
            (false, true) => "In MCAD's place",
            (false, false) => return None,
        };
        let mut lines: Vec<String> = kueue.iter().map(|(_, found)| *found).chain(mcad).map(stop).collect();
        let namespace = kueue.map_or("muster-system", |(_, found)| &found.namespace);
        let create = if kueue.is_some() { "" } else { " --create-namespace" };
        let mut words = vec![format!("helm install muster charts/muster --namespace {namespace}{create}")];
        if manages_wrappers {
            words.extend(self.of_wrappers());
        } else {
            words.push("--set appWrappers.enabled=false".into());
        }
        if let Some((settings, deployment)) = kueue {
            words.extend(self.of_kueue(settings, deployment));
        }
        lines.push(words.join(" \\\n  "));
        Some(Commands { section, lines })
    }

    fn of_wrappers(&self) -> Vec<String> {
        let mut words = Vec::new();
        let groups: Vec<&str> = self.groups.iter().map(|group| group.name()).collect();
        if groups != [Group::Codeflare.name()] && !groups.is_empty() {
            words.push(format!("--set 'appWrappers.groups={{{}}}'", groups.join(",")));
        }
        let values = [
            ("quota", self.mcad.quota),
            ("preemption", self.mcad.preemption),
            ("dynamicPriority", self.mcad.dynamic_priority),
        ];
        let on = values.into_iter().filter(|(_, is_on)| *is_on);
        words.extend(on.map(|(name, _)| format!("--set appWrappers.{name}=true")));
        if !self.wraps.is_empty() {
            // A list in a value takes the place of the default one.
            let defaults = super::wrappers::default_wraps();
            let merged: Wraps = self
                .wraps
                .iter()
                .map(|(group, more)| {
                    let known = defaults.get(group).into_iter().flatten();
                    (group.clone(), known.chain(more).cloned().collect())
                })
                .collect();
            words.push(format!("--set-json appWrappers.wraps={}", quoted(&json!(merged).to_string())));
        }
        words
    }

    fn of_kueue(&self, settings: &Settings, deployment: &Deployment) -> Vec<String> {
        let mut words = vec![
            "--set kueue.enabled=true --set kueue.inPlace=true".to_owned(),
            format!("--set 'kueue.jobs={{{}}}'", settings.jobs.join(",")),
        ];
        if self.provisions {
            words.push("--set kueue.provisioning=true".into());
        }
        if !remote_checks(self.cluster).is_empty() {
            words.push("--set kueue.multikueue=true".into());
        }
        if let Some(issuer) = settings.issuer {
            words.push(format!("--set certificates.issuer={issuer}"));
        }
        for (label, value) in self.pod_labels(deployment) {
            words.push(format!(
                "--set {}",
                quoted(&format!("podLabels.{}={value}", label.replace('.', "\\.")))
            ));
        }
        if !settings.configuration.is_empty() {
            let configuration = json!(settings.configuration).to_string();
            words.push(format!("--set-json kueue.configuration={}", quoted(&configuration)));
        }
        words
    }

    /// What Kueue's Service selects beside what the chart gives pods.
    fn pod_labels(&self, deployment: &Deployment) -> Vec<(&str, &str)> {
        let service = self.cluster.named("services", &deployment.namespace, WEBHOOK_SERVICE);
        let selector = service.and_then(|service| service["spec"]["selector"].as_object());
        let labels = selector.into_iter().flatten().map(|(label, value)| (label.as_str(), text(value)));
        labels.filter(|(label, _)| !OF_CHART.contains(label)).collect()
    }
}

fn stop(deployment: &Deployment) -> String {
    format!("kubectl -n {} scale deployment/{} --replicas=0", deployment.namespace, deployment.name)
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
