//! Parses the console transcripts of a Markdown page.

/// A fenced block of a transcript.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    /// The only command of the block runs until it is ended.
    pub(super) keeps_running: bool,
    pub(super) steps: Vec<Step>,
}

/// A command and its expected output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The line number in the page, from 1.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) expected: String,
}

impl Step {
    /// Whether the command changes nothing, so that it can be repeated until the cluster reaches the expected state.
    /// `kubectl wait` waits itself, but fails at once while the object does not exist.
    pub(super) fn is_read_only(&self) -> bool {
        let mut words =
            self.command.split_whitespace().filter(|word| !word.starts_with('-') && !word.contains('/'));
        match words.next() {
            Some("kubectl") => {
                matches!(
                    words.next(),
                    Some("get" | "describe" | "explain" | "logs" | "events" | "wait") | None
                )
            }
            Some("muster") => matches!(words.next(), Some("why" | "plan" | "get" | "describe")),
            Some("curl") => words.next().is_none(),
            _ => false,
        }
    }
}

/// All transcripts of a page, in order. A backslash at the end of a line continues a command on the next line.
pub(super) fn read(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match &mut open {
            None => {
                if let Some(kind @ ("console" | "console up")) = line.strip_prefix("```").map(str::trim) {
                    open = Some(Block { keeps_running: kind == "console up", steps: Vec::new() });
                }
            }
            Some(_) if line.trim_end() == "```" => blocks.extend(open.take()),
            Some(block) => read_line(&mut block.steps, index + 1, line),
        }
    }
    blocks
}

fn read_line(steps: &mut Vec<Step>, line: usize, text: &str) {
    if let Some(command) = text.strip_prefix("$ ") {
        steps.push(Step { line, command: command.to_owned(), expected: String::new() });
    } else if let Some(step) = steps.last_mut() {
        if step.expected.is_empty() && step.command.ends_with('\\') {
            step.command.truncate(step.command.len() - 1);
            step.command.push_str(text.trim_start());
        } else {
            step.expected.push_str(text);
            step.expected.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_parses_to_its_commands_with_their_output() {
        let page = "text\n```console\n$ kubectl get \\\n    pods\nNAME\na\n$ true\n```\n```yaml\n$ no\n```\n```console up\n$ muster up\nready\n```\n";
        let step = |line, command: &str, expected: &str| Step {
            line,
            command: command.to_owned(),
            expected: expected.to_owned(),
        };
        assert_eq!(
            read(page),
            [
                Block {
                    keeps_running: false,
                    steps: vec![step(3, "kubectl get pods", "NAME\na\n"), step(7, "true", "")]
                },
                Block { keeps_running: true, steps: vec![step(13, "muster up", "ready\n")] },
            ]
        );
    }

    #[test]
    fn only_read_only_commands_are_repeated() {
        let reads = |command: &str| {
            Step { line: 1, command: command.to_owned(), expected: String::new() }.is_read_only()
        };
        assert!(reads("kubectl --kubeconfig .muster/kubeconfig get pods"));
        assert!(reads("kubectl describe pod a"));
        assert!(reads("kubectl wait --for=condition=Complete job/a"));
        assert!(reads("muster why team/a"));
        assert!(reads("muster get gangs") && !reads("muster hold a"));
        assert!(!reads("kubectl --kubeconfig .muster/kubeconfig create -f a.yaml"));
        assert!(!reads("rm a"));
    }
}
