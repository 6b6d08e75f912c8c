//! Compares the simulated KubeRay operator with recordings of the real one (`testbed/differential/cases/operators`).
//!
//! `docs/compat/kuberay.md` lists the accepted differences. A row without a difference fails the test.

#![allow(clippy::unwrap_used, reason = "a panic shows where the test failed")]

use std::path::Path;

use crate::common::OnSandbox;
use differential::allowed::Page;
use differential::answer::{Answer, compare};
use differential::case::Case;
use differential::run;

#[tokio::test(start_paused = true)]
async fn the_simulated_operator_matches_recordings_of_the_real_operator() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut page = Page::read(&std::fs::read_to_string(root.join("docs/compat/kuberay.md")).unwrap());
    let mut report = Vec::new();
    for name in ["ray-cluster", "ray-cluster-bare", "ray-cluster-autoscaler", "ray-job"] {
        let path = root.join("testbed/differential/cases/operators").join(name);
        let case = std::fs::read_to_string(path.with_extension("http")).unwrap();
        let case = Case::parse(name, &case).unwrap();
        let recording = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: Vec<Answer> = serde_json::from_str(&recording).unwrap();
        let titles: Vec<_> = expected.iter().map(|answer| answer.request.clone()).collect();
        let requests: Vec<_> = case.requests.iter().map(differential::case::Request::title).collect();
        assert_eq!(titles, requests, "the requests of `operators/{name}` have changed: record it again");
        let cluster = OnSandbox::start().await;
        let found = run::run(&cluster.environment.client, &case, "r0").await.unwrap();
        report.extend(page.unexplained(name, &compare(&expected, &found)));
    }
    assert!(report.is_empty(), "{} differences:\n{}", report.len(), report.join("\n"));
    let unused = page.unused();
    assert!(unused.is_empty(), "no difference needs these rows of the page: {unused:#?}");
}
