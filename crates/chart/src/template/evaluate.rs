//! Nodes and values to text.

use serde_json::Value;

use super::functions::{self, is_true, print};
use super::{Node, Operand, Pipeline, TemplateError, Templates};

pub(super) fn evaluate(
    templates: &Templates,
    file: &str,
    nodes: &[Node],
    root: &Value,
) -> Result<String, TemplateError> {
    let mut evaluation =
        Evaluation { templates, file, variables: vec![(String::new(), root.clone())], text: String::new() };
    evaluation.nodes(nodes, root)?;
    Ok(evaluation.text)
}

struct Evaluation<'a> {
    templates: &'a Templates,
    file: &'a str,
    /// The last one of a name counts.
    variables: Vec<(String, Value)>,
    text: String,
}

impl Evaluation<'_> {
    fn problem(&self, problem: impl Into<String>) -> TemplateError {
        TemplateError::Value { file: self.file.into(), problem: problem.into() }
    }

    /// Variables end with their body.
    fn scope(&mut self, nodes: &[Node], dot: &Value) -> Result<(), TemplateError> {
        let before = self.variables.len();
        self.nodes(nodes, dot)?;
        self.variables.truncate(before);
        Ok(())
    }

    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<(), TemplateError> {
        nodes.iter().try_for_each(|node| self.node(node, dot))
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<(), TemplateError> {
        match node {
            Node::Text(text) => self.text.push_str(text),
            Node::Output(pipeline) => {
                let value = self.pipeline(pipeline, dot)?;
                let printed = print(&value).map_err(|problem| self.problem(problem))?;
                self.text.push_str(&printed);
            }
            Node::Assign { name, is_new, value } => {
                let value = self.pipeline(value, dot)?;
                let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
                match known {
                    Some((_, known)) if !is_new => *known = value,
                    None if !is_new => return Err(self.problem(format!("there is no variable ${name}"))),
                    _ => self.variables.push((name.clone(), value)),
                }
            }
            Node::If { cases, otherwise } => {
                for (condition, body) in cases {
                    if is_true(&self.pipeline(condition, dot)?) {
                        return self.scope(body, dot);
                    }
                }
                self.scope(otherwise, dot)?;
            }
            Node::With { value, body, otherwise } => {
                let value = self.pipeline(value, dot)?;
                if is_true(&value) { self.scope(body, &value)? } else { self.scope(otherwise, dot)? }
            }
            Node::Range { key, item, over, body, otherwise } => {
                let over = self.pipeline(over, dot)?;
                let items = items(&over).ok_or_else(|| self.problem(format!("range over {over}")))?;
                if items.is_empty() {
                    return self.scope(otherwise, dot);
                }
                for (at, value) in items {
                    let before = self.variables.len();
                    for (name, value) in [(key, at), (item, value.clone())] {
                        self.variables.extend(name.clone().map(|name| (name, value)));
                    }
                    self.nodes(body, &value)?;
                    self.variables.truncate(before);
                }
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, TemplateError> {
        let mut last = None;
        for command in pipeline {
            last = Some(self.command(command, last, dot)?);
        }
        Ok(last.unwrap_or_default())
    }

    fn command(
        &mut self,
        command: &[Operand],
        last: Option<Value>,
        dot: &Value,
    ) -> Result<Value, TemplateError> {
        let Some((first, rest)) = command.split_first() else { return Ok(Value::Null) };
        let name = match first {
            Operand::Function(name) => name.as_str(),
            Operand::Field { path, .. } if path.ends_with(&["Files".into(), "Get".into()]) => "Files.Get",
            _ if rest.is_empty() && last.is_none() => return self.operand(first, dot),
            Operand::Literal(_)
            | Operand::Field { .. }
            | Operand::Nested(_)
            | Operand::NestedField { .. } => return Err(self.problem("only functions have arguments")),
        };
        // These do not evaluate what does not matter.
        if (name == "and" || name == "or") && last.is_none() {
            let mut value = Value::Null;
            for operand in rest {
                value = self.operand(operand, dot)?;
                if is_true(&value) == (name == "or") {
                    break;
                }
            }
            return Ok(value);
        }
        let mut arguments =
            rest.iter().map(|operand| self.operand(operand, dot)).collect::<Result<Vec<_>, _>>()?;
        arguments.extend(last);
        match (name, arguments.as_slice()) {
            ("include", [Value::String(name), root]) => self.include(name, root).map(Value::String),
            ("Files.Get", [Value::String(file)]) => {
                Ok(self.templates.contents.get(file).cloned().unwrap_or_default().into())
            }
            ("fail", [Value::String(why)]) => Err(TemplateError::Refused(why.clone())),
            _ => functions::call(name, &arguments).map_err(|problem| self.problem(problem)),
        }
    }

    fn include(&self, name: &str, root: &Value) -> Result<String, TemplateError> {
        let Some(nodes) = self.templates.definitions.get(name) else {
            return Err(self.problem(format!("there is no template {name:?}")));
        };
        evaluate(self.templates, self.file, nodes, root)
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, TemplateError> {
        match operand {
            Operand::Literal(value) => Ok(value.clone()),
            Operand::Nested(pipeline) => self.pipeline(pipeline, dot),
            Operand::NestedField { of, path } => {
                let value = self.pipeline(of, dot)?;
                self.field(&value, path)
            }
            Operand::Function(_) => self.command(std::slice::from_ref(operand), None, dot),
            Operand::Field { of, path } if of == "." => self.field(dot, path),
            Operand::Field { of, path } => {
                let known = self.variables.iter().rev().find(|(name, _)| name == of);
                let (_, value) = known.ok_or_else(|| self.problem(format!("there is no variable ${of}")))?;
                self.field(value, path)
            }
        }
    }

    /// A field that is missing is null, and a field of null is an error.
    fn field(&self, value: &Value, path: &[String]) -> Result<Value, TemplateError> {
        let mut value = value;
        for name in path {
            let Value::Object(fields) = value else {
                return Err(self.problem(format!("{value} has no field {name}")));
            };
            value = fields.get(name).unwrap_or(&Value::Null);
        }
        Ok(value.clone())
    }
}

/// Keys and values of what is ranged over.
fn items(over: &Value) -> Option<Vec<(Value, Value)>> {
    match over {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => {
            Some(items.iter().enumerate().map(|(at, item)| (at.into(), item.clone())).collect())
        }
        Value::Object(fields) => {
            Some(fields.iter().map(|(key, value)| (key.clone().into(), value.clone())).collect())
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
