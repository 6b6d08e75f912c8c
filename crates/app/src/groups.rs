//! Parses the API group of AppWrapper as a flag.

use api::appwrapper::Group;

/// Parses the name of a group.
pub(crate) fn parse_group(name: &str) -> Result<Group, String> {
    Group::ALL.into_iter().find(|group| group.name() == name).ok_or_else(|| {
        let names = Group::ALL.map(Group::name).join(" or ");
        format!("not an API group of AppWrapper: use {names}")
    })
}
