//! The scripts of continuous integration and the tables of their times.

use std::collections::BTreeSet;

use crate::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first cells of the rows of the table below a line of `docs/benchmarks.md` that begins with this text.
fn rows(heading: &str) -> BTreeSet<String> {
    let page = read("docs/benchmarks.md");
    let table =
        page.lines().skip_while(|line| !line.starts_with(heading)).skip_while(|line| !line.starts_with('|'));
    let cells =
        table.take_while(|line| line.starts_with('|')).skip(2).filter_map(|line| line.split('|').nth(1));
    cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

/// The parts that `.ci/system` or `.ci/nightly` runs by default: the line `known=(…)`.
fn known(script: &str) -> BTreeSet<String> {
    let text = read(script);
    let line = text.lines().find_map(|line| line.strip_prefix("known=(")).expect("a list of parts");
    line.trim_end_matches(')').split_whitespace().map(str::to_owned).collect()
}

fn files(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is readable");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

#[test]
fn every_step_of_the_gate_has_a_row_in_the_table_of_times() {
    let text = read(".ci/run");
    let steps: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("step \"")?.strip_suffix('"'))
        .map(str::to_owned)
        .collect();
    assert!(steps.len() > 4, "{steps:?}");
    let rows: BTreeSet<String> = rows("`.ci/run`").into_iter().filter(|row| row != "in all").collect();
    assert_eq!(rows, steps);
}

#[test]
fn every_part_is_run_and_has_a_row_in_the_table_of_times() {
    for (script, folder) in [(".ci/system", ".ci/parts"), (".ci/nightly", ".ci/nightly-parts")] {
        assert_eq!(known(script), files(folder), "{script}");
        assert_eq!(rows(&format!("`{script}`")), files(folder), "{script}");
    }
}

#[test]
fn the_inputs_of_every_part_exist() {
    for part in files(".ci/parts") {
        let text = read(&format!(".ci/parts/{part}"));
        let inputs = text.lines().find_map(|line| line.strip_prefix("# inputs: "));
        for input in inputs.unwrap_or_else(|| panic!("{part} declares no inputs")).split_whitespace() {
            let fixed = input.split('*').next().expect("a first part");
            assert!(root().join(fixed).exists(), "{part}: there is no {input}");
        }
    }
}
