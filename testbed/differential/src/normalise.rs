//! Normalises responses: values that differ between runs become placeholders, numbered in the order of their first occurrence.
//!
//! Uids, resource versions and generated suffixes become `<uid 1>`, `<version 1>`, `<suffix 1>`, so that equal values stay
//! visible. Times become `<time>` or `<microtime>`, cluster IPs `<address>`, ages in tables `<age>`. The resource version of a list
//! depends on all objects of the server, so it becomes `<version of a list>`. The causes of a rejection are sorted, because
//! kube-apiserver visits the fields of custom resources in random order. A message that repeats these causes becomes `<its
//! causes>`. Managed fields are sorted by manager, because their order depends on times in seconds. All other values are kept.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::Value;

/// The placeholders of one run.
#[derive(Debug)]
pub struct Names {
    /// The texts that the run chose itself, and their placeholders.
    own: Vec<(String, String)>,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    suffixes: BTreeMap<String, usize>,
    uid: Regex,
    time: Regex,
    microtime: Regex,
    address: Regex,
    age: Regex,
    number: Regex,
}

impl Names {
    /// Starts a run with these texts and placeholders: `("case-x1f", "<ns>")`.
    pub fn new(own: Vec<(String, String)>) -> Self {
        let regex = |text| Regex::new(text).expect("a constant expression");
        Self {
            own,
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
            suffixes: BTreeMap::new(),
            uid: regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            time: regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
            microtime: regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"),
            address: regex(r"\b(10|127)\.96\.\d+\.\d+\b"),
            age: regex(r"^(\d+[smhdy]){1,2}$"),
            number: regex(r"\b\d+\b"),
        }
    }

    /// Replaces this text by `<name>` from now on.
    pub fn own(&mut self, text: &str, name: &str) {
        self.own.push((text.to_owned(), format!("<{name}>")));
    }

    /// Normalises a whole body.
    pub fn body(&mut self, body: &mut Value) {
        self.learn(body);
        self.walk(body, "");
    }

    /// Normalises a text.
    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.own {
            text = text.replace(from, to);
        }
        for (name, number) in &self.suffixes {
            text = text.replace(name.as_str(), &format!("<suffix {number}>"));
        }
        let uids = &mut self.uids;
        text = self.uid.replace_all(&text, |found: &Captures<'_>| name(uids, "uid", &found[0])).into_owned();
        text = self.microtime.replace_all(&text, "<microtime>").into_owned();
        text = self.time.replace_all(&text, "<time>").into_owned();
        self.address.replace_all(&text, "<address>").into_owned()
    }

    /// Finds generated names: at most 58 characters of `generateName`, and five random characters.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let (Some(Value::String(prefix)), Some(Value::String(name))) =
                    (fields.get("generateName"), fields.get("name"))
                    && let Some(suffix) = name.strip_prefix(prefix.get(..58).unwrap_or(prefix))
                    && suffix.len() == 5
                    && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
                {
                    let next = self.suffixes.len() + 1;
                    self.suffixes.entry(suffix.to_owned()).or_insert(next);
                }
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.learn(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn walk(&mut self, value: &mut Value, key: &str) {
        match value {
            Value::Object(fields) => {
                sort_causes(fields);
                let list = fields.contains_key("items") || fields.contains_key("rows");
                let keys: Vec<String> = fields.keys().cloned().collect();
                for key in keys {
                    if let Some(mut value) = fields.remove(&key) {
                        if let (true, "metadata", Some(version)) =
                            (list, key.as_str(), value.get_mut("resourceVersion"))
                            && version.as_str().is_some_and(|text| text.parse::<u64>().is_ok())
                        {
                            *version = Value::from("<version of a list>");
                        }
                        self.walk(&mut value, &key);
                        let key = self.text(&key);
                        fields.insert(key, value);
                    }
                }
            }
            Value::Array(items) => {
                if key == "managedFields" {
                    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or("").to_owned();
                    let keys = ["operation", "manager", "subresource", "apiVersion"];
                    items.sort_by_key(|entry| keys.map(|key| text(entry, key)));
                }
                for item in items {
                    self.walk(item, key);
                }
            }
            Value::String(text) => match key {
                "resourceVersion" if text.parse::<u64>().is_ok_and(|number| number > 0) => {
                    *text = name(&mut self.versions, "version", text);
                }
                "continue" if !text.is_empty() => "<continue>".clone_into(text),
                "cells" if self.age.is_match(text) => "<age>".clone_into(text),
                "message" if text.contains("esource version") || text.contains("esourceVersion") => {
                    let versions = &self.versions;
                    let known = |found: &Captures<'_>| match versions.get(&found[0]) {
                        Some(number) => format!("<version {number}>"),
                        None if text.contains(&format!("current: {}", &found[0])) => "<version>".to_owned(),
                        None => found[0].to_owned(),
                    };
                    *text = self.text(&self.number.replace_all(text, known));
                }
                _ => *text = self.text(text),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Sorts the causes of a `Status`.
fn sort_causes(status: &mut serde_json::Map<String, Value>) {
    let causes =
        status.get_mut("details").and_then(|details| details.get_mut("causes")).and_then(Value::as_array_mut);
    let Some(causes) = causes.filter(|causes| causes.len() > 1) else { return };
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or("").to_owned();
    let texts: Vec<_> =
        causes.iter().map(|c| format!("{}: {}", text(c, "field"), text(c, "message"))).collect();
    causes.sort_by_key(|cause| (text(cause, "field"), text(cause, "message")));
    if let Some(Value::String(message)) = status.get_mut("message") {
        *message = message.replace(&format!("[{}]", texts.join(", ")), "<its causes>");
    }
}

/// The placeholder of a text: an existing one, or the next number.
fn name(names: &mut BTreeMap<String, usize>, kind: &str, found: &str) -> String {
    let next = names.len() + 1;
    format!("<{kind} {}>", names.entry(found.to_owned()).or_insert(next))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_values_become_numbered_placeholders_and_other_values_are_kept() {
        let mut names = Names::new(vec![("case-7".into(), "<ns>".into())]);
        let uid = |last: char| format!("0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5{last}");
        let mut body = json!([
            {"generateName": "a-", "name": "a-x2x2x", "uid": uid('1'), "resourceVersion": "12"},
            {"name": "a-x2x2x", "uid": uid('2'), "resourceVersion": "7", "owner": uid('1'), "replicas": 3},
            {"namespace": "case-7", "at": "2026-11-21T00:00:00Z", "now": "2026-11-21T00:00:00.123456Z"},
            {"message": "the object has been modified; resourceVersion 12"},
        ]);
        names.body(&mut body);
        assert_eq!(
            body,
            json!([
                {"generateName": "a-", "name": "a-<suffix 1>", "uid": "<uid 1>", "resourceVersion": "<version 1>"},
                {"name": "a-<suffix 1>", "uid": "<uid 2>", "resourceVersion": "<version 2>", "owner": "<uid 1>", "replicas": 3},
                {"namespace": "<ns>", "at": "<time>", "now": "<microtime>"},
                {"message": "the object has been modified; resourceVersion <version 1>"},
            ])
        );
    }
}
