//! What expressions may call, and their evaluation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, ExecutionError, Program, Value as CelValue};

thread_local! {
    /// The functions that rules may call. Building this is what costs, so each thread does it once.
    static LIBRARY: Context<'static> = library();
}

/// The names of types, which are values in CEL. The interpreter lacks them, so they are texts that nothing else equals.
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
    reason = "the interpreter calls such functions"
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

/// The value of `program` for a value and, where there is one, its old value.
pub(super) fn evaluate(program: &Program, this: CelValue, old: Option<CelValue>) -> Result<CelValue, String> {
    LIBRARY.with(|library| {
        let mut scope = library.new_inner_scope();
        scope.add_variable_from_value("self", this);
        if let Some(old) = old {
            scope.add_variable_from_value("oldSelf", old);
        }
        // The interpreter is a young one: what it does not foresee is an error of the rule, not of the server.
        match catch_unwind(AssertUnwindSafe(|| program.execute(&scope))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(worded(&error)),
            Err(_) => Err("internal error".to_owned()),
        }
    })
}

fn worded(error: &ExecutionError) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}
