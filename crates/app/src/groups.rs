//! Groups of AppWrapper as flags.

use api::appwrapper::Group;

/// A group by its name.
pub(crate) fn parse_group(name: &str) -> Result<Group, String> {
    Group::ALL.into_iter().find(|group| group.name() == name).ok_or_else(|| {
        let names = Group::ALL.map(Group::name).join(" or ");
        format!("no group of AppWrapper: use {names}")
    })
}
