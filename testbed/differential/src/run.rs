//! Runs a case against one server: variables, repetition, streams.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::case::{Case, Part, Request};
use crate::normalise::Names;
use crate::outline::outline;

/// The timeout of a repeated request and of a stream.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The interval between two repetitions. The controllers of a server are asynchronous and do not signal completion.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Sends the requests of a case, in a new namespace. `run_id` makes names unique among runs on the same server.
pub async fn run(client: &Client, case: &Case, run_id: &str) -> Result<Vec<Answer>> {
    let namespace = format!("{}-{run_id}", case.name);
    let mut runner = Runner {
        client,
        variables: BTreeMap::from([
            ("ns".to_owned(), namespace.clone()),
            ("run".to_owned(), run_id.to_owned()),
        ]),
        names: Names::new(vec![(namespace.clone(), "<ns>".into()), (run_id.to_owned(), "<run>".into())]),
    };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let headers = vec![("Content-Type".into(), "application/json".into())];
    let create = Request {
        method: "POST".into(),
        path: "/api/v1/namespaces".into(),
        headers,
        body: body.to_string(),
        ..Request::default()
    };
    let created = runner.once(&create).await?;
    if created.status != 201 {
        bail!("cannot create namespace {namespace}: {}", created.text);
    }
    // The API server rejects pods until the namespace has its default service account.
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    let account = Request {
        method: "GET".into(),
        path: account,
        until: Some((200, String::new())),
        ..Request::default()
    };
    runner.answer(&account).await?;
    runner.names = Names::new(vec![(namespace, "<ns>".into()), (run_id.to_owned(), "<run>".into())]);

    let mut answers = Vec::new();
    for (at, request) in case.requests.iter().enumerate() {
        // Longer than the timeout of any repetition or stream.
        let answer =
            tokio::time::timeout(2 * TIMEOUT, runner.answer(request)).await.context("no response").flatten();
        answers.push(
            answer.with_context(|| format!("case {}, request {}: {}", case.name, at + 1, request.title()))?,
        );
    }
    Ok(answers)
}

struct Runner<'a> {
    client: &'a Client,
    variables: BTreeMap<String, String>,
    names: Names,
}

/// A response before normalisation.
struct Raw {
    status: u16,
    content_type: String,
    warnings: Vec<String>,
    text: String,
}

impl Runner<'_> {
    async fn answer(&mut self, request: &Request) -> Result<Answer> {
        let raw = match &request.until {
            None => self.once(request).await?,
            Some((status, text)) => self.repeat(request, *status, text).await?,
        };
        let mut body = body_of(&raw, request.events.is_some());
        for (variable, pointer) in &request.captures {
            let found = body.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
            if request.names.contains(variable) && !found.is_empty() {
                self.names.own(&found, variable);
            }
            self.variables.insert(variable.clone(), found);
        }
        body = match &request.part {
            Part::Whole | Part::Outline => body,
            Part::Status => brief(&body),
            Part::At(pointer) => body.pointer(&self.fill(pointer)).cloned().unwrap_or_default(),
        };
        self.names.body(&mut body);
        if request.part == Part::Outline {
            body = outline(&body);
        }
        Ok(Answer {
            request: request.title(),
            status: raw.status,
            content_type: raw.content_type,
            warnings: raw.warnings.iter().map(|warning| self.names.text(warning)).collect(),
            body,
        })
    }

    async fn repeat(&self, request: &Request, status: u16, text: &str) -> Result<Raw> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        let text = self.fill(text);
        loop {
            let raw = self.once(request).await?;
            if raw.status == status && raw.text.contains(&text) || tokio::time::Instant::now() > deadline {
                return Ok(raw);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn once(&self, request: &Request) -> Result<Raw> {
        let mut builder =
            http::Request::builder().method(request.method.as_str()).uri(self.fill(&request.path));
        for (name, value) in &request.headers {
            builder = builder.header(name, self.fill(value));
        }
        let body = self.fill(&request.body);
        let body = if request.base64 {
            base64::engine::general_purpose::STANDARD.decode(body.split_whitespace().collect::<String>())?
        } else {
            body.into_bytes()
        };
        let response = self.client.send(builder.body(Body::from(body))?).await?;
        let (parts, body) = response.into_parts();
        let header = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let text = match request.events {
            Some(events) if parts.status == 200 => read_events(body, events).await?,
            _ => String::from_utf8_lossy(&body.collect().await?.to_bytes()).into_owned(),
        };
        Ok(Raw {
            status: parts.status.as_u16(),
            content_type: parts.headers.get(http::header::CONTENT_TYPE).map(header).unwrap_or_default(),
            warnings: parts.headers.get_all(http::header::WARNING).iter().map(header).collect(),
            text,
        })
    }

    fn fill(&self, text: &str) -> String {
        self.variables
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    }
}

/// Reads this number of lines of a stream, or fewer when it ends or times out.
async fn read_events(body: Body, count: usize) -> Result<String> {
    let mut stream = body.into_data_stream();
    let mut text = Vec::new();
    while text.split(|byte| *byte == b'\n').count() <= count {
        match tokio::time::timeout(TIMEOUT, stream.next()).await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk?),
            Ok(None) => text.extend_from_slice(b"\"(the stream ended)\"\n"),
            Err(_) => text.extend_from_slice(b"\"(nothing came)\"\n"),
        }
        if text.ends_with(b")\"\n") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().take(count).collect::<Vec<_>>().join("\n"))
}

fn body_of(raw: &Raw, stream: bool) -> Value {
    if stream && raw.status == 200 {
        let events = raw.text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line)));
        return events.collect();
    }
    match serde_json::from_str(&raw.text) {
        Ok(value) => value,
        Err(_) if raw.text.is_empty() => Value::Null,
        Err(_) => json!(raw.text),
    }
}

/// Reason, message and causes of a `Status`; null for any other kind.
fn brief(body: &Value) -> Value {
    if body["kind"] != "Status" {
        return Value::Null;
    }
    json!({"reason": body["reason"], "message": body["message"], "causes": body["details"]["causes"]})
}
