//! Cases: files of requests in a form close to what travels.
//!
//! ```text
//! # A comment, up to the first request.
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
//! `${ns}` is a namespace of the case's own that exists from the beginning, `${run}` a word that differs from run to
//! run, for names outside of namespaces. Directives:
//!
//! - `@type json|yaml|merge|json-patch|strategic|apply|protobuf`: kind of the body; JSON if not said. A protobuf body is
//!   written in base64. `Content-Type:` as a header says any other.
//! - `@set NAME /pointer`: keeps a string of the answer for later requests, as `${NAME}`.
//! - `@name NAME /pointer`: the same, and the string shows as `<NAME>` in this answer and all later ones.
//! - `@until STATUS [TEXT]`: repeats the request until it is answered with this status, and the body holds the text.
//! - `@events N`: reads so many events of the stream, then closes it.
//! - `@body status`: of the answer, only the status, and of a `Status` also reason, message and causes, is compared.
//! - `@body openapi`: of an `OpenAPI` document, its [`outline`](crate::outline) is compared.
//! - `@only /pointer`: of the body, only this part is compared.

use anyhow::{Context as _, Result, bail};

/// A sequence of requests.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name of its file, without folder and suffix.
    pub name: String,
    /// The requests, in order.
    pub requests: Vec<Request>,
}

/// One request and what is to be done with its answer.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path and query, with variables.
    pub path: String,
    /// Headers, with variables.
    pub headers: Vec<(String, String)>,
    /// Body, with variables.
    pub body: String,
    /// The body is base64 of what is sent.
    pub base64: bool,
    /// Strings to keep: variable and JSON pointer.
    pub captures: Vec<(String, String)>,
    /// Those of them that were drawn anew, and show by their variable.
    pub names: Vec<String>,
    /// Repeat until this status, with this text in the body.
    pub until: Option<(u16, String)>,
    /// Events to read of a stream.
    pub events: Option<usize>,
    /// How much of the body is compared.
    pub part: Part,
}

/// How much of a body is compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// Of a `Status` what clients act on, of anything else nothing.
    Status,
    /// The outline of an `OpenAPI` document.
    Outline,
    /// What a JSON pointer leads to.
    At(String),
}

impl Case {
    /// Reads a case from its text.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let requests = text.split("\n###").map(Request::parse).collect::<Result<Vec<_>>>();
        let requests = requests.with_context(|| format!("in case {name}"))?;
        Ok(Self { name: name.to_owned(), requests })
    }
}

impl Request {
    fn parse(text: &str) -> Result<Self> {
        let (head, body) = match text.trim_start_matches(['\n', ' ', '#']).split_once("\n\n") {
            // What stands before an empty line is a comment until a request begins.
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

    /// `METHOD path`, as the case writes it.
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
    fn a_case_is_comments_and_requests_with_headers_directives_and_bodies() {
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
