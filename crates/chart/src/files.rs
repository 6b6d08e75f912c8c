//! The files of the chart. A test compares the list with the folder.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/muster/", $name)))),*]
    };
}

/// The files of `charts/muster` that its objects come from, with their text.
pub const FILES: &[(&str, &str)] = files![
    "Chart.yaml",
    "files/alerts.yaml",
    "files/dashboard.json",
    "templates/NOTES.txt",
    "templates/_helpers.tpl",
    "templates/availability.yaml",
    "templates/certificates.yaml",
    "templates/dashboard.yaml",
    "templates/definitions.yaml",
    "templates/deployment.yaml",
    "templates/kueue-rbac.yaml",
    "templates/kueue-roles.yaml",
    "templates/lease.yaml",
    "templates/prometheusrule.yaml",
    "templates/rbac.yaml",
    "templates/servicemonitor.yaml",
    "templates/services.yaml",
    "templates/uninstall.yaml",
    "values.schema.json",
    "values.yaml",
];
