//! Compares the statuses and objects of AppWrappers under Muster with recordings of MCAD.
//!
//! `docs/compat/appwrapper.md` lists the accepted differences. A row without a difference fails the test.

use std::path::Path;
use std::time::Duration;

use crate::common::OnSandbox;
use behaviour::oracle::inputs;
use differential::allowed::Page;
use differential::answer::{Answer, compare};

#[tokio::test(start_paused = true)]
async fn app_wrappers_under_muster_match_recordings_of_mcad() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/appwrapper.md");
    let mut page = Page::read(&std::fs::read_to_string(page).expect("the page is readable"));
    let mut report = Vec::new();
    for input in inputs().expect("the examples are readable") {
        let recording = std::fs::read_to_string(input.recording()).expect("every input is recorded");
        let expected: Vec<Answer> = serde_json::from_str(&recording).expect("a recording is JSON");
        let mut cluster = OnSandbox::start().await;
        // Ray workers start only after their head is ready; a long stable period costs nothing in virtual time.
        cluster.environment.stable_period = Duration::from_secs(30);
        let found = input.run(&cluster.environment).await.expect("the sandbox answers");
        cluster.assert_no_violations();
        let titles =
            |records: &[Answer]| records.iter().map(|record| record.request.clone()).collect::<Vec<_>>();
        assert_eq!(
            titles(&expected),
            titles(&found),
            "the steps of `{}` have changed: record it again",
            input.name
        );
        report.extend(page.unexplained(input.name, &compare(&expected, &found)));
    }
    assert!(report.is_empty(), "{} differences:\n{}", report.len(), report.join("\n"));
    let unused = page.unused();
    assert!(unused.is_empty(), "no difference needs these rows of the page: {unused:#?}");
}
