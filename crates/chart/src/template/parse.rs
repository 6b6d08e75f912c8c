//! Text to nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Command, Node, Operand, Pipeline, TemplateError};

/// A parsed file.
pub(super) struct Parsed {
    pub(super) body: Vec<Node>,
    pub(super) definitions: BTreeMap<String, Vec<Node>>,
}

pub(super) fn parse(file: &str, text: &str) -> Result<Parsed, TemplateError> {
    let syntax = |(line, problem)| TemplateError::Syntax { file: file.into(), line, problem };
    let pieces = split(text).map_err(syntax)?;
    let mut parser = Parser { pieces: pieces.into_iter().peekable(), definitions: BTreeMap::new() };
    let (body, end) = parser.body().map_err(syntax)?;
    match end {
        None => Ok(Parsed { body, definitions: parser.definitions }),
        Some((line, words)) => {
            Err(syntax((line, format!("nothing is open for {{{{ {} }}}}", words.join(" ")))))
        }
    }
}

/// A line and what is wrong there.
type Problem = (usize, String);

enum Piece {
    Text(String),
    /// The words of an action, with its line.
    Action(usize, Vec<String>),
}

/// Separates text from actions. A `-` beside a brace trims the white space of the text there.
fn split(text: &str) -> Result<Vec<Piece>, Problem> {
    let (mut pieces, mut rest, mut line, mut trims) = (Vec::new(), text, 1, false);
    loop {
        let (mut before, after) = match rest.split_once("{{") {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        if trims {
            before = before.trim_start();
        }
        let trims_before = after.is_some_and(|after| {
            after.strip_prefix('-').is_some_and(|after| after.starts_with(char::is_whitespace))
        });
        let kept = if trims_before { before.trim_end() } else { before };
        if !kept.is_empty() {
            pieces.push(Piece::Text(kept.into()));
        }
        let Some(after) = after else { return Ok(pieces) };
        line += rest[..rest.len() - after.len()].matches('\n').count();
        let after = if trims_before { &after[1..] } else { after };
        let comment = after.trim_start().starts_with("/*");
        let end = if comment {
            after.find("*/").and_then(|at| after[at..].find("}}").map(|end| at + end))
        } else {
            close(after)
        };
        let Some(end) = end else { return Err((line, "an action is not closed".into())) };
        let action = &after[..end];
        trims = action.strip_suffix('-').is_some_and(|action| action.ends_with(char::is_whitespace));
        if !comment {
            let action = if trims { &action[..action.len() - 1] } else { action };
            pieces.push(Piece::Action(line, words(action).map_err(|problem| (line, problem))?));
        }
        line += action.matches('\n').count();
        rest = &after[end + 2..];
    }
}

/// The position of `}}` that is in no string.
fn close(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '`' => quote = Some(c),
            None if text[at..].starts_with("}}") => return Some(at),
            Some(_) | None => {}
        }
    }
    None
}

/// The words of an action: names, strings with their quotes, `(`, `)`, `|`, `:=`, `=` and `,`.
fn words(action: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = action.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' | '|' | ',' | '=' => 1,
            ':' if rest.starts_with(":=") => 2,
            '"' => 1 + quoted(&rest[1..]).ok_or("a string is not closed")?,
            '`' => 2 + rest[1..].find('`').ok_or("a string is not closed")?,
            _ => rest.find(|c: char| c.is_whitespace() || "()|,=\"`".contains(c)).unwrap_or(rest.len()),
        };
        words.push(rest[..length].to_owned());
        let after = &rest[length..];
        rest = after.trim_start();
        // `(…).field` is one operand; `(…) .field` is two.
        if first == ')' && after.starts_with('.') {
            words.push("\u{0}".into());
        }
    }
    Ok(words)
}

/// The length of the rest of a string, with its closing quote.
fn quoted(rest: &str) -> Option<usize> {
    let mut escaped = false;
    rest.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at + 1)
    })
}

struct Parser {
    pieces: std::iter::Peekable<std::vec::IntoIter<Piece>>,
    definitions: BTreeMap<String, Vec<Node>>,
}

/// The action that ends a body: its line and its words.
type End = Option<(usize, Vec<String>)>;

impl Parser {
    /// Nodes up to the action that ends them: `end` or `else`.
    fn body(&mut self) -> Result<(Vec<Node>, End), Problem> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (line, words) = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Piece::Action(line, words) => (line, words),
            };
            match words.first().map(String::as_str) {
                Some("end" | "else") => return Ok((nodes, Some((line, words)))),
                Some("if") => nodes.push(self.condition(line, &words[1..])?),
                Some("with") => {
                    let value = pipeline(line, &words[1..])?;
                    let (body, otherwise) = self.with_otherwise(line)?;
                    nodes.push(Node::With { value, body, otherwise });
                }
                Some("range") => {
                    let (names, over) = variables(&words[1..]);
                    let over = pipeline(line, over)?;
                    let (body, otherwise) = self.with_otherwise(line)?;
                    let [key, item] = match names.as_slice() {
                        [key, item] => [Some(key.clone()), Some(item.clone())],
                        [item] => [None, Some(item.clone())],
                        _ => [None, None],
                    };
                    nodes.push(Node::Range { key, item, over, body, otherwise });
                }
                Some("define") => {
                    let name = words
                        .get(1)
                        .and_then(|word| string(word))
                        .ok_or((line, "define needs a name".into()))?;
                    let body = self.until_end(line)?;
                    self.definitions.insert(name, body);
                }
                Some(name)
                    if name.starts_with('$')
                        && matches!(words.get(1).map(String::as_str), Some(":=" | "=")) =>
                {
                    let (name, is_new) = (name[1..].to_owned(), words[1] == ":=");
                    nodes.push(Node::Assign { name, is_new, value: pipeline(line, &words[2..])? });
                }
                Some("template" | "block" | "break" | "continue") | None => {
                    return Err((line, format!("{{{{ {} }}}} is not supported", words.join(" "))));
                }
                Some(_) => nodes.push(Node::Output(pipeline(line, &words)?)),
            }
        }
        Ok((nodes, None))
    }

    fn condition(&mut self, line: usize, words: &[String]) -> Result<Node, Problem> {
        let mut cases = Vec::new();
        let mut condition = pipeline(line, words)?;
        loop {
            let (body, end) = self.body()?;
            cases.push((condition, body));
            let (line, words) = end.ok_or((line, "an if is not ended".to_owned()))?;
            match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["end"] => return Ok(Node::If { cases, otherwise: Vec::new() }),
                ["else"] => return Ok(Node::If { cases, otherwise: self.until_end(line)? }),
                ["else", "if", ..] => condition = pipeline(line, &words[2..])?,
                _ => return Err((line, format!("{{{{ {} }}}} ends no if", words.join(" ")))),
            }
        }
    }

    fn with_otherwise(&mut self, line: usize) -> Result<(Vec<Node>, Vec<Node>), Problem> {
        let (body, end) = self.body()?;
        let (line, words) = end.ok_or((line, "an action is not ended".to_owned()))?;
        match words.len() {
            1 if words[0] == "end" => Ok((body, Vec::new())),
            1 => Ok((body, self.until_end(line)?)),
            _ => Err((line, format!("{{{{ {} }}}} is not supported", words.join(" ")))),
        }
    }

    fn until_end(&mut self, line: usize) -> Result<Vec<Node>, Problem> {
        match self.body()? {
            (body, Some((_, words))) if words == ["end"] => Ok(body),
            _ => Err((line, "an action is not ended".into())),
        }
    }
}

/// `$key, $item := …`: the names, and what follows.
fn variables(words: &[String]) -> (Vec<String>, &[String]) {
    let Some(at) = words.iter().position(|word| word == ":=") else { return (Vec::new(), words) };
    let names = words[..at].iter().filter_map(|word| word.strip_prefix('$').map(Into::into)).collect();
    (names, &words[at + 1..])
}

fn pipeline(line: usize, words: &[String]) -> Result<Pipeline, Problem> {
    let mut rest = words;
    let parsed = commands(&mut rest).map_err(|problem| (line, problem))?;
    match rest.first() {
        None => Ok(parsed),
        Some(word) => Err((line, format!("unexpected {word}"))),
    }
}

/// Commands up to the end or a closing parenthesis.
fn commands(words: &mut &[String]) -> Result<Pipeline, String> {
    let (mut all, mut command) = (Vec::new(), Command::new());
    while let Some((word, rest)) = words.split_first() {
        match word.as_str() {
            ")" => break,
            "|" => all.push(std::mem::take(&mut command)),
            "(" => {
                *words = rest;
                let nested = commands(words)?;
                let (_, after) = words.split_first().ok_or("a parenthesis is not closed")?;
                *words = after;
                if words.first().is_some_and(|word| word == "\u{0}") {
                    let path = words.get(1).map(|word| fields(word)).unwrap_or_default();
                    *words = &words[2..];
                    command.push(Operand::NestedField { of: nested, path });
                } else {
                    command.push(Operand::Nested(nested));
                }
                continue;
            }
            word => command.push(operand(word)?),
        }
        *words = rest;
    }
    all.push(command);
    if all.iter().any(Vec::is_empty) { Err("a command is missing".into()) } else { Ok(all) }
}

fn operand(word: &str) -> Result<Operand, String> {
    if let Some(text) = string(word) {
        return Ok(Operand::Literal(text.into()));
    }
    if let Some(path) = word.strip_prefix('$') {
        let (of, path) = path.split_once('.').unwrap_or((path, ""));
        return Ok(Operand::Field { of: of.into(), path: fields(path) });
    }
    if word.starts_with('.') {
        return Ok(Operand::Field { of: ".".into(), path: fields(word) });
    }
    match word {
        "true" => return Ok(Operand::Literal(true.into())),
        "false" => return Ok(Operand::Literal(false.into())),
        "nil" => return Ok(Operand::Literal(Value::Null)),
        _ => {}
    }
    if let Ok(number) = word.parse::<i64>() {
        return Ok(Operand::Literal(number.into()));
    }
    if super::functions::is_known(word) {
        return Ok(Operand::Function(word.into()));
    }
    Err(format!("there is no function {word:?} here"))
}

fn fields(path: &str) -> Vec<String> {
    path.split('.').filter(|field| !field.is_empty()).map(Into::into).collect()
}

/// The content of a string in quotes.
fn string(word: &str) -> Option<String> {
    if let Some(raw) = word.strip_prefix('`') {
        return raw.strip_suffix('`').map(Into::into);
    }
    // A Go string without `\x`, `\u` and such is a JSON string.
    word.starts_with('"').then(|| serde_json::from_str(word).ok()).flatten()
}
