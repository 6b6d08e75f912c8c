//! Node pools on the command line and in files.

use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::nodes::{NodeError, NodeGroup};
use crate::pace::{Pace, parse_duration};
use crate::wire::Quantity;

/// The label of the nodes of a pool with its name.
pub(crate) const POOL_LABEL: &str = "sandbox.muster.dev/pool";

/// Nodes that an autoscaler adds and removes, as in
/// `name=gpu,min=0,max=10,cpu=4,memory=16Gi,nvidia.com/gpu=1,boot=40s,fail=0.1`.
///
/// Keys:
/// - `min`, `max`: the smallest and the largest number of nodes; default 0 and 10
/// - `boot`: the time from the request of a node until it is ready; default 40s
/// - `fail`: the share of scale-ups that fail, from 0 to 1; default 0
/// - `queued`: `true` for a pool with queued provisioning, which adds nodes for `ProvisioningRequest`s alone
/// - all others, except `count`: as those of [`NodeGroup`]
#[derive(Clone, Debug, PartialEq)]
pub struct NodePool {
    pub(super) name: String,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) boot: Duration,
    /// In millionths.
    fail: u64,
    pub(super) queued: bool,
    node: Value,
}

/// Why the description of a pool is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Its nodes are described wrongly.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A value is out of range.
    #[error("pool {description:?}: {key} is {value:?}, expected {expected}")]
    Value {
        /// The whole description.
        description: String,
        /// The key.
        key: &'static str,
        /// The given value.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
    /// Two pools have one name.
    #[error("two pools are named {0:?}")]
    Duplicate(String),
}

impl NodePool {
    /// The default pool, as that of seed clusters on GKE: GPU nodes with queued provisioning, tainted as GKE taints them.
    pub fn defaults() -> Vec<Self> {
        let text = "name=gpu-node-pool,max=10,queued=true,cpu=4,memory=16Gi,nvidia.com/gpu=1,\
                    taint.nvidia.com/gpu=present:NoSchedule,\
                    label.cloud.google.com/gke-nodepool=gpu-node-pool,\
                    label.cloud.google.com/gke-accelerator=nvidia-l4";
        vec![text.parse().expect("the default pool is well-formed")]
    }

    /// Reads one description per line. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    ///
    /// A description is invalid.
    pub fn from_lines(text: &str) -> Result<Vec<Self>, PoolError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::parse).collect()
    }

    /// The manifest of a node of this name.
    pub(super) fn node(&self, name: &str) -> Value {
        let mut node = self.node.clone();
        node["metadata"]["name"] = name.into();
        node
    }

    /// Whether this scale-up fails.
    pub(super) fn fails(&self, pace: Pace, attempt: u64) -> bool {
        pace.draw(("scale-up", &self.name, attempt)) % 1_000_000 < self.fail
    }

    /// The number of pods that all nodes of the pool could hold.
    pub(crate) fn pods_max(&self) -> i64 {
        let pods: Option<Quantity> =
            self.node["status"]["allocatable"]["pods"].as_str().and_then(|pods| pods.parse().ok());
        pods.map_or(110, Quantity::ceil).saturating_mul(i64::from(self.max))
    }
}

impl FromStr for NodePool {
    type Err = PoolError;

    fn from_str(description: &str) -> Result<Self, PoolError> {
        let wrong = |key, value: &str, expected| PoolError::Value {
            description: description.into(),
            key,
            value: value.into(),
            expected,
        };
        let (mut min, mut max, mut boot, mut fail, mut queued) = (0, 10, Duration::from_secs(40), 0, false);
        let mut of_node = Vec::new();
        for part in description.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let number = |key, value: &str| {
                let number = value.parse().ok().filter(|number| *number <= 100_000_u32);
                number.ok_or_else(|| wrong(key, value, "a number from 0 to 100000"))
            };
            match part.split_once('=') {
                Some(("min", value)) => min = number("min", value)?,
                Some(("max", value)) => max = number("max", value)?,
                Some(("boot", value)) => {
                    boot = parse_duration(value)
                        .ok_or_else(|| wrong("boot", value, "a duration such as 40s"))?;
                }
                Some(("fail", value)) => {
                    fail = millionths(value).ok_or_else(|| wrong("fail", value, "a share from 0 to 1"))?;
                }
                Some(("queued", value)) => {
                    queued = value.parse().map_err(|_| wrong("queued", value, "true or false"))?;
                }
                Some(("count", value)) => return Err(wrong("count", value, "min and max instead")),
                _ => of_node.push(part),
            }
        }
        if min > max {
            return Err(wrong("min", &min.to_string(), "at most max"));
        }
        let group: NodeGroup = of_node.join(",").parse()?;
        let name = group.names().into_iter().next().unwrap_or_default();
        let mut node = group.manifests().into_iter().next().unwrap_or_default();
        node["metadata"]["labels"][POOL_LABEL] = json!(name);
        Ok(Self { name, min, max, boot, fail, queued, node })
    }
}

/// A decimal fraction from 0 to 1 in millionths.
fn millionths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
        return None;
    }
    let value = whole.parse::<u64>().ok()? * 1_000_000 + format!("{fraction:0<6}").parse::<u64>().ok()?;
    (value <= 1_000_000).then_some(value)
}

/// Fails if two pools have the same name.
pub(crate) fn distinct(pools: &[NodePool]) -> Result<(), PoolError> {
    let mut names = std::collections::BTreeSet::new();
    match pools.iter().find(|pool| !names.insert(&pool.name)) {
        Some(pool) => Err(PoolError::Duplicate(pool.name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_parses_its_size_its_times_and_its_nodes() {
        let text = "name=gpu,min=1,max=3,cpu=4,memory=16Gi,nvidia.com/gpu=1,boot=90s,fail=0.25,\
                    taint.nvidia.com/gpu=present:NoSchedule,label.zone=a";
        let pool: NodePool = text.parse().unwrap();
        assert_eq!((&*pool.name, pool.min, pool.max, pool.queued), ("gpu", 1, 3, false));
        assert_eq!((pool.boot, pool.fail), (Duration::from_secs(90), 250_000));
        let node = pool.node("gpu-x");
        assert_eq!(node["metadata"], json!({"name": "gpu-x", "labels": {"zone": "a", POOL_LABEL: "gpu"}}));
        assert_eq!(node["spec"]["taints"][0]["key"], "nvidia.com/gpu");
        assert_eq!(NodePool::from_lines(&format!("# pools\n\n{text}\n")).unwrap(), [pool]);
        assert!(NodePool::defaults()[0].queued);
    }

    #[test]
    fn an_invalid_pool_is_rejected_with_a_specific_message() {
        for (text, expected) in [
            ("min=2,max=1,cpu=1,memory=1", "min is \"2\", expected at most max"),
            ("max=-1,cpu=1,memory=1", "max is \"-1\", expected a number from 0 to 100000"),
            ("boot=soon,cpu=1,memory=1", "boot is \"soon\", expected a duration such as 40s"),
            ("fail=1.5,cpu=1,memory=1", "fail is \"1.5\", expected a share from 0 to 1"),
            ("queued=1,cpu=1,memory=1", "queued is \"1\", expected true or false"),
            ("count=3,cpu=1,memory=1", "count is \"3\", expected min and max instead"),
            ("cpu=1", "node \"cpu=1\": memory is missing"),
        ] {
            let error = text.parse::<NodePool>().unwrap_err().to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
    }
}
