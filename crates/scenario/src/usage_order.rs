//! Admission fair sharing rules and the usage of local queues as words.

use model::{AdmissionFairSharing, Event, Queue, Time, World};

use crate::parse::Problem;
use crate::quantity;

/// Parses a word of an admission fair sharing rule. `None` when the word is of another kind.
pub(crate) fn read(world: &mut World, word: &str, queue: &mut Queue) -> Option<Result<(), Problem>> {
    let (key, value) = word.split_once('=')?;
    let bad = || Problem::Value(word.to_owned());
    let micros = || seconds(value).map(|time| time.0).ok_or_else(bad);
    let (kind, name) = key.split_once(':').unwrap_or((key, ""));
    Some(match kind {
        "half-life" => {
            micros().map(|micros| queue.admission_fair_sharing.get_or_insert_default().half_life_us = micros)
        }
        "interval" => {
            micros().map(|micros| queue.admission_fair_sharing.get_or_insert_default().sampling_us = micros)
        }
        "count" => value.parse().map_err(|_| bad()).map(|weight| {
            let resource = world.resources_mut().intern(name);
            queue.admission_fair_sharing.get_or_insert_default().resource_weights.insert(resource, weight);
        }),
        "weight" => {
            let milli = quantity::parse("cpu", value).and_then(|milli| u32::try_from(milli.0).ok());
            milli.ok_or_else(bad).map(|milli| {
                queue
                    .admission_fair_sharing
                    .get_or_insert_default()
                    .weights_milli
                    .insert(world.local_queue_ix(name), milli);
            })
        }
        _ => return None,
    })
}

/// Renders a rule as words that [`read`] parses.
pub(crate) fn words(world: &World, rule: &AdmissionFairSharing) -> Vec<String> {
    let AdmissionFairSharing { half_life_us, sampling_us, resource_weights, weights_milli } = rule;
    let mut words = vec![format!("half-life={}", half_life_us / 1_000_000)];
    words.push(format!("interval={}", sampling_us / 1_000_000));
    let counts = resource_weights.iter();
    words.extend(counts.map(|(ix, weight)| format!("count:{}={weight}", world.resources().name(*ix))));
    words.extend(weights_milli.iter().map(|(ix, milli)| {
        let weight = quantity::render("cpu", model::Amount(i64::from(*milli)));
        format!("weight:{}={weight}", world.local_queue_name(*ix))
    }));
    words
}

/// Parses `clock S`.
pub(crate) fn clock(words: &[&str]) -> Result<Event, Problem> {
    let [word] = words else { return Err(Problem::NoName) };
    seconds(word).map(Event::Clock).ok_or_else(|| Problem::Value((*word).to_owned()))
}

/// Parses `served NAME queue=QUEUE at=S RESOURCE=MILLIONTHS …`.
pub(crate) fn served(world: &mut World, words: &[&str]) -> Result<Event, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let (mut queue, mut at, mut consumed) = (String::new(), Time::default(), model::ConsumedResources::new());
    for word in words {
        let bad = || Problem::Value((*word).to_owned());
        let (key, value) = word.split_once('=').ok_or_else(|| Problem::Word((*word).to_owned()))?;
        match key {
            "queue" => value.clone_into(&mut queue),
            "at" => at = seconds(value).ok_or_else(bad)?,
            resource => {
                consumed.insert(world.resources_mut().intern(resource), value.parse().map_err(|_| bad())?);
            }
        }
    }
    Ok(Event::UsageRestored { queue, local_queue: (*name).to_owned(), consumed, at })
}

/// Renders the lines that [`clock`] and [`served`] parse: kind, name, words.
pub(crate) fn lines(world: &World) -> Vec<(&'static str, String, Vec<String>)> {
    let seconds = |time: Time| time.0.div_euclid(1_000_000);
    let mut lines = Vec::new();
    if world.clock() > Time::default() {
        lines.push(("clock", seconds(world.clock()).to_string(), Vec::new()));
    }
    for ((queue, local_queue), usage) in world.usages() {
        let mut words = vec![format!("queue={}", world.queue_name(queue))];
        words.push(format!("at={}", seconds(usage.at)));
        let consumed = usage.consumed.iter();
        words.extend(consumed.map(|(ix, amount)| format!("{}={amount}", world.resources().name(*ix))));
        lines.push(("served", world.local_queue_name(local_queue).to_owned(), words));
    }
    lines
}

fn seconds(text: &str) -> Option<Time> {
    text.parse().ok().map(|seconds: i64| Time(seconds.saturating_mul(1_000_000)))
}
