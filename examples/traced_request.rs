//! One request through two services, as OpenTelemetry sees it: how long it waited for a lock, and how long it held it.
//!
//! A shop asks billing to charge an order, in another process. Billing takes the lock of that order, which another
//! request has for a while. Both processes export their spans, as they would to a collector, and the example draws
//! the trace: the lock's spans are those of redlatch, below the ones that the services make.
//!
//! ```text
//! cargo run --example traced_request
//! ```

#[path = "support/mod.rs"]
mod support;
#[allow(dead_code, reason = "this example needs a part of it")]
#[path = "support/workers.rs"]
mod workers;

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::time::{sleep, timeout};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use workers::{Workers, orders, say};

/// How long the other request has the lock, and how long a charge takes.
const OTHER: Duration = Duration::from_millis(120);
const CHARGE: Duration = Duration::from_millis(30);

/// Far longer than the example takes.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, order] = &arguments[..]
        && role == "billing"
    {
        return billing(order).await;
    }
    let server = Server::from_env_or_private()?;
    timeout(LIMIT, shop(server.url(), &unique("order"))).await?
}

/// What a service does once: its spans go to an exporter, with those that the lock makes at debug.
fn export() -> (InMemorySpanExporter, SdkTracerProvider) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let wanted = Targets::new()
        .with_target("traced_request", tracing::Level::INFO)
        .with_target("redlatch", tracing::Level::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("example"));
    tracing_subscriber::registry().with(layer.with_filter(wanted)).init();
    (exporter, provider)
}

/// The service that the request comes to.
async fn shop(url: &str, order: &str) -> Result<()> {
    let (exporter, _provider) = export();
    let mut billing = Workers::start(url, &[vec!["billing".to_owned(), order.to_owned()]])?;
    billing.next_line().await.ok_or("billing has gone")?;
    let mut spans = Vec::new();
    let checkout = async {
        let mut headers = HashMap::new();
        let context = tracing::Span::current().context();
        TraceContextPropagator::new().inject_context(&context, &mut headers);
        let traceparent = headers.get("traceparent").ok_or("no trace")?;
        billing.tell(0, traceparent).await?;
        while let Some((_, line)) = billing.next_line().await {
            match line.as_str() {
                "done" => break,
                span => spans.push(Shown::read(span)?),
            }
        }
        Result::<()>::Ok(())
    };
    checkout.instrument(tracing::info_span!("checkout")).await?;
    billing.close().await;
    spans.extend(exporter.get_finished_spans()?.iter().map(|span| Shown::of("shop", span)));
    spans.sort_by_key(|span| span.begun);
    draw(&spans, "0000000000000000", 0);
    Ok(())
}

/// The service that it asks.
async fn billing(order: &str) -> Result<()> {
    let (exporter, _provider) = export();
    let client = LockClient::connect(std::env::var("REDIS_URL")?).await?;
    // A request that came before this one.
    let other = client.lock(order).lock().await?;
    tokio::spawn(async move {
        sleep(OTHER).await;
        other.unlock().await
    });
    say("ready")?;
    let Some(traceparent) = orders().recv().await else { return Ok(()) };
    let headers = HashMap::from([("traceparent".to_owned(), traceparent)]);
    let request = tracing::info_span!("charge");
    request.set_parent(TraceContextPropagator::new().extract(&headers))?;
    let trace = request.context();
    let charge = async {
        let guard = client.lock(order).lock().await?;
        guard.run_until_lost(sleep(CHARGE)).await?;
        guard.unlock().await
    };
    charge.instrument(request).await?;
    let trace = opentelemetry::trace::TraceContextExt::span(&trace).span_context().trace_id();
    for span in
        exporter.get_finished_spans()?.iter().filter(|span| span.span_context.trace_id() == trace)
    {
        say(&Shown::of("billing", span).to_line())?;
    }
    say("done")
}

/// What is drawn of a span.
struct Shown {
    service: String,
    id: String,
    parent: String,
    name: String,
    begun: u128,
    took: u128,
}

impl Shown {
    fn of(service: &str, span: &SpanData) -> Self {
        let micros =
            |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let begun = micros(span.start_time);
        Self {
            service: service.to_owned(),
            id: span.span_context.span_id().to_string(),
            parent: span.parent_span_id.to_string(),
            name: span.name.to_string(),
            begun,
            took: micros(span.end_time) - begun,
        }
    }

    fn to_line(&self) -> String {
        let Self { service, id, parent, name, begun, took } = self;
        format!("{service} {id} {parent} {name} {begun} {took}")
    }

    fn read(line: &str) -> Result<Self> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [service, id, parent, name, begun, took] = parts[..] else { return Err(line.into()) };
        let [service, id, parent, name] = [service, id, parent, name].map(str::to_owned);
        Ok(Self { service, id, parent, name, begun: begun.parse()?, took: took.parse()? })
    }
}

/// The spans below one, each with what it took.
fn draw(spans: &[Shown], parent: &str, depth: usize) {
    for span in spans.iter().filter(|span| span.parent == parent) {
        let name = format!("{:width$}{}", "", span.name, width = depth * 2);
        println!("{name:<20}{:<10}{:>7.1} ms", span.service, span.took as f64 / 1_000.0);
        draw(spans, &span.id, depth + 1);
    }
}
