//! Cases from a seed: a few objects, several managers, and whatever writers do to them, in any order.
//!
//! The text is what matters: it is a case like any other, so a seed that finds a difference can be kept as a file.

use serde_json::{Value, json};

/// Requests of one case.
const STEPS: usize = 40;

/// The case of a seed, as text.
pub fn text(seed: u64) -> String {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut requests =
        vec![format!("# Drawn from seed {seed}.\n\nGET {CONFIG_MAPS}\n@set start /metadata/resourceVersion")];
    for _ in 0..STEPS {
        requests.push(step(&mut draw));
    }
    for path in [CONFIG_MAPS, DEPLOYMENTS] {
        requests.push(format!("GET {path}"));
    }
    requests.join("\n###\n") + "\n"
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/${ns}/configmaps?labelSelector=drawn";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/${ns}/deployments";

/// A small generator of its own, so that a seed means the same for ever.
struct Draw(u64);

impl Draw {
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

fn step(draw: &mut Draw) -> String {
    let deployment = draw.chance(2);
    let collection = if deployment { DEPLOYMENTS } else { "/api/v1/namespaces/${ns}/configmaps" };
    let name = draw.one(&["a", "b"]);
    let manager = draw.one(&["ann", "bob", "cyd"]);
    let path = format!("{collection}/{name}");
    let object = |draw: &mut Draw, whole| {
        if deployment { self::deployment(draw, name, whole) } else { config_map(draw, name, whole) }
    };
    match draw.below(12) {
        0 | 1 => {
            let body = object(draw, true);
            format!("POST {collection}?fieldManager={manager}\n\n{body}")
        }
        2 => {
            let body = object(draw, true);
            let dry = if draw.chance(4) { "&dryRun=All" } else { "" };
            format!("PUT {path}?fieldManager={manager}{dry}\n\n{body}")
        }
        3 | 4 => {
            let mut body = object(draw, false);
            if draw.chance(3) {
                body["metadata"]["labels"] = json!({"drawn": null});
            }
            format!("PATCH {path}?fieldManager={manager}\n@type merge\n\n{body}")
        }
        5 => {
            let body = object(draw, false);
            format!("PATCH {path}?fieldManager={manager}\n@type strategic\n\n{body}")
        }
        6 => {
            let key = draw.one(&["x", "y", "z"]);
            let (operation, pointer) = match draw.below(4) {
                0 => ("add", format!("/metadata/labels/{key}")),
                1 => ("remove", format!("/metadata/labels/{key}")),
                2 => ("replace", format!("/metadata/labels/{key}")),
                _ => ("test", "/metadata/labels/drawn".to_owned()),
            };
            let body = json!([{"op": operation, "path": pointer, "value": "yes"}]);
            format!("PATCH {path}?fieldManager={manager}\n@type json-patch\n\n{body}")
        }
        7..=9 => {
            let body = object(draw, true);
            let force = if draw.chance(3) { "&force=true" } else { "" };
            format!("PATCH {path}?fieldManager={manager}{force}\n@type apply\n\n{body}")
        }
        10 => format!("GET {path}"),
        _ if draw.chance(2) => format!("DELETE {path}?propagationPolicy=Background"),
        _ => format!("GET {path}"),
    }
}

fn labels(draw: &mut Draw) -> Value {
    let mut labels = json!({"drawn": "yes"});
    for key in ["x", "y", "z"] {
        if draw.chance(3) {
            labels[key] = json!(draw.one(&["yes", "no", ""]));
        }
    }
    labels
}

fn config_map(draw: &mut Draw, name: &str, whole: bool) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(draw)}});
    if whole {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
    }
    for key in ["one", "two", "three"] {
        if draw.chance(2) {
            object["data"][key] = json!(draw.one(&["1", "2", ""]));
        }
    }
    if draw.chance(4) {
        object["metadata"]["finalizers"] = json!([draw.one(&["example.com/a", "example.com/b"])]);
    }
    if draw.chance(6) {
        object["metadata"]["annotations"] = json!({"example.com/note": draw.one(&["n", "m"])});
    }
    object
}

fn deployment(draw: &mut Draw, name: &str, whole: bool) -> Value {
    let mut object = json!({"metadata": {"name": name, "labels": labels(draw)}, "spec": {}});
    if whole {
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("Deployment");
        object["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
        object["spec"]["template"]["metadata"] = json!({"labels": {"app": "a"}});
    }
    if draw.chance(2) {
        object["spec"]["replicas"] = json!(draw.below(4));
    }
    let mut containers = Vec::new();
    for container in ["c", "d"] {
        if containers.is_empty() && whole || draw.chance(2) {
            containers.push(self::container(draw, container));
        }
    }
    if !containers.is_empty() {
        object["spec"]["template"]["spec"]["containers"] = json!(containers);
    }
    if draw.chance(5) {
        object["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    }
    if draw.chance(8) {
        object["spec"]["strategy"] = json!({"type": "Recreate"});
    }
    object
}

fn container(draw: &mut Draw, name: &str) -> Value {
    let mut container = json!({"name": name, "image": draw.one(&["i:1", "i:2", "j"])});
    let mut env = Vec::new();
    for variable in ["V", "W"] {
        if draw.chance(2) {
            env.push(json!({"name": variable, "value": draw.one(&["1", "2"])}));
        }
    }
    if !env.is_empty() {
        container["env"] = json!(env);
    }
    if draw.chance(3) {
        // Different for each container: what they share would be warned of.
        let port = if name == "c" { [80, 443] } else { [81, 444] }[draw.below(2)];
        container["ports"] = json!([{"containerPort": port}]);
    }
    if draw.chance(3) {
        container["resources"] = json!({"requests": {"cpu": draw.one(&["1", "1000m", "0.5"])}});
    }
    if draw.chance(9) {
        container["args"] = json!(["x", "y"]);
    }
    container
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    #[test]
    fn a_seed_means_the_same_case_every_time() {
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert_eq!(Case::parse("random", &text(7)).unwrap().requests.len(), STEPS + 3);
    }
}
