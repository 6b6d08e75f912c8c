//! Who asks: users, groups, and how a bearer token becomes one of them.

use std::collections::BTreeMap;

/// A user as authentication established it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name, e.g. `alice` or `system:serviceaccount:default:builder`.
    pub name: String,
    /// Stable identity behind the name; empty where there is none.
    pub uid: String,
    /// Groups, e.g. `system:masters`, `system:authenticated`.
    pub groups: Vec<String>,
}

impl User {
    /// The user that every request without credentials is taken for where authentication is off: may do everything.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// What a request without credentials is where authentication is on.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".into()],
        }
    }

    /// A user in `groups` and in `system:authenticated`.
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(String::from).collect();
        Self { name: name.into(), uid: String::new(), groups }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// How requests are authenticated.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Every request comes from [`User::admin`], whatever it carries.
    #[default]
    Open,
    /// Bearer tokens: a known one names its user, an unknown one is refused (401), none is [`User::anonymous`].
    /// Members of `system:masters` may do everything, others what RBAC objects in the server grant them.
    Tokens(BTreeMap<String, User>),
}
