//! `muster hold`, `unhold`, `requeue`, `prioritize` and `queue`: what kubectl could write, with the rights of the user. Each patches one
//! field of the object that waits, of its job, or of a queue; the controller does the rest.

mod queue;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use api::kueue::jobs::PRIORITY_CLASS;
use controllers::GangKind;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::connection::{Connection, resource};
use crate::election::duration;
use crate::table::put;
use crate::visibility::told;
use crate::why;
pub(crate) use queue::{Args as QueueArgs, run as run_queue};

/// Between two looks at what is being stopped.
const PAUSE: Duration = Duration::from_millis(500);

/// The flags of a command that changes a gang.
#[derive(clap::Args)]
pub(crate) struct Gang {
    /// The gang: its job, such as `job/train`, its Workload or its AppWrapper.
    #[arg(value_name = "[KIND/][NAMESPACE/]NAME")]
    name: String,
    /// Its namespace. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE", value_parser = crate::get::namespace)]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Flags of `muster requeue`.
#[derive(clap::Args)]
pub(crate) struct Requeue {
    #[command(flatten)]
    gang: Gang,
    /// How long its pods may take to end.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

/// Flags of `muster prioritize`.
#[derive(clap::Args)]
pub(crate) struct Prioritize {
    #[command(flatten)]
    gang: Gang,
    /// A WorkloadPriorityClass, or a number.
    #[arg(value_name = "CLASS|VALUE", allow_hyphen_values = true)]
    priority: String,
}

/// What waits or runs.
struct Found {
    client: Client,
    kind: GangKind,
    namespace: String,
    object: DynamicObject,
}

/// Stops a gang and keeps it from starting.
pub(crate) async fn hold(args: Gang) -> Result<ExitCode> {
    set_active(args, false).await
}

/// Lets a gang wait in its queue again.
pub(crate) async fn unhold(args: Gang) -> Result<ExitCode> {
    set_active(args, true).await
}

async fn set_active(args: Gang, is_active: bool) -> Result<ExitCode> {
    let found = Found::open(args).await?;
    found.check_can_be_held()?;
    let done = if is_active { "unheld" } else { "held" };
    if found.is_active() == is_active {
        return found.print(&format!("is {done} already"));
    }
    found.patch(&json!({"spec": {"active": is_active}})).await?;
    found.print(done)
}

/// Stops a gang and lets it wait in its queue again.
pub(crate) async fn requeue(args: Requeue) -> Result<ExitCode> {
    let found = Found::open(args.gang).await?;
    found.check_can_be_held()?;
    if !found.is_active() {
        bail!("{} is held: it waits again after `muster unhold`", found.named());
    }
    if !holds_quota(&found.object) {
        return found.print("waits already");
    }
    found.patch(&json!({"spec": {"active": false}})).await?;
    let deadline = Instant::now() + args.timeout;
    while holds_quota(&found.read().await?) {
        if Instant::now() >= deadline {
            bail!(
                "{} still has pods after {} s. It is held: it waits again after `muster unhold`",
                found.named(),
                args.timeout.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
    found.patch(&json!({"spec": {"active": true}})).await?;
    found.print("requeued")
}

/// Changes the priority of a gang.
pub(crate) async fn prioritize(args: Prioritize) -> Result<ExitCode> {
    let found = Found::open(args.gang).await?;
    match (args.priority.parse::<i32>(), found.kind) {
        (Ok(value), _) => found.patch(&json!({"spec": {"priority": value}})).await?,
        (Err(_), GangKind::Wrapper(_)) => bail!(
            "{} has a number as its priority, and no class: write a number from {} to {}",
            found.named(),
            i32::MIN,
            i32::MAX
        ),
        (Err(_), GangKind::Workload) => found.set_class(&args.priority).await?,
    }
    found.print(&format!("has the priority {}", args.priority))
}

/// Whether a Workload holds quota, or its pods are not gone yet.
fn holds_quota(workload: &DynamicObject) -> bool {
    let conditions = workload.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|known| known["type"] == "QuotaReserved" && known["status"] == "True")
}

impl Found {
    async fn open(args: Gang) -> Result<Self> {
        let (client, _) = args.connection.open().await?;
        let mut found = why::objects(&client, &args.name, args.namespace.as_deref()).await?;
        let (kind, object) = found.pop().ok_or_else(|| anyhow!("there is no {}", args.name))?;
        if !found.is_empty() {
            let named = |(kind, object): &(GangKind, DynamicObject)| named(*kind, object);
            let others: Vec<String> = found.iter().map(named).collect();
            bail!(
                "several objects are meant; write one of {}, {}",
                others.join(", "),
                named(&(kind, object))
            );
        }
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        Ok(Self { client, kind, namespace, object })
    }

    /// Its kind and name, as kubectl writes them.
    fn named(&self) -> String {
        named(self.kind, &self.object)
    }

    fn print(&self, done: &str) -> Result<ExitCode> {
        put(&format!("{} {done}\n", self.named()))?;
        Ok(ExitCode::SUCCESS)
    }

    fn is_active(&self) -> bool {
        self.object.data["spec"]["active"] != false
    }

    fn check_can_be_held(&self) -> Result<()> {
        if let GangKind::Wrapper(group) = self.kind {
            bail!(
                "{} cannot be held: AppWrappers of {} have no field for it. Delete it and create it later, or lower its priority: \
                 muster prioritize",
                self.named(),
                group.api_version()
            );
        }
        Ok(())
    }

    fn api(&self) -> Api<DynamicObject> {
        let (kind, plural) = self.kind.names();
        Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &resource(&self.kind.api_version(), kind, plural),
        )
    }

    async fn read(&self) -> Result<DynamicObject> {
        let name = self.object.metadata.name.as_deref().unwrap_or_default();
        self.api().get(name).await.map_err(told).with_context(|| format!("cannot read {}", self.named()))
    }

    async fn patch(&self, change: &Value) -> Result<()> {
        let name = self.object.metadata.name.as_deref().unwrap_or_default();
        patch(&self.api(), name, change, &self.named()).await
    }

    /// Sets the class: on the job, from which the Workload has it, or on a Workload without a job.
    async fn set_class(&self, class: &str) -> Result<()> {
        self.check_class(class).await?;
        let owners = self.object.metadata.owner_references.iter().flatten();
        let mut jobs = owners.filter(|owner| owner.kind != "Pod");
        if let Some(owner) = jobs.next()
            && let Some(job) = why::job_resource(&owner.kind)
        {
            let named = format!("{}.{}/{}", job.plural, job.group, owner.name);
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &job);
            let label = json!({"metadata": {"labels": {PRIORITY_CLASS: class}}});
            return patch(&api, &owner.name, &label, &named).await;
        }
        let of = json!({"group": api::kueue::GROUP, "kind": "WorkloadPriorityClass", "name": class});
        self.patch(&json!({"spec": {"priorityClassRef": of}})).await
    }

    /// Fails if there is no such class. Who may not read classes is not kept from going on.
    async fn check_class(&self, class: &str) -> Result<()> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &classes());
        let names: Vec<String> = match api.list(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().filter_map(|class| class.metadata.name).collect(),
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
            Err(error) => return Err(told(error)).context("cannot list the WorkloadPriorityClasses"),
        };
        if names.iter().any(|name| name == class) {
            return Ok(());
        }
        let known = if names.is_empty() {
            "there are none".into()
        } else {
            format!("there are {}", names.join(", "))
        };
        bail!("{class:?} is neither a number nor a WorkloadPriorityClass; {known}")
    }
}

fn classes() -> ApiResource {
    resource(api::kueue::workload::API_VERSION, "WorkloadPriorityClass", "workloadpriorityclasses")
}

fn named(kind: GangKind, object: &DynamicObject) -> String {
    format!("{}/{}", kind.resource(), object.metadata.name.as_deref().unwrap_or_default())
}

/// Changes fields of an object. Who may not is told the right that is missing.
async fn patch(api: &Api<DynamicObject>, name: &str, change: &Value, named: &str) -> Result<()> {
    let by = PatchParams { field_manager: Some("muster-cli".into()), ..PatchParams::default() };
    match api.patch(name, &by, &Patch::Merge(change)).await {
        Ok(_) => Ok(()),
        // A webhook that refuses answers with this code, too.
        Err(kube::Error::Api(status))
            if status.code == 403 && status.message.contains(" cannot patch resource ") =>
        {
            bail!("{}; {}", status.message, holders(&status.message))
        }
        Err(kube::Error::Api(status)) => bail!("{named} is not changed: {}", status.message),
        Err(error) => Err(told(error)).with_context(|| format!("cannot change {named}")),
    }
}

/// The roles with the right that a refusal names.
fn holders(refusal: &str) -> &'static str {
    let is_of = |resource: &str| refusal.contains(&format!(" resource \"{resource}\" "));
    if is_of("workloads") {
        "the ClusterRole muster-kueue-workloads-editor has the right, for your namespace by a RoleBinding (of Kueue: kueue-workload-editor-role)"
    } else if is_of("localqueues") || is_of("clusterqueues") {
        "the ClusterRole kueue-batch-admin-role has the right"
    } else {
        "a Role with the verb patch for this resource has the right"
    }
}
