//! Parses cases: files of requests in a format close to HTTP.
//!
//! ```text
//! # A comment before the first request.
//! POST /api/v1/namespaces/${ns}/configmaps?fieldManager=someone
//! Accept: application/json;as=Table;g=meta.k8s.io;v=v1
//! @set rv /metadata/resourceVersion
//!
//! {"metadata": {"name": "a"}}
//! ###
//! GET /api/v1/namespaces/${ns}/configmaps?watch=true&resourceVersion=${rv}
//! @events 2
//! ```
//!
//! `${ns}` is a namespace that is created for the case. `${run}` is unique for each run, for names of cluster-scoped objects.
//! Directives:
//!
//! - `@type json|yaml|merge|json-patch|strategic|apply|protobuf`: the type of the body; JSON by default. A protobuf body is written
//!   in base64. A header `Content-Type:` sets any other type.
//! - `@set NAME /pointer`: stores a string of the response for later requests, as `${NAME}`.
//! - `@name NAME /pointer`: like `@set`, and replaces the string by `<NAME>` in this response and all later ones.
//! - `@until STATUS [TEXT]`: repeats the request until the response has this status and its body contains the text.
//! - `@events N`: reads this number of events of the stream, then closes it.
//! - `@body status`: compares only the HTTP status and, for a body of kind `Status`, its reason, message and causes.
//! - `@body openapi`: compares only the [`outline`](crate::outline) of an `OpenAPI` document.
//! - `@only /pointer`: compares only this part of the body.

use anyhow::{Context as _, Result, bail};

/// A sequence of requests.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the file, without folder and extension.
    pub name: String,
    /// The requests, in order.
    pub requests: Vec<Request>,
}

/// One request, and the processing of its response.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The path and query, with variables.
    pub path: String,
    /// The headers, with variables.
    pub headers: Vec<(String, String)>,
    /// The body, with variables.
    pub body: String,
    /// Whether the body is base64-encoded in the case.
    pub base64: bool,
    /// The strings to store: variable and JSON pointer.
    pub captures: Vec<(String, String)>,
    /// The variables whose strings are replaced by placeholders, because servers generate them.
    pub names: Vec<String>,
    /// Repeat the request until this status, with this text in the body.
    pub until: Option<(u16, String)>,
    /// The number of events to read from a stream.
    pub events: Option<usize>,
    /// The part of the body that is compared.
    pub part: Part,
}

/// The part of a body that is compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Part {
    /// The whole body.
    #[default]
    Whole,
    /// Reason, message and causes of a `Status`; nothing of any other kind.
    Status,
    /// The outline of an `OpenAPI` document.
    Outline,
    /// The value at a JSON pointer.
    At(String),
}

impl Case {
    /// Parses the text of a case.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let requests = text.split("\n###").map(Request::parse).collect::<Result<Vec<_>>>();
        let requests = requests.with_context(|| format!("in case {name}"))?;
        Ok(Self { name: name.to_owned(), requests })
    }
}

impl Request {
    fn parse(text: &str) -> Result<Self> {
        let (head, body) = match text.trim_start_matches(['\n', ' ', '#']).split_once("\n\n") {
            // Everything before the first request and an empty line is a comment.
            Some((head, rest)) if !is_request(head) => {
                return Self::parse(rest).with_context(|| head.to_owned());
            }
            Some((head, body)) => (head, body.trim()),
            None => (text, ""),
        };
        let mut lines = head.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let first = lines.find(|line| is_request(line)).with_context(|| format!("no request in {head:?}"))?;
        let (method, path) = first.split_once(' ').context("a request is METHOD PATH")?;
        let mut request =
            Self { method: method.into(), path: path.trim().into(), body: body.into(), ..Self::default() };
        let mut kind = "application/json";
        for line in lines {
            if let Some(directive) = line.strip_prefix('@') {
                let (name, argument) = directive.split_once(' ').unwrap_or((directive, ""));
                match name {
                    "type" => kind = content_type(argument)?,
                    "set" | "name" => {
                        let (variable, pointer) =
                            argument.split_once(' ').with_context(|| format!("@{name} NAME /pointer"))?;
                        request.captures.push((variable.into(), pointer.into()));
                        if name == "name" {
                            request.names.push(variable.into());
                        }
                    }
                    "until" => {
                        let (status, text) = argument.split_once(' ').unwrap_or((argument, ""));
                        request.until = Some((status.parse()?, text.into()));
                    }
                    "events" => request.events = Some(argument.parse()?),
                    "body" if argument == "status" => request.part = Part::Status,
                    "body" if argument == "openapi" => request.part = Part::Outline,
                    "only" => request.part = Part::At(argument.into()),
                    _ => bail!("no directive {directive:?}"),
                }
            } else {
                let (name, value) = line.split_once(": ").with_context(|| format!("no header: {line:?}"))?;
                request.headers.push((name.into(), value.into()));
            }
        }
        request.base64 = kind == "application/vnd.kubernetes.protobuf";
        let typed = request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !request.body.is_empty() && !typed {
            request.headers.push(("Content-Type".into(), kind.into()));
        }
        Ok(request)
    }

    /// The request line of the case: `METHOD path`.
    pub fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

fn is_request(text: &str) -> bool {
    let line =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
    ["GET ", "HEAD ", "POST ", "PUT ", "PATCH ", "DELETE ", "OPTIONS "]
        .iter()
        .any(|method| line.starts_with(method))
}

fn content_type(kind: &str) -> Result<&'static str> {
    Ok(match kind {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "merge" => "application/merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        _ => bail!("no type {kind:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_parses_to_requests_with_headers_directives_and_bodies() {
        let text = "# What it is about.\n#\n# More.\n\nPOST /a\nAccept: x/y\n@type merge\n@set rv /metadata/x\n\n{}\n###\nGET /b\n@events 2\n";
        let case = Case::parse("c", text).unwrap();
        let [first, second] = case.requests.as_slice() else { panic!("{case:?}") };
        assert_eq!((first.title().as_str(), first.body.as_str()), ("POST /a", "{}"));
        assert_eq!(first.headers[0], ("Accept".into(), "x/y".into()));
        assert_eq!(first.headers[1], ("Content-Type".into(), "application/merge-patch+json".into()));
        assert_eq!(first.captures, [("rv".to_owned(), "/metadata/x".to_owned())]);
        assert_eq!((second.title().as_str(), second.events, second.body.as_str()), ("GET /b", Some(2), ""));
    }
}
