//! The quota that a gang is charged while it holds places: that of its admission, as the status has it.
//!
//! The labels and the spec of an AppWrapper may change while it runs. Its charge does not: the status, which only the
//! controller writes, records the groups and the total. The record counts until the gang is requeued.

use std::collections::BTreeMap;
use std::fmt;

use api::Amounts;
use serde_json::{Map, Value, json};

const PREFIX: &str = "charged to ";
const BEFORE_TOTAL: &str = " with ";

/// The charge of an admitted gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReservedQuota {
    /// The group in each quota tree.
    pub(crate) groups: BTreeMap<String, String>,
    /// The total of its pods, or its declared total if that is larger.
    pub(crate) total: Amounts,
}

impl ReservedQuota {
    /// Parses the message of the condition `QuotaReserved`; `None` for other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (groups, total) = text.strip_prefix(PREFIX)?.split_once(BEFORE_TOTAL)?;
        let groups = groups.split(", ").map(|node| {
            let (tree, group) = node.split_once('/')?;
            Some((tree.to_owned(), group.to_owned()))
        });
        let total = total.split(", ").filter(|part| !part.is_empty()).map(|part| {
            let (quantity, name) = part.split_once(' ')?;
            Some((name.to_owned(), json!(quantity)))
        });
        let total: Map<String, Value> = total.collect::<Option<_>>()?;
        Some(Self {
            groups: groups.collect::<Option<_>>()?,
            total: Amounts::read(&Value::Object(total)).ok()?,
        })
    }
}

/// The message of the condition `QuotaReserved`. Exact, because it is read back.
impl fmt::Display for ReservedQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<_> = self.groups.iter().map(|(tree, group)| format!("{tree}/{group}")).collect();
        let total = self.total.iter().map(|(name, amount)| match name {
            "cpu" if amount % 1000 != 0 => format!("{amount}m {name}"),
            "cpu" => format!("{} {name}", amount / 1000),
            _ => format!("{amount} {name}"),
        });
        write!(f, "{PREFIX}{}{BEFORE_TOTAL}{}", groups.join(", "), total.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back_exactly() {
        let groups = [("quota_context", "gold"), ("quota_service", "a.b")];
        let reserved = ReservedQuota {
            groups: groups.map(|(tree, group)| (tree.to_owned(), group.to_owned())).into(),
            total: Amounts::from_iter([("cpu", 1_500), ("memory", 1_234_567_891), ("example.com/x", 3)]),
        };
        let text = reserved.to_string();
        assert_eq!(
            text,
            "charged to quota_context/gold, quota_service/a.b with 1500m cpu, 3 example.com/x, 1234567891 memory"
        );
        assert_eq!(ReservedQuota::parse(&text), Some(reserved));
        let nothing =
            ReservedQuota { groups: BTreeMap::from([("t".into(), "g".into())]), ..Default::default() };
        assert_eq!(ReservedQuota::parse(&nothing.to_string()), Some(nothing));
    }

    #[test]
    fn other_text_is_no_record() {
        for text in [
            "",
            "charged to ",
            "charged to a with 1 cpu",
            "charged to a/b with cpu",
            "charged to a/b with x cpu",
        ] {
            assert_eq!(ReservedQuota::parse(text), None, "{text}");
        }
    }
}
