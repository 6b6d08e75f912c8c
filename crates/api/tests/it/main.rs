//! The tests of the crate `api` from outside, one module for each subject.

mod examples;
mod kinds;
mod kueue_cases;
mod kueue_config;
mod kueue_conversion;
mod kueue_declared_kinds;
mod kueue_elastic;
mod kueue_job_kinds;
mod kueue_jobs;
mod kueue_pod_webhooks;
mod kueue_pods;
mod kueue_provisioning;
mod kueue_ray;
mod kueue_webhooks;
mod kueue_workloads;
mod labels;
mod limits;
mod names;
mod transitions;
