//! Reads Alibaba's `openb` trace of 2023 (a table of nodes, and a table of tasks of one pod each) and fills the cluster as in
//! the experiments of FGD.
//!
//! After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC
//! 2023. Tasks arrive in random order and never end. A task that does not fit is rejected. The fill ends when the GPUs that all
//! arrived tasks request reach the GPUs of the cluster. The result is the number of GPUs that are not allocated then.

use std::collections::BTreeMap;

use model::{
    Amount, Constraints, DeviceShare, Event, FreeResources, Gang, GangKey, Node, Operator, Packing, PodSet,
    Policy, Requirement, ResourceIx, ResourceVec, Term, Time, World,
};

use crate::simulation::{InvalidPlan, Simulation, admitted};
use crate::source::{Error, Field, Source};

/// The node label with the model of the node's GPUs.
const MODEL: &str = "gpu-model";
const MIB: i64 = 1 << 20;
/// A whole GPU, in thousandths.
const WHOLE: u64 = 1000;

/// A cluster and the tasks to fill it with.
#[derive(Clone, Debug)]
pub struct Workload {
    cluster: World,
    gpu: ResourceIx,
    /// The number of GPUs in the cluster.
    pub gpus: u64,
    tasks: Vec<Task>,
}

/// One task: a gang of one pod.
#[derive(Clone, Debug)]
struct Task {
    /// The requested GPUs, in thousandths of one GPU.
    milli: u64,
    pod: PodSet,
}

/// The result of one fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The number of tasks that arrived.
    pub came: usize,
    /// The number of tasks that did not fit.
    pub refused: usize,
    /// The allocated GPUs, in thousandths of one GPU.
    pub allocated_milli: u64,
    /// The GPUs that are idle and unusable for a task, averaged over the tasks of the workload; in thousandths of one GPU.
    pub fragmented_milli: u64,
}

impl Workload {
    /// Reads a table of nodes (`sn`, `cpu_milli`, `memory_mib`, `gpu`, `model`) and a table of tasks (`cpu_milli`,
    /// `memory_mib`, `num_gpu`, `gpu_milli` of each GPU, `gpu_spec`).
    ///
    /// `gpu_spec` lists the accepted GPU models, separated by `|`. An empty field or a missing column accepts every model.
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

    /// The number of tasks in the table.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Fills the cluster with the tasks in random order until their total request reaches the GPUs of the cluster. When the
    /// table has too few tasks, further ones are drawn from it at random. `progress` receives the total request, in thousandths
    /// of one GPU.
    pub fn fill(
        &self,
        packing: Packing,
        seed: u64,
        audit: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<Filled, InvalidPlan> {
        let mut simulation =
            Simulation::new(self.cluster.clone(), Policy { packing, ..Policy::default() }, audit);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        random.shuffle(&mut order);
        let mut order = order.into_iter();
        let (mut filled, mut requested) = (Filled::default(), 0);
        while requested < self.gpus * WHOLE {
            let at = order.next().unwrap_or_else(|| random.usize(..self.tasks.len()));
            let task = &self.tasks[at];
            requested += task.milli;
            let now = i64::try_from(filled.came).unwrap_or(i64::MAX);
            let gang = task.gang(filled.came, Time(now));
            let uid = gang.uid.clone();
            simulation.world.apply(Event::GangUpserted(gang));
            let plan = simulation.run_cycle(Time(now))?;
            filled.came += 1;
            if admitted(&plan).any(|admitted| admitted == uid) {
                filled.allocated_milli += task.milli;
            } else {
                filled.refused += 1;
                simulation.world.apply(Event::GangRemoved(uid));
            }
            progress(requested);
        }
        filled.fragmented_milli = self.fragmented(&simulation.world);
        Ok(filled)
    }

    /// The fragmentation of section 3.2 of the paper, summed over the nodes and averaged over the tasks.
    ///
    /// For a task that fits on a node, a GPU counts as fragmented when less of it is free than the task requests. For a task
    /// that does not fit, or that requests no GPU, everything free on the node counts.
    fn fragmented(&self, world: &World) -> u64 {
        let mut popular: BTreeMap<&PodSet, u64> = BTreeMap::new();
        for task in &self.tasks {
            *popular.entry(&task.pod).or_default() += 1;
        }
        let mut lost = 0;
        for node in world.nodes() {
            let Some(ix) = world.node_ix(&node.name) else { continue };
            let idle = free_per_gpu(world.free(ix), self.gpu);
            let class = world.class_of(ix).map(|class| &world.class(class).class);
            for (pod, tasks) in &popular {
                let fits = class.is_some_and(|class| pod.constraints.obstacle(class).is_none())
                    && pod.fits_in(world.free(ix));
                let part = pod.share.map(|share| u64::from(share.milli()));
                let whole = if pod.request.get(self.gpu) > Amount::ZERO { WHOLE } else { u64::MAX };
                let each = part.unwrap_or(whole);
                let unusable = |free: &&u64| !fits || **free < each;
                lost += tasks * idle.iter().filter(unusable).sum::<u64>();
            }
        }
        lost / self.tasks.len() as u64
    }
}

/// The free thousandths of each GPU of a node.
fn free_per_gpu(free: &FreeResources, gpu: ResourceIx) -> Vec<u64> {
    let whole = usize::try_from(free.amounts.get(gpu).0).unwrap_or(0);
    let open = free.shared_devices().iter().filter(|(device, _)| *device == gpu);
    open.map(|(_, left)| u64::from(*left)).chain(std::iter::repeat_n(WHOLE, whole)).collect()
}

impl Task {
    fn read(gpu: ResourceIx, row: &[Field<'_>; 5]) -> Result<Self, Error> {
        let [cpu, memory, devices, milli, models] = row;
        let (count, each) = (devices.number::<u32>()?, milli.number::<u64>()?);
        if count > 0 && !(1..=WHOLE).contains(&each) {
            return Err(milli.invalid("between 1 and 1000 thousandths of each GPU"));
        }
        if count > 1 && each < WHOLE {
            return Err(milli.invalid("1000: a task with several GPUs gets whole GPUs"));
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
            constraints: node_affinity(&models),
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

/// Requires a node with one of these GPU models; any node when the list is empty.
fn node_affinity(models: &[&str]) -> Constraints {
    let values: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
    let requirement = Requirement { key: MODEL.into(), operator: Operator::In, values };
    let term = Term { expressions: vec![requirement], fields: Vec::new() };
    let node_affinity = if models.is_empty() { Vec::new() } else { vec![term] };
    Constraints { node_affinity, ..Constraints::default() }
}
