//! The Helm chart `charts/muster`, as part of the program: its objects for some values, without Helm. `muster install` prints
//! them, and `deploy/*.yaml` are parts of them. `cargo run -p xtask -- chart` compares them with what Helm renders.
//!
//! - `template`: the templates
//! - `values`: defaults and changes
//! - `schema`: which values are valid

mod files;
mod schema;
mod template;
mod values;

use serde_json::{Value, json};

pub use files::FILES;
pub use template::{TemplateError, Templates};
pub use values::{assignment, merge};

/// Where the chart is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Name of the release.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Why there are no objects for some values.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// They do not fit the schema; one line for each fault.
    #[error("the values are not valid:\n  {}", .0.join("\n  "))]
    Values(Vec<String>),
    /// A template does not parse, or refuses the values.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A rendered template is no YAML.
    #[error("{file} is no YAML: {problem}")]
    Yaml {
        /// The template.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// The chart with its values.
#[derive(Debug)]
pub struct Chart {
    templates: Templates,
    values: Value,
    root: Value,
}

/// The content of a file of the chart.
fn content(name: &str) -> &'static str {
    FILES.iter().find(|(file, _)| *file == name).map(|(_, text)| *text).unwrap_or_default()
}

/// The values of the chart with their comments.
pub fn values_file() -> &'static str {
    content("values.yaml")
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(content(name)).expect("files of the chart are YAML, as a test says")
}

impl Chart {
    /// The chart for its default values, changed one after the other.
    ///
    /// # Errors
    /// The values do not fit the schema.
    pub fn new(release: &Release, changes: impl IntoIterator<Item = Value>) -> Result<Self, ChartError> {
        let mut values = yaml("values.yaml");
        for change in changes {
            merge(&mut values, change);
        }
        let schema: Value =
            serde_json::from_str(content("values.schema.json")).expect("the schema is JSON, as a test says");
        let faults = schema::faults(&schema, &values);
        if !faults.is_empty() {
            return Err(ChartError::Values(faults));
        }
        let chart = yaml("Chart.yaml");
        let root = json!({
            "Values": values,
            "Release": {"Name": release.name, "Namespace": release.namespace, "Service": "Helm"},
            "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
            "Files": {},
        });
        let mut templates = Templates::default();
        for (name, text) in FILES {
            match name.strip_prefix("templates/") {
                Some("NOTES.txt") => {}
                Some(_) => templates.add(name, text)?,
                None => templates.add_content(name, text),
            }
        }
        Ok(Self { templates, values, root })
    }

    /// The text of a template, such as `templates/rbac.yaml`.
    ///
    /// # Errors
    /// It refuses the values.
    pub fn render(&self, template: &str) -> Result<String, ChartError> {
        Ok(self.templates.render(template, &self.root)?)
    }

    /// All objects, in the order of Kubernetes' needs: what others refer to first. Without hooks, which are no part of an
    /// installation.
    ///
    /// # Errors
    /// A template refuses the values.
    pub fn objects(&self) -> Result<Vec<Value>, ChartError> {
        let mut objects = self.all_objects()?;
        objects.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
        objects.sort_by_key(|object| rank(object["kind"].as_str().unwrap_or_default()));
        Ok(objects)
    }

    /// What `muster install` prints: the objects with their namespace, in YAML. In Kueue's place, the namespace is there, and belongs
    /// to others.
    ///
    /// # Errors
    /// A template refuses the values.
    pub fn manifest(&self) -> Result<String, ChartError> {
        let mut objects = self.objects()?;
        if self.values["kueue"]["inPlace"] != true {
            let name = &self.root["Release"]["Namespace"];
            objects.insert(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        let text = |object: &Value| {
            let text = serde_saphyr::to_string(object).expect("an object of JSON is one of YAML");
            format!("---\n{}\n", text.trim_end())
        };
        Ok(objects.iter().map(text).collect())
    }

    /// All objects with hooks, in the order of their templates.
    ///
    /// # Errors
    /// A template refuses the values.
    pub fn all_objects(&self) -> Result<Vec<Value>, ChartError> {
        let mut objects = Vec::new();
        for file in self.templates.names().filter(|name| !name.contains("/_")) {
            let text = self.render(file)?;
            let found: Vec<Value> = serde_saphyr::from_multiple(&text)
                .map_err(|error| ChartError::Yaml { file: file.into(), problem: error.to_string() })?;
            objects.extend(found.into_iter().filter(|object| !object.is_null()));
        }
        Ok(objects)
    }

    /// The values.
    pub fn values(&self) -> &Value {
        &self.values
    }
}

/// Kinds in the order in which they are created; unknown ones last, as Helm does.
fn rank(kind: &str) -> usize {
    const KINDS: [&str; 13] = [
        "PriorityClass",
        "Namespace",
        "CustomResourceDefinition",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
        "ConfigMap",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
    ];
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
}

#[cfg(test)]
mod tests;
