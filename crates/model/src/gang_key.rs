//! The name of a gang.

use std::fmt;

/// The name of a gang. Its order breaks ties.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    /// The full resource name of its kind, such as `appwrappers.mcad.ibm.com`.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name within kind and namespace.
    pub name: String,
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
