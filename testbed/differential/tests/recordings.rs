//! The in-memory server answers as the real kube-apiserver did when the cases were recorded.
//!
//! What may differ is a row of `docs/compat/apiserver.md`. A row that no difference needs any more fails as well.

use std::path::Path;
use std::sync::Arc;

use apiserver::{ApiServer, Config, Service};
use differential::allowed::Page;
use differential::answer::{Answer, compare};
use differential::case::Case;
use differential::run;
use kube::Client;

#[tokio::test]
async fn the_in_memory_server_answers_as_the_real_one_did() {
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
        assert_eq!(titles, requests, "record `{name}` again: its requests have changed");

        // A fresh server for each, so that cases cannot lean on each other.
        // Time stands still, as owners of fields are sorted by it.
        let now = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        let service = Service::new(ApiServer::new(Config::default()), Arc::new(move || now));
        let found = run::run(&Client::new(service, "default"), &case, "r0").await.unwrap();
        count += found.len();
        report.extend(page.unexplained(&name, &compare(&expected, &found)));
    }
    assert!(count > 0, "no cases found");
    assert!(report.is_empty(), "{} differences in {count} answers:\n{}", report.len(), report.join("\n"));
    let idle = page.idle();
    assert!(idle.is_empty(), "nothing differs there any more, these rows can go: {idle:#?}");
}

fn cases(root: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(root.join("cases"))
        .expect("the cases are there")
        .flatten()
        .map(|entry| entry.path());
    let mut cases: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|suffix| suffix == "http")).collect();
    cases.sort();
    cases
}
