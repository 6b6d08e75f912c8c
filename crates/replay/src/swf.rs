//! Reads the Standard Workload Format, version 2: one line of 18 numbers for each job, -1 for an unknown value; `;` begins a
//! comment.
//!
//! After Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999, and the
//! description in the Parallel Workloads Archive. `docs/replay.md` lists the fields that are used.

use model::{Event, Node, PodSet, ResourceIx, ResourceVec, Time, World};

use crate::source::{Error, Source};
use crate::trace::{Job, LeftOut, Trace, Unit};

const FIELDS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
];

/// Reads a log for a machine with this number of processors.
///
/// The machine is one node, and a job has one pod for each processor: the machines of these logs can give a job any
/// processors. The width of a job is the requested number of processors, or the allocated number when the log has no
/// request. The declared run time is the requested time, or the run time when the log has no requested time.
pub fn read(source: &Source, processors: u32) -> Result<Trace, Error> {
    let mut trace = Trace::new(machine(processors), Unit::Processors, u64::from(processors));
    for line in source.lines().filter(|line| !line.text.trim_start().starts_with(';')) {
        let [number, submit, _, run, allocated, _, _, asked, requested, ..] = line.words(FIELDS)?;
        let (submitted, runs_us, requested_us) = (submit.seconds()?, run.seconds()?, requested.seconds()?);
        let (allocated, asked) = (allocated.number::<i64>()?, asked.number::<i64>()?);
        let width = if asked > 0 { asked } else { allocated };
        if runs_us < 0 {
            trace.leave_out(LeftOut::UnknownRunTime);
            continue;
        }
        if width <= 0 {
            trace.leave_out(LeftOut::UnknownWidth);
            continue;
        }
        let Some(width) = u32::try_from(width).ok().filter(|width| *width <= processors) else {
            trace.leave_out(LeftOut::TooWide);
            continue;
        };
        trace.jobs.push(Job {
            name: number.to_string(),
            submitted: Time(submitted),
            runs_us,
            declared_us: if requested_us > 0 { requested_us } else { runs_us },
            width,
            pod_sets: [pods(width)].into(),
        });
    }
    if trace.jobs.is_empty() {
        return Err(source.empty("jobs that can be replayed"));
    }
    Ok(trace.sorted())
}

fn machine(processors: u32) -> World {
    let mut world = World::new();
    let allocatable = ResourceVec::new()
        .with(ResourceIx::CPU, i64::from(processors) * 1000)
        .with(ResourceIx::PODS, i64::from(processors));
    world.apply(Event::NodeUpserted(Node {
        name: "machine".into(),
        ready: true,
        allocatable,
        ..Node::default()
    }));
    world
}

fn pods(count: u32) -> PodSet {
    let request = ResourceVec::new().with(ResourceIx::CPU, 1000).with(ResourceIx::PODS, 1);
    PodSet { name: "processor".into(), count, request, ..PodSet::default() }
}
