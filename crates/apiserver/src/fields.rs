//! Field selectors, e.g. `metadata.name=x,spec.nodeName!=`, over the selectable fields of a resource.

use crate::registry::Resource;
use crate::store::Object;

/// A conjunction of terms. An empty selector matches every object.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    field: Selected,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone, Copy)]
enum Selected {
    Name,
    Namespace,
    Field(usize),
}

impl FieldSelector {
    /// Parses the query parameter. The error is a message for the client.
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, String> {
        split(text)
            .into_iter()
            .filter(|term| !term.is_empty())
            .map(|term| parse_term(&term, resource))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name that a `metadata.name=` term requires.
    pub(crate) fn name(&self) -> Option<&str> {
        let term = self.0.iter().find(|t| t.equal && matches!(t.field, Selected::Name))?;
        Some(&term.value)
    }

    /// The namespace that a `metadata.namespace=` term requires.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let term = self.0.iter().find(|t| t.equal && matches!(t.field, Selected::Namespace))?;
        Some(&term.value)
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|term| {
            let value = match term.field {
                Selected::Name => object.name(),
                Selected::Namespace => object.namespace(),
                Selected::Field(at) => object.fields.get(at).map_or("", |value| value),
            };
            (value == term.value) == term.equal
        })
    }
}

/// Splits at commas that are not escaped by a backslash.
fn split(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        terms.last_mut().expect("begins with one").push(c);
    }
    terms
}

fn parse_term(term: &str, resource: &Resource) -> Result<Term, String> {
    let signs = [("!=", false), ("==", true), ("=", true)];
    let found = term.char_indices().find_map(|(at, _)| {
        signs.iter().find(|(sign, _)| term[at..].starts_with(sign)).map(|(sign, equal)| (at, *sign, *equal))
    });
    let Some((at, sign, equal)) = found else {
        return Err(format!("invalid selector: '{term}'; can't understand '{term}'"));
    };
    let label = term[..at].trim();
    let field = match label {
        "metadata.name" => Selected::Name,
        "metadata.namespace" => Selected::Namespace,
        _ => resource
            .fields
            .iter()
            .position(|field| field.served && field.label == label)
            .map(Selected::Field)
            .ok_or_else(|| unsupported(label, resource))?,
    };
    Ok(Term { field, value: unescape(&term[at + sign.len()..])?, equal })
}

/// The message of kube-apiserver for an unsupported field. It differs for kinds with selectable fields other than
/// metadata.
fn unsupported(label: &str, resource: &Resource) -> String {
    if resource.fields.iter().any(|field| field.served) {
        return format!("field label not supported: {label}");
    }
    format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
}

fn unescape(text: &str) -> Result<String, String> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => value.push(next),
                _ => return Err(format!("invalid field selector: invalid escape sequence in value: {text}")),
            },
            '=' => return Err(format!("invalid field selector: unescaped character in value: {text}")),
            _ => value.push(c),
        }
    }
    Ok(value)
}
