//! The commands `muster …` of pages, and those that exist: the generated page `docs/reference/command-line.md` has them.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

/// The flags of each command, by its words without `muster`: `queue hold`. A command with commands below it has no flags.
pub(super) type Commands = BTreeMap<String, BTreeSet<String>>;

/// Reads the reference: a section `## muster NAME` has the flags of a command, and the others those of all commands.
pub(super) fn known(reference: &str) -> Commands {
    let flag = Regex::new(r"`(--?[a-zA-Z][a-z0-9-]*)").expect("a pattern");
    let (mut commands, mut shared) = (Commands::new(), BTreeSet::new());
    for section in reference.split("\n## ").skip(1) {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        let spelled = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let flags = spelled.flat_map(|cell| flag.captures_iter(cell).map(|found| found[1].to_owned()));
        match title.strip_prefix("muster ") {
            Some(name) => commands.entry(name.to_owned()).or_default().extend(flags),
            None => shared.extend(flags),
        }
    }
    for flags in commands.values_mut() {
        flags.extend(shared.iter().cloned());
    }
    commands
}

/// The words behind `muster` of each call in a command line.
pub(super) fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.replace("cargo run --release -- ", "muster ").replace("kubectl muster ", "muster ");
    let ends = |word: &str| matches!(word, "|" | "||" | "&&" | ";" | "&" | ">" | "<");
    let mut calls = Vec::new();
    for words in line.split_whitespace().collect::<Vec<_>>().split(|word| ends(word)) {
        let is_call = |word: &&str| matches!(*word, "muster" | "$(muster" | "\"$(muster");
        // Before it are variables of the environment alone.
        let start = words.iter().position(is_call).filter(|&start| {
            words[start] != "muster" || words[..start].iter().all(|word| word.contains('='))
        });
        calls.extend(start.map(|start| words[start + 1..].iter().map(|&word| word.to_owned()).collect()));
    }
    calls
}

/// What is wrong with a call, if anything is.
pub(super) fn fault(known: &Commands, call: &[String]) -> Option<String> {
    let is_flag = |word: &str| word.starts_with('-') && word.len() > 1;
    let mut names = call.iter().skip_while(|word| is_flag(word)).map(|word| plain(word));
    let first = names.next().filter(|name| !name.is_empty())?;
    let two = names.next().map(|second| format!("{first} {second}"));
    let flags = two.as_ref().and_then(|two| known.get(two)).or_else(|| known.get(&first));
    let Some(flags) = flags else {
        let below = format!("{first} ");
        // `muster queue` alone means all commands below it.
        let is_group = two.is_none() && known.keys().any(|name| name.starts_with(&below));
        return (!is_group).then(|| format!("the command `muster {}`", call.join(" ")));
    };
    let mut written = call.iter().map(|word| word.trim_start_matches('[')).filter(|word| is_flag(word));
    let wrong = written.find(|word| !flags.contains(flag(word)))?;
    Some(format!("the flag `{wrong}` of `muster {}`", call.join(" ")))
}

/// The flag without its value, and a short one without those that follow it.
fn flag(word: &str) -> &str {
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(word.len());
    let name = &word[..end];
    if name.starts_with("--") { name } else { &name[..name.len().min(2)] }
}

/// The first name of a word such as `hold|resume`.
fn plain(word: &str) -> String {
    word.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect()
}

#[test]
fn a_call_is_judged_by_the_reference() {
    let known = known(
        "# A\n\n## Flags of all commands\n\n| `--log FILTER` | x |\n\n## muster why\n\n| `-n`, `--namespace NAME` | see `--other` |\n\n## muster queue hold\n",
    );
    let faults = |line: &str| calls(line).iter().filter_map(|call| fault(&known, call)).collect::<Vec<_>>();
    for right in [
        "muster why a -n b --log=x",
        "A=b muster why $(muster why b) | grep --no",
        "helm install muster charts/muster --namespace x",
        "kubectl muster queue hold\\|resume NAME",
        "cargo run --release -- why a",
        "muster",
    ] {
        assert_eq!(faults(right), [""; 0], "{right}");
    }
    assert_eq!(faults("muster wy a"), ["the command `muster wy a`"]);
    assert_eq!(faults("true && muster why a --other b"), ["the flag `--other` of `muster why a --other b`"]);
    assert_eq!(faults("muster queue halt a"), ["the command `muster queue halt a`"]);
}
