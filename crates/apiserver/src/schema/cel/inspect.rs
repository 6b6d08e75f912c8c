//! Static checks of CEL expressions that the interpreter does not do itself.
//!
//! This module compiles expressions within limits on size and depth, and finds references to undeclared names.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

use super::bind::escape;
use crate::schema::node::Node;

/// Maximum length of an expression, in bytes.
const LENGTH_MAX: usize = 16 << 10;
/// Maximum nesting of brackets and conditionals.
const NESTING_MAX: usize = 48;
/// Maximum depth of the syntax tree.
const DEPTH_MAX: usize = 120;

/// Static properties of an expression.
#[derive(Debug, Default)]
pub(super) struct Inspection {
    /// The expression refers to `oldSelf`, which makes the rule a transition rule.
    pub(super) uses_old_self: bool,
    /// Maximum nesting of loops; at least 1.
    pub(super) loops: u32,
}

/// Compiles `text` for values of `node`. The caller needs a stack that is large enough for [`LENGTH_MAX`].
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

/// Upper bound for the nesting of brackets and conditionals.
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

/// A compile error, with the name at which it occurs.
enum CompileError {
    Undeclared(String),
    Undefined(String),
    TooDeep,
}

impl CompileError {
    /// Formats the message with its location, as CEL compilers do.
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
    /// Variables of the enclosing macros, the innermost one last.
    bound: Vec<String>,
    found: Inspection,
}

impl<'n> Walk<'n> {
    /// Checks one expression. Returns the schema of its value if it is known.
    fn expression(
        &mut self,
        expression: &IdedExpr,
        depth: usize,
        loops: u32,
    ) -> Result<Option<&'n Node>, CompileError> {
        if depth > DEPTH_MAX {
            return Err(CompileError::TooDeep);
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
                // Names such as `math.greatest` or `optional.of` are namespaced functions, not variables.
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

    fn entry(&mut self, entry: &EntryExpr, depth: usize, loops: u32) -> Result<(), CompileError> {
        match entry {
            EntryExpr::StructField(field) => self.expression(&field.value, depth, loops).map(drop),
            EntryExpr::MapEntry(entry) => {
                self.expression(&entry.key, depth, loops)?;
                self.expression(&entry.value, depth, loops).map(drop)
            }
        }
    }

    fn identifier(&mut self, name: &str) -> Result<Option<&'n Node>, CompileError> {
        if self.bound.iter().any(|bound| bound == name) {
            return Ok(None);
        }
        match name {
            "self" => Ok(Some(self.root)),
            "oldSelf" => {
                self.found.uses_old_self = true;
                Ok(None)
            }
            // Type names are values.
            "int" | "uint" | "double" | "bool" | "string" | "bytes" | "list" | "map" | "null_type"
            | "type" => Ok(None),
            name if name.starts_with('@') || name.starts_with("__") => Ok(None),
            name => Err(CompileError::Undeclared(name.to_owned())),
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

fn declared<'n>(node: &'n Node, field: &str, is_root: bool) -> Result<Option<&'n Node>, CompileError> {
    if node.kind != "object" || node.is_map() || node.preserve_unknown {
        return Ok(None);
    }
    if let Some((_, property)) = node.properties.iter().find(|(name, _)| escape(name) == field) {
        return Ok(Some(property));
    }
    if (is_root || node.embedded) && matches!(field, "apiVersion" | "kind" | "metadata") {
        return Ok(None);
    }
    Err(CompileError::Undefined(field.to_owned()))
}
