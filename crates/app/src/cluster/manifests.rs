//! The objects of a worker: its account and rights there, and what names it at the hub.

use anyhow::{Context, Result};
use api::kueue::workload::API_VERSION;
use serde_json::{Value, json};

/// The account and its rights, as they are published.
const RIGHTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/worker-rbac.yaml"));
/// The account.
pub(super) const ACCOUNT: &str = "muster-hub";
/// The Secret with its token.
pub(super) const TOKEN: &str = "muster-hub-token";

/// A worker and the namespace of its account and of its Secret at the hub.
pub(super) struct Names<'a> {
    pub(super) cluster: &'a str,
    pub(super) namespace: &'a str,
}

impl Names<'_> {
    /// The objects in the worker; those of the account's token, too.
    pub(super) fn of_worker(&self, stores_token: bool) -> Result<Vec<Value>> {
        let mut all = vec![self.space()];
        let rights: Vec<Value> =
            serde_saphyr::from_multiple(RIGHTS).context("the published rights of a hub are not YAML")?;
        all.extend(rights);
        for object in &mut all {
            if let Some(namespace) = object.pointer_mut("/metadata/namespace") {
                *namespace = self.namespace.into();
            }
            for subject in object["subjects"].as_array_mut().into_iter().flatten() {
                subject["namespace"] = self.namespace.into();
            }
        }
        if stores_token {
            all.push(
                json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {"name": TOKEN, "namespace": self.namespace,
                    "annotations": {"kubernetes.io/service-account.name": ACCOUNT}}}),
            );
        }
        // Kinds without a value in the file must not become fields that are null.
        for object in &mut all {
            if let Some(fields) = object.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
        }
        Ok(all)
    }

    /// The objects at the hub.
    pub(super) fn of_hub(&self, kubeconfig: &str) -> [Value; 3] {
        let secret = format!("{}-kubeconfig", self.cluster);
        let source = json!({"kubeConfig": {"location": secret, "locationType": "Secret"}});
        [
            self.space(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": self.namespace},
                "stringData": {"kubeconfig": kubeconfig}}),
            json!({"apiVersion": API_VERSION, "kind": "MultiKueueCluster", "metadata": {"name": self.cluster},
                "spec": {"clusterSource": source}}),
        ]
    }

    fn space(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
    }

    /// All objects as YAML.
    pub(super) fn printed(&self, kubeconfig: &str, stores_token: bool) -> Result<String> {
        let yaml = |objects: &[Value]| -> Result<String> {
            let texts = objects.iter().map(|object| serde_saphyr::to_string(object).context("no YAML"));
            Ok(texts.collect::<Result<Vec<_>>>()?.join("---\n"))
        };
        let token = if stores_token {
            format!(
                "kubectl get secret {TOKEN} -n {} -o jsonpath='{{.data.token}}' | base64 -d",
                self.namespace
            )
        } else {
            format!("kubectl create token {ACCOUNT} -n {}", self.namespace)
        };
        Ok(format!(
            "# In the worker {}:\n{}---\n# At the hub, with the token of the worker in the place of TOKEN:\n#   {token}\n{}",
            self.cluster,
            yaml(&self.of_worker(stores_token)?)?,
            yaml(&self.of_hub(kubeconfig))?
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names { cluster: "west", namespace: "queues" };

    #[test]
    fn the_worker_gets_an_account_with_the_published_rights() {
        let all = NAMES.of_worker(true).unwrap();
        let kinds: Vec<&str> = all.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret"]);
        assert_eq!(all[1]["metadata"]["name"], ACCOUNT);
        assert_eq!(all[1]["metadata"]["namespace"], "queues");
        assert_eq!(all[3]["subjects"][0]["namespace"], "queues");
        let verbs: Vec<&Value> =
            all[2]["rules"].as_array().unwrap().iter().map(|rule| &rule["verbs"]).collect();
        assert!(!json!(verbs).to_string().contains('*'), "{verbs:?}");
        assert_eq!(NAMES.of_worker(false).unwrap().len(), 4);
    }

    #[test]
    fn what_is_printed_is_yaml_of_the_same_objects() {
        let text = NAMES.printed("the kubeconfig\nof west", true).unwrap();
        let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let mut expected = NAMES.of_worker(true).unwrap();
        expected.extend(NAMES.of_hub("the kubeconfig\nof west"));
        assert_eq!(all, expected);
    }
}
