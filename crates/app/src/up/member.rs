//! A simulated cluster with its controller.

use std::sync::Arc;

use anyhow::{Context, Result};
use api::appwrapper::{Group, PLURAL};
use api::kueue::jobs::JobKind;
use apiserver::{AggregatedApi, AggregatedResource, Service, User, ValidatingWebhook};
use controllers::Controller;
use sandbox::{NodePool, Sandbox};
use serde_json::Value;
use server::admission::{Admission, WEBHOOK};
use server::{pending_workloads, visibility};

use super::{Args, definitions, roles};
use crate::embedded_kueue::Queues;
use crate::kueue::Duties;
use crate::{device_tolerations, embedded_kueue};

/// What a cluster has.
pub(super) struct Shape {
    pub(super) nodes: Vec<Value>,
    pub(super) pools: Vec<NodePool>,
    /// The kinds of jobs that a file declares.
    pub(super) kinds: Vec<&'static JobKind>,
    /// Whether other clusters run its jobs.
    pub(super) is_hub: bool,
}

/// A cluster that is simulated. Its controller does not run yet.
pub(super) struct Member {
    pub(super) client: kube::Client,
    pub(super) controller: Controller,
    pub(super) sandbox: Sandbox,
}

impl Member {
    /// Installs what a cluster with Muster has, and starts what is simulated.
    pub(super) async fn start(
        service: &Service,
        args: &Args,
        shape: Shape,
        queues: &Queues,
        mut duties: Duties,
    ) -> Result<Self> {
        let Shape { nodes, pools, kinds, is_hub } = shape;
        let groups = args.groups();
        let client = kube::Client::new(service.as_user(User::admin()), "default");
        definitions::complete(service);
        controllers::install_crds(client.clone(), &groups, args.appwrapper_columns.columns())
            .await
            .context("cannot install the AppWrapper resources")?;
        duties.jobs.kinds.extend(&kinds);
        if args.quota {
            let installed = controllers::install_quota_crd(client.clone()).await;
            installed.context("cannot install the QuotaSubtree resource")?;
        }
        // Before the webhooks: the role of a pod depends on its tolerations.
        device_tolerations::install(service);
        if queues.are_served() {
            let watches = embedded_kueue::install(service, client.clone(), queues, is_hub).await?;
            tokio::spawn(watches);
        }
        roles::create(&client).await?;
        controllers::install_provisioning_crd(client.clone())
            .await
            .context("cannot install the resource ProvisioningRequest")?;
        let logs = service.clone();
        let simulated = sandbox::Config {
            nodes,
            pools: Some(pools),
            speed: args.speed,
            seed: args.seed,
            kinds,
            wrappers: groups.contains(&Group::Codeflare),
            logs: Some(Arc::new(move |pod, container, text| {
                logs.with(|server, now| server.append_log(now, pod, container, text));
            })),
            ..sandbox::Config::default()
        };
        let sandbox =
            Sandbox::start(client.clone(), simulated).await.context("cannot start the simulated cluster")?;
        let config = controllers::Config {
            groups,
            preemption: args.preemption,
            dynamic_priority: args.dynamic_priority,
            packing: args.packing,
            guessed_hold_us: i64::from(args.guessed_hold) * 1_000_000,
            quota: args.quota,
            kueue: duties.acts,
            kueue_options: duties.options,
            jobs: duties.jobs,
            provisioning: duties.provisioning,
            provisioning_classes: args.provisioning_classes.clone(),
            ..controllers::Config::default()
        };
        publish(&client, &config).await.context("cannot publish the configuration of the controller")?;
        let controller = Controller::new(client.clone(), config);
        serve_visibility(service, &controller, queues.are_served());
        authorize_authors(service);
        Ok(Self { client, controller, sandbox })
    }
}

/// Publishes how AppWrappers and Workloads are planned.
async fn publish(client: &kube::Client, config: &controllers::Config) -> Result<(), controllers::Error> {
    controllers::publish_config(client, config).await?;
    controllers::publish_kueue_options(client, &config.kueue_options).await
}

/// Serves the reports of the controller as an aggregated API, as a real cluster does.
fn serve_visibility(service: &Service, controller: &Controller, has_queues: bool) {
    let resources =
        visibility::RESOURCES.map(|visibility::Resource { plural, singular, kind, verbs, .. }| {
            AggregatedResource { namespaced: true, plural, singular, kind, verbs, subresource: None }
        });
    let queues = pending_workloads::RESOURCES.map(|queue| AggregatedResource {
        namespaced: queue.is_namespaced,
        plural: queue.plural,
        singular: queue.singular,
        kind: pending_workloads::KIND,
        verbs: &[],
        subresource: Some((pending_workloads::SUBRESOURCE, pending_workloads::VERBS)),
    });
    let router = visibility::router(controller.reports(), has_queues);
    let api = AggregatedApi::new(move |request| Box::pin(visibility::answer(router.clone(), request)));
    service.with(|server, _| {
        for version in pending_workloads::VERSIONS.into_iter().filter(|_| has_queues) {
            server.aggregate(pending_workloads::GROUP, version, &queues, api.clone());
        }
        server.aggregate(visibility::GROUP, visibility::VERSION, &resources, api);
    });
}

/// Reviews AppWrappers, as the webhook of the controller does on a real cluster.
fn authorize_authors(service: &Service) {
    let admission = Admission::new(kube::Client::new(service.as_user(User::admin()), "default"));
    for group in Group::ALL {
        let admission = admission.clone();
        let webhook = ValidatingWebhook::new(WEBHOOK, group.name(), PLURAL, move |review| {
            let admission = admission.clone();
            Box::pin(async move { admission.review(&review).await })
        });
        service.with(|server, _| server.validate_with(webhook));
    }
}
