//! Rules between pods as words.

use std::sync::Arc;

use model::{HostPort, PodAffinity, PodRules, PodTerm, SelectorIx, SpreadConstraint};

/// Parses a word about the rules of a pod or pod set. `None` when the word is of another kind; false when its value is
/// invalid.
pub(crate) fn read(word: &str, rules: &mut Option<Arc<PodRules>>) -> Option<bool> {
    let (kind, value) = word.split_once(':')?;
    if !["selected", "apart", "near", "spread", "port"].contains(&kind) {
        return None;
    }
    let rules = Arc::make_mut(rules.get_or_insert_default());
    Some(read_value(kind, value, rules).is_some())
}

fn read_value(kind: &str, value: &str, rules: &mut PodRules) -> Option<()> {
    match kind {
        "selected" => {
            let selectors: Option<Vec<_>> = value.split(',').map(selector).collect();
            rules.selected_by.extend(selectors?);
        }
        "apart" => {
            let (selected, key) = value.split_once('=')?;
            let selector = selector(selected)?;
            rules.anti_affinity.insert(PodTerm { selector, topology_key: key.to_owned() });
        }
        "near" => {
            let (selected, keys) = value.split_once('=')?;
            let topology_keys = keys.split(',').map(str::to_owned).collect();
            rules.affinity = Some(PodAffinity { selector: selector(selected)?, topology_keys });
        }
        "spread" => rules.spread.push(spread(value)?),
        _ => drop(rules.host_ports.insert(port(value)?)),
    }
    Some(())
}

fn selector(text: &str) -> Option<SelectorIx> {
    text.parse().ok().map(SelectorIx)
}

fn spread(text: &str) -> Option<SpreadConstraint> {
    let (selected, rest) = text.split_once('=')?;
    let mut parts = rest.split(':');
    let mut constraint = SpreadConstraint {
        selector: selector(selected)?,
        topology_key: parts.next()?.to_owned(),
        max_skew: parts.next()?.parse().ok()?,
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
    };
    for part in parts {
        match part {
            "ignore-affinity" => constraint.honors_affinity = false,
            "honor-taints" => constraint.honors_taints = true,
            part => constraint.min_domains = part.strip_prefix("min=")?.parse().ok()?,
        }
    }
    Some(constraint)
}

fn port(text: &str) -> Option<HostPort> {
    let (place, protocol) = text.rsplit_once('/')?;
    let (address, port) = match place.rsplit_once(':') {
        Some((address, port)) => (Some(address.to_owned()), port),
        None => (None, place),
    };
    Some(HostPort { port: port.parse().ok()?, protocol: protocol.to_owned(), address })
}

/// Renders rules as words that [`read`] parses.
pub(crate) fn words(rules: Option<&PodRules>) -> Vec<String> {
    let Some(PodRules { selected_by, anti_affinity, affinity, spread, host_ports }) = rules else {
        return Vec::new();
    };
    let mut words = Vec::new();
    let selectors: Vec<String> = selected_by.iter().map(|selector| selector.0.to_string()).collect();
    words.extend((!selectors.is_empty()).then(|| format!("selected:{}", selectors.join(","))));
    let apart = anti_affinity.iter();
    words.extend(apart.map(|term| format!("apart:{}={}", term.selector.0, term.topology_key)));
    words.extend(affinity.iter().map(|PodAffinity { selector, topology_keys }| {
        let keys: Vec<&str> = topology_keys.iter().map(String::as_str).collect();
        format!("near:{}={}", selector.0, keys.join(","))
    }));
    words.extend(spread.iter().map(spread_word));
    words.extend(host_ports.iter().map(|port| format!("port:{port}")));
    words
}

fn spread_word(constraint: &SpreadConstraint) -> String {
    let SpreadConstraint { selector, topology_key, max_skew, min_domains, honors_affinity, honors_taints } =
        constraint;
    let min = if *min_domains > 1 { format!(":min={min_domains}") } else { String::new() };
    let affinity = if *honors_affinity { "" } else { ":ignore-affinity" };
    let taints = if *honors_taints { ":honor-taints" } else { "" };
    format!("spread:{}={topology_key}:{max_skew}{min}{affinity}{taints}", selector.0)
}
