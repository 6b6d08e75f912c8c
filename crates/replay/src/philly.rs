//! Reads the jobs of Microsoft's Philly clusters from a table with the columns `timestamp`, `duration` in seconds and
//! `num_gpus`. Other columns are ignored.
//!
//! The trace is published with Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
//! ATC 2019. The format is the one that the simulator of Sia (SOSP 2023) reads.

use std::num::NonZeroU32;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use model::{Event, Node, PodSet, ResourceIx, ResourceVec, Time, World};

use crate::source::{Error, Field, Source};
use crate::trace::{Job, LeftOut, Trace, Unit};

/// A cluster of identical nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of nodes.
    pub nodes: NonZeroU32,
    /// The number of GPUs on each node.
    pub gpus: NonZeroU32,
}

/// Reads the jobs for a cluster of this shape.
///
/// A job has one pod for every whole node that it fills, and one pod for the remaining GPUs, so it uses as few nodes as
/// possible. The trace has no run time estimates. The declared run time of a job is its run time, rounded up to a power of
/// two of minutes: users mostly choose one of a few round values and rarely underestimate (after Tsafrir et al., "Modeling
/// User Runtime Estimates", JSSPP 2005).
pub fn read(source: &Source, shape: Shape) -> Result<Trace, Error> {
    let mut world = World::new();
    let gpu = world.resources_mut().intern("nvidia.com/gpu");
    for at in 0..shape.nodes.get() {
        let allocatable = amounts(gpu, shape.gpus.get(), 110);
        world.apply(Event::NodeUpserted(Node {
            name: format!("node-{at:06}"),
            ready: true,
            allocatable,
            ..Node::default()
        }));
    }
    let capacity = u64::from(shape.nodes.get()) * u64::from(shape.gpus.get());
    let mut trace = Trace::new(world, Unit::Gpus, capacity);
    for row in source.table(["timestamp", "duration", "num_gpus"], &[])? {
        let [timestamp, duration, gpus] = row?;
        let (submitted, runs_us, width) = (time(&timestamp)?, duration.seconds()?, gpus.number::<u32>()?);
        if runs_us < 0 {
            trace.leave_out(LeftOut::UnknownRunTime);
        } else if width == 0 {
            trace.leave_out(LeftOut::UnknownWidth);
        } else if u64::from(width) > capacity {
            trace.leave_out(LeftOut::TooWide);
        } else {
            trace.jobs.push(Job {
                name: format!("{timestamp}/{width}"),
                submitted,
                runs_us,
                declared_us: rounded_up(runs_us),
                width,
                pod_sets: pods(gpu, width, shape.gpus.get()),
            });
        }
    }
    if trace.jobs.is_empty() {
        return Err(source.empty("jobs that can be replayed"));
    }
    Ok(trace.sorted())
}

fn amounts(gpu: ResourceIx, gpus: u32, pods: i64) -> ResourceVec {
    ResourceVec::new().with(gpu, i64::from(gpus)).with(ResourceIx::PODS, pods)
}

/// Rounds up to a power of two of minutes.
fn rounded_up(runs_us: i64) -> i64 {
    const MINUTE_US: u64 = 60_000_000;
    let minutes = runs_us.unsigned_abs().div_ceil(MINUTE_US).next_power_of_two();
    i64::try_from(minutes.saturating_mul(MINUTE_US)).unwrap_or(i64::MAX)
}

fn pods(gpu: ResourceIx, width: u32, node: u32) -> Arc<[PodSet]> {
    let set = |name: &str, count, gpus| PodSet {
        name: name.into(),
        count,
        request: amounts(gpu, gpus, 1),
        ..PodSet::default()
    };
    let sets =
        [set("whole", width / node, node), set("rest", u32::from(!width.is_multiple_of(node)), width % node)];
    sets.into_iter().filter(|set| set.count > 0).collect()
}

/// Parses a local time without a zone as UTC. A replay uses only differences of times.
fn time(field: &Field<'_>) -> Result<Time, Error> {
    let wrong = || field.invalid("a time such as 2017-10-09 07:01:55");
    let time: DateTime = field.text.parse().map_err(|_| wrong())?;
    let zoned = time.to_zoned(TimeZone::UTC).map_err(|_| wrong())?;
    Ok(Time(zoned.timestamp().as_microsecond()))
}
