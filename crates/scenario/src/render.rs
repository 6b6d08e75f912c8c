//! Rendering of worlds, plans and forecasts.

use std::fmt::Write;

use model::{
    Amount, Assignment, Backfill, Constraints, DeviceShare, FlavorIx, Forecast, ForecastStart, Gang,
    GangState, Hold, Node, Operator, Packing, Places, Plan, Pod, Policy, PreemptionPolicy, QueueIx,
    Requirement, Reservation, ResourceIx, ResourceNames, ResourceVec, Slip, Time, Toleration,
    TolerationOperator, Verdict, World,
};

use crate::parse::places_word;
use crate::{pod_rules, preemption, quantity, quota, topology, usage_order};

/// Renders the world as text that [`parse()`](crate::parse()) reads: policy, nodes, pods, flavors, quota, queues and gangs.
pub fn render(world: &World) -> String {
    let names = world.resources();
    let mut text = String::new();
    let Policy { preemption, backfill, fair_sharing, packing, topology, guessed_hold_us } = world.policy();
    let preemption = (*preemption == PreemptionPolicy::LowerPriority).then_some("preemption=lower-priority");
    let backfill = match backfill {
        Backfill::BestEffort => None,
        Backfill::Reserve => Some("backfill=reserve".to_owned()),
        Backfill::Conservative { depth: heads } => Some(format!("backfill=conservative:{heads}")),
    };
    let fair_sharing =
        fair_sharing.map(|rule| format!("fair-sharing={}", preemption::fair_sharing_word(rule)));
    let packing = (*packing != Packing::default()).then(|| format!("packing={}", packing.name()));
    let guessed_hold = (*guessed_hold_us != Policy::GUESSED_HOLD_US)
        .then(|| format!("guessed-hold={}", guessed_hold_us.div_euclid(1_000_000)));
    let policy = preemption.map(str::to_owned).into_iter().chain(backfill).chain(fair_sharing).chain(packing);
    let balanced = topology.balances.then(|| "topology=balanced".to_owned());
    let best_fit = (!topology.fills_gaps).then(|| "topology=best-fit".to_owned());
    let policy = policy.chain(guessed_hold).chain(balanced).chain(best_fit);
    let policy: Vec<String> = policy.collect();
    if !policy.is_empty() {
        let _ = writeln!(text, "policy   {}", policy.join(" "));
    }
    for node in world.nodes() {
        line(&mut text, "node", &node.name, &node_words(names, node));
    }
    for pod in world.pods() {
        line(&mut text, "pod", &pod.uid, &pod_words(names, pod));
    }
    for (kind, name, words) in quota::words(world) {
        line(&mut text, kind, name, &words);
    }
    for gang in world.gangs() {
        let kind = match &gang.state {
            GangState::Waiting => "pending",
            GangState::Reserved(_) => "running",
            GangState::Nominated(_) => "nominated",
            GangState::Unplaced => "foreign",
        };
        line(&mut text, kind, &gang.key.name, &gang_words(world, gang));
    }
    for (kind, name, words) in usage_order::lines(world) {
        line(&mut text, kind, &name, &words);
    }
    for (gang, word) in preemption::preemption_lines(world) {
        line(&mut text, "stopped", gang, &[word]);
    }
    text
}

/// Renders a plan: one line per verdict in the order of decision, then one line per slip.
pub fn verdicts(world: &World, plan: &Plan) -> String {
    let mut text = String::new();
    for (uid, verdict) in &plan.verdicts {
        let (word, rest) = match verdict {
            Verdict::Admit(assignment) => {
                let places = world.gang(uid).map_or_else(String::new, |gang| places(world, gang, assignment));
                let told = plan.without_room.iter().find(|(told, _)| told == uid);
                let told = told.map_or_else(String::new, |(_, shortage)| format!("; no room: {shortage}"));
                ("admit", format!("{places}{told}"))
            }
            Verdict::Preempt(preemption) => {
                let gang = world.gang(uid);
                let places =
                    gang.map_or_else(String::new, |gang| places(world, gang, &preemption.assignment));
                ("preempt", format!("{}: {places}", preemption::victim_words(preemption).join(", ")))
            }
            Verdict::Wait(shortage) => ("wait", format!("{shortage}{}", reservation_note(plan, uid))),
            Verdict::Never(shortage) => ("never", shortage.to_string()),
        };
        let _ = writeln!(text, "{}", format!("{uid}  {word}  {rest}").trim_end());
    }
    for Slip { gang, from, to, cause } in &plan.slips {
        let to = to.map_or("promised no more".to_owned(), |to| format!("now {}", seconds(to)));
        let _ = writeln!(text, "{gang}  late  promised for {}, {to}: {cause}", seconds(*from));
    }
    text
}

fn seconds(time: Time) -> String {
    format!("{} s", time.0.div_euclid(1_000_000))
}

/// Renders a reservation as ` (not before 20 s, when train-1 ends)`, with a tilde when it depends on undeclared run
/// times.
fn reservation_note(plan: &Plan, uid: &str) -> String {
    let Some(reserved) = plan.reserved.iter().find(|reserved| reserved.gang == uid) else {
        return String::new();
    };
    let Reservation { start, after, declared, hold, .. } = reserved;
    let over = if *hold == Hold::Over { ", holds nothing back" } else { "" };
    format!(" (not before {}{over})", start_text(*start, *declared, after.as_deref()))
}

/// Renders a forecast: one line per gang, in the order of starts.
pub fn forecast(forecast: &Forecast) -> String {
    let mut starts: Vec<_> = forecast.starts.iter().collect();
    starts.sort_by_key(|(uid, forecast)| (forecast.start, *uid));
    let mut text = String::new();
    for (uid, ForecastStart { start, declared, after }) in starts {
        let _ = writeln!(text, "{uid}  {}", start_text(*start, *declared, after.as_deref()));
    }
    for uid in &forecast.without_start {
        let _ = writeln!(text, "{uid}  never, as far as can be foreseen");
    }
    text
}

fn start_text(start: Time, declared: bool, after: Option<&str>) -> String {
    let about = if declared { "" } else { "~" };
    let after = after.map_or(String::new(), |uid| format!(", when {uid} ends"));
    format!("{about}{}{after}", seconds(start))
}

fn places(world: &World, gang: &Gang, assignment: &Assignment) -> String {
    let sets = gang.pod_sets.iter().zip(&assignment.pod_sets).enumerate();
    let has_pods =
        |(at, (_, places)): &(usize, (_, &Vec<_>))| !places.is_empty() || assignment.unplaced_in(*at) > 0;
    let texts = sets.filter(has_pods).map(|(at, (pod_set, places))| {
        let flavors =
            assignment.flavors.get(at).map_or_else(String::new, |flavors| quota::flavor_list(world, flavors));
        let devices = assignment.devices.get(at).map_or(&[][..], Vec::as_slice);
        let on = if places.is_empty() { "" } else { " on " };
        let places = place_list(places, devices);
        let unplaced = match assignment.unplaced_in(at) {
            0 => String::new(),
            count => format!(" {count}x without node"),
        };
        format!("{}{on}{places}{unplaced}{flavors}", pod_set.name)
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Renders `NODE[/DEVICE][*N],…`; on each node, pods with a known device come first.
fn place_list(places: &[(String, u32)], devices: &[(String, u32, u32)]) -> String {
    let mut texts = Vec::new();
    let mut push = |place: String, count: u32| match count {
        0 => {}
        1 => texts.push(place),
        _ => texts.push(format!("{place}*{count}")),
    };
    for (node, count) in places {
        let mut rest = *count;
        for (_, number, here) in devices.iter().filter(|(on, ..)| on == node) {
            push(format!("{node}/{number}"), *here);
            rest = rest.saturating_sub(*here);
        }
        push(node.clone(), rest);
    }
    texts.join(",")
}

fn share_word(names: &ResourceNames, share: DeviceShare) -> String {
    format!("share:{}={}m", names.name(share.device()), share.milli())
}

fn line(text: &mut String, kind: &str, name: &str, words: &[String]) {
    let _ = writeln!(text, "{kind:<8} {name}{}{}", if words.is_empty() { "" } else { "  " }, words.join(" "));
}

fn amounts<'a>(
    names: &'a ResourceNames,
    vector: &'a ResourceVec,
    usual: i64,
) -> impl Iterator<Item = String> + 'a {
    let no_pods = vector.get(ResourceIx::PODS) == Amount::ZERO && usual != 0;
    vector
        .iter()
        .filter(move |(ix, amount)| *ix != ResourceIx::PODS || amount.0 != usual)
        .map(|(ix, amount)| (names.name(ix), amount))
        .chain(no_pods.then_some(("pods", Amount::ZERO)))
        .map(|(name, amount)| format!("{name}={}", quantity::render(name, amount)))
}

fn node_words(names: &ResourceNames, node: &Node) -> Vec<String> {
    let mut words: Vec<String> = amounts(names, &node.allocatable, 110).collect();
    words.extend(node.labels.iter().map(|(key, value)| format!("label:{key}={value}")));
    words.extend(node.taints.iter().map(|taint| format!("taint:{taint}")));
    words.extend(node.unschedulable.then(|| "cordoned".to_owned()));
    words.extend((!node.ready).then(|| "notready".to_owned()));
    words
}

fn pod_words(names: &ResourceNames, pod: &Pod) -> Vec<String> {
    let mut words: Vec<String> = amounts(names, &pod.request, 1).collect();
    words.extend(pod.share.map(|share| share_word(names, share)));
    words.extend(pod_rules::words(pod.rules.as_deref()));
    let device = pod.device.map_or(String::new(), |number| format!("/{number}"));
    words.extend(pod.node.iter().map(|node| format!("on={node}{device}")));
    words.extend(pod.gang.iter().map(|(gang, set)| format!("of={gang}/{set}")));
    words.extend(pod.is_leaving.then(|| "leaving".to_owned()));
    words
}

fn gang_words(world: &World, gang: &Gang) -> Vec<String> {
    let names = world.resources();
    let mut words = vec![format!("at={}", gang.queued_at.0.div_euclid(1_000_000))];
    let mut unless = |usual: bool, word: String| words.extend((!usual).then_some(word));
    unless(gang.priority == 0, format!("priority={}", gang.priority / 1000));
    unless(gang.slope == 0, format!("slope={}", gang.slope));
    unless(gang.queue == QueueIx::default(), format!("queue={}", world.queue_name(gang.queue)));
    let local_queue = world.local_queue_name(gang.local_queue);
    unless(local_queue.is_empty(), format!("from={local_queue}"));
    let charges: Vec<&str> = gang.charges.iter().map(|ix| world.quota_name(*ix)).collect();
    unless(charges.is_empty(), format!("charge={}", charges.join(",")));
    unless(gang.key.kind == "gangs", format!("kind={}", gang.key.kind));
    unless(gang.key.namespace == "default", format!("namespace={}", gang.key.namespace));
    unless(!gang.protected, "protected".to_owned());
    unless(!gang.gated, "gated".to_owned());
    let seconds = |time: Time| time.0.div_euclid(1_000_000);
    words.extend(gang.started_at.map(|at| format!("started={}", seconds(at))));
    words.extend(gang.runs_us.map(|run| format!("runs={}", run / 1_000_000)));
    words.extend(gang.checkpointed_at.map(|at| format!("checkpointed={}", seconds(at))));
    if let GangState::Nominated(preemption) = &gang.state
        && !preemption.victims.is_empty()
    {
        words.push(format!("victims={}", preemption::victim_words(preemption).join(",")));
    }
    words
        .extend((gang.places != Places::AtAdmission).then(|| format!("places={}", places_word(gang.places))));
    words.extend(gang.elastic.then(|| "elastic".to_owned()));
    words.extend(gang.replaces.as_ref().map(|replaced| format!("replaces={}", replaced.uid)));
    for (word, nodes) in [("excluded", &gang.excluded), ("unhealthy", &gang.unhealthy)] {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        words.extend((!nodes.is_empty()).then(|| format!("{word}={}", nodes.join(","))));
    }
    if let Some(declared) = &gang.declared {
        words.extend(amounts(names, declared, 0).map(|word| format!("declared:{word}")));
    }
    for (at, pod_set) in gang.pod_sets.iter().enumerate() {
        words.push(format!(" {} {}x", pod_set.name, pod_set.count));
        words.extend(pod_set.min_count.map(|least| format!("min={least}")));
        let done = gang.reclaimable.get(at).filter(|done| **done > 0);
        words.extend(done.map(|done| format!("done={done}")));
        words.extend(amounts(names, &pod_set.request, 1));
        let counted = pod_set.charged.iter().flat_map(|charged| amounts(names, charged, 1));
        words.extend(counted.map(|word| format!("quota:{word}")));
        words.extend(pod_set.share.map(|share| share_word(names, share)));
        constraint_words(&pod_set.constraints, &mut words);
        words.extend(pod_set.preferred.iter().map(|(weight, term)| {
            let expressions = term.expressions.iter().map(requirement);
            let fields = term.fields.iter().map(|wanted| format!("field:{}", requirement(wanted)));
            let wanted: Vec<String> = expressions.chain(fields).collect();
            format!("prefer:{weight}:{}", wanted.join("&"))
        }));
        words.extend(pod_rules::words(pod_set.rules.as_deref()));
        words.extend(topology::words(pod_set));
        words.extend(pod_set.group.iter().map(|group| format!("group={group}")));
        if let Some(assignment) = gang.state.assignment()
            && let Some(places) = assignment.pod_sets.get(at).filter(|places| !places.is_empty())
        {
            let devices = assignment.devices.get(at).map_or(&[][..], Vec::as_slice);
            words.push(format!("on={}", place_list(places, devices)));
        }
        let unplaced = gang.state.assignment().map(|assignment| assignment.unplaced_in(at));
        words.extend(unplaced.filter(|count| *count > 0).map(|count| format!("unplaced={count}")));
        let replaced = gang.replaces.as_ref().and_then(|replaced| replaced.flavors.get(at));
        let flavors = gang.state.assignment().and_then(|assignment| assignment.flavors.get(at)).or(replaced);
        let given = |(ix, flavor): (&ResourceIx, &FlavorIx)| {
            format!("flavor:{}={}", names.name(*ix), world.flavor_name(*flavor))
        };
        words.extend(flavors.into_iter().flatten().map(given));
    }
    words
}

fn constraint_words(constraints: &Constraints, words: &mut Vec<String>) {
    words.extend(constraints.node_selector.iter().map(|(key, value)| format!("select:{key}={value}")));
    for (at, term) in constraints.node_affinity.iter().enumerate() {
        words.extend((at > 0).then(|| "or".to_owned()));
        words.extend(term.expressions.iter().map(|wanted| format!("affinity:{}", requirement(wanted))));
        words.extend(term.fields.iter().map(|wanted| format!("field:{}", requirement(wanted))));
    }
    words.extend(constraints.tolerations.iter().map(toleration_word));
}

pub(crate) fn toleration_word(toleration: &Toleration) -> String {
    let mut word = format!("tolerate:{}", toleration.key.as_deref().unwrap_or_default());
    if toleration.operator == TolerationOperator::Equal {
        let _ = write!(word, "={}", toleration.value);
    }
    if let Some(effect) = toleration.effect {
        let _ = write!(word, ":{effect}");
    }
    word
}

fn requirement(wanted: &Requirement) -> String {
    let (key, values) = (&wanted.key, wanted.values.join("|"));
    match wanted.operator {
        Operator::In => format!("{key}={values}"),
        Operator::NotIn => format!("{key}!={values}"),
        Operator::Exists => key.clone(),
        Operator::DoesNotExist => format!("!{key}"),
        Operator::Gt => format!("{key}>{values}"),
        Operator::Lt => format!("{key}<{values}"),
    }
}
