//! Renders a [`View`] as HTML. The page has no state in the browser: each update replaces the body.

use maud::{DOCTYPE, Markup, html};

use crate::gang_status::StartView;
use crate::view::{GangView, NodeView, ResourceView, View};

/// So many gangs are shown; the page says how many it leaves out.
const SHOWN_MAX: usize = 1_000;

/// The whole page.
pub(crate) fn page(view: &View) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Muster" }
                link rel="stylesheet" href="/style.css";
                script src="/live.js" defer {}
            }
            body {
                header { h1 { "Muster" } p { (summary(view)) } }
                main id="live" { (body(view)) }
            }
        }
    }
}

/// The part that each update replaces: the gangs, then the nodes.
pub(crate) fn body(view: &View) -> Markup {
    html! {
        section aria-labelledby="gangs" {
            h2 id="gangs" { "Gangs" }
            @if view.gangs.is_empty() {
                p.empty { "No workload is queued or running. Create one, and it appears here." }
            } @else {
                table {
                    thead {
                        tr { th { "State" } th { "Gang" } th.number { "Priority" } th.number { "Pods" } th.number { "Position" } th { "Start" } th { "Placement, or reason for waiting" } }
                    }
                    tbody { @for gang in view.gangs.iter().take(SHOWN_MAX) { (gang_row(gang)) } }
                }
            }
            @if let Some(more) = view.gangs.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
                p.empty { (more) " more are not shown here; " a href="/api/view" { "the JSON" } " has all of them." }
            }
            @if !view.ended.is_empty() { p.empty { (ended(view)) } }
        }
        section aria-labelledby="nodes" {
            h2 id="nodes" { "Nodes" }
            @if view.nodes.is_empty() {
                p.empty { "The cluster has no node." }
            } @else {
                div.nodes { @for node in &view.nodes { (node_card(node)) } }
            }
        }
    }
}

/// The summary line: numbers of nodes and gangs.
pub(crate) fn summary(view: &View) -> String {
    let waiting = view.gangs.iter().filter(|gang| gang.waits).count();
    let unqueued = view.gangs.iter().filter(|gang| !gang.planned).count();
    let placed = view.gangs.len() - waiting - unqueued;
    let unqueued = if unqueued == 0 { String::new() } else { format!(", {unqueued} not queued") };
    format!("{} nodes, {placed} gangs placed, {waiting} waiting{unqueued}", view.nodes.len())
}

/// What the table leaves out because it has ended.
fn ended(view: &View) -> String {
    let kinds: Vec<_> = view.ended.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!("Ended, and not listed: {}.", kinds.join(", "))
}

fn gang_row(gang: &GangView) -> Markup {
    html! {
        tr.waits[gang.waits] {
            td { span.state { (gang.state) } }
            td { (gang.namespace) "/" strong { (gang.name) } br; small { (gang.kind) } }
            td.number { (gang.priority) }
            td.number { @if let Some(pods) = gang.pods { (pods) } }
            td.number { @if let Some(position) = &gang.status.position { (position.place) " of " (position.of) } }
            td {
                @if let Some(start) = &gang.status.start { (start_note(start)) }
                @if let Some(slip) = &gang.status.moved { br; small { (slip) } }
            }
            td { (gang.detail) }
        }
    }
}

fn start_note(start: &StartView) -> Markup {
    html! {
        @match &start.at {
            Some(at) => {
                time datetime=(at) { (at) } br;
                small {
                    @if start.reserved { "reserved" } @else { "expected" }
                    @if let Some(gang) = &start.after { ", when " (gang) " ends" }
                }
            },
            None => {
                "unknown" br;
                small {
                    @if let Some(cause) = &start.unknown { (cause) }
                    @if let Some(until) = &start.nodes_kept_until { ", nodes are kept free for it until " (until) }
                }
            },
        }
    }
}

fn node_card(node: &NodeView) -> Markup {
    html! {
        article.node {
            h3 { (node.name) @if let Some(trouble) = &node.trouble { " " span.trouble { (trouble) } } }
            @for resource in &node.resources { (resource_bar(resource)) }
        }
    }
}

fn resource_bar(resource: &ResourceView) -> Markup {
    html! {
        div.resource {
            span { (resource.name) }
            meter min="0" max="100" value=(resource.used_percent) title={ (resource.used_percent) " %" } {}
            span.number { (resource.used) " of " (resource.allocatable) }
        }
    }
}
