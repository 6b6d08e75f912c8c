//! Flavors, quota nodes and queues as words.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Amount, BorrowWithinCohort, Flavor, FlavorFungibility, FlavorFungibilityPolicy,
    FlavorFungibilityPreference, FlavorIx, FlavorResource, Limits, Queue, QueueIx, QueueingStrategy,
    QuotaNode, QuotaPreemption, ReclaimWithinCohort, ResourceGroup, ResourceIx, UndeclaredResources,
    WithinClusterQueue, World,
};

use crate::parse::{Problem, taint, toleration};
use crate::quantity;
use crate::render::toleration_word;
use crate::usage_order;

const WITHIN: [(WithinClusterQueue, &str); 3] = [
    (WithinClusterQueue::Never, "within=never"),
    (WithinClusterQueue::LowerPriority, "within=lower-priority"),
    (WithinClusterQueue::LowerOrNewerEqualPriority, "within=lower-or-newer"),
];

const RECLAIM: [(ReclaimWithinCohort, &str); 3] = [
    (ReclaimWithinCohort::Never, "reclaim=never"),
    (ReclaimWithinCohort::LowerPriority, "reclaim=lower-priority"),
    (ReclaimWithinCohort::Any, "reclaim=any"),
];

/// Parses a flavor.
pub(crate) fn flavor(words: &[&str]) -> Result<Flavor, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let mut flavor = Flavor { name: (*name).to_owned(), ..Flavor::default() };
    for word in words {
        let bad = || Problem::Value((*word).to_owned());
        if let Some(label) = word.strip_prefix("label:") {
            let (key, value) = label.split_once('=').ok_or_else(bad)?;
            flavor.node_labels.insert(key.to_owned(), value.to_owned());
        } else if let Some(text) = word.strip_prefix("taint:") {
            flavor.node_taints.push(taint(text).ok_or_else(bad)?);
        } else if let Some(text) = word.strip_prefix("tolerate:") {
            flavor.tolerations.push(toleration(text));
        } else if *word == "quota-only" {
            flavor.quota_only = true;
        } else if let Some(levels) = word.strip_prefix("topology=") {
            flavor.topology = levels.split(',').map(str::to_owned).collect();
        } else {
            return Err(Problem::Word((*word).to_owned()));
        }
    }
    Ok(flavor)
}

/// Parses a quota node.
pub(crate) fn node(world: &mut World, words: &[&str]) -> Result<QuotaNode, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let mut node = QuotaNode { name: (*name).to_owned(), ..QuotaNode::default() };
    for word in words {
        let bad = || Problem::Value((*word).to_owned());
        if let Some(parent) = word.strip_prefix("in=") {
            node.parent = Some(parent.to_owned());
        } else if let Some(weight) = word.strip_prefix("weight=") {
            let milli = quantity::parse("cpu", weight).ok_or_else(bad)?;
            node.weight_milli = Some(u32::try_from(milli.0).map_err(|_| bad())?);
        } else if let Some((within, _)) = WITHIN.iter().find(|(_, text)| text == word) {
            node.preemption.within_cluster_queue = *within;
        } else if let Some((reclaim, _)) = RECLAIM.iter().find(|(_, text)| text == word) {
            node.preemption.reclaim_within_cohort = *reclaim;
        } else if *word == "borrowing" {
            node.preemption.borrow_within_cohort = Some(BorrowWithinCohort::default());
        } else if let Some(priority) = word.strip_prefix("borrowing=") {
            let units: i64 = priority.parse().map_err(|_| bad())?;
            let max_priority_threshold = Some(units.saturating_mul(1000));
            node.preemption.borrow_within_cohort = Some(BorrowWithinCohort { max_priority_threshold });
        } else if let Some(limit) = word.strip_prefix("borrow:") {
            let (of, amount) = amount(world, limit)?;
            limits(&mut node, of).borrowing = Some(amount);
        } else if let Some(limit) = word.strip_prefix("lend:") {
            let (of, amount) = amount(world, limit)?;
            limits(&mut node, of).lending = Some(amount);
        } else if let Some((what, beside)) = word.split_once("=nodes") {
            let beside = if beside.is_empty() { "0" } else { beside };
            let (of, amount) = amount(world, &format!("{what}={beside}")).map_err(|_| bad())?;
            (limits(&mut node, of).adds_node_capacity, limits(&mut node, of).nominal) = (true, amount);
        } else {
            let (of, amount) = amount(world, word)?;
            limits(&mut node, of).nominal = amount;
        }
    }
    Ok(node)
}

fn limits(node: &mut QuotaNode, of: FlavorResource) -> &mut Limits {
    node.limits.entry(of).or_default()
}

/// Parses `RESOURCE[@FLAVOR]=QUANTITY`.
fn amount(world: &mut World, word: &str) -> Result<(FlavorResource, Amount), Problem> {
    let (what, value) = word.split_once('=').ok_or_else(|| Problem::Word(word.to_owned()))?;
    let (resource, flavor) = what.split_once('@').unwrap_or((what, ""));
    let amount = quantity::parse(resource, value).ok_or_else(|| Problem::Value(word.to_owned()))?;
    let flavor = world.flavor_ix(flavor);
    Ok((FlavorResource { flavor, resource: world.resources_mut().intern(resource) }, amount))
}

/// Parses a queue.
pub(crate) fn queue(world: &mut World, words: &[&str]) -> Result<Queue, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let mut queue = Queue { name: (*name).to_owned(), ..Queue::default() };
    for word in words {
        match *word {
            "strict" => queue.queueing_strategy = QueueingStrategy::StrictFifo,
            "stopped" => queue.stopped = true,
            "reserves=none" => queue.reserves_starts = false,
            "places-pods" => queue.places_pods = true,
            "undeclared=ignore" => queue.undeclared = UndeclaredResources::Ignore,
            "when-can-borrow=try" => {
                queue.fungibility.when_can_borrow = FlavorFungibilityPolicy::TryNextFlavor;
            }
            "when-can-preempt=stop" => {
                queue.fungibility.when_can_preempt = FlavorFungibilityPolicy::MayStopSearch;
            }
            "prefer=preemption" => {
                queue.fungibility.preference = FlavorFungibilityPreference::PreemptionOverBorrowing;
            }
            _ if let Some(read) = usage_order::read(world, word, &mut queue) => read?,
            _ if word.starts_with("quota=") => queue.quota = word.strip_prefix("quota=").map(str::to_owned),
            _ => {
                let (flavors, resources) =
                    word.split_once(':').ok_or_else(|| Problem::Word((*word).to_owned()))?;
                let flavors = flavors.split(',').map(|name| world.flavor_ix(name)).collect();
                let resources = resources.split(',').map(|name| world.resources_mut().intern(name)).collect();
                queue.groups.push(ResourceGroup { resources, flavors });
            }
        }
    }
    Ok(queue)
}

/// The lines of all named flavors, quota nodes and queues: kind, name, words.
pub(crate) fn words(world: &World) -> Vec<(&'static str, &str, Vec<String>)> {
    let flavors = world.flavors().iter().filter(|(ix, _)| **ix != FlavorIx::ANY);
    let flavors = flavors.map(|(_, flavor)| ("flavor", flavor.name.as_str(), flavor_words(flavor)));
    let nodes = world.quota_nodes().values();
    let nodes = nodes.map(|node| ("quota", node.name.as_str(), node_words(world, node)));
    let queues = world.queues().iter().filter(|(ix, _)| **ix != QueueIx::default());
    let queues = queues.map(|(_, queue)| ("queue", queue.name.as_str(), queue_words(world, queue)));
    flavors.chain(nodes).chain(queues).collect()
}

fn flavor_words(flavor: &Flavor) -> Vec<String> {
    let mut words: Vec<String> =
        flavor.node_labels.iter().map(|(key, value)| format!("label:{key}={value}")).collect();
    words.extend(flavor.node_taints.iter().map(|taint| format!("taint:{taint}")));
    words.extend(flavor.tolerations.iter().map(toleration_word));
    words.extend(flavor.quota_only.then(|| "quota-only".to_owned()));
    words.extend((!flavor.topology.is_empty()).then(|| format!("topology={}", flavor.topology.join(","))));
    words
}

fn node_words(world: &World, node: &QuotaNode) -> Vec<String> {
    let mut words: Vec<String> = node.parent.iter().map(|parent| format!("in={parent}")).collect();
    for (of, Limits { nominal, adds_node_capacity, borrowing, lending }) in &node.limits {
        let resource = world.resources().name(of.resource);
        let flavor = match world.flavor_name(of.flavor) {
            "" => String::new(),
            name => format!("@{name}"),
        };
        let quantity = |amount: &Amount| quantity::render(resource, *amount);
        words.push(match (*adds_node_capacity, nominal.0) {
            (false, _) => format!("{resource}{flavor}={}", quantity(nominal)),
            (true, 0) => format!("{resource}{flavor}=nodes"),
            (true, ..0) => format!("{resource}{flavor}=nodes{}", quantity(nominal)),
            (true, 1..) => format!("{resource}{flavor}=nodes+{}", quantity(nominal)),
        });
        let mut limit = |prefix: &str, amount: &Amount| {
            words.push(format!("{prefix}{resource}{flavor}={}", quantity(amount)));
        };
        if let Some(amount) = borrowing {
            limit("borrow:", amount);
        }
        if let Some(amount) = lending {
            limit("lend:", amount);
        }
    }
    let weight = |milli: u32| format!("weight={}", quantity::render("cpu", Amount(i64::from(milli))));
    words.extend(node.weight_milli.map(weight));
    let QuotaPreemption { within_cluster_queue, reclaim_within_cohort, borrow_within_cohort } =
        node.preemption;
    words.extend(word_unless_default(&WITHIN, within_cluster_queue));
    words.extend(word_unless_default(&RECLAIM, reclaim_within_cohort));
    words.extend(borrow_within_cohort.map(|rule| match rule.max_priority_threshold {
        Some(milli) => format!("borrowing={}", milli / 1000),
        None => "borrowing".to_owned(),
    }));
    words
}

/// The word for a value, unless it is the default.
fn word_unless_default<T: Copy + Default + PartialEq>(words: &[(T, &str)], value: T) -> Option<String> {
    let word = words.iter().find(|(other, _)| *other == value && value != T::default());
    word.map(|(_, word)| (*word).to_owned())
}

fn queue_words(world: &World, queue: &Queue) -> Vec<String> {
    let mut words: Vec<String> = queue.quota.iter().map(|quota| format!("quota={quota}")).collect();
    let FlavorFungibility { when_can_borrow, when_can_preempt, preference } = queue.fungibility;
    let mut when = |holds: bool, word: &str| words.extend(holds.then(|| word.to_owned()));
    when(queue.queueing_strategy == QueueingStrategy::StrictFifo, "strict");
    when(queue.stopped, "stopped");
    when(!queue.reserves_starts, "reserves=none");
    when(queue.places_pods, "places-pods");
    when(queue.undeclared == UndeclaredResources::Ignore, "undeclared=ignore");
    when(when_can_borrow == FlavorFungibilityPolicy::TryNextFlavor, "when-can-borrow=try");
    when(when_can_preempt == FlavorFungibilityPolicy::MayStopSearch, "when-can-preempt=stop");
    when(preference == FlavorFungibilityPreference::PreemptionOverBorrowing, "prefer=preemption");
    words.extend(queue.admission_fair_sharing.iter().flat_map(|rule| usage_order::words(world, rule)));
    for ResourceGroup { resources, flavors } in &queue.groups {
        let flavors: Vec<&str> = flavors.iter().map(|ix| world.flavor_name(*ix)).collect();
        let resources: Vec<&str> = resources.iter().map(|ix| world.resources().name(*ix)).collect();
        words.push(format!("{}:{}", flavors.join(","), resources.join(",")));
    }
    words
}

/// Renders the distinct assigned flavors as ` in FLAVOR and …`; empty when there are none.
pub(crate) fn flavor_list(world: &World, flavors: &BTreeMap<ResourceIx, FlavorIx>) -> String {
    let named: BTreeSet<&FlavorIx> = flavors.values().filter(|ix| **ix != FlavorIx::ANY).collect();
    let names: Vec<&str> = named.into_iter().map(|ix| world.flavor_name(*ix)).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" and ")) }
}
