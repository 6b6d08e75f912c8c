//! The Grafana dashboard of Muster, as JSON: `charts/muster/files/dashboard.json`. `testbed/dashboard` evaluates every query.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A row of the dashboard.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

/// A panel: a graph of some queries, each with the legend of its series.
struct Panel {
    title: &'static str,
    /// What it shows, and what is unusual.
    text: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    text: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, text, unit, queries }
}

/// All rows.
const ROWS: &[Row] = &[
    Row {
        title: "Queue",
        panels: &[
            panel(
                "Waiting gangs",
                "Gangs that wait, by state. Refused ones are not queued: their status says why.",
                "short",
                &[("sum by (state) (muster_pending_gangs)", "{{state}}")],
            ),
            panel(
                "Waiting gangs by queue",
                "The queue is the quota node or the cluster queue.",
                "short",
                &[("sum by (queue) (muster_pending_gangs)", "{{queue}}")],
            ),
            panel(
                "Waiting gangs by namespace",
                "The ten namespaces with the most waiting gangs.",
                "short",
                &[("topk(10, sum by (namespace) (muster_pending_gangs))", "{{namespace}}")],
            ),
            panel(
                "Running gangs",
                "Gangs that hold their capacity.",
                "short",
                &[("sum by (namespace) (muster_running_gangs)", "{{namespace}}")],
            ),
            panel(
                "Longest wait",
                "How long the first gang of each queue has been pending.",
                "s",
                &[("max by (queue) (muster_oldest_pending_gang_seconds)", "{{queue}}")],
            ),
            panel(
                "Wait until admission",
                "Median and 95th percentile, from the creation or the requeuing of a gang.",
                "s",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le, kind) (rate(muster_gang_wait_seconds_bucket[$__rate_interval])))",
                        "{{kind}} median",
                    ),
                    (
                        "histogram_quantile(0.95, sum by (le, kind) (rate(muster_gang_wait_seconds_bucket[$__rate_interval])))",
                        "{{kind}} 95 %",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Decisions",
        panels: &[
            panel(
                "Started gangs",
                "Admissions per second.",
                "ops",
                &[("sum by (kind) (rate(muster_started_gangs_total[$__rate_interval]))", "{{kind}}")],
            ),
            panel(
                "New verdicts",
                "New decisions of the planner per second. `never`: more than the cluster has.",
                "ops",
                &[("sum by (verdict) (rate(muster_verdicts_total[$__rate_interval]))", "{{verdict}}")],
            ),
            panel(
                "Evictions",
                "Gangs that lost their admission, by cause.",
                "short",
                &[(
                    "sum by (kind, reason) (increase(muster_evictions_total[$__rate_interval]))",
                    "{{kind}} {{reason}}",
                )],
            ),
            panel(
                "Preemptions",
                "Gangs that were selected to stop for others, by the rule that permits it.",
                "short",
                &[("sum by (reason) (increase(muster_preemptions_total[$__rate_interval]))", "{{reason}}")],
            ),
            panel(
                "Reserved starts",
                "Pending gangs with a reserved start.",
                "short",
                &[("sum(muster_reserved_starts)", "reserved")],
            ),
            panel(
                "Pods beside the plan",
                "Pods of gangs without a node, and on other nodes than planned. Both are zero in good order.",
                "short",
                &[
                    ("sum(muster_unschedulable_pods) or vector(0)", "without a node"),
                    ("sum(muster_misplaced_pods) or vector(0)", "on another node"),
                ],
            ),
        ],
    },
    Row {
        title: "Controller",
        panels: &[
            panel(
                "Leader",
                "The replica that acts.",
                "short",
                &[("sum by (instance) (muster_leader)", "{{instance}}")],
            ),
            panel(
                "Duration of plans",
                "99th percentile and median.",
                "s",
                &[
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(muster_plan_duration_seconds_bucket[$__rate_interval])))",
                        "99 %",
                    ),
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(muster_plan_duration_seconds_bucket[$__rate_interval])))",
                        "median",
                    ),
                ],
            ),
            panel(
                "Duration of rounds",
                "99th percentile: observations, plan and the start of writes.",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le) (rate(muster_round_duration_seconds_bucket[$__rate_interval])))",
                    "99 %",
                )],
            ),
            panel(
                "What waits for the loops",
                "Watch events are at most 1024: then the watches wait, too.",
                "short",
                &[("sum by (queue) (muster_queue_depth)", "{{queue}}")],
            ),
            panel(
                "Writes under way",
                "Writes of AppWrappers and Workloads, and all requests.",
                "short",
                &[
                    ("sum(muster_steps_in_flight)", "writes"),
                    ("sum(muster_api_requests_in_flight)", "requests"),
                ],
            ),
            panel(
                "Version",
                "The version of each replica.",
                "short",
                &[("count by (version) (muster_build_info)", "{{version}}")],
            ),
        ],
    },
    Row {
        title: "API server",
        panels: &[
            panel(
                "Writes",
                "Writes per second, by resource.",
                "ops",
                &[(
                    "sum by (resource) (rate(muster_api_requests_total{verb=~\"create|update|patch|delete\"}[$__rate_interval]))",
                    "{{resource}}",
                )],
            ),
            panel(
                "Requests by code",
                "409 is a conflict, 429 too many requests, 0 no answer.",
                "ops",
                &[("sum by (code) (rate(muster_api_requests_total[$__rate_interval]))", "{{code}}")],
            ),
            panel(
                "Latency",
                "95th percentile by verb, until the answer begins.",
                "s",
                &[(
                    "histogram_quantile(0.95, sum by (le, verb) (rate(muster_api_request_duration_seconds_bucket[$__rate_interval])))",
                    "{{verb}}",
                )],
            ),
            panel(
                "Lag of watches",
                "Median and 99th percentile, from the answer to a write until the watch shows it.",
                "s",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(muster_watch_lag_seconds_bucket[$__rate_interval])))",
                        "median",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(muster_watch_lag_seconds_bucket[$__rate_interval])))",
                        "99 %",
                    ),
                ],
            ),
            panel(
                "Lists of watches",
                "A watch begins with a list. Further ones are restarts.",
                "short",
                &[("sum by (resource) (muster_watch_lists_total)", "{{resource}}")],
            ),
            panel(
                "Failures and retries",
                "Failed watches, repeated writes, conflicts, Events that were dropped.",
                "short",
                &[
                    ("sum(increase(muster_watch_failures_total[$__rate_interval])) or vector(0)", "watches"),
                    ("sum(increase(muster_retries_total[$__rate_interval])) or vector(0)", "retries"),
                    (
                        "sum(increase(muster_api_requests_total{code=\"409\"}[$__rate_interval])) or vector(0)",
                        "conflicts",
                    ),
                    ("sum(increase(muster_events_dropped_total[$__rate_interval])) or vector(0)", "events"),
                    ("sum(increase(muster_slips_total[$__rate_interval])) or vector(0)", "slips"),
                ],
            ),
        ],
    },
    Row {
        title: "Kueue's API",
        panels: &[
            panel(
                "Pending Workloads",
                "Of each cluster queue.",
                "short",
                &[(
                    "sum by (cluster_queue, status) (kueue_pending_workloads{replica_role!=\"follower\"})",
                    "{{cluster_queue}} {{status}}",
                )],
            ),
            panel(
                "Admitted Workloads",
                "Of each cluster queue.",
                "short",
                &[(
                    "sum by (cluster_queue) (kueue_admitted_active_workloads{replica_role!=\"follower\"})",
                    "{{cluster_queue}}",
                )],
            ),
            panel(
                "Wait until admission",
                "95th percentile by cluster queue.",
                "s",
                &[(
                    "histogram_quantile(0.95, sum by (le, cluster_queue) (rate(kueue_admission_wait_time_seconds_bucket[$__rate_interval])))",
                    "{{cluster_queue}}",
                )],
            ),
            panel(
                "Evicted Workloads",
                "By cause.",
                "short",
                &[(
                    "sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[$__rate_interval]))",
                    "{{cluster_queue}} {{reason}}",
                )],
            ),
        ],
    },
];

/// Width of a panel and of the dashboard, in columns; height of a panel.
const WIDTH: usize = 8;
const COLUMNS: usize = 24;
const HEIGHT: usize = 8;

/// The dashboard as text.
pub(crate) fn text() -> String {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in ROWS {
        let id = panels.len() + 1;
        panels.push(json!({"id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}}));
        y += 1;
        for (at, panel) in row.panels.iter().enumerate() {
            let (x, down) = (at * WIDTH % COLUMNS, at * WIDTH / COLUMNS * HEIGHT);
            let place = json!({"h": HEIGHT, "w": WIDTH, "x": x, "y": y + down});
            panels.push(panel.json(panels.len() + 1, &place));
        }
        y += (row.panels.len() * WIDTH).div_ceil(COLUMNS) * HEIGHT;
    }
    let source =
        json!({"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"});
    let dashboard = json!({
        "uid": "muster",
        "title": "Muster",
        "description": "Gang scheduling by Muster: what waits, what was decided, and how the controller is.",
        "tags": ["kubernetes", "muster", "scheduling"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    });
    // The texts contain nothing that JSON cannot express.
    serde_json::to_string_pretty(&dashboard).unwrap_or_default() + "\n"
}

impl Panel {
    fn json(&self, id: usize, place: &Value) -> Value {
        let target = |(at, (query, legend)): (usize, &(&str, &str))| {
            let name = char::from(b'A' + u8::try_from(at).unwrap_or_default()).to_string();
            json!({"refId": name, "expr": query, "legendFormat": legend, "datasource": source()})
        };
        let targets: Vec<Value> = self.queries.iter().enumerate().map(target).collect();
        json!({
            "id": id,
            "type": "timeseries",
            "title": self.title,
            "description": self.text,
            "datasource": source(),
            "gridPos": place,
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": targets,
        })
    }
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// Evaluates every query of the dashboard with promtool on the scrapes in a folder, in the order of their names, one each
/// `interval_s` seconds. Returns the queries with no result.
pub(crate) fn check(recording: &Path, promtool: &Path, interval_s: u64) -> Result<ExitCode> {
    let mut files: Vec<_> = std::fs::read_dir(recording)
        .with_context(|| format!("cannot read the recording {}", recording.display()))?
        .map(|file| Ok(file?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let scrapes: Vec<String> =
        files.iter().map(|file| Ok(std::fs::read_to_string(file)?)).collect::<Result<_>>()?;
    let series: Vec<Value> = series(&scrapes)
        .into_iter()
        .map(|(series, values)| json!({"series": series, "values": values}))
        .collect();
    let last = u64::try_from(scrapes.len())?.saturating_sub(1);
    let end = format!("{}s", last * interval_s);
    let work = tempfile::tempdir()?;
    let panels = || ROWS.iter().flat_map(|row| row.panels.iter().map(move |panel| (row.title, panel)));
    let mut empty = 0;
    for (row, panel) in panels() {
        for (query, _) in panel.queries {
            let query = query.replace("$__rate_interval", "1m");
            // Not a number is no result.
            let tests = json!([{"expr": format!("count(({query}) == ({query})) > bool 0"), "eval_time": end,
                "exp_samples": [{"labels": "{}", "value": 1}]}]);
            let interval = format!("{interval_s}s");
            let file = work.path().join("query.yaml");
            let test = json!([{"interval": interval, "input_series": series, "promql_expr_test": tests}]);
            std::fs::write(&file, json!({"evaluation_interval": interval, "tests": test}).to_string())?;
            let output = Command::new(promtool).args(["test", "rules"]).arg(&file).output()?;
            let result = if output.status.success() { "ok" } else { "NOTHING" };
            println!("{result:8}{row}: {}: {query}", panel.title);
            if !output.status.success() {
                empty += 1;
                eprintln!("{}", String::from_utf8_lossy(&output.stdout));
            }
        }
    }
    let count: usize = panels().map(|(_, panel)| panel.queries.len()).sum();
    println!(
        "{count} queries on {} series in {} scrapes, {empty} without a result",
        series.len(),
        scrapes.len()
    );
    Ok(if empty == 0 && !scrapes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The values of each series, in the notation of promtool, by name and labels.
fn series(scrapes: &[String]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (at, scrape) in scrapes.iter().enumerate() {
        for line in scrape.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let labels = r#"instance="muster-0",job="muster""#;
            let series = match series.strip_suffix('}') {
                Some(open) => format!("{open},{labels}}}"),
                None => format!("{series}{{{labels}}}"),
            };
            let values = all.entry(series).or_default();
            values.resize(at, "_");
            values.push(value);
        }
    }
    all.into_iter().map(|(series, values)| (series, values.join(" "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_in_the_chart_is_what_the_code_makes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/muster/files/dashboard.json");
        let found = std::fs::read_to_string(file).unwrap_or_default();
        assert!(found == text(), "run `cargo run -p xtask -- dashboard`");
    }

    #[test]
    fn every_panel_has_a_query_and_no_two_overlap() {
        let dashboard: Value = serde_json::from_str(&text()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut taken = std::collections::BTreeSet::new();
        for panel in panels {
            let place = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{}", panel["title"]);
                }
            }
            let is_row = panel["type"] == "row";
            assert!(is_row || !panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]);
        }
    }

    #[test]
    fn a_series_that_begins_late_has_gaps_first() {
        let scrapes = ["a 1\n# TYPE b counter\n".to_owned(), "b{c=\"d e\"} 2\na 3\n".to_owned()];
        let labels = r#"instance="muster-0",job="muster""#;
        let expected = [(format!("a{{{labels}}}"), "1 3"), (format!("b{{c=\"d e\",{labels}}}"), "_ 2")];
        let expected = expected.map(|(series, values)| (series, values.to_owned()));
        assert_eq!(series(&scrapes), BTreeMap::from(expected));
    }
}
