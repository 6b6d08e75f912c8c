//! Plays cases on a cluster with kube-scheduler, many at once, and judges them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::case::{Case, Family};
use super::manifests::{HOST_NAME, Home, Manifests};
use super::search::{Cluster, Found};
use crate::fixture::Fixture;
use crate::objects::name;

/// The number of concurrent requests.
const REQUESTS: usize = 16;
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1";
/// How the controller says that a gang can never start.
const NEVER: &str = "can never start on these nodes";
/// How the controller says that a gang would delay the reserved start of another one.
const DELAY: &str = "would delay";

/// What is played.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the first case.
    pub seed: u64,
    /// The number of cases.
    pub cases: u64,
    /// The number of cases that share the cluster at one time.
    pub at_once: usize,
    /// No case is added after this time.
    pub limit: Option<Duration>,
}

/// The results of the cases of one family.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cases: u32,
    started: u32,
    pods: u32,
    waiting: u32,
    refused_falsely: u32,
    never: u32,
    unknown: u32,
}

/// A case that plays.
struct Playing {
    case: Case,
    home: Home,
}

/// What became of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    /// Whether it was dispatched.
    is_started: bool,
    /// Whether it was started before and requeued.
    is_requeued: bool,
    /// The message of its status.
    message: String,
    /// The nodes of the bound pods of each pod set.
    bound: Vec<BTreeMap<String, u32>>,
}

/// Plays all cases. Returns the number of cases with a fault; each is printed with its objects.
pub async fn run(fixture: &Fixture<'_>, options: &Options) -> Result<u64> {
    let homes: Vec<Home> = (0..options.at_once)
        .map(|at| Home {
            own: format!("{}-{at}", fixture.namespace()),
            away: format!("{}-{at}-away", fixture.namespace()),
        })
        .collect();
    prepare(fixture, &homes).await?;
    let begin = Instant::now();
    let mut tallies: BTreeMap<Family, Tally> = BTreeMap::new();
    let mut faults = 0;
    let seeds: Vec<u64> = (options.seed..options.seed.saturating_add(options.cases)).collect();
    for seeds in seeds.chunks(options.at_once) {
        if options.limit.is_some_and(|limit| begin.elapsed() > limit) {
            break;
        }
        let playing: Vec<Playing> = seeds
            .iter()
            .zip(&homes)
            .map(|(seed, home)| Playing { case: Case::new(*seed), home: home.clone() })
            .collect();
        let outcomes = play(fixture, &playing).await?;
        let planned = planned_places(fixture).await?;
        for (playing, outcomes) in playing.iter().zip(&outcomes) {
            let tally = tallies.entry(playing.case.family).or_default();
            if let Err(fault) = judge(playing, outcomes, &planned, tally) {
                faults += 1;
                report(playing, &fault, outcomes)?;
            }
        }
        clean_up(fixture, &playing).await?;
    }
    print(&tallies, begin.elapsed());
    Ok(faults)
}

/// Creates the namespaces with their service accounts.
async fn prepare(fixture: &Fixture<'_>, homes: &[Home]) -> Result<()> {
    create_all(fixture, homes.iter().flat_map(Home::namespaces).collect()).await?;
    fixture
        .eventually("service accounts of the namespaces", async || {
            let accounts =
                list(fixture, "/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault").await?;
            let has = |space: &String| accounts.iter().any(|one| one["metadata"]["namespace"] == **space);
            Ok(homes.iter().all(|home| has(&home.own) && has(&home.away)).then_some(()))
        })
        .await
}

/// Creates the objects of cases, and waits until nothing changes any more.
async fn play(fixture: &Fixture<'_>, playing: &[Playing]) -> Result<Vec<Vec<Outcome>>> {
    let each = |make: &dyn Fn(&Manifests<'_>) -> Vec<Value>| -> Vec<Value> {
        let manifests = playing.iter().map(|one| Manifests { case: &one.case, home: &one.home });
        manifests.flat_map(|manifests| make(&manifests)).collect()
    };
    create_all(fixture, each(&|one| one.nodes())).await?;
    create_all(fixture, each(&|one| one.volumes())).await?;
    create_all(fixture, each(&|one| one.others())).await?;
    fixture.eventually("ready nodes", async || are_ready(fixture).await).await?;
    create_all(fixture, each(&|one| one.gangs())).await?;
    let begin = Instant::now();
    let mut last: Option<(Instant, Vec<Vec<Outcome>>)> = None;
    loop {
        provision(fixture).await?;
        let outcomes = observe(fixture, playing).await?;
        let since = last.take().filter(|(_, before)| *before == outcomes).map(|(since, _)| since);
        let since = since.unwrap_or_else(Instant::now);
        let mut all = playing.iter().flat_map(|one| &one.case.gangs).zip(outcomes.iter().flatten());
        let is_settled = all.all(|(sets, outcome)| is_settled(sets.iter().map(|pods| pods.count), outcome));
        let patience = if is_settled { fixture.stable_period() } else { fixture.timeout() / 2 };
        if since.elapsed() > patience || begin.elapsed() > fixture.timeout() {
            return Ok(outcomes);
        }
        last = Some((since, outcomes));
        sleep(Duration::from_millis(150)).await;
    }
}

/// Whether a gang waits with a reason, or all its pods are bound.
fn is_settled(counts: impl Iterator<Item = u32>, outcome: &Outcome) -> bool {
    if !outcome.is_started {
        return !outcome.message.is_empty();
    }
    counts.eq(outcome.bound.iter().map(|nodes| nodes.values().sum::<u32>()))
}

async fn are_ready(fixture: &Fixture<'_>) -> Result<Option<()>> {
    let is_ready = |node: &Value| {
        let taints = node["spec"]["taints"].as_array();
        let is_new = taints.into_iter().flatten().any(|t| t["key"] == "node.kubernetes.io/not-ready");
        crate::objects::has_condition(node, "Ready") && !is_new
    };
    let nodes_are_ready = list(fixture, "/api/v1/nodes").await?.iter().all(is_ready);
    let claims = list(fixture, "/api/v1/persistentvolumeclaims").await?;
    let is_bound =
        |claim: &Value| claim["spec"]["volumeName"].is_null() || claim["status"]["phase"] == "Bound";
    Ok((nodes_are_ready && claims.iter().all(is_bound)).then_some(()))
}

/// Creates the volumes of claims for which the scheduler has chosen a node, as a provisioner does.
async fn provision(fixture: &Fixture<'_>) -> Result<()> {
    let claims = list(fixture, "/api/v1/persistentvolumeclaims").await?;
    let volume = |claim: &Value| {
        let node = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].as_str()?;
        if !claim["spec"]["volumeName"].is_null() {
            return None;
        }
        let terms = json!([{"matchExpressions": [{"key": HOST_NAME, "operator": "In", "values": [node]}]}]);
        let metadata = &claim["metadata"];
        Some(json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": format!("pv-{}", metadata["uid"].as_str()?)}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"},
            "storageClassName": claim["spec"]["storageClassName"], "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}))
    };
    create_all(fixture, claims.iter().filter_map(volume).collect()).await
}

/// The state of all gangs.
async fn observe(fixture: &Fixture<'_>, playing: &[Playing]) -> Result<Vec<Vec<Outcome>>> {
    let mut wrappers: BTreeMap<String, Value> = BTreeMap::new();
    for wrapper in list(fixture, &format!("{WRAPPERS}/appwrappers")).await? {
        wrappers.insert(name(&wrapper).to_owned(), wrapper);
    }
    let mut bound: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
    for pod in list(fixture, "/api/v1/pods").await? {
        let set = pod["metadata"]["labels"]["set"].as_str().unwrap_or_default();
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *bound.entry(set.to_owned()).or_default().entry(node.to_owned()).or_default() += 1;
        }
    }
    let of = |one: &Playing| {
        let manifests = Manifests { case: &one.case, home: &one.home };
        let gangs = one.case.gangs.iter().enumerate();
        let outcome = |(gang, sets): (usize, &Vec<_>)| {
            let status = wrappers.get(&manifests.gang_name(gang)).map_or(&Value::Null, |all| &all["status"]);
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let places = (0..sets.len()).map(|set| bound.get(&manifests.set_name(gang, set)).cloned());
            Outcome {
                is_started: status["canrun"] == true,
                is_requeued: conditions.any(|condition| condition["type"] == "PreemptCandidate"),
                message: status["message"].as_str().unwrap_or_default().to_owned(),
                bound: places.map(Option::unwrap_or_default).collect(),
            }
        };
        gangs.map(outcome).collect()
    };
    Ok(playing.iter().map(of).collect())
}

/// The assignment of each object, by the name of the object.
async fn planned_places(fixture: &Fixture<'_>) -> Result<BTreeMap<String, Vec<BTreeMap<String, u32>>>> {
    let mut planned = BTreeMap::new();
    for path in ["/api/v1/pods", "/apis/batch/v1/jobs", "/apis/apps/v1/deployments"] {
        for object in list(fixture, path).await? {
            if let Some(text) = object["metadata"]["annotations"]["muster.dev/assignment"].as_str() {
                planned.insert(name(&object).to_owned(), serde_json::from_str(text)?);
            }
        }
    }
    Ok(planned)
}

/// Checks one case. The error says what is wrong.
fn judge(
    playing: &Playing,
    outcomes: &[Outcome],
    planned: &BTreeMap<String, Vec<BTreeMap<String, u32>>>,
    tally: &mut Tally,
) -> Result<()> {
    tally.cases += 1;
    let case = &playing.case;
    let manifests = Manifests { case, home: &playing.home };
    let mut cluster = Cluster::with_others(case);
    for (gang, outcome) in outcomes.iter().enumerate() {
        for (set, nodes) in outcome.bound.iter().enumerate() {
            for (node, pods) in nodes {
                let at = (0..case.nodes.len()).find(|at| manifests.node_name(*at) == *node);
                let at =
                    at.with_context(|| format!("a pod is on {node}, which is not a node of the case"))?;
                (0..*pods).for_each(|_| cluster.bind(gang, set, at));
            }
        }
    }
    let overcommitted = cluster.overcommitted();
    if !overcommitted.is_empty() {
        bail!("more CPUs are requested than there are on the nodes {overcommitted:?}");
    }
    for (gang, outcome) in outcomes.iter().enumerate() {
        if outcome.is_requeued {
            bail!("gang {gang} was started and requeued");
        }
        if outcome.is_started {
            tally.started += 1;
            for (set, pods) in case.gangs[gang].iter().enumerate() {
                let object = manifests.set_name(gang, set);
                let places = planned.get(&object).and_then(|places| places.get(set));
                let places = places.with_context(|| format!("{object} has no assignment"))?;
                let bound: u32 = outcome.bound[set].values().sum();
                if bound != pods.count {
                    bail!(
                        "{bound} of {} pods of {object} are bound; they are planned on {places:?}",
                        pods.count
                    );
                }
                if *places != outcome.bound[set] {
                    bail!("{object} is planned on {places:?} and bound on {:?}", outcome.bound[set]);
                }
                tally.pods += bound;
            }
        } else {
            judge_refusal(case, gang, outcome, &cluster, tally)?;
        }
    }
    Ok(())
}

fn judge_refusal(
    case: &Case,
    gang: usize,
    outcome: &Outcome,
    cluster: &Cluster<'_>,
    tally: &mut Tally,
) -> Result<()> {
    if outcome.message.is_empty() {
        bail!("gang {gang} waits without a reason");
    }
    if outcome.message.starts_with(NEVER) {
        tally.never += 1;
        for (what, cluster) in [("now", cluster), ("on empty nodes", &Cluster::empty(case))] {
            if let Found::Placement(nodes) = cluster.search(gang) {
                bail!("gang {gang} can never start, but {what} it fits on {nodes:?}");
            }
        }
        return Ok(());
    }
    tally.waiting += 1;
    match cluster.search(gang) {
        Found::Nothing => {}
        Found::Unknown => tally.unknown += 1,
        Found::Placement(_) if outcome.message.contains(DELAY) => {}
        Found::Placement(nodes) => {
            tally.refused_falsely += 1;
            println!("seed {}: gang {gang} waits, but fits on {nodes:?}: {}", case.seed, outcome.message);
            if case.family.is_exact() {
                bail!("gang {gang} is refused, but fits on {nodes:?}");
            }
        }
    }
    Ok(())
}

/// Prints a case with its objects.
fn report(playing: &Playing, fault: &anyhow::Error, outcomes: &[Outcome]) -> Result<()> {
    let manifests = Manifests { case: &playing.case, home: &playing.home };
    println!("FAULT   --seed {} --cases 1: {fault}", playing.case.seed);
    for (gang, outcome) in outcomes.iter().enumerate() {
        println!("# gang {gang}: {outcome:?}");
    }
    let objects = [manifests.nodes(), manifests.volumes(), manifests.others(), manifests.gangs()].concat();
    for object in objects {
        println!("---\n{}", serde_saphyr::to_string(&object)?.trim_end());
    }
    Ok(())
}

/// Deletes the objects of cases, and waits until their pods and nodes are gone.
async fn clean_up(fixture: &Fixture<'_>, playing: &[Playing]) -> Result<()> {
    let own = |kind: &str| -> Vec<String> {
        playing.iter().map(|one| format!("{kind}/{}", one.home.own)).collect()
    };
    let wrappers = own(&format!("{WRAPPERS}/namespaces"));
    delete_all(fixture, wrappers.iter().map(|path| format!("{path}/appwrappers"))).await?;
    let pods = playing.iter().flat_map(|one| [&one.home.own, &one.home.away]);
    let pods: Vec<String> =
        pods.map(|space| format!("/api/v1/namespaces/{space}/pods?gracePeriodSeconds=0")).collect();
    fixture
        .eventually("removal of wrappers and pods", async || {
            let wrappers = list(fixture, &format!("{WRAPPERS}/appwrappers")).await?.len();
            if wrappers == 0 {
                delete_all(fixture, pods.iter().cloned()).await?;
            }
            let left = wrappers + list(fixture, "/api/v1/pods").await?.len();
            Ok((left == 0).then_some(()))
        })
        .await?;
    let claims = own("/api/v1/namespaces");
    delete_all(fixture, claims.iter().map(|path| format!("{path}/persistentvolumeclaims"))).await?;
    let shared = ["/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/nodes"];
    delete_all(fixture, shared.into_iter().map(str::to_owned)).await?;
    fixture
        .eventually("removal of volumes and nodes", async || {
            let volumes = list(fixture, "/api/v1/persistentvolumes").await?.len();
            Ok((volumes + list(fixture, "/api/v1/nodes").await?.len() == 0).then_some(()))
        })
        .await
}

async fn create_all(fixture: &Fixture<'_>, objects: Vec<Value>) -> Result<()> {
    stream::iter(objects)
        .map(|object| async move {
            let path = collection(&object);
            // The API server serves AppWrappers only after the controller has installed the CRDs.
            let create = async || match fixture.call("POST", &path, Some(&object)).await {
                Ok(_) => Ok(Some(())),
                Err(error) => match error.downcast_ref::<kube::Error>() {
                    Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                    Some(kube::Error::Api(status)) if status.code == 409 => Ok(Some(())),
                    _ => Err(error.context(format!("cannot create {object}"))),
                },
            };
            fixture.eventually(&format!("{} in the API", object["kind"]), create).await
        })
        .buffer_unordered(REQUESTS)
        .try_collect()
        .await
}

async fn delete_all(fixture: &Fixture<'_>, paths: impl Iterator<Item = String>) -> Result<()> {
    stream::iter(paths)
        .map(|path| async move { fixture.call("DELETE", &path, None).await.map(drop) })
        .buffer_unordered(REQUESTS)
        .try_collect()
        .await
}

async fn list(fixture: &Fixture<'_>, path: &str) -> Result<Vec<Value>> {
    let mut list = fixture.call("GET", path, None).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The path of the collection of an object.
fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let plural = if kind.ends_with('s') { "es" } else { "s" };
    let root = if version.contains('/') { "apis" } else { "api" };
    let space = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    format!("/{root}/{version}{space}/{}{plural}", kind.to_lowercase())
}

fn print(tallies: &BTreeMap<Family, Tally>, took: Duration) {
    println!(
        "{:<42} {:>6} {:>8} {:>6} {:>8} {:>8} {:>6} {:>8}",
        "gangs", "cases", "started", "pods", "waiting", "feasible", "never", "unknown"
    );
    for (family, tally) in tallies {
        let Tally { cases, started, pods, waiting, refused_falsely, never, unknown } = tally;
        println!(
            "{family:<42} {cases:>6} {started:>8} {pods:>6} {waiting:>8} {refused_falsely:>8} {never:>6} {unknown:>8}"
        );
    }
    let cases: u32 = tallies.values().map(|tally| tally.cases).sum();
    println!("{cases} cases in {} s", took.as_secs());
}
