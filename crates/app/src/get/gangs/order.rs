//! The order of the rows.

use std::cmp::Ordering;

use crate::gang::{Gang, Outcome};

/// A column to sort by. Rows that are equal in it are sorted by name.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// What runs, then what waits, then what can never start, then what has ended.
    State,
    /// The queue, and the position in it.
    Queue,
    /// The position.
    Position,
    /// The expected start.
    Start,
    /// The oldest first.
    Age,
    /// Namespace and name.
    #[default]
    Name,
}

impl Sort {
    pub(super) fn apply(self, gangs: &mut [Gang]) {
        let by_name = |one: &Gang, other: &Gang| {
            let key = |gang: &Gang| (gang.namespace().to_owned(), gang.object(), gang.name().to_owned());
            key(one).cmp(&key(other))
        };
        gangs.sort_by(|one, other| self.compare(one, other).then_with(|| by_name(one, other)));
    }

    fn compare(self, one: &Gang, other: &Gang) -> Ordering {
        match self {
            Self::State => state(one).cmp(&state(other)).then_with(|| one.state().cmp(&other.state())),
            Self::Queue => {
                let key = |gang: &Gang| (gang.cluster_queue().to_owned(), place(gang));
                key(one).cmp(&key(other))
            }
            Self::Position => place(one).cmp(&place(other)),
            Self::Start => {
                let key =
                    |gang: &Gang| gang.start().map_or((true, String::new()), |at| (false, at.to_owned()));
                key(one).cmp(&key(other))
            }
            Self::Age => one.created().cmp(&other.created()),
            Self::Name => Ordering::Equal,
        }
    }
}

fn state(gang: &Gang) -> (bool, Outcome) {
    (gang.has_ended(), gang.outcome())
}

/// What has no position is last.
fn place(gang: &Gang) -> u64 {
    gang.position().map_or(u64::MAX, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_sorted_by_a_column_and_then_by_name() {
        let gang = |name: &str, state: &str, queue: &str, place: Option<u64>, start: &str, created: &str| {
            let mut gang = json!({"namespace": "n", "name": name, "kind": "w", "object": format!("job/{name}"), "state": state,
                "clusterQueue": queue, "created": created});
            if let Some(place) = place {
                gang["position"] = json!({"place": place, "of": 3});
            }
            if !start.is_empty() {
                gang["start"] = json!({"at": start, "declared": true});
            }
            Gang(gang)
        };
        let gangs = [
            gang("e", "ended", "z", None, "", "2026-01-01T00:00:00Z"),
            gang("d", "waits", "z", Some(1), "2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z"),
            gang("c", "waits", "y", Some(2), "", "2026-01-02T00:00:00Z"),
            gang("b", "never fits", "y", None, "", "2026-01-04T00:00:00Z"),
            gang("a", "admitted", "y", None, "", "2026-01-03T00:00:00Z"),
        ];
        for (sort, expected) in [
            ("state", "acdbe"),
            ("queue", "cabde"),
            ("position", "dcabe"),
            ("start", "dabce"),
            ("age", "ecabd"),
            ("name", "abcde"),
        ] {
            let mut sorted = gangs.to_vec();
            Sort::from_str(sort, false).unwrap().apply(&mut sorted);
            let names: String = sorted.iter().map(Gang::name).collect();
            assert_eq!(names, expected, "{sort}");
        }
    }
}
