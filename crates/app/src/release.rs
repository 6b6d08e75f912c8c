//! `muster release`: removes Muster's scheduling gates when Muster is given up.

use anyhow::{Context, Result, bail};
use api::scheduling_gate::{GATE, GATES};
use controllers::{Release, Released};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::connection::Connection;

/// Flags of `muster release`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this namespace. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces. Removes the webhook configurations `muster-kueue`, too: nothing serves these webhooks any longer.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Remove the gates of Kueue's API, too: no Kueue takes over.
    #[arg(long)]
    kueue: bool,
    /// Print what has gates; change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Removes the gates and prints each object that had one.
pub(crate) async fn run(args: Args) -> Result<()> {
    let (client, _) = args.connection.open().await?;
    let namespace = match &args.namespace {
        _ if args.all_namespaces => String::new(),
        Some(namespace) => namespace.clone(),
        None => client.default_namespace().to_owned(),
    };
    if !namespace.is_empty() {
        exists(&client, &namespace).await?;
    }
    if args.all_namespaces && !args.dry_run {
        let removed = server::kueue::remove_registration(&client).await;
        for name in removed.context("cannot remove the webhooks of Kueue's kinds, which nothing serves")? {
            println!("{name}");
        }
    }
    if let Some(holder) = controllers::lease_holder(&client).await.context("cannot read the lease")? {
        eprintln!(
            "muster: {holder} holds the lease kube-system/muster; if this controller still runs, stop it first, or it gates new objects"
        );
    }
    let (mut pods, mut templates, mut failed) = (0, 0, 0);
    let report = |released: Released| {
        let Released { kind, name, result } = released;
        match result {
            Ok(count) => {
                *(if kind == "Pod" { &mut pods } else { &mut templates }) += count;
                println!("{kind} {name}");
            }
            Err(error) => {
                failed += 1;
                eprintln!("muster: {kind} {name} keeps its gate: {error}");
            }
        }
    };
    let what = Release {
        namespace: &namespace,
        gates: if args.kueue { &GATES } else { &[GATE] },
        dry_run: args.dry_run,
    };
    let listed = controllers::release(&client, what, report).await;
    let verb = if args.dry_run { "would remove" } else { "removed" };
    println!("{verb} the scheduling gate of {pods} pods and {templates} pod templates");
    listed.context("not all objects could be read; the list above is not complete")?;
    if failed > 0 {
        bail!(
            "{failed} objects keep their gate; while such an object creates pods, run this command again for them, or create it anew without the gate"
        );
    }
    Ok(())
}

/// Fails if there is no such namespace. Who may not read namespaces is not kept from going on.
async fn exists(client: &Client, namespace: &str) -> Result<()> {
    match Api::<Namespace>::all(client.clone()).get_opt(namespace).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => bail!("there is no namespace {namespace}"),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read namespace {namespace}")),
    }
}
