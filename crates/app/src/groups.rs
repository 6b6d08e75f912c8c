//! Flags about the definitions of AppWrapper.

use api::appwrapper::{Columns, Group};
use controllers::GangKind;

/// What `kubectl get appwrappers` prints.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum PrinterColumns {
    /// State, position, start and age; with `-o wide` also why it is pending.
    #[default]
    Queue,
    /// Name and age, as with MCAD's own definition.
    Mcad,
}

impl PrinterColumns {
    /// The columns of the definition.
    pub(crate) fn columns(self) -> Columns {
        match self {
            Self::Queue => Columns::Queue,
            Self::Mcad => Columns::Mcad,
        }
    }
}

/// Parses the name of a group.
pub(crate) fn parse_group(name: &str) -> Result<Group, String> {
    Group::ALL.into_iter().find(|group| group.name() == name).ok_or_else(|| {
        let names = Group::ALL.map(Group::name).join(" or ");
        format!("not an API group of AppWrapper: use {names}")
    })
}

/// That the cluster does not serve a kind, and what to do.
pub(crate) fn not_served(kind: GangKind) -> String {
    let resource = kind.resource();
    let what = match kind {
        GangKind::Wrapper(group) => {
            format!("start `muster up` or the controller with --appwrapper-group {group}")
        }
        GangKind::Workload => "install Kueue's definitions, as the chart does with kueue.enabled=true".into(),
    };
    format!("this cluster does not serve {resource}: {what}")
}
