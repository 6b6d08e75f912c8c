//! The page `docs/reference/command-line.md`: every command with its flags, as the program declares them.
//!
//! `UPDATE_EXPECT=1 cargo test -p app reference` writes the page.

use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use expect_test::expect_file;

/// The heading of the flags that select a cluster.
const CLUSTER: &str = "Cluster";

#[test]
fn the_page_of_the_command_line_has_every_command_and_flag() {
    let mut command = <crate::Cli as clap::CommandFactory>::command();
    command.build();
    expect_file!["../../../docs/reference/command-line.md"].assert_eq(&page(&command));
}

fn page(root: &Command) -> String {
    let mut page = "# Every command and flag\n\nMade from the program, which prints the same with `--help`. [The command line](../command-line.md) explains the lists and the exit \
                    codes.\n\n## Flags of all commands\n\n"
        .to_owned();
    put_flags(&mut page, root.get_arguments());
    let commands = commands(root);
    let connected = commands.iter().find(|(name, _)| name == "muster why").expect("why is a command");
    page.push_str("\n## Flags of the commands that connect to a cluster\n\n");
    put_flags(&mut page, connected.1.get_arguments().filter(|flag| is_of_cluster(flag)));
    for (name, command) in &commands {
        put_command(&mut page, name, command);
    }
    page
}

/// All commands that do something, with their full names.
fn commands(root: &Command) -> Vec<(String, &Command)> {
    let mut found = Vec::new();
    let children = root.get_subcommands().filter(|child| child.get_name() != "help" && !child.is_hide_set());
    for child in children {
        let below = commands(child);
        if below.is_empty() {
            found.push((child.get_bin_name().unwrap_or(child.get_name()).to_owned(), child));
        } else {
            found.extend(below);
        }
    }
    found
}

fn put_command(page: &mut String, name: &str, command: &Command) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## {name}\n\n{}\n", one_line(&about)).expect("a string takes all text");
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|flag| !flag.is_global_set() && !is_of_cluster(flag) && flag.get_id() != "help")
        .collect();
    if own.iter().any(|flag| !flag.is_hide_set()) {
        page.push('\n');
        put_flags(page, own.into_iter());
    }
    if command.get_arguments().any(is_of_cluster) {
        page.push_str("\nIt connects to a cluster.\n");
    }
}

fn is_of_cluster(flag: &Arg) -> bool {
    flag.get_help_heading() == Some(CLUSTER)
}

fn put_flags<'a>(page: &mut String, flags: impl Iterator<Item = &'a Arg>) {
    page.push_str("| flag | meaning | values, default, variable |\n| --- | --- | --- |\n");
    for flag in flags.filter(|flag| !flag.is_hide_set()) {
        let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
        let row = [spelled(flag), one_line(&help), values(flag)].map(|cell| cell.replace('|', "\\|"));
        writeln!(page, "| {} |", row.join(" | ")).expect("a string takes all text");
    }
}

/// The flag as it is typed, such as `-n`, `--namespace NAMESPACE`.
fn spelled(flag: &Arg) -> String {
    let names = flag.get_value_names().unwrap_or_default();
    let value = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let is_optional = flag.get_num_args().is_some_and(|count| count.min_values() == 0);
    let value = if !flag.get_action().takes_values() {
        String::new()
    } else if is_optional {
        format!("[={value}]")
    } else {
        format!(" {value}")
    };
    let short = flag.get_short().map(|short| format!("`-{short}`"));
    let long = flag.get_long().map(|long| format!("`--{long}{value}`"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    if names.is_empty() { format!("`{}`", value.trim()) } else { names.join(", ") }
}

/// The values that it takes, its default and its variable of the environment.
fn values(flag: &Arg) -> String {
    if !flag.get_action().takes_values() {
        return String::new();
    }
    let known = flag.get_possible_values();
    let known: Vec<_> =
        known.iter().filter(|value| !value.is_hide_set()).map(PossibleValue::get_name).collect();
    let defaults: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let mut parts = Vec::new();
    if !known.is_empty() {
        parts.push(format!("`{}`", known.join("`, `")));
    }
    if !defaults.is_empty() && !flag.is_hide_default_value_set() {
        parts.push(format!("default `{}`", defaults.join(",")));
    }
    parts.extend(flag.get_env().map(|variable| format!("`{}`", variable.to_string_lossy())));
    parts.join("; ")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
