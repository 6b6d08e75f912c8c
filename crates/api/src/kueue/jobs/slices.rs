//! Workloads of jobs that change their size while they run: when such a job grows, another Workload, with more pods, continues the
//! one that it has. After `pkg/workloadslicing` and `pkg/controller/jobframework` of Kueue v0.19.

use serde_json::{Map, Value, json};

use super::{CopiedKeys, ELASTIC, JobKind, Priority, SLICE_NAME, annotation};
use crate::kueue::workload::REPLACES;

/// The pods of a pod set.
pub type Counts = Vec<(String, u32)>;

impl JobKind {
    /// Whether a job may change its size while it runs.
    pub fn is_elastic(&self, job: &Value) -> bool {
        self.integration.can_grow() && annotation(job, ELASTIC) == Some("true")
    }

    /// The name of the Workload of a job that may change its size: its generations have different ones. `cluster`: the one that the
    /// job has made, and whose size it follows.
    pub fn slice_name(&self, job: &Value, cluster: Option<&Value>) -> String {
        let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap_or_default();
        let of_cluster = cluster.map(|cluster| format!("_{}", generation(cluster))).unwrap_or_default();
        let extra = format!("{}{of_cluster}", generation(job));
        let [name, uid] = ["name", "uid"].map(|field| job["metadata"][field].as_str().unwrap_or_default());
        self.workload_name_of(name, uid, Some(&extra))
    }

    /// The Workload of a job that may change its size. `replaced`: the one that it continues, whose templates are as they were before
    /// an admission changed them.
    pub fn slice(
        &self,
        (job, cluster): (&Value, Option<&Value>),
        sizes: &Counts,
        priority: &Priority,
        kept: &CopiedKeys,
        replaced: Option<&Value>,
    ) -> Value {
        let name = self.slice_name(job, cluster);
        let job = &replaced.map_or_else(|| job.clone(), |replaced| self.restore(job, replaced));
        let mut workload = self.workload(job, priority, kept);
        resize(&mut workload["spec"]["podSets"], sizes);
        let meta = &mut workload["metadata"];
        if !meta["annotations"].is_object() {
            meta["annotations"] = Map::new().into();
        }
        meta["annotations"][ELASTIC] = "true".into();
        meta["annotations"][SLICE_NAME] = name.as_str().into();
        if let Some(replaced) = replaced {
            let old = &replaced["metadata"];
            let [namespace, old_name] =
                ["namespace", "name"].map(|field| old[field].as_str().unwrap_or_default());
            let first = annotation(replaced, SLICE_NAME).unwrap_or(old_name);
            meta["annotations"][SLICE_NAME] = first.into();
            meta["annotations"][REPLACES] = json!(format!("{namespace}/{old_name}"));
        }
        meta["name"] = name.into();
        workload
    }

    /// The pods that a job asks for.
    pub fn sizes(&self, job: &Value, cluster: Option<&Value>) -> Counts {
        let mut sets = self.integration.pod_sets(job);
        if let Some(cluster) = cluster {
            self.integration.follow_cluster(job, cluster, &mut sets);
        }
        sizes_of(&sets)
    }
}

/// The sizes of pod sets.
pub fn sizes_of(sets: &[Value]) -> Counts {
    let size = |set: &Value| set["count"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
    sets.iter().map(|set| (set["name"].as_str().unwrap_or_default().to_owned(), size(set))).collect()
}

/// Changes the sizes of pod sets.
pub fn resize(sets: &mut Value, sizes: &Counts) {
    for set in sets.as_array_mut().into_iter().flatten() {
        if let Some((_, size)) = sizes.iter().find(|(name, _)| set["name"] == name.as_str()) {
            set["count"] = (*size).into();
        }
    }
}
