//! `muster why`: the status of an AppWrapper, with the reasons.

use anyhow::{Result, bail};
use api::appwrapper::Group;
use controllers::{Observer, WrapperReport};

use crate::connection::Connection;
use crate::report::{self, Mode, Output};

/// Flags of `muster why`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The AppWrapper. Default namespace: that of the kubeconfig.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    name: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the status.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (observer, default) = args.connection.observe().await?;
    let (namespace, name) = args.name.split_once('/').unwrap_or((&default, &args.name));
    let reports = reports(&observer, namespace, name);
    observer.close().await;
    report::print(&reports?, Mode::Actual, args.output);
    Ok(())
}

fn reports(observer: &Observer, namespace: &str, name: &str) -> Result<Vec<WrapperReport>> {
    let reports = observer.why(namespace, name);
    if reports.is_empty() {
        if !Group::ALL.into_iter().any(|group| observer.serves(group)) {
            bail!("this cluster does not serve AppWrappers; start a controller, which installs the CRD");
        }
        let elsewhere: Vec<_> =
            observer.namespaces_of(name).iter().map(|namespace| format!("{namespace}/{name}")).collect();
        match &*elsewhere {
            [] => bail!("there is no AppWrapper {namespace}/{name}"),
            others => bail!("there is no AppWrapper {namespace}/{name}, but {}", others.join(", ")),
        }
    }
    Ok(reports)
}
