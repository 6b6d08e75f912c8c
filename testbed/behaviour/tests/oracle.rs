//! Muster makes of AppWrappers what MCAD made of them when the inputs were recorded.
//!
//! What may differ is a row of `docs/compat/appwrapper.md`. A row that no difference needs any more fails as well.

mod common;

use std::path::Path;
use std::time::Duration;

use behaviour::oracle::inputs;
use common::OnSandbox;
use differential::allowed::Page;
use differential::answer::{Answer, compare};

#[tokio::test(start_paused = true)]
async fn muster_makes_of_app_wrappers_what_mcad_made_of_them() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/appwrapper.md");
    let mut page = Page::read(&std::fs::read_to_string(page).expect("the page is there"));
    let mut report = Vec::new();
    for input in inputs().expect("the examples are there") {
        let recording = std::fs::read_to_string(input.recording()).expect("every input is recorded");
        let expected: Vec<Answer> = serde_json::from_str(&recording).expect("a recording is JSON");
        let mut cluster = OnSandbox::start().await;
        // Virtual time costs nothing: workers of Ray wait for their head.
        cluster.environment.quiet = Duration::from_secs(30);
        let found = input.play(&cluster.environment).await.expect("the sandbox answers");
        cluster.assert_plans_were_right();
        let titles = |looks: &[Answer]| looks.iter().map(|look| look.request.clone()).collect::<Vec<_>>();
        assert_eq!(titles(&expected), titles(&found), "record `{}` again: it has changed", input.name);
        report.extend(page.unexplained(input.name, &compare(&expected, &found)));
    }
    assert!(report.is_empty(), "{} differences:\n{}", report.len(), report.join("\n"));
    let idle = page.idle();
    assert!(idle.is_empty(), "nothing differs there any more, these rows can go: {idle:#?}");
}
