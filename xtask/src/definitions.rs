//! The custom resource definitions as a template of the chart, for `crds.install=chart`: those that the leader creates.

use api::appwrapper::{Columns, Group, definition};
use api::quota;
use serde_json::{Value, json};

/// The template.
pub(crate) const FILE: &str = "charts/muster/templates/definitions.yaml";

/// Stands for a namespace until the text has the template's own.
const NAMESPACE: &str = "namespace-of-the-release";
/// Stands for the printer columns.
const COLUMNS: &str = "columns-of-the-values";

const HEADER: &str = "\
{{- if has \"chart\" (list .Values.crds.install) }}
# Generated from crates/api by `cargo run -p xtask -- deploy`: what the leader creates with crds.install=true.
";

/// The text of the template.
pub(crate) fn template() -> String {
    let queues: String = api::kueue::crds(&client_config()).into_iter().map(document).collect();
    let queues = queues.replace(NAMESPACE, "{{ include \"muster.kueueNamespace\" . }}");
    let trees = document(quota::definition(quota::Group::Codeflare));
    [
        HEADER,
        "{{- if .Values.appWrappers.enabled }}\n{{- range .Values.appWrappers.groups }}\n",
        &wrappers(),
        "{{- end }}\n{{- if .Values.appWrappers.quota }}\n",
        &trees,
        "{{- end }}\n{{- end }}\n{{- if and .Values.kueue.enabled (not .Values.kueue.inPlace) }}\n",
        &queues,
        "{{- end }}\n{{- end }}\n",
    ]
    .concat()
}

/// The definition of AppWrappers of the group that is the present value.
fn wrappers() -> String {
    let group = Group::Codeflare;
    let mut wrappers = definition(group, Columns::Queue);
    let columns =
        std::mem::replace(&mut wrappers["spec"]["versions"][0]["additionalPrinterColumns"], json!(COLUMNS));
    let by_value = format!(
        "{{{{ if eq $.Values.appWrappers.columns \"queue\" }}}}{columns}{{{{ else }}}}[]{{{{ end }}}}"
    );
    document(wrappers).replace(COLUMNS, &by_value).replace(group.name(), "{{ . }}")
}

/// Where the conversion webhook is. The leader adds its authority.
fn client_config() -> Value {
    json!({"service": {"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": "/convert", "port": 443}})
}

/// A definition that stays when the chart is uninstalled, as a document of YAML.
fn document(mut definition: Value) -> String {
    definition["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    let text = serde_saphyr::to_string(&definition).expect("an object of JSON is one of YAML");
    format!("---\n{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use chart::{Chart, Release};

    use super::*;

    fn rendered(values: Value) -> Vec<Value> {
        let release = Release { name: "muster".into(), namespace: "batch".into() };
        let mut values = values;
        values["crds"] = json!({"install": "chart"});
        let mut objects = Chart::new(&release, [values]).unwrap().objects().unwrap();
        objects.retain(|object| object["kind"] == "CustomResourceDefinition");
        for object in &mut objects {
            object["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
        }
        objects
    }

    #[test]
    fn definitions_of_the_chart_are_those_that_the_leader_creates() {
        for (columns, name) in [(Columns::Queue, "queue"), (Columns::Mcad, "mcad")] {
            let values = json!({"appWrappers": {"columns": name, "quota": true,
                "groups": ["mcad.ibm.com", "workload.codeflare.dev"]}});
            let mut expected: Vec<Value> =
                Group::ALL.iter().map(|group| definition(*group, columns)).collect();
            if columns == Columns::Mcad {
                // No columns are the default ones.
                for definition in &mut expected {
                    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
                }
            }
            expected.push(quota::definition(quota::Group::Codeflare));
            assert_eq!(rendered(values), expected, "{name}");
        }
        let mut client_config = client_config();
        client_config["service"]["namespace"] = "batch".into();
        let values = json!({"appWrappers": {"enabled": false}, "kueue": {"enabled": true}});
        assert_eq!(rendered(values), api::kueue::crds(&client_config));
        assert!(
            rendered(json!({"kueue": {"enabled": true, "inPlace": true}})).len() == 1,
            "Kueue's own stay"
        );
    }
}
