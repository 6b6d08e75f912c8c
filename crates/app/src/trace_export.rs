//! Export of traces to a collector of OpenTelemetry, over OTLP with protobuf and HTTP. Off by default.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry::global;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;

/// How long the last spans may take when the process ends.
const FLUSH: Duration = Duration::from_secs(2);
/// Maximum length of an answer of the collector, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Flags of traces.
#[derive(clap::Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceArgs {
    /// Send traces of admissions to this collector of OpenTelemetry, over OTLP/HTTP, such as `http://collector:4318`. The other
    /// variables of OpenTelemetry apply, such as `OTEL_SERVICE_NAME` and `OTEL_TRACES_SAMPLER`. Default: no traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// Sends spans until it ends.
pub(crate) struct TraceExport(Option<SdkTracerProvider>);

impl TraceArgs {
    /// Starts to export, if an endpoint is named.
    pub(crate) fn start(self) -> Result<TraceExport> {
        let Some(endpoint) = self.otlp_endpoint.filter(|endpoint| !endpoint.is_empty()) else {
            return Ok(TraceExport(None));
        };
        if !endpoint.starts_with("http://") {
            bail!(
                "--otlp-endpoint: {endpoint:?} is not supported; name a collector in the cluster by http://HOST:PORT"
            );
        }
        let traces = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(Plain { runtime: Handle::current() })
            .with_endpoint(traces)
            .build()
            .context("--otlp-endpoint: traces cannot be sent")?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("muster");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        global::set_tracer_provider(provider.clone());
        Ok(TraceExport(Some(provider)))
    }
}

impl TraceExport {
    /// What counts and measures; with traces, if they are exported.
    pub(crate) fn meter(&self) -> controllers::Meter {
        match &self.0 {
            Some(_) => controllers::Meter::tracing(global::tracer("muster")),
            None => controllers::Meter::default(),
        }
    }

    /// Sends what is left.
    pub(crate) async fn end(self) {
        let Some(provider) = self.0 else { return };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH)).await;
        if !matches!(ended, Ok(Ok(()))) {
            eprintln!("muster: the last traces were not sent");
        }
    }
}

/// A client of plain HTTP. The exporter calls it in a thread of its own, outside of the runtime.
#[derive(Debug)]
struct Plain {
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Plain {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = self.runtime.spawn(async move {
            let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
            let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        });
        sending.await?
    }
}
