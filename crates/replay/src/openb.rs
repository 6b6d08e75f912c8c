//! Alibaba's `openb` cluster of 2023: a table of nodes, and one of tasks of one pod each. And FGD's way of filling it.
//!
//! After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC
//! 2023: tasks come in random order and stay for ever; those that find no place go away. When the GPUs asked for by all
//! that came reach those of the cluster, what is not allocated is counted.

use std::collections::BTreeMap;

use model::{
    Amount, Constraints, DeviceShare, Event, Gang, GangKey, Node, Operator, Packing, PodSet, Policy,
    Requirement, ResourceIx, ResourceVec, Room, Term, Time, World,
};

use crate::source::{Error, Field, Source};
use crate::stage::{Broken, Stage, admitted};

/// The label that says of which model a node's GPUs are.
const MODEL: &str = "gpu-model";
const MIB: i64 = 1 << 20;
/// A whole GPU, in thousandths.
const WHOLE: u64 = 1000;

/// A cluster, and the tasks that it is filled with.
#[derive(Clone, Debug)]
pub struct Workload {
    cluster: World,
    gpu: ResourceIx,
    /// How many GPUs the nodes have.
    pub gpus: u64,
    tasks: Vec<Task>,
}

/// One task: a gang of one pod.
#[derive(Clone, Debug)]
struct Task {
    /// The GPUs that it asks for, in thousandths of one.
    milli: u64,
    pod: PodSet,
}

/// A cluster as full as it became.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// How many tasks came.
    pub came: usize,
    /// How many of them found no place.
    pub refused: usize,
    /// The GPUs of those that did, in thousandths of one.
    pub allocated_milli: u64,
    /// What is idle and of no use to a task of the workload, in the mean over all of its tasks; in thousandths of a GPU.
    pub fragmented_milli: u64,
}

impl Workload {
    /// Reads a table of nodes (`sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`) and one of tasks (`cpu_milli`, `memory_mib`,
    /// `num_gpu`, `gpu_milli` of each GPU, `gpu_spec`: the models that will do, between `|`, or nothing, as
    /// where the column is missing).
    pub fn read(nodes: &Source, tasks: &Source) -> Result<Self, Error> {
        let mut cluster = World::new();
        let gpu = cluster.resources_mut().intern("nvidia.com/gpu");
        let mut gpus = 0;
        for row in nodes.table(["sn", "cpu_milli", "memory_mib", "gpu", "model"], &[])? {
            let [name, cpu, memory, devices, model] = row?;
            let devices = devices.number::<u32>()?;
            gpus += u64::from(devices);
            cluster.apply(Event::NodeUpserted(Node {
                name: name.to_string(),
                labels: [(MODEL.to_owned(), model.to_string())].into(),
                ready: true,
                allocatable: amounts(&cpu, &memory)?.with(gpu, devices.into()),
                ..Node::default()
            }));
        }
        if gpus == 0 {
            return Err(nodes.empty("nodes with GPUs"));
        }
        let columns = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"];
        let rows = tasks.table(columns, &["gpu_spec"])?;
        let tasks_read = rows.map(|row| Task::read(gpu, &row?)).collect::<Result<Vec<_>, _>>()?;
        if tasks_read.iter().all(|task| task.milli == 0) {
            return Err(tasks.empty("tasks that ask for GPUs"));
        }
        Ok(Self { cluster, gpu, gpus, tasks: tasks_read })
    }

    /// How many tasks the table holds.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Fills the cluster with all tasks in a random order, and further ones drawn from them if they are too few, until they
    /// have asked for as many GPUs as there are. `progress` is told how many thousandths of a GPU were asked for.
    pub fn fill(
        &self,
        packing: Packing,
        seed: u64,
        audit: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<Filled, Broken> {
        let mut stage = Stage::new(self.cluster.clone(), Policy { packing, ..Policy::default() }, audit);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        random.shuffle(&mut order);
        let mut order = order.into_iter();
        let (mut filled, mut asked) = (Filled::default(), 0);
        while asked < self.gpus * WHOLE {
            let at = order.next().unwrap_or_else(|| random.usize(..self.tasks.len()));
            let task = &self.tasks[at];
            asked += task.milli;
            let now = i64::try_from(filled.came).unwrap_or(i64::MAX);
            let gang = task.gang(filled.came, Time(now));
            let uid = gang.uid.clone();
            stage.world.apply(Event::GangUpserted(gang));
            let plan = stage.decide(Time(now))?;
            filled.came += 1;
            if admitted(&plan).any(|admitted| admitted == uid) {
                filled.allocated_milli += task.milli;
            } else {
                filled.refused += 1;
                stage.world.apply(Event::GangRemoved(uid));
            }
            progress(asked);
        }
        filled.fragmented_milli = self.fragmented(&stage.world);
        Ok(filled)
    }

    /// The fragmentation of section 3.2 of the paper, summed over nodes: to a task that fits on a node, the GPUs of which
    /// less is left than it asks for are lost; to one that does not fit, or that wants no GPU, all that is left there is.
    fn fragmented(&self, world: &World) -> u64 {
        let mut popular: BTreeMap<&PodSet, u64> = BTreeMap::new();
        for task in &self.tasks {
            *popular.entry(&task.pod).or_default() += 1;
        }
        let mut lost = 0;
        for node in world.nodes() {
            let Some(ix) = world.node_ix(&node.name) else { continue };
            let idle = left(world.free(ix), self.gpu);
            let class = world.class_of(ix).map(|class| &world.class(class).class);
            for (pod, tasks) in &popular {
                let fits = class.is_some_and(|class| pod.constraints.obstacle(class).is_none())
                    && pod.fits_in(world.free(ix));
                let part = pod.share.map(|share| u64::from(share.milli()));
                let whole = if pod.request.get(self.gpu) > Amount::ZERO { WHOLE } else { u64::MAX };
                let each = part.unwrap_or(whole);
                let useless = |left: &&u64| !fits || **left < each;
                lost += tasks * idle.iter().filter(useless).sum::<u64>();
            }
        }
        lost / self.tasks.len() as u64
    }
}

/// What is left of each GPU of a node, in thousandths.
fn left(free: &Room, gpu: ResourceIx) -> Vec<u64> {
    let whole = usize::try_from(free.amounts.get(gpu).0).unwrap_or(0);
    let open = free.open().iter().filter(|(device, _)| *device == gpu);
    open.map(|(_, left)| u64::from(*left)).chain(std::iter::repeat_n(WHOLE, whole)).collect()
}

impl Task {
    fn read(gpu: ResourceIx, row: &[Field<'_>; 5]) -> Result<Self, Error> {
        let [cpu, memory, devices, milli, models] = row;
        let (count, each) = (devices.number::<u32>()?, milli.number::<u64>()?);
        if count > 0 && !(1..=WHOLE).contains(&each) {
            return Err(milli.refuse("between 1 and 1000 thousandths of each GPU"));
        }
        if count > 1 && each < WHOLE {
            return Err(milli.refuse("1000: who asks for several GPUs is given whole ones"));
        }
        let share = if count == 1 && each < WHOLE {
            DeviceShare::new(gpu, milli.number::<i64>()?).ok()
        } else {
            None
        };
        let whole = if share.is_some() { 0 } else { count };
        let request = amounts(cpu, memory)?.with(gpu, whole.into());
        let models: Vec<&str> = models.text.split('|').filter(|model| !model.is_empty()).collect();
        let pod = PodSet {
            name: "task".into(),
            count: 1,
            request,
            share,
            constraints: one_of(&models),
            ..PodSet::default()
        };
        Ok(Self { milli: u64::from(count) * each, pod })
    }

    fn gang(&self, at: usize, now: Time) -> Gang {
        let uid = format!("{at:010}");
        Gang {
            key: GangKey { kind: "tasks".into(), namespace: "openb".into(), name: uid.clone() },
            uid,
            queued_at: now,
            pod_sets: [self.pod.clone()].into(),
            ..Gang::default()
        }
    }
}

fn amounts(cpu_milli: &Field<'_>, memory_mib: &Field<'_>) -> Result<ResourceVec, Error> {
    let memory = memory_mib.number::<u32>()?;
    let cpu = cpu_milli.number::<u32>()?;
    Ok(ResourceVec::new().with(ResourceIx::CPU, cpu.into()).with(ResourceIx::MEMORY, i64::from(memory) * MIB))
}

/// Nodes with GPUs of one of these models; any node when there is none.
fn one_of(models: &[&str]) -> Constraints {
    let values: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
    let wanted = Requirement { key: MODEL.into(), operator: Operator::In, values };
    let term = Term { expressions: vec![wanted], fields: Vec::new() };
    let node_affinity = if models.is_empty() { Vec::new() } else { vec![term] };
    Constraints { node_affinity, ..Constraints::default() }
}
