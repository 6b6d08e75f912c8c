//! The SVG of a report: nodes as boxes with their devices, the pods of the running gang in them, and the waiting gang below. Equal
//! reports give equal pictures, and times are relative.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use serde_json::Value;

/// A gang of the picture.
#[derive(Clone, Copy)]
pub(super) struct Gang {
    pub(super) name: &'static str,
    pub(super) pods: u64,
    /// Devices of each pod.
    pub(super) devices: u64,
    pub(super) run_time_s: u64,
}

/// What `muster get nodes` and `muster get gangs` print in JSON, and the two gangs.
pub(super) struct Report<'a> {
    pub(super) nodes: &'a Value,
    pub(super) gangs: &'a Value,
    pub(super) device: &'a str,
    pub(super) running: Gang,
    pub(super) waiting: Gang,
}

/// Colours of the browser's scheme; the ground is opaque, so that the picture can be read on any page.
const STYLE: &str = "
text{font:15px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}
.head{font-size:17px;font-weight:600}.small{font-size:13px}.mark{fill:#fff;font-weight:600}
.ground{fill:#fff;stroke:#d1d9e0}.node{fill:#f6f8fa;stroke:#818b98}.free{fill:none;stroke:#818b98;stroke-dasharray:4 4}
.runs{fill:#0969da}.waits{fill:#9a6700}.gang{fill:none;stroke:#9a6700;stroke-width:1.5}.dim{fill:#59636e}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.ground{fill:#0d1117;stroke:#3d444d}.node{fill:#151b23;stroke:#9198a1}
.free{stroke:#9198a1}.runs{fill:#1f6feb}.gang{stroke:#d29922}.dim{fill:#9198a1}}
";

const WIDTH: u64 = 860;
const HEIGHT: u64 = 400;
/// From the edge to the boxes, and between them.
const MARGIN: u64 = 24;
/// The side of a device.
const SIDE: u64 = 64;
const GAP: u64 = 12;
/// Where the row of nodes and the waiting gang begin.
const NODES_AT: u64 = 64;
const WAITING_AT: u64 = 232;

/// The picture.
pub(super) fn draw(report: &Report<'_>) -> Result<String> {
    let running = report.gang(&report.running)?;
    let waiting = report.gang(&report.waiting)?;
    let nodes = report.nodes.as_array().context("there is no list of nodes")?;
    let mut boxes = Vec::new();
    let (mut total, mut free) = (0, 0);
    for (at, node) in (0..).zip(nodes) {
        let devices = &node["resources"][report.device];
        let name = node["name"].as_str().context("a node has no name")?;
        let (all, unused) = (number(&devices["allocatable"])?, number(&devices["free"])?);
        let pods = running["places"][name].as_u64().unwrap_or_default();
        boxes.push(self::node(at, name, all, &report.running, pods));
        total += all;
        free += unused;
    }
    let needs = report.waiting.pods * report.waiting.devices;
    let cause = waiting["causes"][0].as_str().context("the waiting gang has no cause")?;
    let cause = cause.split_once(": ").map_or(cause, |(_, cause)| cause);
    let lines = [
        format!("needs {needs} GPUs: {free} of {total} are free, enough in total"),
        cause.replace(report.device, "GPU").replace("2 GPU ", "2 GPUs ").replace("; ", ": "),
        promise(running, waiting, &report.running)?,
    ];
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width=(WIDTH) height=(HEIGHT) role="img"
            aria-label=(format!("{} waits: {}", report.waiting.name, lines.join("; "))) {
            style { (PreEscaped(STYLE)) }
            rect.ground x="0.5" y="0.5" width=(WIDTH - 1) height=(HEIGHT - 1) rx="10" {}
            text.head x=(MARGIN) y="42" {
                (report.running.name) " runs: " (report.running.pods) " pods with " (devices(report.running.devices)) " each"
            }
            @for markup in &boxes { (markup) }
            (waiting_gang(&report.waiting, &lines))
        }
    };
    Ok(picture.into_string() + "\n")
}

impl Report<'_> {
    fn gang(&self, of: &Gang) -> Result<&Value> {
        let mut gangs = self.gangs.as_array().into_iter().flatten();
        gangs.find(|gang| gang["name"] == of.name).with_context(|| format!("there is no gang {}", of.name))
    }
}

/// A node with its devices. Those of `pods` of the gang are filled.
fn node(at: u64, name: &str, all: u64, gang: &Gang, pods: u64) -> Markup {
    let width = all * (SIDE + GAP) + GAP + 12;
    let left = MARGIN + at * (width + MARGIN + 6);
    let used = pods * gang.devices;
    html! {
        rect.node x=(left) y=(NODES_AT) width=(width) height="130" rx="8" {}
        text.small x=(left + GAP + 4) y=(NODES_AT + 26) { (name) }
        @for device in 0..all {
            (square(left + 6 + GAP + device * (SIDE + GAP), NODES_AT + 46, device < used, gang.name))
        }
    }
}

/// A device: that of a pod, or a free one.
fn square(x: u64, y: u64, is_used: bool, name: &str) -> Markup {
    let class = if is_used { "runs" } else { "free" };
    html! {
        rect class=(class) x=(x) y=(y) width=(SIDE) height=(SIDE) rx="6" {}
        @if is_used { text.mark.small x=(x + SIDE / 2) y=(y + SIDE / 2 + 5) text-anchor="middle" { (name) } }
        @else { text.small.dim x=(x + SIDE / 2) y=(y + SIDE / 2 + 5) text-anchor="middle" { "free" } }
    }
}

/// The pods of the waiting gang, each as wide as its devices, and what is known about it.
fn waiting_gang(gang: &Gang, lines: &[String]) -> Markup {
    let pod = gang.devices * (SIDE + GAP) - GAP;
    let after = MARGIN + GAP + gang.pods * (pod + GAP) + GAP;
    html! {
        text.head x=(MARGIN) y=(WAITING_AT + 8) {
            (gang.name) " waits: " (gang.pods) " pods with " (devices(gang.devices)) " each, all at the same time"
        }
        rect.gang x=(MARGIN) y=(WAITING_AT + 28) width=(WIDTH - 2 * MARGIN) height="112" rx="8" {}
        @for at in 0..gang.pods {
            rect.waits x=(MARGIN + GAP + at * (pod + GAP)) y=(WAITING_AT + 52) width=(pod) height=(SIDE) rx="6" {}
            text.mark.small x=(MARGIN + GAP + at * (pod + GAP) + pod / 2) y=(WAITING_AT + 52 + SIDE / 2 + 5) text-anchor="middle" {
                (gang.name) ", " (devices(gang.devices))
            }
        }
        @for (at, line) in (0..).zip(lines) {
            text x=(after + 4) y=(WAITING_AT + 62 + at * 28) { (line) }
        }
    }
}

fn devices(number: u64) -> String {
    format!("{number} GPU{}", if number == 1 { "" } else { "s" })
}

/// When the waiting gang starts, counted from the start of the running one.
fn promise(running: &Value, waiting: &Value, gang: &Gang) -> Result<String> {
    let time = |value: &Value| -> Result<Timestamp> {
        value.as_str().context("a time is missing")?.parse().context("a time is not valid")
    };
    let minutes = (time(&waiting["start"]["at"])?.as_second() - time(&running["since"])?.as_second()) / 60;
    Ok(format!("promised start: when {} ends, {minutes} min after it began", gang.name))
}

fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().context("a node has no such device")?;
    text.parse().with_context(|| format!("{text:?} is no number of devices"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RUNNING: Gang = Gang { name: "tune", pods: 3, devices: 1, run_time_s: 2400 };
    const WAITING: Gang = Gang { name: "train", pods: 1, devices: 2, run_time_s: 60 };

    fn picture(hour: u8) -> String {
        let node = |name: &str, free: &str| json!({"name": name, "resources": {"gpu": {"allocatable": "2", "free": free}}});
        let nodes = json!([node("a", "1"), node("b", "1"), node("c", "1"), node("d", "2")]);
        let gangs = json!([
            {"name": "tune", "since": format!("2026-01-01T{hour:02}:00:00Z"), "places": {"a": 1, "b": 1, "c": 1}},
            {"name": "train", "causes": ["job: needs 2 gpu on one node; 3 nodes have 1 free"],
             "start": {"at": format!("2026-01-01T{hour:02}:40:00Z"), "reserved": true}},
        ]);
        draw(&Report { nodes: &nodes, gangs: &gangs, device: "gpu", running: RUNNING, waiting: WAITING })
            .unwrap()
    }

    #[test]
    fn a_picture_shows_used_and_free_devices_and_the_promise() {
        let picture = picture(7);
        assert_eq!(picture.matches("class=\"runs\"").count(), 3);
        assert_eq!(picture.matches("class=\"free\"").count(), 5);
        assert_eq!(picture.matches("class=\"waits\"").count(), 1);
        for expected in [
            ">needs 2 GPUs: 5 of 8 are free, enough in total<",
            ">needs 2 GPUs on one node: 3 nodes have 1 free<",
            ">promised start: when tune ends, 40 min after it began<",
        ] {
            assert!(picture.contains(expected), "{expected}: {picture}");
        }
    }

    #[test]
    fn a_picture_does_not_depend_on_the_clock() {
        assert_eq!(picture(7), picture(9));
    }
}
