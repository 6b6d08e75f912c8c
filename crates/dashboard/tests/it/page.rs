//! The page of a World with two nodes and a gang that fits on neither.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use dashboard::{Unplanned, Unqueued, View};
use http_body_util::BodyExt;
use model::{
    Amount, Assignment, Cause, Event, Gang, GangKey, GangState, Hold, Node, Plan, PodSet, Preemption,
    PreemptionReason, QueueingHint, Reservation, ResourceVec, Shortage, Slip, SlipCause, Time, Verdict,
    Victim, World,
};
use tokio::sync::watch;
use tower::ServiceExt;

fn world() -> World {
    let mut world = World::new();
    let gpu = world.resources_mut().intern("nvidia.com/gpu");
    let with_gpus = |gpus| {
        let mut resources = ResourceVec::new();
        resources.set(gpu, Amount(gpus));
        resources
    };
    for name in ["a", "b"] {
        let node = Node { name: name.into(), ready: true, allocatable: with_gpus(1), ..Node::default() };
        world.apply(Event::NodeUpserted(node));
    }
    let worker = PodSet { name: "worker".into(), count: 1, request: with_gpus(2), ..PodSet::default() };
    let key = GangKey { kind: "jobs".into(), namespace: "team".into(), name: "<b>wide</b>".into() };
    world.apply(Event::GangUpserted(Gang {
        key,
        uid: "1".into(),
        pod_sets: Arc::new([worker]),
        ..Gang::default()
    }));
    world
}

async fn get(app: &axum::Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn app(world: &Arc<Mutex<World>>) -> (axum::Router, watch::Sender<u64>) {
    app_with(world, Unplanned::default())
}

fn app_with(world: &Arc<Mutex<World>>, unplanned: Unplanned) -> (axum::Router, watch::Sender<u64>) {
    let (sender, changes) = watch::channel(0);
    let world = Arc::clone(world);
    let view = move || View::of(&world.lock().unwrap(), unplanned.clone(), jiff::Timestamp::UNIX_EPOCH);
    (dashboard::router(Arc::new(view), changes), sender)
}

#[tokio::test]
async fn what_is_not_planned_is_listed_behind_what_waits_and_what_has_ended_is_counted() {
    let unqueued = |name: &str, causes: &[&str]| Unqueued {
        key: GangKey { kind: "workloads.kueue.x-k8s.io".into(), namespace: "team".into(), name: name.into() },
        state: "not queued".into(),
        causes: causes.iter().map(|cause| (*cause).to_owned()).collect(),
        priority: 7,
        pods: None,
    };
    let unplanned = Unplanned {
        unqueued: vec![
            unqueued("lost", &["LocalQueue <x> doesn't exist", "create it"]),
            unqueued("held", &["it is deactivated: spec.active is false"]),
        ],
        ended: [("jobs".into(), 3), ("workloads.kueue.x-k8s.io".into(), 1)].into(),
    };
    let (app, _changes) = app_with(&Arc::new(Mutex::new(world())), unplanned);
    let (_, page) = get(&app, "/").await;
    for text in [
        "2 nodes, 0 gangs placed, 1 waiting, 2 not queued",
        "<span class=\"state\">not queued</span>",
        "<td>LocalQueue &lt;x&gt; doesn't exist; create it</td>",
        "<td>it is deactivated: spec.active is false</td>",
        "Ended, and not listed: 3 jobs, 1 workloads.kueue.x-k8s.io.",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(!page.contains("more are not shown"), "{page}");
    let (_, json) = get(&app, "/api/view").await;
    let view: serde_json::Value = serde_json::from_str(&json).unwrap();
    let names: Vec<_> = view["gangs"].as_array().unwrap().iter().map(|gang| &gang["name"]).collect();
    assert_eq!(names, ["<b>wide</b>", "held", "lost"]);
    assert_eq!(view["gangs"][1]["standing"]["state"], "not queued");
    assert_eq!(view["ended"]["jobs"], 3);
}

#[tokio::test]
async fn the_page_of_many_gangs_says_how_many_it_leaves_out_and_where_they_are() {
    let one = |at: usize| Unqueued {
        key: GangKey { name: format!("gang-{at:05}"), ..GangKey::default() },
        ..Unqueued::default()
    };
    let unplanned = Unplanned { unqueued: (0..10_000).map(one).collect(), ..Unplanned::default() };
    let (app, _changes) = app_with(&Arc::new(Mutex::new(world())), unplanned);
    let (_, page) = get(&app, "/").await;
    assert_eq!(page.matches("<strong>").count(), 1_000);
    assert!(page.contains("1 waiting, 10000 not queued"));
    assert!(
        page.contains("9001 more are not shown here; <a href=\"/api/view\">the JSON</a> has all of them.")
    );
    let (_, json) = get(&app, "/api/view").await;
    let view: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(view["gangs"].as_array().unwrap().len(), 10_001);
}

#[tokio::test]
async fn the_page_shows_nodes_and_gangs_and_escapes_names() {
    let (app, _changes) = app(&Arc::new(Mutex::new(world())));
    let (status, page) = get(&app, "/").await;
    assert_eq!(status, StatusCode::OK);
    assert!(page.contains("2 nodes, 0 gangs placed, 1 waiting"), "{page}");
    assert!(page.contains("&lt;b&gt;wide&lt;/b&gt;") && !page.contains("<b>wide"), "{page}");
    let (_, json) = get(&app, "/api/view").await;
    let view: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(view["nodes"][1]["name"], "b");
    assert_eq!(view["gangs"][0]["pods"], 1);
}

#[tokio::test]
async fn the_page_shows_position_start_and_slip_of_a_pending_gang_and_both_gangs_of_a_preemption() {
    let mut world = world();
    let key = |name: &str| GangKey { namespace: "team".into(), name: name.into(), ..GangKey::default() };
    let gang = |name: &str, state| Gang { key: key(name), uid: name.into(), state, ..Gang::default() };
    let assignment = Assignment { pod_sets: vec![vec![("a".into(), 1)]], ..Assignment::default() };
    let victims = vec![Victim { uid: "weak".into(), reason: PreemptionReason::Priority }];
    let preemption = Preemption { victims, assignment: assignment.clone() };
    world.apply(Event::GangUpserted(gang("weak", GangState::Reserved(assignment))));
    world.apply(Event::GangUpserted(gang("strong", GangState::Nominated(preemption))));
    let start = Time(60_000_000);
    let causes = [Cause::StillStopping { pods: 1 }].into();
    let shortage = Shortage { causes, queueing_hint: QueueingHint::EligibleNodeFreed };
    let plan = Plan {
        generation: world.generation(),
        verdicts: vec![("1".into(), Verdict::Wait(shortage))],
        reserved: vec![Reservation {
            gang: "1".into(),
            start,
            after: Some("weak".into()),
            declared: false,
            hold: Hold::Unused,
        }],
        ..Plan::default()
    };
    world.apply(Event::Planned(plan));
    let (from, cause) = (Time(30_000_000), SlipCause::NoEnd { gang: key("weak") });
    let promised =
        Reservation { gang: "1".into(), start: from, after: None, declared: true, hold: Hold::UntilStart };
    let slip = Slip { gang: "1".into(), from, to: Some(start), cause };
    for plan in [
        Plan { reserved: vec![promised], ..Plan::default() },
        Plan { reserved: world.reserved().to_vec(), slips: vec![slip], ..Plan::default() },
    ] {
        world.apply(Event::Planned(plan));
    }

    let (app, _changes) = app(&Arc::new(Mutex::new(world)));
    let (_, page) = get(&app, "/").await;
    let slip_text =
        "a start at 1970-01-01T00:00:30Z was reserved, but team/weak runs and declares no duration";
    for cell in [
        &*format!("<br><small>{slip_text}</small>"),
        "<td class=\"number\">1 of 1</td>",
        "unknown<br><small>team/weak declares no run time (set spec.schedulingSpec.dispatchDuration.expected)</small>",
        "<td>1 of its pods is still terminating</td>",
        "<td>is being preempted by team/strong</td>",
        "<td>is preempting team/weak</td>",
    ] {
        assert!(page.contains(cell), "{cell} is not in {page}");
    }
    let (_, json) = get(&app, "/api/view").await;
    let view: serde_json::Value = serde_json::from_str(&json).unwrap();
    let statuses: Vec<_> = view["gangs"].as_array().unwrap().iter().map(|gang| &gang["standing"]).collect();
    assert_eq!(statuses[0]["position"], serde_json::json!({"place": 1, "of": 1}));
    assert_eq!(statuses[0]["moved"], slip_text);
    assert_eq!(statuses[1]["victims"], serde_json::json!(["team/weak"]));
    assert_eq!(statuses[2]["gives_way_to"], "team/strong");
}

#[tokio::test]
async fn a_post_request_is_rejected() {
    let (app, _changes) = app(&Arc::new(Mutex::new(world())));
    let request = Request::post("/api/view").body(Body::empty()).unwrap();
    assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_world_is_streamed_to_the_page() {
    let world = Arc::new(Mutex::new(world()));
    let (app, changes) = app(&world);
    let request = Request::get("/changes").body(Body::empty()).unwrap();
    let mut body = app.oneshot(request).await.unwrap().into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert!(next().await.contains("1 waiting"));
    world.lock().unwrap().apply(Event::GangRemoved("1".into()));
    changes.send(1).unwrap();
    assert!(next().await.contains("0 waiting"));
}
