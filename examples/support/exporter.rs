use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

/// Serves what the clients of this process record, for Prometheus to scrape. Call it before you make a client.
pub(crate) fn export(port: u16) -> Result<(), BuildError> {
    let buckets: [(&str, &[f64]); 4] = [
        (
            "redlatch_acquire_duration_seconds",
            &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0],
        ),
        (
            "redlatch_hold_duration_seconds",
            &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0, 600.0, 3600.0],
        ),
        (
            "redlatch_command_duration_seconds",
            &[0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
        ),
        (
            "redlatch_renewal_margin_seconds",
            &[0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0],
        ),
    ];
    let mut exporter = PrometheusBuilder::new().with_http_listener(([127, 0, 0, 1], port));
    for (name, buckets) in buckets {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(name.into()), buckets)?;
    }
    exporter.install()
}
