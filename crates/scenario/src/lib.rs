//! A text format for worlds that fits on one screen, for tests, bug reports and the command line: [`parse()`] reads it,
//! [`render()`] writes it.
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
//! Each line is one object. The first word is its kind, the second its name. `#` starts a comment. `word=value` pairs
//! follow in any order. A pair whose word is not in the table is a resource with a quantity as in Kubernetes. `name Nx`
//! starts a pod set of N pods; the following pairs belong to it. On a node, `Nx` creates nodes `name-1` to `name-N`.
//!
//! | on | pair | meaning |
//! | --- | --- | --- |
//! | node | `label:KEY=VALUE` | a label |
//! | node | `taint:KEY[=VALUE]:EFFECT` | a taint |
//! | node | `cordoned`, `notready` | unschedulable; not ready |
//! | node | `pods=N` | the maximum number of pods; default 110 |
//! | pod | `on=NODE[/DEVICE]` | the node that it is bound to, with the number of its shared device |
//! | pod | `of=GANG/SET` | its gang and the index of its pod set |
//! | pod | `leaving` | it is being deleted |
//! | pod, pod set | `share:RESOURCE=Nm` | a share of one device, in thousandths |
//! | pod set | `quota:RESOURCE=Q` | what quota counts of one pod, in the place of its request |
//! | pod, pod set | `selected:N,…` | the selectors that select the pods, by number |
//! | pod, pod set | `apart:N=KEY` | required anti-affinity to the pods that selector N selects, by a label key of nodes |
//! | pod, pod set | `near:N=KEY,…` | required affinity to them |
//! | pod, pod set | `spread:N=KEY:SKEW[:min=N][:ignore-affinity][:honor-taints]` | a topology spread constraint with its minimum of domains and its node inclusion policies |
//! | pod, pod set | `port:[ADDRESS:]PORT/PROTOCOL` | a host port |
//! | gang | `priority=N` | the priority; default 0 |
//! | gang | `slope=N` | the priority slope: millionths of a priority per second while pending |
//! | gang | `at=S` | when it was queued, in seconds since the epoch; default: the number of its line |
//! | gang | `started=S`, `checkpointed=S` | when it was dispatched; its last checkpoint |
//! | gang | `protected` | it is never preempted |
//! | gang | `gated` | it preempts no other gang |
//! | gang | `victims=UID,…` | of a nominated gang: its victims; a reason may follow each: `(in-queue)`, `(reclaimed)`, `(fair-share)`, `(while-borrowing)` |
//! | gang | `kind=K`, `namespace=N` | parts of its key |
//! | gang | `queue=NAME` | its queue; default: the implicit queue |
//! | gang | `charge=NODE,…` | further quota nodes that it is charged to |
//! | gang | `from=NAME` | its local queue |
//! | gang | `declared:RESOURCE=Q` | a resource declared for all pods together |
//! | gang | `excluded=NODE,…` | nodes that its pods must not use |
//! | gang | `elastic` | while it runs, it may scale up |
//! | gang | `replaces=UID` | of a pending gang: it takes the place of this one, and its pod sets get the flavors that they name |
//! | gang | `unhealthy=NODE,…` | nodes that failed while it ran; its pods there are replaced |
//! | gang | `places=open`, `places=requested` | it is admitted without nodes; once admitted, its pods ask for nodes |
//! | gang | `runs=S` | its expected run time in seconds |
//! | stopped | `for=UID,…` | the preemptors of the gang of this uid |
//! | pod set | `on=NODE[/DEVICE][*N],…` | the assigned nodes, with the number of the shared device |
//! | pod set | `unplaced=N` | the number of assigned pods without a node |
//! | pod set | `select:KEY=VALUE` | a label of the node selector |
//! | pod set | `affinity:KEY=A\|B`, `affinity:KEY!=A\|B`, `affinity:KEY`, `affinity:!KEY`, `affinity:KEY>N`, `affinity:KEY<N` | a requirement of the current node affinity term; `or` starts the next term; `field:` is the same for `metadata.name` |
//! | pod set | `prefer:N:KEY=A\|B&…` | a preferred term of nodes with its weight; requirements as of `affinity:`, or `field:…` |
//! | pod set | `tolerate:[KEY][=VALUE][:EFFECT]` | a toleration; without a value, of any value |
//! | pod set | `min=N` | the fewest pods with which the gang may start |
//! | pod set | `done=N` | the number of succeeded pods |
//! | pod set | `topology:required=KEY`, `topology:preferred=KEY`, `topology:unconstrained` | the topology request |
//! | pod set | `slice:N=KEY` | every N pods must be in one domain of the level; larger slices first |
//! | pod set | `group=NAME` | the pod set group; its pod sets get the same flavors and, with topology requests, the same domain: a leader of one pod and its workers |
//! | pod set | `flavor:RESOURCE=NAME` | the assigned flavor |
//! | flavor | `label:KEY=VALUE`, `taint:…`, `tolerate:…`, `topology=KEY,…` | labels and taints of its nodes, tolerations that its pods get, topology levels |
//! | flavor | `quota-only` | its pods are charged to quota and get no node |
//! | quota | `in=NODE` | the parent |
//! | quota | `RESOURCE[@FLAVOR]=Q` | the nominal quota |
//! | quota | `borrow:RESOURCE[@FLAVOR]=Q`, `lend:RESOURCE[@FLAVOR]=Q` | the borrowing limit; the lending limit |
//! | quota | `RESOURCE[@FLAVOR]=nodes[+Q\|-Q]` | the nominal quota is the capacity of the open nodes of the flavor, plus or minus an amount |
//! | quota | `weight=N` | the fair sharing weight; decimals in milli: `500m` |
//! | quota | `within=lower-priority`, `within=lower-or-newer` | Kueue's `withinClusterQueue` |
//! | quota | `reclaim=lower-priority`, `reclaim=any` | Kueue's `reclaimWithinCohort` |
//! | quota | `borrowing[=N]` | Kueue's `borrowWithinCohort`, with its priority threshold |
//! | queue | `quota=NODE` | the quota node that its gangs are charged to |
//! | queue | `stopped` | it admits no gang |
//! | queue | `strict` | strict FIFO; default: best-effort FIFO |
//! | queue | `FLAVOR,…:RESOURCE,…` | a resource group, flavors in the order in which they are tried; without a flavor: any node |
//! | queue | `when-can-borrow=try`, `when-can-preempt=stop`, `prefer=preemption` | the flavor fungibility, where it differs from the default |
//! | queue | `reserves=none` | its gangs get no reserved starts |
//! | queue | `places-pods` | pods get nodes in quota-only flavors too |
//! | queue | `undeclared=ignore` | undeclared resources are not charged |
//! | queue | `half-life=S`, `interval=S` | admission fair sharing: half-life of usage; sampling interval that is charged at admission |
//! | queue | `count:RESOURCE=N`, `weight:NAME=N` | admission fair sharing: weight of a base unit of a resource in millionths; weight of a local queue |
//! | served | `queue=NAME`, `at=S`, `RESOURCE=N` | the decayed usage of a local queue at a time, in millionths of base units |
//! | policy | `preemption=lower-priority`, `preemption=never` | preemption outside of quota trees |
//! | policy | `guessed-hold=60` | seconds that a reserved start may hold others back if it relies on guessed ends |
//! | policy | `backfill=reserve`, `backfill=conservative:N`, `backfill=best-effort` | reservations for the first gang, for the first N gangs, or for none |
//! | policy | `packing=tightest-fit`, `packing=fewest-nodes`, `packing=least-fragmentation`, `packing=spread` | how nodes are scored |
//! | policy | `topology=balanced`, `topology=best-fit` | pods with a preferred level are spread evenly; pods without one are in few domains |
//! | policy | `fair-sharing=final-or-initial-share`, `…=final-share`, `…=initial-share` | fair sharing in quota trees, and its preemption strategy |
//!
//! `clock S` advances the clock to this time for the following lines.
//!
//! A gang is `pending`, `running` (its capacity is reserved), `nominated` (its victims still hold the capacity) or
//! `foreign` (started by another controller, nodes unknown). Its uid is its name, with the namespace in front unless
//! that is `default`. Every pod requests one of `pods`.
//!
//! - `parse`: text to worlds;
//! - `render`: worlds and plans to text;
//! - `quota`: flavors, quota nodes and queues;
//! - `usage_order`: admission fair sharing and usage of local queues;
//! - `preemption`: victims, preemption history and fair sharing;
//! - `pod_rules`: rules between pods;
//! - `topology`: topology requests;
//! - `quantity`: quantities.

mod parse;
mod pod_rules;
mod preemption;
mod quantity;
mod quota;
mod render;
mod topology;
mod usage_order;

pub use parse::{Error, Problem, gangs, parse};
pub use render::{forecast, render, verdicts};
