//! What a shell needs: completions and man pages, and a suggestion for a command that does not exist.

mod names;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap_complete::CompleteEnv;
use clap_complete::env::Shells;
use strsim::osa_distance;

use crate::table::put;

/// The variable by which the script of a shell asks for the words that may follow.
const VARIABLE: &str = "MUSTER_COMPLETE";

/// The program that kubectl calls with the words after `kubectl muster`; the last one is not complete. It prints a word in each line, and how
/// kubectl goes on: 4 means without names of files (`ShellCompDirectiveNoFileComp` of github.com/spf13/cobra).
const FOR_KUBECTL: &str = r#"#!/bin/sh
_CLAP_IFS='
' _CLAP_COMPLETE_INDEX=$# MUSTER_COMPLETE=bash muster -- muster "$@"
echo
echo :4
"#;

/// Flags of `muster completion`.
#[derive(clap::Args)]
pub(crate) struct Completion {
    /// The shell; `kubectl` for the program `kubectl_complete-muster`, with which kubectl completes `kubectl muster`.
    #[arg(value_name = "SHELL", value_parser = ["bash", "elvish", "fish", "kubectl", "powershell", "zsh"])]
    shell: String,
}

/// Flags of `muster man`.
#[derive(clap::Args)]
pub(crate) struct Man {
    /// The folder; it is created.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Answers the script of a shell, and ends the process; returns if none asks.
pub(crate) fn complete_line(command: fn() -> Command) {
    CompleteEnv::with_factory(|| names::complete(command())).var(VARIABLE).complete();
}

/// Prints the script that makes a shell complete the command line. It calls the program `muster` of the PATH.
pub(crate) fn print_script(args: &Completion) -> Result<()> {
    let mut script = Vec::new();
    match Shells::builtins().completer(&args.shell) {
        Some(shell) => shell.write_registration(VARIABLE, "muster", "muster", "muster", &mut script)?,
        None => script.extend_from_slice(FOR_KUBECTL.as_bytes()),
    }
    put(&String::from_utf8(script)?)?;
    Ok(())
}

/// Writes a man page for each command.
pub(crate) fn write_pages(args: &Man, command: Command) -> Result<()> {
    let about = || format!("cannot write to {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(about)?;
    clap_mangen::generate_to(command, &args.dir).with_context(about)
}

/// The command that the user sees: a plugin of kubectl is called by kubectl.
pub(crate) fn called_as(command: Command) -> Command {
    let program = std::env::args_os().next().map(PathBuf::from);
    let is_plugin = program
        .and_then(|path| Some(path.file_name()?.to_str()?.starts_with("kubectl-")))
        .unwrap_or_default();
    if is_plugin { command.bin_name("kubectl muster") } else { command }
}

/// Adds the commands that a user may have meant. Those of clap are found by a measure that misses short words.
pub(crate) fn with_suggestion(mut error: clap::Error, command: &Command) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand || error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand).cloned() else {
        return error;
    };
    let names = command.get_subcommands().map(|known| known.get_name().to_owned());
    let near: Vec<String> = names.filter(|name| is_near(&written, name)).collect();
    if !near.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
    }
    error
}

/// Whether one letter is missing, too much, or another one, or two neighbours are exchanged.
fn is_near(written: &str, name: &str) -> bool {
    osa_distance(written, name) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_near_and_two_are_not() {
        for (written, name, expected) in [
            ("wy", "why", true),
            ("whyy", "why", true),
            ("wht", "why", true),
            ("wyh", "why", true),
            ("hy", "why", true),
            ("w", "why", false),
            ("get", "why", false),
            ("", "up", false),
            ("why", "why", false),
        ] {
            assert_eq!(is_near(written, name), expected, "{written}");
        }
    }
}
