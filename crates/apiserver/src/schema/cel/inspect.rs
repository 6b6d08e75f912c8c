//! Static checks of expressions, for what the interpreter does not check itself.
//!
//! Holds compilation with its bounds on size and depth, and the search for names that are not declared.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::bind::escape;
use crate::schema::node::Node;

/// Longest expression, in bytes.
const LENGTH_MAX: usize = 16 << 10;
/// Most brackets and conditionals within each other.
const NESTING_MAX: usize = 48;
/// Deepest syntax tree.
const DEPTH_MAX: usize = 120;

/// What is known of an expression without running it.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    /// It refers to the old value: a rule on transitions.
    pub(super) uses_old_self: bool,
    /// Most loops within each other, at least 1.
    pub(super) loops: u32,
}

/// Compiles `text` for values of `node`. To be called with a stack that is large enough for [`LENGTH_MAX`].
pub(super) fn compile(text: &str, node: &Node) -> Result<(Program, Inspection), String> {
    if text.len() > LENGTH_MAX {
        return Err(format!("expression is longer than {LENGTH_MAX} bytes"));
    }
    if nesting(text) > NESTING_MAX {
        return Err(format!("expression is nested deeper than {NESTING_MAX} levels"));
    }
    let program = Program::compile(text).map_err(|errors| errors.to_string().replace("\n|", "\n |"))?;
    let mut walk =
        Walk { root: node, bound: Vec::new(), found: Inspection { loops: 1, ..Inspection::default() } };
    walk.expression(program.expression(), 0, 0).map_err(|error| error.located(text))?;
    Ok((program, walk.found))
}

/// Upper bound of how deep brackets and conditionals nest.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut conditionals) = (0usize, 0, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => conditionals += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest + conditionals
}

/// What is wrong with an expression, and the word that shows where.
enum Flaw {
    Undeclared(String),
    Undefined(String),
    TooDeep,
}

impl Flaw {
    /// The message with its place, as CEL compilers print it.
    fn located(&self, text: &str) -> String {
        let (word, message) = match self {
            Self::TooDeep => return format!("expression is nested deeper than {DEPTH_MAX} levels"),
            Self::Undeclared(name) => {
                (name.clone(), format!("undeclared reference to '{name}' (in container '')"))
            }
            Self::Undefined(name) => (format!(".{name}"), format!("undefined field '{name}'")),
        };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let at = text
            .match_indices(&word)
            .find(|(at, _)| {
                let after = text[at + word.len()..].chars().next();
                let before = text[..*at].chars().next_back();
                !after.is_some_and(is_word)
                    && (word.starts_with('.') || !before.is_some_and(|c| is_word(c) || c == '.'))
            })
            .map_or(0, |(at, _)| at);
        let line = text[..at].matches('\n').count();
        let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let column = text[start..at].chars().count();
        let shown = text[start..].lines().next().unwrap_or_default();
        let dots = ".".repeat(column);
        format!("ERROR: <input>:{}:{}: {message}\n | {shown}\n | {dots}^", line + 1, column + 1)
    }
}

struct Walk<'n> {
    root: &'n Node,
    /// Variables of the macros around, innermost last.
    bound: Vec<String>,
    found: Inspection,
}

impl<'n> Walk<'n> {
    /// Walks one expression; returns the schema of its value where that is certain.
    fn expression(
        &mut self,
        expression: &IdedExpr,
        depth: usize,
        loops: u32,
    ) -> Result<Option<&'n Node>, Flaw> {
        if depth > DEPTH_MAX {
            return Err(Flaw::TooDeep);
        }
        let depth = depth + 1;
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(None),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => {
                let operand = self.expression(&select.operand, depth, loops)?;
                match operand {
                    Some(node) => declared(node, &select.field, std::ptr::eq(node, self.root)),
                    None => Ok(None),
                }
            }
            Expr::Call(call) => {
                // Names such as `math.greatest` or `optional.of` are functions of a namespace, not variables.
                if let Some(target) = &call.target
                    && !matches!(&target.expr, Expr::Ident(name) if is_namespace(name) && !self.bound.contains(name))
                {
                    self.expression(target, depth, loops)?;
                }
                for argument in &call.args {
                    self.expression(argument, depth, loops)?;
                }
                Ok(None)
            }
            Expr::List(list) => {
                for element in &list.elements {
                    self.expression(element, depth, loops)?;
                }
                Ok(None)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    self.entry(&entry.expr, depth, loops)?;
                }
                Ok(None)
            }
            Expr::Struct(literal) => {
                for entry in &literal.entries {
                    self.entry(&entry.expr, depth, loops)?;
                }
                Ok(None)
            }
            Expr::Comprehension(loop_) => {
                self.expression(&loop_.iter_range, depth, loops)?;
                self.expression(&loop_.accu_init, depth, loops)?;
                let outer = self.bound.len();
                self.bound.push(loop_.accu_var.clone());
                self.expression(&loop_.result, depth, loops)?;
                self.bound.push(loop_.iter_var.clone());
                self.bound.extend(loop_.iter_var2.clone());
                self.found.loops = self.found.loops.max(loops + 1);
                self.expression(&loop_.loop_cond, depth, loops + 1)?;
                self.expression(&loop_.loop_step, depth, loops + 1)?;
                self.bound.truncate(outer);
                Ok(None)
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr, depth: usize, loops: u32) -> Result<(), Flaw> {
        match entry {
            EntryExpr::StructField(field) => self.expression(&field.value, depth, loops).map(drop),
            EntryExpr::MapEntry(entry) => {
                self.expression(&entry.key, depth, loops)?;
                self.expression(&entry.value, depth, loops).map(drop)
            }
        }
    }

    fn identifier(&mut self, name: &str) -> Result<Option<&'n Node>, Flaw> {
        if self.bound.iter().any(|bound| bound == name) {
            return Ok(None);
        }
        match name {
            "self" => Ok(Some(self.root)),
            "oldSelf" => {
                self.found.uses_old_self = true;
                Ok(None)
            }
            // Names of types are values.
            "int" | "uint" | "double" | "bool" | "string" | "bytes" | "list" | "map" | "null_type"
            | "type" => Ok(None),
            name if name.starts_with('@') || name.starts_with("__") => Ok(None),
            name => Err(Flaw::Undeclared(name.to_owned())),
        }
    }
}

fn is_namespace(name: &str) -> bool {
    matches!(
        name,
        "math"
            | "optional"
            | "sets"
            | "strings"
            | "base64"
            | "format"
            | "ip"
            | "cidr"
            | "lists"
            | "regex"
            | "jsonpatch"
    )
}

fn declared<'n>(node: &'n Node, field: &str, is_root: bool) -> Result<Option<&'n Node>, Flaw> {
    if node.kind != "object" || node.is_map() || node.preserve_unknown {
        return Ok(None);
    }
    if let Some((_, property)) = node.properties.iter().find(|(name, _)| escape(name) == field) {
        return Ok(Some(property));
    }
    if (is_root || node.embedded) && matches!(field, "apiVersion" | "kind" | "metadata") {
        return Ok(None);
    }
    Err(Flaw::Undefined(field.to_owned()))
}
