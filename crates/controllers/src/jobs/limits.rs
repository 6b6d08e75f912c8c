//! What a Workload can hold. A job that asks for more gets none: it is told what is wrong, and what to change.

use std::collections::BTreeSet;

use api::kueue::jobs::GROUP_PODS_MAX;
use api::kueue::workload::POD_SETS_MAX;
use serde_json::Value;

/// The number of characters in the name of a pod set: it is a label.
const NAME_MAX: usize = 63;
/// The number of pods in a pod set: Kueue's type of it.
const PODS_MAX: u64 = 2_147_483_647;

/// Why no Workload can be made with this content; none if it can. `is_group`: its pods own it, each of them.
pub(super) fn problem(workload: &Value, is_group: bool) -> Option<String> {
    let sets = workload["spec"]["podSets"].as_array().map_or(&[][..], Vec::as_slice);
    if sets.len() > usize::from(POD_SETS_MAX) {
        let many = sets.len();
        return Some(format!(
            "the job has {many} groups of pods, and a Workload holds {POD_SETS_MAX}: merge some of them"
        ));
    }
    let mut names = BTreeSet::new();
    for set in sets {
        let name = set["name"].as_str().unwrap_or_default();
        let length = name.chars().count();
        if length > NAME_MAX {
            return Some(format!(
                "the name of the group of pods {name} has {length} characters, and a Workload takes {NAME_MAX}: shorten it"
            ));
        }
        if !names.insert(name) {
            return Some(format!(
                "two groups of pods of the job are called {name} in its Workload, which has lower case only: rename one"
            ));
        }
        let count = &set["count"];
        if is_group && count.as_u64().is_some_and(|count| count > GROUP_PODS_MAX.into()) {
            return Some(format!(
                "the group {name} has {count} pods, and all of them own its Workload, which takes {GROUP_PODS_MAX}: ask for fewer"
            ));
        }
        if count.as_u64().is_none_or(|count| count > PODS_MAX) {
            return Some(format!(
                "the group {name} has {count} pods, and a Workload counts up to {PODS_MAX}: ask for fewer"
            ));
        }
        let least = &set["minCount"];
        if !least.is_null() && !least.as_u64().is_some_and(|least| least > 0 && Some(least) <= count.as_u64())
        {
            return Some(format!(
                "the group {name} has {count} pods, and {least} of them are its minimum: set a minimum between 1 and {count}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(sets: &[(&str, u64)]) -> String {
        told_of(sets, false)
    }

    fn told_of(sets: &[(&str, u64)], is_group: bool) -> String {
        let sets: Vec<Value> =
            sets.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        problem(&json!({"spec": {"podSets": sets}}), is_group).unwrap_or_default()
    }

    #[test]
    fn what_a_workload_cannot_hold_is_named_with_the_remedy() {
        assert_eq!(told(&[("head", 1), ("workers", 2_147_483_647)]), "");
        assert!(told(&[("a", 1), ("a", 1)]).ends_with("rename one"));
        assert!(told(&[(&"x".repeat(64), 1)]).ends_with("shorten it"));
        assert!(told(&[("a", 2_147_483_648)]).ends_with("ask for fewer"));
        assert_eq!(told_of(&[("a", 5_000)], true), "");
        assert!(told_of(&[("a", 5_001)], true).ends_with("ask for fewer"));
        let partial = |least: i64| {
            let sets = json!([{"name": "main", "count": 3, "minCount": least}]);
            problem(&json!({"spec": {"podSets": sets}}), false)
        };
        assert_eq!(partial(3), None);
        assert!([4, 0, -1].into_iter().all(|least| partial(least).unwrap().ends_with("between 1 and 3")));
        let names: Vec<String> = (0..19).map(|at| format!("s{at}")).collect();
        let sets: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        assert!(told(&sets).ends_with("merge some of them"));
    }
}
