//! `muster why`: the status of an AppWrapper or a Workload, with the reasons.

mod jobs;
mod wait;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use controllers::{GangKind, Observer};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use server::{Mode, Report};

use crate::connection::{Connection, read_one, resource};
use crate::election::duration;
use crate::report::{self, Output};
use crate::visibility::{Visibility, told};

/// Flags of `muster why`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The AppWrapper or Workload, or a job or pod that one of them queues. KIND, such as `job`, `rayjob`, `pod`, `workload` or
    /// `appwrapper`, is needed if several have the name.
    #[arg(value_name = "[KIND/][NAMESPACE/]NAME")]
    name: String,
    /// Its namespace. Default: that of the kubeconfig.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Print the status again whenever its reason changes, until the gang runs (or has ended), or until it `ends`.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "runs", value_name = "CONDITION")]
    wait: Option<wait::Condition>,
    /// How long to wait; then the exit code is 1. Default: without end.
    #[arg(long, requires = "wait", value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// Exit with 3 if the gang waits, and with 4 if it can never start as it is.
    #[arg(long)]
    exit_code: bool,
    /// Is refused, with what to use instead.
    #[arg(short = 'A', long, hide = true)]
    all_namespaces: bool,
    /// Is refused, with what to use instead.
    #[arg(short, long, hide = true)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The object that is asked about.
#[derive(Debug, PartialEq)]
struct Asked {
    /// The kinds that it may be of.
    kinds: Vec<GangKind>,
    /// The kind of job, or of what belongs to one, that it is; `None`: it is a gang, or its kind is not said.
    of_job: Option<jobs::Resource>,
    namespace: String,
    name: String,
}

/// Prints the status: as the controller's endpoint reports it, or else by reading the whole cluster.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    if args.all_namespaces || args.watch {
        let instead = "why is about one gang: `muster get gangs -A` lists all, `muster get gangs -w` prints what changes, and \
                       `muster why --wait` waits for one\n";
        clap::Error::raw(ErrorKind::ArgumentConflict, instead).exit();
    }
    let (client, _) = args.connection.open().await?;
    let asked = Asked::parse(&args.name, args.namespace.as_deref(), client.default_namespace())?;
    let endpoint = Visibility::of(&client).await;
    let answer = async || asked.answer(&client, endpoint.as_ref()).await;
    let mut reports = answer().await?;
    let is_ambiguous =
        asked.of_job.is_none() && reports.iter().all(|report| report.status["name"] == *asked.name);
    if let [_, _, ..] = &*reports
        && is_ambiguous
    {
        let kinds: Vec<_> = reports.iter().filter_map(|report| report.status["kind"].as_str()).collect();
        eprintln!(
            "muster: several objects have this name; to ask about one, write KIND/NAME with one of: {}",
            kinds.join(", ")
        );
    }
    report::print(&reports, args.output)?;
    if let Some(condition) = args.wait {
        reports = wait::until(condition, args.timeout, reports, answer, args.output).await?;
    }
    Ok(report::exit_code(&reports, args.exit_code))
}

/// The reports about a gang, for another command.
pub(crate) async fn reports(client: &Client, name: &str, namespace: Option<&str>) -> Result<Vec<Report>> {
    let asked = Asked::parse(name, namespace, client.default_namespace())?;
    asked.answer(client, Visibility::of(client).await.as_ref()).await
}

/// The AppWrappers and Workloads that are meant, read with the rights of the user alone.
pub(crate) async fn objects(
    client: &Client,
    name: &str,
    namespace: Option<&str>,
) -> Result<Vec<(GangKind, DynamicObject)>> {
    let asked = Asked::parse(name, namespace, client.default_namespace())?;
    let own = if asked.of_job.is_none() { asked.read(client).await? } else { Vec::new() };
    if !own.is_empty() || asked.kinds == [GangKind::Workload] {
        return Ok(own);
    }
    let mut found = Vec::new();
    for (kinds, name) in asked.targets(client).await? {
        let gang = Asked { kinds, of_job: None, namespace: asked.namespace.clone(), name };
        found.extend(gang.read(client).await?);
    }
    Ok(found)
}

impl Asked {
    /// Reads `[KIND/][NAMESPACE/]NAME`. Of two parts, the first is a kind if it is the name of one.
    fn parse(text: &str, namespace: Option<&str>, default: &str) -> Result<Self> {
        // `batch/job/NAME` is `job.batch/NAME`.
        let qualified = text.split_once('/').and_then(|(group, rest)| {
            let (kind, rest) = rest.split_once('/')?;
            let name = format!("{kind}.{group}");
            let is_kind = !kinds_named(&name).is_empty() || jobs::Resource::named(&name).is_some();
            is_kind.then(|| format!("{name}/{rest}"))
        });
        let text = qualified.as_deref().unwrap_or(text);
        let all = || GangKind::ALL.to_vec();
        let (kinds, of_job, rest) = match text.split_once('/') {
            Some((first, rest)) => match (kinds_named(first), jobs::Resource::named(first)) {
                (kinds, _) if !kinds.is_empty() => (kinds, None, rest),
                (_, Some(kind)) => (all(), Some(kind), rest),
                _ if rest.contains('/') => {
                    bail!("{first:?} is no kind that is queued; known are {}", jobs::known())
                }
                _ => (all(), None, text),
            },
            None => (all(), None, text),
        };
        let (inside, name) = match rest.split_once('/') {
            Some((inside, name)) => (Some(inside), name),
            None => (None, rest),
        };
        if let (Some(inside), Some(flag)) = (inside, namespace)
            && inside != flag
        {
            bail!("the name is in namespace {inside}, but --namespace is {flag}");
        }
        let namespace = inside.or(namespace).unwrap_or(default);
        Ok(Self { kinds, of_job, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The objects of the kinds with this name.
    async fn read(&self, client: &Client) -> Result<Vec<(GangKind, DynamicObject)>> {
        let mut found = Vec::new();
        for kind in &self.kinds {
            let (of, plural) = kind.names();
            let resource = resource(&kind.api_version(), of, plural);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, &resource);
            match read_one(&api, &self.name).await {
                Ok(object) => found.extend(object.map(|object| (*kind, object))),
                // Of a name without a kind, another kind may be meant.
                Err(kube::Error::Api(status)) if status.code == 403 && self.kinds.len() > 1 => {}
                Err(error) => {
                    let about = || format!("cannot read {}/{}", kind.resource(), self.name);
                    return Err(told(error)).with_context(about);
                }
            }
        }
        Ok(found)
    }

    /// The reports about the gang, or about what queues the job.
    async fn answer(&self, client: &Client, endpoint: Option<&Visibility>) -> Result<Vec<Report>> {
        if self.of_job.is_some() {
            return self.of_targets(client, endpoint, self.targets(client).await?).await;
        }
        match self.reports(client, endpoint).await {
            Err(error) if self.kinds != [GangKind::Workload] => match self.targets(client).await? {
                targets if targets.is_empty() => Err(error),
                targets => self.of_targets(client, endpoint, targets).await,
            },
            answer => answer,
        }
    }

    async fn targets(&self, client: &Client) -> Result<Vec<jobs::Target>> {
        jobs::find(client, self.of_job, &self.namespace, &self.name).await
    }

    async fn of_targets(
        &self,
        client: &Client,
        endpoint: Option<&Visibility>,
        targets: Vec<jobs::Target>,
    ) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for (kinds, name) in targets {
            let gang = Self { kinds, of_job: None, namespace: self.namespace.clone(), name };
            reports.extend(gang.reports(client, endpoint).await?);
        }
        Ok(reports)
    }

    /// The reports about the gang with this name.
    async fn reports(&self, client: &Client, endpoint: Option<&Visibility>) -> Result<Vec<Report>> {
        match endpoint.filter(|endpoint| self.is_answered_by(endpoint)) {
            Some(endpoint) => self.at_endpoint(endpoint).await,
            None => self.in_cluster(client.clone()).await,
        }
    }

    /// Whether the endpoint can answer: a controller that plans no Workloads cannot report one.
    fn is_answered_by(&self, endpoint: &Visibility) -> bool {
        self.kinds.iter().any(|kind| endpoint.serves(*kind))
    }

    async fn at_endpoint(&self, endpoint: &Visibility) -> Result<Vec<Report>> {
        let wrapper = self.kinds.iter().copied().find(|kind| is_wrapper(*kind));
        let workload = self.kinds.contains(&GangKind::Workload).then_some(GangKind::Workload);
        let (mut reports, mut absent, mut refusal) = (Vec::new(), Vec::new(), None);
        for kind in [wrapper, workload].into_iter().flatten().filter(|kind| endpoint.serves(*kind)) {
            match endpoint.why(kind, &self.namespace, &self.name).await {
                Ok(found) => {
                    reports.extend(found.into_iter().filter(|report| self.is_meant(report)));
                    absent.push(kind);
                }
                // The reader may have the permission for one of the kinds only.
                Err(error) => refusal = Some(error),
            }
        }
        if !reports.is_empty() {
            return Ok(reports);
        }
        let (kinds, namespace, name) = (kind_names(&absent), &self.namespace, &self.name);
        match refusal {
            Some(refusal) if absent.is_empty() => Err(refusal),
            Some(refusal) => bail!("there is no {kinds} {namespace}/{name}; the other kind: {refusal}"),
            None => bail!("there is no {kinds} {namespace}/{name}{}", self.unknown_to(endpoint)),
        }
    }

    /// What the endpoint does not know about.
    fn unknown_to(&self, endpoint: &Visibility) -> &'static str {
        if self.kinds.contains(&GangKind::Workload) && !endpoint.serves(GangKind::Workload) {
            "; the endpoint reports no Workloads: ask for workload/NAME to read the cluster instead"
        } else {
            ""
        }
    }

    async fn in_cluster(&self, client: Client) -> Result<Vec<Report>> {
        let is_workload = self.kinds == [GangKind::Workload];
        let observer = Connection::observe(client, is_workload).await?;
        let reports = self.observed(&observer);
        observer.close().await;
        reports
    }

    fn observed(&self, observer: &Observer) -> Result<Vec<Report>> {
        let (namespace, name) = (&self.namespace, &self.name);
        let reports = observer.why(namespace, name);
        let reports = reports.iter().map(|report| Report::new(report, Mode::Actual));
        let reports: Vec<Report> = reports.filter(|report| self.is_meant(report)).collect();
        if !reports.is_empty() {
            return Ok(reports);
        }
        let kinds = kind_names(&self.kinds);
        if !self.kinds.iter().any(|kind| observer.serves(*kind)) {
            let served = if self.kinds == [GangKind::Workload] { "Workloads" } else { "AppWrappers" };
            bail!("this cluster does not serve {served}; start a controller, which installs the CRD");
        }
        let elsewhere: Vec<_> =
            observer.namespaces_of(name).iter().map(|namespace| format!("{namespace}/{name}")).collect();
        match &*elsewhere {
            [] => bail!("there is no {kinds} {namespace}/{name}"),
            others => bail!("there is no {kinds} {namespace}/{name}, but {}", others.join(", ")),
        }
    }

    fn is_meant(&self, report: &Report) -> bool {
        self.kinds.iter().any(|kind| report.status["kind"] == kind.resource())
    }
}

/// The kinds, for a message.
fn kind_names(kinds: &[GangKind]) -> &'static str {
    match (kinds.iter().any(|kind| is_wrapper(*kind)), kinds.contains(&GangKind::Workload)) {
        (true, true) => "AppWrapper or Workload",
        (false, true) => "Workload",
        (true | false, false) => "AppWrapper",
    }
}

fn is_wrapper(kind: GangKind) -> bool {
    kind != GangKind::Workload
}

/// The kinds that this name denotes: kind, plural, or short name, with or without the API group.
fn kinds_named(name: &str) -> Vec<GangKind> {
    let name = name.to_lowercase();
    let (word, group) = name.split_once('.').map_or((&*name, None), |(word, group)| (word, Some(group)));
    let is_named = |kind: &GangKind| {
        let words: &[&str] = match kind {
            GangKind::Wrapper(_) => &["appwrapper", "appwrappers", "aw"],
            GangKind::Workload => &[
                "workload",
                "workloads",
                "wl",
                "kwl",
                "kueueworkload",
                "kueueworkloads",
                "podgroup",
                "podgroups",
            ],
        };
        let resource = kind.resource();
        let of = resource.split_once('.').map(|(_, group)| group);
        words.contains(&word) && (group.is_none() || group == of)
    };
    GangKind::ALL.into_iter().filter(is_named).collect()
}

/// The word in lower case that `muster get` prints for a kind: of its plural, of a short name, with or without the API group.
pub(crate) fn kind_word(name: &str) -> String {
    match (kinds_named(name).first(), jobs::Resource::named(name)) {
        (Some(kind), _) => kind.names().0.to_lowercase(),
        (None, Some(job)) => job.word(),
        (None, None) => name.to_lowercase(),
    }
}

/// Whether a word names a kind: itself, its plural or its short name, with or without the API group.
pub(crate) fn is_word(word: &str, kind: &str, short: &str) -> bool {
    let word = word.to_lowercase();
    let word = word.split_once('.').map_or(&*word, |(word, _)| word);
    word == kind || word.strip_suffix('s') == Some(kind) || (!short.is_empty() && word == short)
}

/// The resource of a kind of jobs or pods.
pub(crate) fn job_resource(word: &str) -> Option<ApiResource> {
    jobs::Resource::named(word).map(jobs::Resource::api)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_told_those_that_are_known() {
        let error = Asked::parse("cronjobs/team/a", None, "default").unwrap_err().to_string();
        assert!(
            error.starts_with("\"cronjobs\" is no kind that is queued; known are workload, job, rayjob"),
            "{error}"
        );
        assert!(Asked::parse("po/a", None, "default").unwrap().of_job.is_some());
    }

    #[test]
    fn a_name_may_have_a_kind_and_a_namespace() {
        for (text, flag, expected) in [
            ("a", None, "3 kinds: default/a"),
            ("team/a", None, "3 kinds: team/a"),
            ("a", Some("team"), "3 kinds: team/a"),
            ("workload/a", None, "1 kinds: default/a"),
            ("Workloads.kueue.x-k8s.io/team/a", None, "1 kinds: team/a"),
            ("appwrapper/a", Some("workload"), "2 kinds: workload/a"),
            ("appwrappers.mcad.ibm.com/a", None, "1 kinds: default/a"),
            ("workloads.mcad.ibm.com/a", None, "3 kinds: workloads.mcad.ibm.com/a"),
            ("jobs/team/a", None, "3 kinds: team/a"),
            ("rayjob/a", Some("team"), "3 kinds: team/a"),
            ("batch/job/a", None, "3 kinds: default/a"),
            ("kueue.x-k8s.io/workload/team/a", None, "1 kinds: team/a"),
            ("team/a", Some("other"), "the name is in namespace team, but --namespace is other"),
        ] {
            let found = Asked::parse(text, flag, "default").map_or_else(
                |error| error.to_string(),
                |Asked { kinds, namespace, name, .. }| format!("{} kinds: {namespace}/{name}", kinds.len()),
            );
            assert_eq!(found, expected, "{text}");
        }
    }
}
