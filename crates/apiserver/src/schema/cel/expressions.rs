//! Expressions over JSON values without a schema, such as match conditions of webhooks.

use kube_cel::cel::{Program, Value as CelValue};
use serde_json::Value;

use super::bind::{bind, untyped};
use super::library::evaluate_with;
use super::on_compiler_stack;

/// Whether an expression can be compiled.
///
/// # Errors
/// Why it cannot.
pub(crate) fn check(expression: &str) -> Result<(), String> {
    on_compiler_stack(|| compile(&expression)).and_then(|compiled| compiled.map(drop))
}

fn compile(expression: &&str) -> Result<Program, String> {
    Program::compile(expression).map_err(|error| format!("compilation failed: {error}"))
}

/// Evaluates expressions to booleans, each by itself. `variables`: name and value.
pub(crate) fn evaluate_all(
    expressions: &[&str],
    variables: &[(&'static str, Value)],
) -> Vec<Result<bool, String>> {
    let programs: Vec<Result<Program, String>> =
        match on_compiler_stack(|| expressions.iter().map(compile).collect()) {
            Ok(programs) => programs,
            Err(why) => return expressions.iter().map(|_| Err(why.clone())).collect(),
        };
    let variables: Vec<(&str, CelValue)> =
        variables.iter().map(|(name, value)| (*name, bind(untyped(), value, false))).collect();
    let run = |program: Result<Program, String>| {
        let result = evaluate_with(&program?, &variables)?;
        if let CelValue::Bool(holds) = result { Ok(holds) } else { Err("the result is not a boolean".into()) }
    };
    programs.into_iter().map(run).collect()
}
