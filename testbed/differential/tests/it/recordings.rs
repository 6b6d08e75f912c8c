//! Compares the in-memory API server with recordings of the real kube-apiserver.
//!
//! `docs/compat/apiserver.md` lists the accepted differences. A row without a difference fails the test.

use std::path::Path;
use std::sync::Arc;

use apiserver::{ApiServer, Config, Service};
use differential::allowed::Page;
use differential::answer::{Answer, compare};
use differential::case::Case;
use differential::run;
use kube::Client;

#[tokio::test]
async fn responses_of_the_in_memory_server_match_recordings_of_kube_apiserver() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/compat/apiserver.md")).unwrap();
    let mut page = Page::read(&page);
    let mut report = Vec::new();
    let mut count = 0;
    for path in cases(root) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = Case::parse(&name, &std::fs::read_to_string(&path).unwrap()).unwrap();
        let recording = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: Vec<Answer> = serde_json::from_str(&recording).unwrap();
        let titles: Vec<_> = expected.iter().map(|answer| answer.request.clone()).collect();
        let requests: Vec<_> = case.requests.iter().map(differential::case::Request::title).collect();
        assert_eq!(titles, requests, "the requests of `{name}` have changed: record it again");

        // Each case has a new server, so that cases are independent.
        // Time stands still, because managed fields are sorted by time.
        let now = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        // No kube-controller-manager ran beside the recorded kube-apiserver.
        let config = Config { counts_quotas: false, ..Config::default() };
        let service = Service::new(ApiServer::new(config), Arc::new(move || now));
        let found = run::run(&Client::new(service, "default"), &case, "r0").await.unwrap();
        count += found.len();
        report.extend(page.unexplained(&name, &compare(&expected, &found)));
    }
    assert!(count > 0, "no cases found");
    assert!(report.is_empty(), "{} differences in {count} answers:\n{}", report.len(), report.join("\n"));
    let unused = page.unused();
    assert!(unused.is_empty(), "no difference needs these rows of the page: {unused:#?}");
}

fn cases(root: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(root.join("cases"))
        .expect("the folder of cases is readable")
        .flatten()
        .map(|entry| entry.path());
    let mut cases: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|suffix| suffix == "http")).collect();
    cases.sort();
    cases
}
