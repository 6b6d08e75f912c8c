//! The templates of a Helm chart: the part of Go's `text/template` and of Helm's functions that `charts/muster` uses. Anything
//! else is an error that names it, so a template that this module accepts means the same to Helm.
//!
//! - `parse`: text to nodes
//! - `evaluate`: nodes and values to text
//! - `functions`: what can be called

mod evaluate;
mod functions;
mod parse;

use std::collections::BTreeMap;

use serde_json::Value;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Output(Pipeline),
    /// `$name := pipeline`, or `=` for a variable that exists.
    Assign {
        name: String,
        is_new: bool,
        value: Pipeline,
    },
    If {
        cases: Vec<(Pipeline, Vec<Node>)>,
        otherwise: Vec<Node>,
    },
    With {
        value: Pipeline,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Range {
        key: Option<String>,
        item: Option<String>,
        over: Pipeline,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
}

/// Commands; each gets the value of the one before as its last argument.
type Pipeline = Vec<Command>;

/// What is called or read, and its arguments.
type Command = Vec<Operand>;

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Literal(Value),
    /// The fields of a variable; `""` is `$`, `"."` is the present value.
    Field {
        of: String,
        path: Vec<String>,
    },
    Function(String),
    Nested(Pipeline),
    /// The fields of a nested pipeline.
    NestedField {
        of: Pipeline,
        path: Vec<String>,
    },
}

/// What is wrong with a template or with the values that it gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is no template, or uses what this module does not know.
    #[error("{file}:{line}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A value does not fit.
    #[error("{file}: {problem}")]
    Value {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// The template refuses the values by `fail`.
    #[error("{0}")]
    Refused(String),
}

/// Templates with their definitions, by which they include each other.
#[derive(Debug, Default)]
pub struct Templates {
    files: BTreeMap<String, Vec<Node>>,
    definitions: BTreeMap<String, Vec<Node>>,
    /// What `.Files.Get` reads.
    contents: BTreeMap<String, String>,
}

impl Templates {
    /// Adds a template.
    ///
    /// # Errors
    /// It does not parse.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), TemplateError> {
        let parsed = parse::parse(file, text)?;
        self.definitions.extend(parsed.definitions);
        self.files.insert(file.into(), parsed.body);
        Ok(())
    }

    /// Adds a file that `.Files.Get` reads.
    pub fn add_content(&mut self, file: &str, text: &str) {
        self.contents.insert(file.into(), text.into());
    }

    /// The names of all templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of a template for a root value.
    ///
    /// # Errors
    /// The template does not fit the value, or refuses it.
    pub fn render(&self, file: &str, root: &Value) -> Result<String, TemplateError> {
        let nodes = self.files.get(file).map(Vec::as_slice).unwrap_or_default();
        evaluate::evaluate(self, file, nodes, root)
    }
}

#[cfg(test)]
mod tests;
