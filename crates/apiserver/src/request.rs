//! Parses the path, query and body of a request. Validation is left to the handlers.

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::patch::DEPTH_MAX;
use crate::status::Status;
use crate::user::User;

/// The decoded query parameters, in the order of the query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// The first value of a parameter; empty if it is absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// A boolean as `Convert_Slice_string_To_bool` of apimachinery reads it: absent, `0` and `false` are false, others
    /// are true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .is_some_and(|(_, value)| !matches!(value.to_lowercase().as_str(), "0" | "false"))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Status> {
        match self.text(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }
}

/// Decodes percent escapes, and `+` as a space if `plus` is set. Malformed escapes are kept.
pub(crate) fn decode(text: &str, plus: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = |at: usize| tail.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).expect("two hex digits make a byte"));
                rest = &tail[2..];
            }
            (b'+', _, _) if plus => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The resource, namespace, name and subresource that a path addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Parses a path below `/api` or `/apis`. `rest` holds the segments after the group and version.
    pub(crate) fn parse(group: &str, version: &str, rest: &[String]) -> Option<Self> {
        let (namespace, rest) = match rest {
            [head, namespace, third, ..]
                if head == "namespaces" && !(group.is_empty() && is_namespace_subresource(third, rest)) =>
            {
                (Some(namespace.clone()), &rest[2..])
            }
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, subresource] => (plural, Some(name), Some(subresource)),
            _ => return None,
        };
        Some(Self {
            group: group.into(),
            version: version.into(),
            namespace,
            plural: plural.clone(),
            name: name.cloned(),
            subresource: subresource.cloned(),
        })
    }
}

/// `namespaces/x/status` is a subresource of the namespace, not a resource in it.
fn is_namespace_subresource(third: &str, rest: &[String]) -> bool {
    rest.len() == 3 && matches!(third, "status" | "finalize")
}

/// One request, with its user and the current time.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) now: jiff::Timestamp,
    pub(crate) user: &'a User,
    pub(crate) method: Method,
    pub(crate) segments: Vec<String>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Texts of the `Warning` headers of the response.
    pub(crate) warnings: Vec<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(now: jiff::Timestamp, user: &'a User, request: http::Request<Bytes>) -> Self {
        let (parts, body) = request.into_parts();
        let segments =
            parts.uri.path().split('/').filter(|s| !s.is_empty()).map(|s| decode(s, false)).collect();
        Self {
            now,
            user,
            method: parts.method,
            segments,
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            headers: parts.headers,
            body,
            warnings: Vec::new(),
        }
    }

    /// The media type of the body without parameters; JSON if the client sends none.
    pub(crate) fn content_type(&self) -> &str {
        let header =
            self.headers.get(http::header::CONTENT_TYPE).and_then(|h| h.to_str().ok()).unwrap_or_default();
        match header.split(';').next().unwrap_or_default().trim() {
            "" => "application/json",
            named => named,
        }
    }

    /// Decodes the body; an empty body is null.
    pub(crate) fn decode_body(&self) -> Result<Value, Status> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        match self.content_type() {
            "application/json" => parse_json(&self.body),
            "application/yaml" | "text/yaml" => parse_yaml(&self.body),
            crate::proto::MEDIA_TYPE => {
                crate::proto::decode(&self.body).map_err(|error| Status::bad_request(error.to_string()))
            }
            _ => Err(Status::unsupported_media(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }

    /// The kind of the options that the query parameters encode.
    pub(crate) fn options_kind(&self) -> &'static str {
        match self.method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::DELETE => "DeleteOptions",
            _ => "PatchOptions",
        }
    }

    /// Whether the request is a dry run (`dryRun=All`).
    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        let mut dry = false;
        for value in self.query.all("dryRun") {
            match value {
                "All" => dry = true,
                "" => {}
                other => {
                    return Err(Status::unsupported_option(self.options_kind(), "dryRun", [other], &["All"]));
                }
            }
        }
        Ok(dry)
    }
}

pub(crate) fn parse_json(body: &[u8]) -> Result<Value, Status> {
    let value = serde_json::from_slice(body)
        .map_err(|e| Status::bad_request(format!("couldn't get version/kind; json parse error: {e}")))?;
    check_depth(value)
}

pub(crate) fn parse_yaml(body: &[u8]) -> Result<Value, Status> {
    let text = std::str::from_utf8(body).map_err(|e| Status::bad_request(format!("yaml: {e}")))?;
    // YAML 1.1 octal numbers, as in kube-apiserver: 0777 is a file mode.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| Status::bad_request(format!("error converting YAML to JSON: {e}")))?;
    check_depth(value)
}

fn check_depth(value: Value) -> Result<Value, Status> {
    fn fits(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
            Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    if fits(&value, DEPTH_MAX) {
        return Ok(value);
    }
    Err(Status::bad_request(format!("the body nests deeper than {DEPTH_MAX} levels")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<Target> {
        let segments: Vec<String> = path.split('/').map(String::from).collect();
        Target::parse("", "v1", &segments)
    }

    #[test]
    fn a_path_parses_to_namespace_resource_name_and_subresource() {
        let parsed = |path| target(path).map(|t| (t.namespace, t.plural, t.name, t.subresource)).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parsed("namespaces"), (None, "namespaces".into(), None, None));
        assert_eq!(parsed("namespaces/a"), (None, "namespaces".into(), some("a"), None));
        assert_eq!(parsed("namespaces/a/status"), (None, "namespaces".into(), some("a"), some("status")));
        assert_eq!(parsed("namespaces/a/pods"), (some("a"), "pods".into(), None, None));
        assert_eq!(parsed("namespaces/a/pods/p/log"), (some("a"), "pods".into(), some("p"), some("log")));
        assert!(target("namespaces/a/pods/p/log/x").is_none());
    }

    #[test]
    fn a_yaml_number_with_a_leading_zero_is_octal() {
        let body = parse_yaml(b"{mode: 0644, text: \"0644\", zero: 0}").unwrap();
        assert_eq!(body, serde_json::json!({"mode": 420, "text": "0644", "zero": 0}));
    }

    #[test]
    fn a_query_with_stray_separators_and_malformed_escapes_parses() {
        let query = Query::parse("&limit=500&&a=b%2Cc+d&watch=true&bad=%zz");
        assert_eq!(query.number("limit").unwrap(), Some(500));
        assert_eq!(query.text("a"), "b,c d");
        assert_eq!(query.text("bad"), "%zz");
        assert!(query.flag("watch") && !query.flag("other"));
    }
}
