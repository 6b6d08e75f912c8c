//! The data of the dashboard, from a controller.

use std::sync::{Arc, PoisonError};

use controllers::{Controller, Reports, Unplanned};
use dashboard::{Unqueued, View};
use jiff::Timestamp;
use server::{Mode, Report};

/// The data source of the dashboard.
pub(crate) fn source(controller: &Controller) -> dashboard::Source {
    let (index, reports) = (controller.index(), controller.reports());
    Arc::new(move || {
        let unplanned = unplanned(&reports);
        View::of(index.read().unwrap_or_else(PoisonError::into_inner).world(), unplanned, Timestamp::now())
    })
}

/// What is in no plan, in the words of `muster why`.
fn unplanned(reports: &Reports) -> dashboard::Unplanned {
    let Unplanned { unqueued, ended, blocked_jobs } = reports.unplanned();
    let jobs = blocked_jobs.into_iter().map(|job| Unqueued {
        key: job.key,
        state: "not queued".into(),
        causes: vec![job.cause],
        ..Unqueued::default()
    });
    let rows = unqueued.iter().map(|report| {
        let status = Report::new(report, Mode::Actual).status;
        let causes = status["causes"].as_array().into_iter().flatten();
        Unqueued {
            key: report.key().clone(),
            state: status["state"].as_str().unwrap_or_default().to_owned(),
            causes: causes.filter_map(|cause| cause.as_str().map(str::to_owned)).collect(),
            priority: report.object().priority,
            pods: Some(report.object().pods),
        }
    });
    dashboard::Unplanned { unqueued: rows.chain(jobs).collect(), ended }
}
