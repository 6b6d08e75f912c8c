//! `muster why`: the status of an AppWrapper, with the reasons.

use anyhow::{Result, bail};
use api::appwrapper::Group;
use controllers::Observer;
use server::{Mode, Report};

use crate::connection::Connection;
use crate::report::{self, Output};
use crate::visibility::Visibility;

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

/// Prints the status: as the controller's endpoint reports it, or else by reading the whole cluster.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let (namespace, name) = args.name.split_once('/').unwrap_or((client.default_namespace(), &args.name));
    let reports = if let Some(endpoint) = Visibility::of(&client).await {
        let reports = endpoint.why(namespace, name).await?;
        if reports.is_empty() {
            bail!("there is no AppWrapper {namespace}/{name}");
        }
        reports
    } else {
        let observer = Connection::observe(client.clone()).await?;
        let reports = observed(&observer, namespace, name);
        observer.close().await;
        reports?
    };
    report::print(reports, args.output);
    Ok(())
}

fn observed(observer: &Observer, namespace: &str, name: &str) -> Result<Vec<Report>> {
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
    Ok(reports.iter().map(|report| Report::new(report, Mode::Actual)).collect())
}
