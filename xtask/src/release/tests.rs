use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use clap::Parser;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// A release whose programs are the head of a static program, and whose completions a script prints.
fn release() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut content = b"\x7fELF\x02\x01".to_vec();
    content.resize(64, 0);
    std::fs::write(&program, content).unwrap();
    let muster = folder.path().join("muster");
    let script =
        "#!/bin/sh\nif [ \"$1\" = man ]; then echo page > \"$2/muster.1\"; else echo \"$1 of $2\"; fi\n";
    std::fs::write(&muster, script).unwrap();
    std::fs::set_permissions(&muster, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line =
        ["release", "--base-url", "https://files.example.com/v1/", "--image", "example.com/batch/muster"];
    let args = Line::parse_from(line).args;
    let programs = [Platform::Amd64, Platform::Arm64].map(|platform| (platform, program.clone()));
    assemble(&args, &programs.into(), &muster, 1_700_000_000).unwrap()
}

/// The files of a compressed archive, with their mode and time.
fn unpacked(content: &[u8]) -> BTreeMap<String, (String, u32)> {
    let mut archive = tar::Archive::new(GzDecoder::new(content));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (1_700_000_000, 0));
        let (name, mode) = (entry.path().unwrap().display().to_string(), header.mode().unwrap());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, (String::from_utf8_lossy(&bytes).into_owned(), mode))
    });
    entries.collect()
}

fn text<'a>(files: &'a Files, name: &str) -> &'a str {
    std::str::from_utf8(&files[name]).unwrap()
}

#[test]
fn a_release_has_all_files_with_their_checksums_and_is_the_same_each_time() {
    let files = release();
    let names: Vec<String> = files.keys().map(|name| name.replace(VERSION, "V")).collect();
    let expected = [
        "SHA256SUMS",
        "install-all.yaml",
        "install-kueue.yaml",
        "install.yaml",
        "muster-V-image-amd64.tar",
        "muster-V-image-arm64.tar",
        "muster-V-linux-amd64.cdx.json",
        "muster-V-linux-amd64.tar.gz",
        "muster-V-linux-arm64.cdx.json",
        "muster-V-linux-arm64.tar.gz",
        "muster-V-shell.tar.gz",
        "muster-V.tgz",
        "muster.krew.yaml",
    ];
    assert_eq!(names, expected);
    let sums: BTreeMap<&str, &str> = text(&files, SUMS)
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(sum, name)| (name, sum))
        .collect();
    assert_eq!(sums.len(), files.len() - 1);
    for (name, content) in files.iter().filter(|(name, _)| *name != SUMS) {
        assert_eq!(format!("sha256:{}", sums[name.as_str()]), image::digest(content), "{name}");
    }
    assert!(files == release());
}

#[test]
fn archives_have_the_program_the_completions_and_the_chart() {
    let files = release();
    let program = unpacked(&files[&format!("muster-{VERSION}-linux-arm64.tar.gz")]);
    assert_eq!(program.keys().collect::<Vec<_>>(), ["LICENSE", "muster"]);
    assert_eq!(program["muster"].1, 0o755);
    let shell = unpacked(&files[&format!("muster-{VERSION}-shell.tar.gz")]);
    assert_eq!(shell["completions/zsh/_muster"].0, "completion of zsh\n");
    assert_eq!(shell["man/man1/muster.1"].0, "page\n");
    let chart = unpacked(&files[&format!("muster-{VERSION}.tgz")]);
    let read = |name: &str| -> Value { serde_saphyr::from_str(&chart[name].0).unwrap() };
    assert_eq!(read("muster/values.yaml")["image"]["repository"], "example.com/batch/muster");
    assert_eq!(read("muster/Chart.yaml")["version"], VERSION, "the chart has the version of the program");
    assert_eq!(read("muster/Chart.yaml")["appVersion"], VERSION);
    assert!(!chart.keys().any(|name| name.contains("/ci/")), "values for tests are not packed");
    for (name, content) in chart::FILES.iter().filter(|(name, _)| *name != "values.yaml") {
        assert!(chart[&format!("muster/{name}")].0 == *content, "{name}");
    }
}

#[test]
fn each_profile_has_the_objects_of_its_parts_with_the_image() {
    let files = release();
    for (name, _) in manifests::PROFILES {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text(&files, name)).unwrap();
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], format!("example.com/batch/muster:{VERSION}"), "{name}");
        let has = |kind: &str, named: &str| {
            objects.iter().any(|object| object["kind"] == kind && object["metadata"]["name"] == named)
        };
        assert!(has("Namespace", manifests::NAMESPACE), "{name}");
        assert_eq!(has("Service", "kueue-webhook-service"), name != "install.yaml", "{name}");
        assert_eq!(has("Service", "muster-webhook"), name != "install-kueue.yaml", "{name}");
    }
}

#[test]
fn krew_gets_the_archives_by_address_and_checksum() {
    let files = release();
    let krew: Value = serde_saphyr::from_str(text(&files, "muster.krew.yaml")).unwrap();
    let platforms = krew["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for platform in platforms {
        let name = platform["uri"].as_str().unwrap().strip_prefix("https://files.example.com/v1/").unwrap();
        let sum = platform["sha256"].as_str().unwrap();
        assert_eq!(image::digest(&files[name]), format!("sha256:{sum}"));
        assert!(name.contains(platform["selector"]["matchLabels"]["arch"].as_str().unwrap()));
    }
}

#[test]
fn the_bill_names_what_the_program_is_built_from_and_not_what_tests_use() {
    let files = release();
    let bill: Value =
        serde_json::from_str(text(&files, &format!("muster-{VERSION}-linux-amd64.cdx.json"))).unwrap();
    assert_eq!((bill["bomFormat"].as_str(), bill["specVersion"].as_str()), (Some("CycloneDX"), Some("1.5")));
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let kube = named("kube").expect("the program uses kube");
    assert_eq!(kube["purl"], format!("pkg:cargo/kube@{}", kube["version"].as_str().unwrap()));
    assert_eq!(kube["licenses"][0]["expression"], "Apache-2.0");
    assert!(
        named("planner").is_some_and(|own| own["purl"].is_null()),
        "crates of the workspace are not published"
    );
    assert!(named("criterion").is_none() && named("xtask").is_none());
}
