//! How many pods a Spark application has, and what each of them asks for. `spark-submit` computes it from fields of the application,
//! which the operator passes as properties, and from the other properties of `sparkConf`. After `BasicDriverFeatureStep`,
//! `BasicExecutorFeatureStep` and `ResourceProfile.getResourcesForClusterManager` of Spark 4, and the defaults of the operator.

use serde_json::{Map, Value};

use crate::value::{count, integer, text};

/// What Spark adds to the memory of a pod at least, in MiB.
const LEAST_OVERHEAD: u64 = 384;
/// The memory of a pod of which nobody says it, in MiB.
const MEMORY: u64 = 1_024;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A role of an application.
pub(super) struct Role<'a> {
    app: &'a Value,
    name: &'a str,
}

impl<'a> Role<'a> {
    pub(super) fn of(app: &'a Value, name: &'a str) -> Self {
        Self { app, name }
    }

    fn is_driver(&self) -> bool {
        self.name == super::ROLES[0]
    }

    /// A property of Spark. An empty one counts as absent.
    fn property(&self, key: &str) -> Option<&'a str> {
        self.app["spec"]["sparkConf"][key].as_str().map(str::trim).filter(|value| !value.is_empty())
    }

    /// A property of the role, such as `spark.driver.memory`.
    fn own_property(&self, key: &str) -> Option<&'a str> {
        self.property(&format!("spark.{}.{key}", self.name))
    }

    /// A property of the pods of the role, such as `spark.kubernetes.driver.request.cores`.
    fn pod_property(&self, key: &str) -> Option<&'a str> {
        self.property(&format!("spark.kubernetes.{}.{key}", self.name))
    }

    fn fields(&self) -> &'a Value {
        &self.app["spec"][self.name]
    }

    fn field(&self, field: &str) -> Option<&'a str> {
        text(self.fields(), &[field]).filter(|value| !value.is_empty())
    }

    /// One driver, and as many executors as the application asks for: one, if it does not say it.
    pub(super) fn pods(&self) -> u32 {
        if self.is_driver() {
            return 1;
        }
        let of_property = self.own_property("instances").and_then(|number| number.parse().ok());
        count(self.fields(), &["instances"], of_property.unwrap_or(1))
    }

    /// The CPUs that a pod requests.
    fn cores(&self) -> Value {
        let cores = &self.fields()["cores"];
        let requested = self.field("coreRequest").or_else(|| self.pod_property("request.cores"));
        match (requested, cores) {
            (Some(cores), _) => cores.into(),
            (None, Value::Number(cores)) => cores.to_string().into(),
            (None, Value::String(cores)) if !cores.is_empty() => cores.clone().into(),
            _ => self.own_property("cores").unwrap_or("1").into(),
        }
    }

    /// The memory of the virtual machine, in MiB.
    fn heap(&self) -> u64 {
        let said = self.field("memory").or_else(|| self.own_property("memory"));
        said.and_then(|memory| mebibytes(memory, MIB)).unwrap_or(MEMORY)
    }

    /// What Spark adds to the memory of the virtual machine, in MiB.
    fn overhead(&self) -> u64 {
        let said = self.field("memoryOverhead").or_else(|| self.own_property("memoryOverhead"));
        if let Some(overhead) = said.and_then(|overhead| mebibytes(overhead, MIB)) {
            return overhead;
        }
        let factor = self
            .own_property("memoryOverheadFactor")
            .or_else(|| text(&self.app["spec"], &["memoryOverheadFactor"]))
            .or_else(|| self.property("spark.kubernetes.memoryOverheadFactor"));
        let factor = factor.and_then(|factor| factor.parse::<f64>().ok());
        let default = if self.is_of(&["Python", "R"]) { 0.4 } else { 0.1 };
        let least = self.own_property("minMemoryOverhead").and_then(|least| mebibytes(least, MIB));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "Spark computes it so; a conversion to an integer saturates"
        )]
        let of_heap = (factor.unwrap_or(default) * self.heap() as f64) as u64;
        of_heap.max(least.unwrap_or(LEAST_OVERHEAD))
    }

    fn is_of(&self, languages: &[&str]) -> bool {
        text(&self.app["spec"], &["type"]).is_some_and(|language| languages.contains(&language))
    }

    /// The memory of an executor beside its virtual machine and the overhead, in MiB.
    fn beside(&self) -> u64 {
        if self.is_driver() {
            return 0;
        }
        let is_on = self.property("spark.memory.offHeap.enabled").is_some_and(|is_on| is_on == "true");
        let size = self.property("spark.memory.offHeap.size").filter(|_| is_on);
        let off_heap = size.and_then(|size| mebibytes(size, 1)).unwrap_or(0);
        let python = self.own_property("pyspark.memory").filter(|_| self.is_of(&["Python"]));
        off_heap.saturating_add(python.and_then(|memory| mebibytes(memory, MIB)).unwrap_or(0))
    }

    /// The memory that a pod requests, in MiB.
    fn memory(&self) -> u64 {
        self.heap().saturating_add(self.overhead()).saturating_add(self.beside())
    }
}

/// The resources of the container with Spark.
pub(super) fn resources(app: &Value, role: &str) -> Value {
    let role = Role::of(app, role);
    let fields = role.fields();
    let most_cores = role.field("coreLimit").or_else(|| role.pod_property("limit.cores"));
    let most_memory = role.field("memoryLimit").map(|amount| match mebibytes(amount, 1) {
        Some(memory) => format!("{memory}Mi"),
        None => amount.to_owned(),
    });
    let gpus = integer(&fields["gpu"]["quantity"]).filter(|gpus| *gpus > 0);
    let gpu = text(fields, &["gpu", "name"]).zip(gpus);
    let mut limits = Map::new();
    limits.extend(most_cores.map(|amount| ("cpu".to_owned(), amount.into())));
    limits.extend(most_memory.map(|amount| ("memory".to_owned(), amount.into())));
    limits.extend(gpu.map(|(name, amount)| (name.to_owned(), amount.to_string().into())));
    let mut resources = Map::new();
    let requests = [("cpu", role.cores()), ("memory", format!("{}Mi", role.memory()).into())];
    resources.insert(
        "requests".into(),
        requests.map(|(name, amount)| (name.to_owned(), amount)).into_iter().collect(),
    );
    if !limits.is_empty() {
        resources.insert("limits".into(), limits.into());
    }
    resources.into()
}

/// An amount of memory in MiB, as Java writes it: its units are powers of two, and an amount without a unit is in `unit` bytes. `None`:
/// Spark refuses it, so that no pod comes to be.
fn mebibytes(amount: &str, unit: u64) -> Option<u64> {
    let amount = amount.trim().to_ascii_lowercase();
    let digits = amount.find(|char: char| !char.is_ascii_digit()).unwrap_or(amount.len());
    let (number, suffix) = amount.split_at(digits);
    let unit = match suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix(['b', 'i'])).unwrap_or(suffix) {
        "" if suffix.is_empty() => unit,
        "" => 1,
        "k" => KIB,
        "m" => MIB,
        "g" => GIB,
        "t" => GIB * KIB,
        "p" => GIB * MIB,
        _ => return None,
    };
    let bytes = u128::from(number.parse::<u64>().ok()?) * u128::from(unit);
    Some(u64::try_from(bytes / u128::from(MIB)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_of_java_is_in_powers_of_two() {
        for (java, expected) in [
            ("512m", Some(512)),
            ("2G", Some(2_048)),
            ("10240kb", Some(10)),
            ("1Gi", Some(1_024)),
            ("1024", Some(1_024)),
            ("3145728b", Some(3)),
            ("1p", Some(1 << 30)),
            ("18446744073709551615p", Some(u64::MAX)),
            ("", None),
            ("g", None),
            ("1.5g", None),
            ("-1g", None),
            ("1x", None),
        ] {
            assert_eq!(mebibytes(java, MIB), expected, "{java}");
        }
        assert_eq!(mebibytes("4194304", 1), Some(4), "bytes, where Spark counts bytes");
    }

    #[test]
    fn pods_ask_for_what_spark_computes() {
        let asked = |role: &str, spec: Value| {
            let app = json!({ "spec": spec });
            let requests = resources(&app, role)["requests"].clone();
            let text = |name: &str| requests[name].as_str().unwrap().to_owned();
            (text("cpu"), text("memory"))
        };
        let is = |cpu: &str, memory: &str| (cpu.to_owned(), memory.to_owned());
        assert_eq!(asked("driver", json!({})), is("1", "1408Mi"));
        assert_eq!(asked("driver", json!({"driver": {"cores": 2, "memory": "8g"}})), is("2", "9011Mi"));
        let python = |executor: Value| json!({"type": "Python", "executor": executor});
        assert_eq!(asked("executor", python(json!({"cores": "3", "memory": "4g"}))), is("3", "5734Mi"));
        let fields = json!({"coreRequest": "500m", "cores": 4, "memory": "2g", "memoryOverhead": "100m"});
        assert_eq!(asked("executor", python(fields.clone())), is("500m", "2148Mi"));
        let conf = json!({
            "spark.executor.cores": "5", "spark.executor.memory": "10g", "spark.executor.memoryOverheadFactor": "0.2",
            "spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "1073741824",
            "spark.executor.pyspark.memory": "512",
        });
        let by_conf = json!({"type": "Python", "sparkConf": conf});
        assert_eq!(asked("executor", by_conf.clone()), is("5", "13824Mi"));
        assert_eq!(asked("driver", by_conf.clone()), is("1", "1433Mi"));
        let mut both = by_conf;
        both["executor"] = fields;
        assert_eq!(asked("executor", both).0, "500m", "fields go before properties");
        let factor = json!({"memoryOverheadFactor": "0.5", "sparkConf": {"spark.kubernetes.driver.request.cores": "2"}});
        assert_eq!(asked("driver", factor), is("2", "1536Mi"));
        let huge = json!({"driver": {"memory": "18446744073709551615p"}, "memoryOverheadFactor": "1e300"});
        assert_eq!(asked("driver", huge).1, format!("{}Mi", u64::MAX));
    }

    #[test]
    fn an_application_has_as_many_executors_as_it_asks_for() {
        let executors = |spec: Value| Role::of(&json!({ "spec": spec }), "executor").pods();
        assert_eq!(executors(json!({})), 1);
        assert_eq!(executors(json!({"sparkConf": {"spark.executor.instances": "4"}})), 4);
        let both = json!({"executor": {"instances": 2}, "sparkConf": {"spark.executor.instances": "4"}});
        assert_eq!(executors(both), 2);
    }
}
