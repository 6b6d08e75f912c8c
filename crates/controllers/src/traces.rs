//! Traces of gangs for OpenTelemetry, from the object to the decision to the writes. Off, unless the program gives a tracer.
//!
//! A trace is made when a gang is admitted. Its spans: `gang`, from the creation of the object until its admission is written;
//! below it `queue`, until the plan that admits it; `plan`; and `write`, from the first write to the last answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{Span as _, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};

/// Gangs whose times are remembered, at most: those that are admitted, and not written yet.
const GANGS_MAX: usize = 10_000;

/// Makes traces. Clones share what it remembers.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<Tracing>>);

struct Tracing {
    tracer: BoxedTracer,
    /// By uid.
    times: Mutex<BTreeMap<String, Times>>,
}

/// When a gang was planned, and since when it is written.
#[derive(Clone, Copy)]
struct Times {
    planned: (SystemTime, SystemTime),
    written_since: Option<SystemTime>,
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traces").field("is_on", &self.0.is_some()).finish()
    }
}

impl Tracing {
    fn times(&self) -> MutexGuard<'_, BTreeMap<String, Times>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traces {
    /// Traces with this tracer.
    pub(crate) fn of(tracer: BoxedTracer) -> Self {
        Self(Some(Arc::new(Tracing { tracer, times: Mutex::default() })))
    }

    /// A plan that was computed within the last `took` admits a gang.
    pub(crate) fn planned(&self, uid: &str, took: Duration) {
        let Some(tracing) = &self.0 else { return };
        let ended = SystemTime::now();
        let mut times = tracing.times();
        if times.len() < GANGS_MAX {
            let planned = (ended.checked_sub(took).unwrap_or(ended), ended);
            times.insert(uid.to_owned(), Times { planned, written_since: None });
        }
    }

    /// The writes of a gang begin.
    pub(crate) fn writes(&self, uid: &str) {
        let Some(tracing) = &self.0 else { return };
        if let Some(times) = tracing.times().get_mut(uid) {
            times.written_since.get_or_insert_with(SystemTime::now);
        }
    }

    /// A gang is gone.
    pub(crate) fn forget(&self, uid: &str) {
        if let Some(tracing) = &self.0 {
            tracing.times().remove(uid);
        }
    }

    /// The admission of a gang is written. Kind, namespace and name say which; it has waited so many microseconds.
    pub(crate) fn admitted(&self, uid: &str, (kind, namespace, name): (&str, &str, &str), waited_us: i64) {
        let Some(tracing) = &self.0 else { return };
        // Another process has planned it.
        let Some(Times { planned: (begun, planned), written_since }) = tracing.times().remove(uid) else {
            return;
        };
        let (tracer, ended) = (&tracing.tracer, SystemTime::now());
        let waited = Duration::from_micros(u64::try_from(waited_us).unwrap_or_default());
        let since = ended.checked_sub(waited).unwrap_or(begun).min(begun);
        let attributes = [
            KeyValue::new("k8s.object.kind", kind.to_owned()),
            KeyValue::new("k8s.namespace.name", namespace.to_owned()),
            KeyValue::new("k8s.object.name", name.to_owned()),
            KeyValue::new("k8s.object.uid", uid.to_owned()),
        ];
        let gang = tracer.span_builder("gang").with_start_time(since).with_attributes(attributes);
        let context = Context::new().with_span(gang.start_with_context(tracer, &Context::new()));
        let written_since = written_since.unwrap_or(planned);
        for (name, from, to) in
            [("queue", since, begun), ("plan", begun, planned), ("write", written_since, ended)]
        {
            let span = tracer.span_builder(name).with_start_time(from);
            span.start_with_context(tracer, &context).end_with_timestamp(to);
        }
        context.span().end_with_timestamp(ended);
    }
}
