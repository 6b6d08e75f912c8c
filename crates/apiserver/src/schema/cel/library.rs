//! The CEL function library, and the evaluation of expressions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, ExecutionError, Program, Value as CelValue};

thread_local! {
    /// Functions and variables for rules. They are expensive to build, so each thread builds them once.
    static LIBRARY: Context<'static> = library();
}

/// CEL type names, which are values in CEL. The interpreter lacks them, so they are strings that equal no other
/// string.
const TYPES: [&str; 9] = ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"];

fn library() -> Context<'static> {
    let mut library = Context::default().with_all();
    for name in TYPES {
        library.add_variable_from_value(name, type_value(name));
    }
    library.add_function("type", type_of);
    library
}

#[allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "the interpreter requires this signature"
)]
fn type_of(value: CelValue) -> Result<CelValue, ExecutionError> {
    Ok(type_value(match value {
        CelValue::Int(_) => "int",
        CelValue::UInt(_) => "uint",
        CelValue::Float(_) => "double",
        CelValue::Bool(_) => "bool",
        CelValue::String(_) => "string",
        CelValue::Bytes(_) => "bytes",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::Duration(_) => "duration",
        CelValue::Timestamp(_) => "timestamp",
        CelValue::Function(..) | CelValue::Opaque(_) => "dyn",
    }))
}

fn type_value(name: &str) -> CelValue {
    CelValue::String(Arc::new(format!("\u{0}type {name}")))
}

/// Evaluates `program` with `self` and, if there is one, `oldSelf`.
pub(super) fn evaluate(program: &Program, this: CelValue, old: Option<CelValue>) -> Result<CelValue, String> {
    let old = old.map(|old| ("oldSelf", old));
    evaluate_with(program, &[("self", this)].into_iter().chain(old).collect::<Vec<_>>())
}

/// Evaluates `program` with variables.
pub(super) fn evaluate_with(program: &Program, variables: &[(&str, CelValue)]) -> Result<CelValue, String> {
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        for (name, value) in variables {
            scope.add_variable_from_value(*name, value.clone());
        }
        // A panic of the interpreter becomes an error of the rule.
        match catch_unwind(AssertUnwindSafe(|| program.execute(&scope))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(uncapitalized(&error)),
            Err(_) => Err("internal error".to_owned()),
        }
    })
}

fn uncapitalized(error: &ExecutionError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
