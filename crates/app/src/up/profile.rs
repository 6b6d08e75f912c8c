//! `muster up --profile chart`: the controller as the Helm chart starts it by default. The only source is the chart: its Deployment has
//! the flags of the controller, and its `ConfigMap` the configuration of Kueue.

use anyhow::{Context, Result};
use chart::{Chart, Release};
use clap::Parser;
use serde_json::Value;

use super::Args;
use crate::controller;
use crate::embedded_kueue::Queues;
use crate::kueue::Kueue;

/// Whose defaults the controller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Profile {
    /// Those of the Helm chart, which are those of `muster install`.
    Chart,
}

/// The flags of `muster controller`.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    controller: controller::Args,
}

/// Gives the controller the defaults of the chart, changed by these values.
pub(super) fn apply(args: &mut Args, changes: impl IntoIterator<Item = Value>) -> Result<Queues> {
    let release = Release { name: "muster".into(), namespace: "muster".into() };
    let objects = Chart::new(&release, changes)?.objects()?;
    let deployment = of_kind(&objects, "Deployment").next().context("the chart has no Deployment")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let flags = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let flags = flags.skip_while(|flag| *flag != "controller").skip(1);
    let line = Line::try_parse_from(flags).context("the flags of the chart are not valid")?;
    let controller::Args { dispatch, kueue, .. } = line.controller;
    args.appwrapper_groups = dispatch.appwrapper_groups;
    args.appwrapper_columns = dispatch.appwrapper_columns;
    args.preemption = dispatch.preemption;
    args.dynamic_priority = dispatch.dynamic_priority;
    args.packing = dispatch.packing;
    args.guessed_hold = dispatch.guessed_hold;
    args.quota = dispatch.quota;
    args.provisioning_classes = dispatch.provisioning_classes;
    let configuration =
        of_kind(&objects, "ConfigMap").find_map(|map| map["data"]["configuration.yaml"].as_str());
    let document = configuration.map(serde_saphyr::from_str::<Value>).transpose();
    let document = document.context("the configuration of the chart is no YAML")?;
    let kueue = document.map(|document| Kueue::of_chart(&kueue, document)).transpose()?;
    Ok(kueue.map_or(Queues::Off, |kueue| Queues::Configured(Box::new(kueue))))
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Up {
        #[command(flatten)]
        args: Args,
    }

    fn up(changes: &[Value]) -> (Args, Queues) {
        let mut args = Up::try_parse_from(["up", "--profile", "chart"]).unwrap().args;
        let queues = apply(&mut args, changes.to_vec()).unwrap();
        (args, queues)
    }

    #[test]
    fn what_the_controller_does_comes_from_the_values_of_the_chart() {
        let values: Value = serde_saphyr::from_str(chart::values_file()).unwrap();
        let wrappers = &values["appWrappers"];
        let (args, queues) = up(&[]);
        let groups: Vec<&str> = args.appwrapper_groups.iter().map(|group| group.name()).collect();
        assert_eq!(json!(groups), wrappers["groups"]);
        assert_eq!(json!(args.preemption), wrappers["preemption"]);
        assert_eq!(json!(args.dynamic_priority), wrappers["dynamicPriority"]);
        assert_eq!(json!(args.quota), wrappers["quota"]);
        assert_eq!(json!(args.provisioning_classes), wrappers["provisioningClasses"]);
        assert_eq!(!matches!(queues, Queues::Off), values["kueue"]["enabled"] == true);
        let wrappers = json!({"groups": ["mcad.ibm.com"], "preemption": true, "quota": true, "columns": "mcad",
            "provisioningClasses": ["none", "a.b"]});
        let kueue = json!({"enabled": true, "jobs": ["batch/job", "pod"],
            "configuration": {"manageJobsWithoutQueueName": true}});
        let (args, queues) = up(&[json!({"appWrappers": wrappers, "kueue": kueue})]);
        assert_eq!(args.appwrapper_groups, [api::appwrapper::Group::Mcad]);
        assert!(args.preemption && args.quota);
        assert_eq!(args.provisioning_classes, ["none", "a.b"]);
        let Queues::Configured(kueue) = queues else { panic!("Kueue's API is off") };
        let duties = kueue.duties().unwrap();
        let kinds: Vec<&str> = duties.jobs.kinds.iter().map(|kind| kind.framework).collect();
        assert_eq!(kinds, ["batch/job", "pod"]);
        assert!(
            duties.jobs.manages_unnamed && duties.provisioning.is_none() && !duties.options.rules.places_pods
        );
    }
}
