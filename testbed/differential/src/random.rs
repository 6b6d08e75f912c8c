//! Generates random cases from a seed: writes of several field managers to a few objects.
//!
//! The result is the text of a case, so a case that finds a difference can be saved as a file.

use serde_json::{Value, json};

/// The number of random requests of one case.
const STEPS: usize = 40;

/// The text of the case for a seed.
pub fn text(seed: u64) -> String {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut requests =
        vec![format!("# Drawn from seed {seed}.\n\nGET {CONFIG_MAPS}\n@set start /metadata/resourceVersion")];
    for _ in 0..STEPS {
        requests.push(step(&mut random));
    }
    for path in [CONFIG_MAPS, DEPLOYMENTS] {
        requests.push(format!("GET {path}"));
    }
    requests.join("\n###\n") + "\n"
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/${ns}/configmaps?labelSelector=drawn";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/${ns}/deployments";

/// An xorshift generator. It is part of this file so that the cases of a seed never change.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let end = u64::try_from(end).expect("a count fits");
        usize::try_from((self.0 >> 11) % end).expect("below a usize")
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

fn step(random: &mut Random) -> String {
    let deployment = random.chance(2);
    let collection = if deployment { DEPLOYMENTS } else { "/api/v1/namespaces/${ns}/configmaps" };
    let name = random.one(&["a", "b"]);
    let manager = random.one(&["ann", "bob", "cyd"]);
    let path = format!("{collection}/{name}");
    let object = |random: &mut Random, whole| {
        if deployment { self::deployment(random, name, whole) } else { config_map(random, name, whole) }
    };
    match random.below(12) {
        0 | 1 => {
            let body = object(random, true);
            format!("POST {collection}?fieldManager={manager}\n\n{body}")
        }
        2 => {
            let body = object(random, true);
            let dry = if random.chance(4) { "&dryRun=All" } else { "" };
            format!("PUT {path}?fieldManager={manager}{dry}\n\n{body}")
        }
        3 | 4 => {
            let mut body = object(random, false);
            if random.chance(3) {
                body["metadata"]["labels"] = json!({"drawn": null});
            }
            format!("PATCH {path}?fieldManager={manager}\n@type merge\n\n{body}")
        }
        5 => {
            let body = object(random, false);
            format!("PATCH {path}?fieldManager={manager}\n@type strategic\n\n{body}")
        }
        6 => {
            let key = random.one(&["x", "y", "z"]);
            let (operation, pointer) = match random.below(4) {
                0 => ("add", format!("/metadata/labels/{key}")),
                1 => ("remove", format!("/metadata/labels/{key}")),
                2 => ("replace", format!("/metadata/labels/{key}")),
                _ => ("test", "/metadata/labels/drawn".to_owned()),
            };
            let body = json!([{"op": operation, "path": pointer, "value": "yes"}]);
            format!("PATCH {path}?fieldManager={manager}\n@type json-patch\n\n{body}")
        }
        7..=9 => {
            let body = object(random, true);
            let force = if random.chance(3) { "&force=true" } else { "" };
            format!("PATCH {path}?fieldManager={manager}{force}\n@type apply\n\n{body}")
        }
        10 => format!("GET {path}"),
        _ if random.chance(2) => format!("DELETE {path}?propagationPolicy=Background"),
        _ => format!("GET {path}"),
    }
}

fn labels(random: &mut Random) -> Value {
    let mut labels = json!({"drawn": "yes"});
    for key in ["x", "y", "z"] {
        if random.chance(3) {
            labels[key] = json!(random.one(&["yes", "no", ""]));
        }
    }
    labels
}

fn config_map(random: &mut Random, name: &str, whole: bool) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(random)}});
    if whole {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
    }
    for key in ["one", "two", "three"] {
        if random.chance(2) {
            object["data"][key] = json!(random.one(&["1", "2", ""]));
        }
    }
    if random.chance(4) {
        object["metadata"]["finalizers"] = json!([random.one(&["example.com/a", "example.com/b"])]);
    }
    if random.chance(6) {
        object["metadata"]["annotations"] = json!({"example.com/note": random.one(&["n", "m"])});
    }
    object
}

fn deployment(random: &mut Random, name: &str, whole: bool) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(random)}, "spec": {}});
    if whole {
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("Deployment");
        object["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
        object["spec"]["template"]["metadata"] = json!({"labels": {"app": "a"}});
    }
    if random.chance(2) {
        object["spec"]["replicas"] = json!(random.below(4));
    }
    let mut containers = Vec::new();
    for container in ["c", "d"] {
        if containers.is_empty() && whole || random.chance(2) {
            containers.push(self::container(random, container));
        }
    }
    if !containers.is_empty() {
        object["spec"]["template"]["spec"]["containers"] = json!(containers);
    }
    if random.chance(5) {
        object["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    }
    if random.chance(8) {
        object["spec"]["strategy"] = json!({"type": "Recreate"});
    }
    object
}

fn container(random: &mut Random, name: &str) -> Value {
    let mut container = json!({"name": name, "image": random.one(&["i:1", "i:2", "j"])});
    let mut env = Vec::new();
    for variable in ["V", "W"] {
        if random.chance(2) {
            env.push(json!({"name": variable, "value": random.one(&["1", "2"])}));
        }
    }
    if !env.is_empty() {
        container["env"] = json!(env);
    }
    if random.chance(3) {
        // Each container has its own ports, because the API server warns about duplicate ports.
        let port = if name == "c" { [80, 443] } else { [81, 444] }[random.below(2)];
        container["ports"] = json!([{"containerPort": port}]);
    }
    if random.chance(3) {
        container["resources"] = json!({"requests": {"cpu": random.one(&["1", "1000m", "0.5"])}});
    }
    if random.chance(9) {
        container["args"] = json!(["x", "y"]);
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[test]
    fn equal_seeds_give_equal_cases_and_different_seeds_different_cases() {
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert_eq!(Case::parse("random", &text(7)).unwrap().requests.len(), STEPS + 3);
    }
}
