//! Users, groups and bearer token authentication.

use std::collections::BTreeMap;

/// An authenticated user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user name, e.g. `alice` or `system:serviceaccount:default:builder`.
    pub name: String,
    /// The uid of the user; empty if there is none.
    pub uid: String,
    /// Groups, e.g. `system:masters`, `system:authenticated`.
    pub groups: Vec<String>,
}

impl User {
    /// The user of every request if authentication is disabled. The user is in `system:masters`, so RBAC allows
    /// everything.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// The user of a request without credentials if authentication is enabled.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".into()],
        }
    }

    /// A user in `groups` and `system:authenticated`.
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
    /// Authentication is disabled: the user of every request is [`User::admin`].
    #[default]
    Open,
    /// Bearer tokens, with the user of each. A request with an unknown token gets 401; a request without a token is of
    /// [`User::anonymous`]. Members of `system:masters` may do everything; RBAC objects in the server authorize other
    /// users.
    Tokens(BTreeMap<String, User>),
}
