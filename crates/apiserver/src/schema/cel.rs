//! CEL validation rules (`x-kubernetes-validations`): compiled when the CRD is written, evaluated on every write of
//! an object.
//!
//! This module decodes, compiles and evaluates rules. Conversion of JSON values is in `bind`, static checks of
//! expressions are in `inspect`, and the function library is in `library`. No rule can panic the server or run for
//! long: the size and depth of expressions are limited at compile time, and their estimated cost is limited at
//! evaluation.

mod bind;
mod expressions;
mod inspect;
mod library;

use std::sync::Arc;

pub(crate) use self::expressions::{check, evaluate_all};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Program, Value as CelValue};
use serde_json::Value;

use self::bind::bind;
use self::inspect::Inspection;
use self::library::evaluate;
use super::node::{Additional, Node};
use super::uniqueness::old_item;
use super::{FieldError, FieldErrorKind, Path, go_json};

/// Stack size of the thread that compiles rules: the parser recurses with the depth of the expression.
const COMPILER_STACK_BYTES: usize = 64 << 20;
/// Maximum cost of one evaluation, estimated from the size of the value.
const COST_MAX: u64 = 10_000_000;

/// One validation rule.
#[derive(Debug, Default)]
pub(super) struct Rule {
    text: String,
    message: String,
    message_expression: String,
    reason: Option<String>,
    field_path: String,
    optional_old_self: Option<bool>,
    compiled: Option<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    message: Option<Program>,
    inspection: Inspection,
}

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

impl Rule {
    /// Decodes the rules of one schema.
    pub(super) fn parse_all(
        rules: Option<&Value>,
        path: Path<'_>,
        errors: &mut Vec<FieldError>,
    ) -> Vec<Self> {
        let at = path.child("x-kubernetes-validations");
        match rules {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(rules)) => rules
                .iter()
                .enumerate()
                .map(|(index, rule)| Self::parse(rule, at.index(index), errors))
                .collect(),
            Some(other) => {
                errors.push(FieldError::invalid(at, other.clone(), "must be an array"));
                Vec::new()
            }
        }
    }

    fn parse(rule: &Value, path: Path<'_>, errors: &mut Vec<FieldError>) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let parsed = Self {
            text: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
            compiled: None,
        };
        let message_path = path.child("message");
        let message = parsed.message.trim();
        if parsed.text.trim().is_empty() {
            errors.push(FieldError::required(path.child("rule"), "rule is not specified"));
        } else if !parsed.message.is_empty() && message.is_empty() {
            errors.push(FieldError::invalid(
                message_path,
                parsed.message.as_str(),
                "must be non-empty if specified",
            ));
        } else if message.contains('\n') {
            errors.push(FieldError::invalid(
                message_path,
                parsed.message.as_str(),
                "must not contain line breaks",
            ));
        } else if parsed.text.trim().contains('\n') && message.is_empty() {
            errors.push(FieldError::required(
                message_path,
                "message must be specified if rule contains line breaks",
            ));
        }
        if !parsed.message_expression.is_empty() && parsed.message_expression.trim().is_empty() {
            let at = path.child("messageExpression");
            errors.push(FieldError::required(at, "messageExpression must be non-empty if specified"));
        }
        if let Some(reason) = parsed.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(path.child("reason"), reason, &REASONS));
        }
        if parsed.field_path.contains('\n') {
            let at = path.child("fieldPath");
            errors.push(FieldError::invalid(at, parsed.field_path.as_str(), "must not contain line breaks"));
        }
        parsed
    }

    /// The rule as kube-apiserver prints it in errors.
    fn go_struct(&self) -> String {
        let json = |text: &str| go_json(&Value::from(text));
        format!(
            r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
            json(&self.text),
            json(&self.message),
            json(&self.message_expression),
            self.reason.as_deref().map_or_else(|| "null".to_owned(), json),
            json(&self.field_path),
            self.optional_old_self.map_or_else(|| "null".to_owned(), |flag| flag.to_string()),
        )
    }

    fn name(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { self.message.trim() }
    }
}

/// Whether the schema contains any rule.
pub(super) fn has_rules(node: &Node) -> bool {
    !node.rules.is_empty()
        || node.properties.values().any(has_rules)
        || node.items.as_deref().is_some_and(has_rules)
        || node.all_of.iter().any(has_rules)
        || matches!(&node.additional, Some(Additional::Schema(schema)) if has_rules(schema))
}

/// Compiles all rules of the schema in place.
pub(super) fn compile(root: &mut Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if !has_rules(root) {
        return;
    }
    let prefix = path.to_string();
    let compiled = on_compiler_stack(|| {
        let mut errors = Vec::new();
        compile_node(root, Path::Root(&prefix), None, &mut errors);
        errors
    });
    match compiled {
        Ok(found) => errors.extend(found),
        Err(why) => errors.push(FieldError::internal(path, &why)),
    }
}

/// Runs a function with a stack that is large enough for the compiler.
fn on_compiler_stack<T: Send>(compile: impl FnOnce() -> T + Send) -> Result<T, String> {
    let compiled = std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel-compiler".to_owned())
            .stack_size(COMPILER_STACK_BYTES)
            .spawn_scoped(scope, compile)
            .map(std::thread::ScopedJoinHandle::join)
    });
    match compiled {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err(_)) => Err("a rule cannot be compiled".into()),
        Err(error) => Err(format!("rules cannot be compiled: {error}")),
    }
}

/// `uncorrelatable`: the innermost list whose items cannot be correlated with old items, so they have no `oldSelf`.
fn compile_node(
    node: &mut Node,
    path: Path<'_>,
    uncorrelatable: Option<&Path<'_>>,
    errors: &mut Vec<FieldError>,
) {
    let mut rules = std::mem::take(&mut node.rules);
    let at = path.child("x-kubernetes-validations");
    for (index, rule) in rules.iter_mut().enumerate() {
        let at = at.index(index);
        compile_rule(rule, node, at, errors);
        if let Some(uncorrelatable) = uncorrelatable
            && rule.compiled.as_ref().is_some_and(|compiled| compiled.inspection.uses_old_self)
        {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            );
            errors.push(FieldError::invalid(at.child("rule"), rule.text.as_str(), &detail));
        }
    }
    node.rules = rules;
    let properties = path.child("properties");
    for (name, property) in &mut node.properties {
        compile_node(property, properties.key(name), uncorrelatable, errors);
    }
    let uncorrelatable_items =
        if node.list_type.as_deref() == Some("map") { uncorrelatable } else { Some(&path) };
    if let Some(items) = &mut node.items {
        compile_node(items, path.child("items"), uncorrelatable_items, errors);
    }
    if let Some(Additional::Schema(schema)) = &mut node.additional {
        compile_node(schema, path.child("additionalProperties"), uncorrelatable, errors);
    }
    let all_of = path.child("allOf");
    for (index, branch) in node.all_of.iter_mut().enumerate() {
        compile_node(branch, all_of.index(index), uncorrelatable, errors);
    }
}

fn compile_rule(rule: &mut Rule, node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let (program, inspection) = match inspect::compile(&rule.text, node) {
        Ok(compiled) => compiled,
        Err(reason) => {
            let detail = format!("compilation failed: {reason}");
            errors.push(FieldError::printed(
                FieldErrorKind::Invalid,
                path.child("rule"),
                &rule.go_struct(),
                &detail,
            ));
            return;
        }
    };
    if !inspection.uses_old_self
        && let Some(optional) = rule.optional_old_self
    {
        let at = path.child("optionalOldSelf");
        errors.push(FieldError::invalid(at, optional, "may not be set if oldSelf is not used in rule"));
    }
    let message = match rule.message_expression.as_str() {
        "" => None,
        text => match inspect::compile(text, node) {
            Ok((program, _)) => Some(program),
            Err(reason) => {
                let detail = format!("messageExpression compilation failed: {reason}");
                let at = path.child("messageExpression");
                errors.push(FieldError::printed(FieldErrorKind::Invalid, at, &rule.go_struct(), &detail));
                None
            }
        },
    };
    rule.compiled = Some(Compiled { program, message, inspection });
}

/// Adds an error for each `fieldPath` that does not exist in the schema.
pub(super) fn check_field_paths(node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.child("x-kubernetes-validations");
    for (index, rule) in node.rules.iter().enumerate() {
        if !rule.field_path.is_empty() && !is_valid_field_path(node, &rule.field_path) {
            let at = at.index(index);
            let detail = "must be a valid path";
            errors.push(FieldError::invalid(at.child("fieldPath"), rule.field_path.as_str(), detail));
        }
    }
    let properties = path.child("properties");
    for (name, property) in &node.properties {
        check_field_paths(property, properties.key(name), errors);
    }
    if let Some(items) = &node.items {
        check_field_paths(items, path.child("items"), errors);
    }
    if let Some(Additional::Schema(schema)) = &node.additional {
        check_field_paths(schema, path.child("additionalProperties"), errors);
    }
}

/// Whether `path` is a valid `fieldPath`: `.a.b`, or `['a-b']` for a map key.
fn is_valid_field_path(node: &Node, path: &str) -> bool {
    let Some(names) = field_path_names(path) else { return false };
    let mut node = Some(node);
    for name in names {
        node = node.and_then(|node| node.child(&name));
    }
    node.is_some()
}

fn field_path_names(path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let (name, after) = after.split_once("']")?;
            names.push(name.replace("\\'", "'"));
            rest = after;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            names.push(after[..end].to_owned());
            rest = &after[end..];
        }
    }
    (!names.is_empty() && names.iter().all(|name| !name.is_empty())).then_some(names)
}

/// Evaluates all rules on `new`. Transition rules run only where there is an old value.
pub(super) fn validate(root: &Node, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    run(root, new, old, Path::Root(""), true, &mut errors);
    errors
}

fn run(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: Path<'_>,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
        return;
    }
    run_branch(node, node, value, old, path, is_root, errors);
}

/// Evaluates the rules of an `allOf` branch. A branch specifies no types, so `types`, the schema around it, types the
/// values.
fn run_branch(
    branch: &Node,
    types: &Node,
    value: &Value,
    old: Option<&Value>,
    path: Path<'_>,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    if !branch.rules.is_empty() {
        run_rules(&branch.rules, types, value, old, path, is_root, errors);
    }
    for inner in &branch.all_of {
        run_branch(inner, types, value, old, path, is_root, errors);
    }
    each_child(branch, value, old, path, &mut |child, value, old, path| {
        run(child, value, old, path, false, errors);
    });
}

type Visit<'a> = &'a mut dyn FnMut(&Node, &Value, Option<&Value>, Path<'_>);

fn each_child(node: &Node, value: &Value, old: Option<&Value>, path: Path<'_>, visit: Visit<'_>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let old = old.and_then(|old| old.get(name));
                if let Some(property) = node.properties.get(name) {
                    visit(property, field, old, path.child(name));
                } else if let Some(property) = node.child(name) {
                    visit(property, field, old, path.key(name));
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for (index, item) in items.iter().enumerate() {
                visit(schema, item, old_item(node, old, item), path.index(index));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn run_rules(
    rules: &[Rule],
    types: &Node,
    value: &Value,
    old: Option<&Value>,
    path: Path<'_>,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) {
    let unchanged = old == Some(value);
    let size = size_of(value);
    let mut scope: Option<(CelValue, Option<CelValue>)> = None;
    for rule in rules {
        let Some(compiled) = &rule.compiled else { continue };
        let optional = rule.optional_old_self == Some(true);
        let transition = compiled.inspection.uses_old_self;
        if transition && old.is_none() && !optional || !transition && unchanged {
            continue;
        }
        if size.saturating_pow(compiled.inspection.loops) > COST_MAX {
            errors.push(FieldError::invalid(
                path,
                types.kind.as_str(),
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ));
            return;
        }
        let (this, old_this) = scope
            .get_or_insert_with(|| (bind(types, value, is_root), old.map(|old| bind(types, old, is_root))));
        let old_self = match (optional, old_this.as_ref()) {
            (false, old) => old.cloned(),
            (true, None) => Some(CelValue::Opaque(Arc::new(OptionalValue::none()))),
            (true, Some(old)) => Some(CelValue::Opaque(Arc::new(OptionalValue::of(old.clone())))),
        };
        let this = this.clone();
        match evaluate(&compiled.program, this.clone(), old_self.clone()) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => errors.push(rule_error(rule, compiled, this, old_self, value, path)),
            Err(reason) => {
                let detail = if reason.starts_with("no such overload") {
                    format!(
                        "'{reason}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                        rule.name()
                    )
                } else {
                    format!("{reason} evaluating rule: {}", rule.name())
                };
                errors.push(FieldError::invalid(path, types.kind.as_str(), &detail));
            }
        }
    }
}

/// The validation error for a rule that evaluated to false.
fn rule_error(
    rule: &Rule,
    compiled: &Compiled,
    this: CelValue,
    old: Option<CelValue>,
    value: &Value,
    path: Path<'_>,
) -> FieldError {
    let computed = compiled.message.as_ref().and_then(|program| match evaluate(program, this, old) {
        Ok(CelValue::String(text)) => {
            Some(text.trim().to_owned()).filter(|text| !text.is_empty() && !text.contains('\n'))
        }
        _ => None,
    });
    let detail = computed.unwrap_or_else(|| {
        if rule.message.is_empty() { format!("failed rule: {}", rule.name()) } else { rule.name().to_owned() }
    });
    let field = match path.to_string() {
        root if root.is_empty() => rule.field_path.trim_start_matches('.').to_owned(),
        prefix => format!("{prefix}{}", rule.field_path),
    };
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, &detail),
        Some("FieldValueRequired") => FieldError::required(field, &detail),
        Some("FieldValueDuplicate") if value.is_object() || value.is_array() => {
            FieldError::duplicate_omitted(field)
        }
        Some("FieldValueDuplicate") => FieldError::duplicate(field, value.clone()),
        _ if value.is_object() || value.is_array() => FieldError::invalid_omitted(field, &detail),
        _ => FieldError::invalid(field, value.clone(), &detail),
    }
}

/// Size of a value as a cost estimate for loops over it: number of nested values, plus one per 64 characters.
fn size_of(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => 1 + fields.values().map(size_of).sum::<u64>(),
        Value::Array(items) => 1 + items.iter().map(size_of).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}
