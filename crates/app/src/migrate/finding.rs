//! What is found about an object or a setting of a cluster: what happens to it under Muster, and what to do about it.

use serde_json::{Value, json};

/// What happens, from the worst on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Muster does not do what it asks for.
    NotServed,
    /// Somebody has to do something that the commands do not do.
    ToDo,
    /// The commands have a value for it.
    Set,
    /// It works, and not as before.
    Differs,
    /// Nothing changes.
    Kept,
}

impl Outcome {
    /// All, in the order of a report.
    pub(crate) const ALL: [Self; 5] = [Self::NotServed, Self::ToDo, Self::Set, Self::Differs, Self::Kept];

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotServed => "notServed",
            Self::ToDo => "toDo",
            Self::Set => "set",
            Self::Differs => "differs",
            Self::Kept => "kept",
        }
    }

    /// The heading of its findings.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::NotServed => "Not served by Muster",
            Self::ToDo => "To do",
            Self::Set => "Set by the commands below",
            Self::Differs => "Works in another way",
            Self::Kept => "Stays as it is",
        }
    }
}

/// What a finding is about: an object, or a setting with its path as the name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    /// Empty for an object without a namespace, and for a setting.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Subject {
    /// A setting, or an object without a namespace.
    pub(crate) fn new(kind: &str, name: &str) -> Self {
        Self { kind: kind.into(), namespace: String::new(), name: name.into() }
    }

    /// An object.
    pub(crate) fn of(object: &Value) -> Self {
        let field = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let meta = &object["metadata"];
        Self {
            kind: field(&object["kind"]),
            namespace: field(&meta["namespace"]),
            name: field(&meta["name"]),
        }
    }

    /// Namespace and name.
    pub(crate) fn named(&self) -> String {
        if self.namespace.is_empty() {
            return self.name.clone();
        }
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What is found about one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    pub(crate) subject: Subject,
    /// What happens. Equal texts of subjects of one kind are told together.
    pub(crate) what: String,
    /// What to do, or which value the commands have; empty for nothing.
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn new(outcome: Outcome, subject: Subject, what: impl Into<String>) -> Self {
        Self { outcome, subject, what: what.into(), remedy: String::new() }
    }

    pub(crate) fn kept(subject: Subject, what: impl Into<String>) -> Self {
        Self::new(Outcome::Kept, subject, what)
    }

    pub(crate) fn differs(subject: Subject, what: impl Into<String>) -> Self {
        Self::new(Outcome::Differs, subject, what)
    }

    pub(crate) fn set(subject: Subject, what: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(Outcome::Set, subject, what).with(value)
    }

    pub(crate) fn to_do(subject: Subject, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Outcome::ToDo, subject, what).with(remedy)
    }

    pub(crate) fn not_served(subject: Subject, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Outcome::NotServed, subject, what).with(remedy)
    }

    /// With what to do.
    pub(crate) fn with(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// The finding in JSON.
    pub(crate) fn value(&self) -> Value {
        let mut value = json!({
            "outcome": self.outcome.name(), "kind": self.subject.kind, "name": self.subject.name, "what": self.what,
        });
        for (field, text) in [("namespace", &self.subject.namespace), ("remedy", &self.remedy)] {
            if !text.is_empty() {
                value[field] = json!(text);
            }
        }
        value
    }
}
