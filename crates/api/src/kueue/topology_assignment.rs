//! The places of the pods of one pod set, as `status.admission.podSetAssignments[].topologyAssignment` has them.
//!
//! `v1beta1` lists the domains. `v1beta2` groups them into slices and writes what the values of a slice have in common
//! only once: one value, or the common prefix and suffix with the rest of each value. The choice of slices is that of
//! Kueue v0.19 with its default feature gates (`pkg/util/tas`, KEP-2724).

use serde_json::{Map, Value, json};

use crate::value::{at, list};

/// The label of the lowest level when domains are nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Domains in a slice: the limit of `v1beta2` for the list of values.
const SLICE_DOMAINS_MAX: usize = 100_000;
/// Domains in an assignment, over all slices; more do not fit into an object. Decoding stops here, because a slice can
/// stand for many domains with few bytes.
const DOMAINS_MAX: usize = 1_000_000;
/// Slices in an assignment: the limit of `v1beta2`.
const SLICES_MAX: usize = 1_000;

/// The places of one pod set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyAssignment {
    /// Node labels, from the highest level to the lowest.
    pub levels: Vec<String>,
    /// The domains, in the order of the pods' ranks.
    pub domains: Vec<Domain>,
}

/// A domain and its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// The value of the label of each level.
    pub values: Vec<String>,
    /// Number of pods.
    pub count: i64,
}

impl TopologyAssignment {
    /// Reads the form of `v1beta1`.
    ///
    /// # Errors
    /// A text that names the field, if a domain has not one value for each level.
    pub fn from_v1beta1(value: &Value) -> Result<Self, String> {
        let levels = texts(at(value, &["levels"]));
        let mut domains = Vec::new();
        for (index, domain) in list(value, &["domains"]).iter().enumerate() {
            let values = texts(at(domain, &["values"]));
            if values.len() != levels.len() {
                let (found, wanted) = (values.len(), levels.len());
                return Err(format!("domains[{index}].values: has {found} values for {wanted} levels"));
            }
            domains.push(Domain { values, count: count(at(domain, &["count"])) });
        }
        Ok(Self { levels, domains })
    }

    /// Reads the form of `v1beta2`.
    ///
    /// # Errors
    /// A text that names the field, if a slice has not one value for each level and domain, or not one count for each
    /// domain.
    pub fn from_v1beta2(value: &Value) -> Result<Self, String> {
        let levels = texts(at(value, &["levels"]));
        let mut domains = Vec::new();
        for (index, slice) in list(value, &["slices"]).iter().enumerate() {
            let slice = read_slice(slice, levels.len());
            domains.extend(slice.map_err(|why| format!("slices[{index}].{why}"))?);
            if domains.len() > DOMAINS_MAX {
                return Err(format!("slices[{index}].domainCount: more than {DOMAINS_MAX} domains in all"));
            }
        }
        Ok(Self { levels, domains })
    }

    /// The form of `v1beta1`.
    pub fn to_v1beta1(&self) -> Value {
        let domain = |domain: &Domain| json!({"values": domain.values, "count": domain.count});
        json!({"levels": self.levels, "domains": self.domains.iter().map(domain).collect::<Vec<_>>()})
    }

    /// The form of `v1beta2`: one slice, or one for each run of nodes with a common prefix of the name if that is
    /// shorter.
    pub fn to_v1beta2(&self) -> Value {
        let runs = self.with_slices(&self.hostname_runs());
        if self.domains.len() > SLICE_DOMAINS_MAX || list(&runs, &["slices"]).len() <= 1 {
            return runs;
        }
        let whole = self.with_slices(&[self.domains.as_slice()]);
        if whole.to_string().len() < runs.to_string().len() { whole } else { runs }
    }

    fn with_slices(&self, runs: &[&[Domain]]) -> Value {
        let chunks = runs.iter().flat_map(|run| run.chunks(SLICE_DOMAINS_MAX));
        let slices: Vec<Value> = chunks.map(|chunk| slice(self.levels.len(), chunk)).collect();
        json!({"levels": self.levels, "slices": slices})
    }

    /// The domains in runs of nodes whose names have a prefix in common that ends with `-`, with the longest prefixes
    /// that do not need too many slices.
    fn hostname_runs(&self) -> Vec<&[Domain]> {
        if self.levels.last().is_none_or(|level| level != HOSTNAME) {
            return vec![&self.domains];
        }
        let names: Vec<&str> =
            self.domains.iter().map(|domain| domain.values.last().map_or("", String::as_str)).collect();
        let prefixes: Vec<Vec<&str>> = names.iter().map(|name| prefixes(name)).collect();
        let mut uses = std::collections::BTreeMap::new();
        for prefix in prefixes.iter().flatten() {
            *uses.entry(*prefix).or_insert(0_usize) += 1;
        }
        let shared = |prefix: &&&str| uses.get(**prefix).is_some_and(|uses| *uses > 1);
        let depth_max = prefixes.iter().map(Vec::len).max().unwrap_or(0);
        for depth in (1..=depth_max).rev() {
            let key = |index: usize| {
                let usable = prefixes[index].iter().take(depth);
                usable.rev().find(shared).copied().unwrap_or("")
            };
            let runs = runs(&self.domains, key);
            if runs.iter().map(|run| run.len().div_ceil(SLICE_DOMAINS_MAX)).sum::<usize>() <= SLICES_MAX {
                return runs;
            }
        }
        vec![&self.domains]
    }
}

/// The prefixes of a node name that end with `-`, from the shortest to the longest; not the whole name.
fn prefixes(name: &str) -> Vec<&str> {
    let ends = name.match_indices('-').map(|(at, _)| at + 1);
    ends.filter(|end| *end < name.len()).map(|end| &name[..end]).collect()
}

/// Consecutive domains with equal keys.
fn runs<'a, 'k>(domains: &'a [Domain], key: impl Fn(usize) -> &'k str) -> Vec<&'a [Domain]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for end in 1..=domains.len() {
        if end == domains.len() || key(end) != key(start) {
            runs.push(&domains[start..end]);
            start = end;
        }
    }
    runs
}

fn slice(levels: usize, domains: &[Domain]) -> Value {
    let values = |level: usize| -> Vec<&str> { domains.iter().map(|d| d.values[level].as_str()).collect() };
    let values: Vec<Value> = (0..levels).map(|level| compress(&values(level))).collect();
    let counts: Vec<i64> = domains.iter().map(|domain| domain.count).collect();
    let same = counts.iter().all(|count| *count == counts[0]);
    let counts = if same { json!({"universal": counts[0]}) } else { json!({"individual": counts}) };
    json!({"domainCount": domains.len(), "valuesPerLevel": values, "podCounts": counts})
}

/// The values of one level: one value if all are equal, else what they have in common at both ends, and the rest of each.
fn compress(values: &[&str]) -> Value {
    let first = values[0];
    if values.iter().all(|value| *value == first) {
        return json!({"universal": first});
    }
    let shortest = values.iter().map(|value| value.len()).min().unwrap_or(0);
    let common = |other: &str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let common_end =
        |other: &str| first.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    let suffix = values.iter().map(|value| common_end(value)).min().unwrap_or(0);
    let suffix = (0..=suffix).rev().find(|n| first.is_char_boundary(first.len() - n)).unwrap_or(0);
    // The two must not overlap in the shortest value, such as in `aba` beside `ababa`.
    let prefix = values.iter().map(|value| common(value)).min().unwrap_or(0).min(shortest - suffix);
    let prefix = (0..=prefix).rev().find(|n| first.is_char_boundary(*n)).unwrap_or(0);
    let mut individual = Map::new();
    if prefix > 0 {
        individual.insert("prefix".into(), first[..prefix].into());
    }
    if suffix > 0 {
        individual.insert("suffix".into(), first[first.len() - suffix..].into());
    }
    let roots: Vec<&str> = values.iter().map(|value| &value[prefix..value.len() - suffix]).collect();
    individual.insert("roots".into(), json!(roots));
    json!({"individual": individual})
}

fn read_slice(slice: &Value, levels: usize) -> Result<Vec<Domain>, String> {
    let counts = at(slice, &["podCounts"]);
    let domains = usize::try_from(count(at(slice, &["domainCount"]))).unwrap_or(0);
    // Checked first: the number of domains alone must not decide how much memory is used.
    if domains > SLICE_DOMAINS_MAX {
        return Err(format!("domainCount: must not be more than {SLICE_DOMAINS_MAX}"));
    }
    let found = list(slice, &["valuesPerLevel"]).len();
    if found != levels {
        return Err(format!("valuesPerLevel: has {found} entries for {levels} levels"));
    }
    let individual_counts = list(counts, &["individual"]);
    let universal_count = counts.get("universal");
    if universal_count.is_none() && individual_counts.len() < domains {
        let found = individual_counts.len();
        return Err(format!("podCounts.individual: has {found} counts for {domains} domains"));
    }
    let mut columns = Vec::with_capacity(levels);
    for (level, values) in list(slice, &["valuesPerLevel"]).iter().enumerate() {
        let column = decompress(values, domains).map_err(|why| format!("valuesPerLevel[{level}].{why}"));
        columns.push(column?.into_iter());
    }
    let mut next = |index: usize| Domain {
        values: columns.iter_mut().filter_map(Iterator::next).collect(),
        count: count(universal_count.unwrap_or_else(|| &individual_counts[index])),
    };
    Ok((0..domains).map(&mut next).collect())
}

fn decompress(values: &Value, domains: usize) -> Result<Vec<String>, String> {
    if let Some(universal) = values.get("universal").and_then(Value::as_str) {
        return Ok(vec![universal.to_owned(); domains]);
    }
    let individual = at(values, &["individual"]);
    let end = |key: &str| individual.get(key).and_then(Value::as_str).unwrap_or_default();
    let roots = texts(at(individual, &["roots"]));
    if roots.len() < domains {
        return Err(format!("individual.roots: has {} values for {domains} domains", roots.len()));
    }
    let whole = |root: String| format!("{}{root}{}", end("prefix"), end("suffix"));
    Ok(roots.into_iter().take(domains).map(whole).collect())
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}
