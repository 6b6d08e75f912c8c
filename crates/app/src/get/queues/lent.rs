//! What queues lend: how much of the quota that a queue leaves unused may be what others of its cohort borrow. It is the whole of it if
//! no other queue has such quota; who lends to whom is not recorded.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rows::Row;

/// Fills in what the queues of each tree of cohorts lend.
pub(super) fn fill(rows: &mut [Row], cohorts: &[Value]) {
    let parents: BTreeMap<&str, &str> = cohorts
        .iter()
        .filter_map(|cohort| {
            Some((cohort["metadata"]["name"].as_str()?, cohort["spec"]["parentName"].as_str()?))
        })
        .collect();
    let key = |row: &Row| (root(&parents, &row.cohort), row.flavor.clone(), row.resource.clone());
    let mut borrowed: BTreeMap<_, i64> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.cohort.is_empty()) {
        let sum = borrowed.entry(key(row)).or_default();
        *sum = sum.saturating_add(row.borrowed.unwrap_or_default());
    }
    for row in rows.iter_mut().filter(|row| row.quota.is_some()) {
        let others = borrowed.get(&key(row)).copied().unwrap_or_default() - row.borrowed.unwrap_or_default();
        let unused = row.quota.unwrap_or_default().saturating_sub(row.used.unwrap_or_default());
        let lendable = unused.min(row.lending_limit.unwrap_or(i64::MAX)).max(0);
        row.lent = Some(if row.cohort.is_empty() { 0 } else { lendable.min(others) });
    }
}

/// The root of the tree of a cohort. A circle, which the API server does not refuse, ends at its first cohort.
fn root(parents: &BTreeMap<&str, &str>, cohort: &str) -> String {
    let mut at = cohort;
    for _ in 0..=parents.len() {
        match parents.get(at) {
            Some(parent) if *parent != cohort => at = parent,
            Some(_) | None => break,
        }
    }
    at.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_queue_lends_what_it_leaves_unused_as_far_as_others_of_its_tree_borrow() {
        let row = |object: &str, cohort: &str, quota, used, borrowed, lending_limit| Row {
            object: object.into(),
            cohort: cohort.into(),
            resource: "cpu".into(),
            quota: Some(quota),
            used: Some(used),
            borrowed: Some(borrowed),
            lending_limit,
            ..Row::default()
        };
        let mut rows = [
            row("borrower", "left", 4, 10, 6, None),
            row("lender", "right", 8, 3, 0, None),
            row("limited", "right", 8, 0, 0, Some(2)),
            row("alone", "", 8, 0, 0, None),
            row("foreign", "other", 8, 0, 0, None),
        ];
        let cohort =
            |name: &str, parent: &str| json!({"metadata": {"name": name}, "spec": {"parentName": parent}});
        fill(
            &mut rows,
            &[
                cohort("left", "root"),
                cohort("right", "root"),
                cohort("other", "circle"),
                cohort("circle", "other"),
            ],
        );
        assert_eq!(rows.map(|row| row.lent), [Some(0), Some(5), Some(2), Some(0), Some(0)]);
    }
}
