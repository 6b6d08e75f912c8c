//! `muster why`: what becomes of an AppWrapper, and why.

use anyhow::{Result, bail};
use api::appwrapper::Group;
use controllers::{WrapperReport, Observer};

use crate::connection::Connection;
use crate::report::{self, Mood, Output};

/// Flags of `muster why`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The AppWrapper; without a namespace, that of the kubeconfig.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    name: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Tells it.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (observer, default) = args.connection.observe().await?;
    let (namespace, name) = args.name.split_once('/').unwrap_or((&default, &args.name));
    let accounts = accounts(&observer, namespace, name);
    observer.close().await;
    report::print(&accounts?, Mood::Is, args.output);
    Ok(())
}

fn accounts(observer: &Observer, namespace: &str, name: &str) -> Result<Vec<WrapperReport>> {
    let accounts = observer.why(namespace, name);
    if accounts.is_empty() {
        if !Group::ALL.into_iter().any(|group| observer.serves(group)) {
            bail!("this cluster serves no AppWrapper; a controller installs it");
        }
        let elsewhere: Vec<_> =
            observer.namespaces_of(name).iter().map(|namespace| format!("{namespace}/{name}")).collect();
        match &*elsewhere {
            [] => bail!("no AppWrapper is named {namespace}/{name}"),
            others => bail!("no AppWrapper is named {namespace}/{name}; there is {}", others.join(", ")),
        }
    }
    Ok(accounts)
}
