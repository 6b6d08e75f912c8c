//! Jobs and cron jobs.

use serde_json::{Value, json};

use super::{Errors, SPEC, immutable, nonnegative, pod, require_one_of, selector, text};
use crate::builtin::fields::selects;
use crate::field_error::{FieldError, Path};
use crate::object;

/// `Job`.
pub(super) fn job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    generated_selector(new, errors);
    let spec = &new["spec"];
    job_spec(spec, SPEC, errors);
    if spec["selector"].is_null() {
        errors.push(FieldError::required(SPEC.child("selector"), ""));
    }
    selector::check(&spec["selector"], SPEC.child("selector"), errors);
    selector::matches_template(spec, SPEC, errors);
    if let Some(old) = old {
        job_update(spec, &old["spec"], errors);
    }
}

/// Validates the labels that select the pods of a job, if the server generated the selector.
fn generated_selector(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    if spec["manualSelector"] == true {
        return;
    }
    let (name, uid) = (object::name(job), object::uid(job));
    let labels = &spec["template"]["metadata"]["labels"];
    let template = SPEC.child("template");
    let metadata = template.child("metadata");
    let at = metadata.child("labels");
    let expected = json!({
        "controller-uid": uid, "job-name": name, "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
    });
    for (key, value) in expected.as_object().into_iter().flatten() {
        let detail = format!("must be '{}'", value.as_str().unwrap_or_default());
        match labels.get(key) {
            None => errors.push(FieldError::required(at.key(key), &detail)),
            Some(label) if label != value => {
                errors.push(FieldError::invalid(at.key(key), labels.clone(), &detail));
            }
            Some(_) => {}
        }
    }
    if !selects(&spec["selector"], &expected) {
        let detail = "`selector` not auto-generated";
        errors.push(FieldError::invalid(SPEC.child("selector"), spec["selector"].clone(), detail));
    }
}

fn job_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        nonnegative(spec, name, path, errors);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let at = path.child("backoffLimitPerIndex");
        errors.push(FieldError::required(at, "when maxFailedIndexes is specified"));
    }
    match text(spec, "completionMode") {
        "" | "NonIndexed" => {
            for name in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
                if !spec[name].is_null() {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(path.child(name), spec[name].clone(), detail));
                }
            }
        }
        "Indexed" => {
            if spec["completions"].is_null() {
                let at = path.child("completions");
                errors.push(FieldError::required(at, "when completion mode is Indexed"));
            }
            if let Some(parallelism) =
                spec["parallelism"].as_i64().filter(|parallelism| *parallelism > 100_000)
            {
                let detail = "must be less than or equal to 100000 when completion mode is Indexed";
                errors.push(FieldError::invalid(path.child("parallelism"), parallelism, detail));
            }
        }
        mode => {
            let at = path.child("completionMode");
            errors.push(FieldError::not_supported(at, mode, &["NonIndexed", "Indexed"]));
        }
    }
    if !spec["podReplacementPolicy"].is_null() {
        require_one_of(spec, "podReplacementPolicy", &["Failed", "TerminatingOrFailed"], path, errors);
    }
    let template = path.child("template");
    pod::template(&spec["template"], template, errors);
    let template_spec = template.child("spec");
    let at = template_spec.child("restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "" | "Always" => errors.push(FieldError::required(at, r#"valid values: "OnFailure", "Never""#)),
        policy if !matches!(policy, "OnFailure" | "Never") => {
            errors.push(FieldError::not_supported(at, policy, &["OnFailure", "Never"]));
        }
        policy if policy != "Never" && !spec["podFailurePolicy"].is_null() => {
            let detail = r#"only "Never" is supported when podFailurePolicy is specified"#;
            errors.push(FieldError::invalid(at, policy, detail));
        }
        _ => {}
    }
}

fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let indexed = text(new, "completionMode") == "Indexed";
    let completions = SPEC.child("completions");
    if !indexed {
        immutable(&new["completions"], &old["completions"], completions, errors);
    } else if new["completions"] != old["completions"] && new["completions"] != new["parallelism"] {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(completions, new["completions"].clone(), detail));
    }
    immutable(&new["selector"], &old["selector"], SPEC.child("selector"), errors);
    let mut fixed = old["template"].clone();
    if old["suspend"] == true {
        // The pod template of a suspended job has mutable scheduling directives.
        for path in [
            &["metadata", "labels"][..],
            &["metadata", "annotations"],
            &["spec", "nodeSelector"],
            &["spec", "tolerations"],
            &["spec", "schedulingGates"],
            &["spec", "affinity", "nodeAffinity"],
        ] {
            object::carry(&new["template"], &mut fixed, path);
        }
        for kind in ["containers", "initContainers"] {
            let new = super::items(&new["template"]["spec"], kind);
            let containers = fixed.get_mut("spec").and_then(|spec| spec.get_mut(kind));
            for (old, new) in containers.and_then(Value::as_array_mut).into_iter().flatten().zip(new) {
                object::carry(new, old, &["resources"]);
            }
        }
        let empty =
            |fixed: &Value| object::map(fixed, &["spec", "affinity"]).is_some_and(serde_json::Map::is_empty);
        if empty(&fixed) && object::get(&new["template"], &["spec", "affinity"]).is_none() {
            object::remove(&mut fixed, &["spec", "affinity"]);
        }
    }
    let template = SPEC.child("template");
    if old["suspend"] == true {
        immutable(&new["template"]["spec"], &fixed["spec"], template.child("spec"), errors);
    } else {
        immutable(&new["template"], &fixed, template, errors);
    }
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(&new[name], &old[name], SPEC.child(name), errors);
    }
}

/// `CronJob`.
pub(super) fn cron_job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    let schedule = text(spec, "schedule");
    let at = SPEC.child("schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if let Err(reason) = check_schedule(schedule) {
        errors.push(FieldError::invalid(at, schedule, &reason));
    }
    for name in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        nonnegative(spec, name, SPEC, errors);
    }
    require_one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], SPEC, errors);
    let template = SPEC.child("jobTemplate");
    if spec["jobTemplate"]["spec"]["manualSelector"] == true {
        let at = template.child("spec");
        errors.push(FieldError::not_supported(at.child("manualSelector"), true, &["nil", "false"]));
    }
    job_spec(&spec["jobTemplate"]["spec"], template.child("spec"), errors);
    if old.is_none() && object::name(new).len() > 52 {
        let detail = "must be no more than 52 characters";
        errors.push(FieldError::invalid(Path::Root("metadata.name"), object::name(new), detail));
    }
}

/// Validates a cron schedule: five fields with numbers, names, ranges, lists and steps, or a macro such as `@daily`.
fn check_schedule(schedule: &str) -> Result<(), String> {
    if schedule.contains("TZ") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if let Some(name) = schedule.strip_prefix('@') {
        let known =
            matches!(name, "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly");
        return if known || name.starts_with("every ") {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {schedule}"))
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let bounds: [(u32, u32, &[&str], u32); 5] =
        [(0, 59, &[], 0), (0, 23, &[], 0), (1, 31, &[], 0), (1, 12, &months, 1), (0, 6, &days, 0)];
    for (field, (min, max, names, first)) in fields.iter().zip(bounds) {
        for part in field.split(',') {
            let (range, step) =
                part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            if step.is_some_and(|step| step.parse::<u32>().ok().is_none_or(|step| step == 0)) {
                return Err(format!("step of range should be a positive number: {part}"));
            }
            if matches!(range, "*" | "?") {
                continue;
            }
            let number = |text: &str| {
                let by_name = names.iter().position(|name| name.eq_ignore_ascii_case(text));
                let by_name = by_name.and_then(|at| u32::try_from(at).ok()).map(|at| at + first);
                by_name.map_or_else(|| text.parse::<u32>().map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")), Ok)
            };
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) = (number(low)?, number(high)?);
            if low < min {
                return Err(format!("beginning of range ({low}) below minimum ({min}): {part}"));
            }
            if high > max {
                return Err(format!("end of range ({high}) above maximum ({max}): {part}"));
            }
            if low > high {
                return Err(format!("beginning of range ({low}) beyond end of range ({high}): {part}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_schedules_are_validated() {
        for schedule in ["*/5 * * * *", "0 0 1,15 jan-mar MON", "@hourly", "59 23 31 12 6", "? ? * * ?"] {
            assert_eq!(check_schedule(schedule), Ok(()), "{schedule}");
        }
        for schedule in [
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "x * * * *",
            "*/0 * * * *",
            "@never",
            "TZ=UTC * * * * *",
            "5-1 * * * *",
        ] {
            assert!(check_schedule(schedule).is_err(), "{schedule}");
        }
    }
}
