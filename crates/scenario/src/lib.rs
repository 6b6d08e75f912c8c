//! Worlds as text that fits one screen, for tests, bug reports and the command line. Both ways: [`parse`], [`render`].
//!
//! ```text
//! node     gpu 3x  cpu=16 memory=64Gi nvidia.com/gpu=2 label:zone=a taint:nvidia.com/gpu=present:NoSchedule
//! node     old     cpu=16 memory=64Gi cordoned
//! flavor   a100    label:gpu=a100 taint:nvidia.com/gpu=present:NoSchedule tolerate:nvidia.com/gpu
//! quota    team-a  in=research nvidia.com/gpu@a100=8 borrow:nvidia.com/gpu@a100=4 lend:nvidia.com/gpu@a100=2 cpu=64
//! queue    vision  quota=team-a strict  a100,v100:nvidia.com/gpu  :cpu,memory
//! pod      logs    on=gpu-1 cpu=500m
//! running  train-1 priority=5  head 1x cpu=2 on=gpu-1  worker 2x nvidia.com/gpu=1 on=gpu-1,gpu-2
//! foreign  train-0             worker 2x cpu=1
//! policy   preemption=lower-priority
//! pending  train-2 declared:cpu=20  head 1x cpu=2 select:zone=a  worker 3x nvidia.com/gpu=1 tolerate:nvidia.com/gpu
//! ```
//!
//! One object a line; the first word says what it is, the second is its name; `#` begins a comment. Then `word=value`
//! pairs in any order. A pair whose word is nothing else is a resource with a quantity as in Kubernetes. `name Nx` opens
//! a pod set of N pods, to which all pairs up to the next one belong; on a node, `Nx` makes nodes `name-1` to `name-N`.
//!
//! | on | pair | means |
//! | --- | --- | --- |
//! | node | `label:KEY=VALUE` | a label |
//! | node | `taint:KEY[=VALUE]:EFFECT` | a taint |
//! | node | `cordoned`, `notready` | unschedulable; not ready |
//! | node | `pods=N` | how many pods it takes; 110 unless given |
//! | pod | `on=NODE[/DEVICE]`, `of=GANG/SET` | where it is bound, with the number of the device that it shares; the gang and the number of the pod set (from 0) that it belongs to |
//! | pod, pod set | `share:RESOURCE=Nm` | so many thousandths of one device |
//! | gang | `priority=N` | in whole units; 0 unless given |
//! | gang | `slope=N` | by how many millionths of a priority a second its rank rises while it waits |
//! | gang | `at=S` | seconds since the epoch at which it queued; the number of its line unless given |
//! | gang | `started=S`, `checkpointed=S`, `protected` | when it was dispatched and could last be stopped without loss; it is never stopped |
//! | gang | `victims=UID,…` | of a nominated one: who is being stopped for it; a reason may follow: `(in-queue)`, `(reclaimed)`, `(fair-share)`, `(while-borrowing)` |
//! | gang | `kind=K`, `namespace=N` | parts of its name |
//! | gang | `queue=NAME`, `charge=NODE,…` | its queue, the implicit one unless given; the quota nodes that it is charged to beside that of its queue |
//! | gang | `from=NAME` | the local queue that it came through |
//! | stopped | `for=UID,…` | the gangs that the one of this uid was stopped for |
//! | gang | `declared:RESOURCE=Q` | declared for all pods together |
//! | pod set | `on=NODE[/DEVICE][*N],…` | where its pods are promised a place, with the number of the device that they share |
//! | pod set | `select:KEY=VALUE` | a label that the node must have |
//! | pod set | `affinity:KEY=A\|B`, `affinity:KEY!=A\|B`, `affinity:KEY`, `affinity:!KEY`, `affinity:KEY>N`, `affinity:KEY<N` | a requirement on a label, all in one term; `or` between them begins the next term; `field:` likewise on `metadata.name` |
//! | pod set | `tolerate:[KEY][=VALUE][:EFFECT]` | a toleration; without a value any |
//! | gang | `excluded=NODE,…` | nodes that it must not go to again |
//! | gang | `elastic`, `unhealthy=NODE,…` | of a running one: it may be given more places; nodes that failed under it, whose pods get others |
//! | pod set | `min=N` | with how few of its pods the gang may start |
//! | pod set | `done=N` | how many of its pods have succeeded |
//! | pod set | `topology:required=KEY`, `topology:preferred=KEY`, `topology:unconstrained` | how near its pods are to be to each other |
//! | pod set | `slice:N=KEY` | every N pods are to be in one domain of the level; outer slices first |
//! | pod set | `group=NAME` | sets of one group have the same flavors and, if they ask for nearness, go to the same domain: a leader of one pod and its workers |
//! | pod set | `flavor:RESOURCE=NAME` | a flavor that it was given |
//! | flavor | `label:KEY=VALUE`, `taint:…`, `tolerate:…`, `topology=KEY,…` | what its nodes have, what pods are given with it, and the levels of its topology |
//! | quota | `in=NODE` | the node above |
//! | quota | `RESOURCE[@FLAVOR]=Q`, `borrow:RESOURCE[@FLAVOR]=Q`, `lend:RESOURCE[@FLAVOR]=Q` | what it owns; how much more it may use, and how much of it others |
//! | quota | `RESOURCE[@FLAVOR]=nodes[+Q\|-Q]` | it owns what the open nodes of the flavor hold, and so much more or less |
//! | quota | `weight=N` | its weight among its siblings; decimals as milli: `500m` |
//! | quota | `within=lower-priority`, `within=lower-or-newer`, `reclaim=lower-priority`, `reclaim=any`, `borrowing[=N]` | whose place its gangs may take; with `borrowing` even to borrow, up to a priority |
//! | queue | `quota=NODE`, `stopped` | what its gangs are charged to; it admits nothing |
//! | queue | `strict` | nobody passes the first one |
//! | queue | `FLAVOR,…:RESOURCE,…` | resources that come in these flavors, in the order in which they are tried; no flavor: any node |
//! | queue | `when-can-borrow=try`, `when-can-preempt=stop`, `prefer=preemption` | how flavors are tried, where that is not as usual |
//! | queue | `half-life=S`, `interval=S`, `count:RESOURCE=N`, `weight:NAME=N` | its local queues take turns by what they have consumed: in how many seconds that halves, for how many a gang counts at once, what a base unit counts in millionths, and what a local queue may have more than others |
//! | served | `queue=NAME`, `at=S`, `RESOURCE=N` | what a local queue had consumed at a time, in millionths of base units |
//! | queue | `undeclared=ignore` | resources that it does not declare are not counted |
//! | gang | `runs=S` | how long it is expected to run |
//! | policy | `preemption=lower-priority`, `preemption=never` | who may take whose place |
//! | policy | `backfill=reserve`, `backfill=conservative:N`, `backfill=best-effort` | whether the first, or the first N, that have to wait get a start that others must not delay |
//! | policy | `packing=tightest-fit`, `packing=fewest-nodes`, `packing=least-fragmentation`, `packing=spread` | which nodes are preferred |
//! | policy | `fair-sharing=final-or-initial-share`, `…=final-share`, `…=initial-share` | whose place a smaller share may take in quota trees |
//!
//! `clock S` says that what follows happens at this time.
//!
//! A gang is `pending` (waits), `running` (its places are promised), `nominated` (they will be, once others left) or `foreign` (started by somebody else, places
//! unknown). Its uid is its name, with the namespace in front unless that is `default`. A pod always takes one of `pods`.

mod parse;
mod preemption;
mod quantity;
mod quota;
mod render;
mod topology;
mod usage_order;

pub use parse::{Error, Problem, gangs, parse};
pub use render::{forecast, render, verdicts};
