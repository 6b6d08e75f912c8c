package framework

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/features"
)

// configuration returns the configuration file. It includes what the setup passes as options of caches, queues and reconcilers.
func (p *foreign) configuration(parts []string, metrics, health string) *config.Configuration {
	defaults := &config.Configuration{}
	p.framework.scheme.Default(defaults)
	c, ok := last[*config.Configuration](p, "configuration")
	if ok {
		c = c.DeepCopy()
	} else {
		c = defaults
	}
	c.TypeMeta = metav1.TypeMeta{APIVersion: config.SchemeGroupVersion.String(), Kind: "Configuration"}
	install := &p.framework.testEnv.WebhookInstallOptions
	port, no := install.LocalServingPort, false
	c.Webhook = config.ControllerWebhook{Host: install.LocalServingHost, Port: &port, CertDir: install.LocalServingCertDir}
	c.Metrics.BindAddress, c.Health.HealthProbeBindAddress, c.PprofBindAddress = metrics, health, ""
	c.InternalCertManagement = &config.InternalCertManagement{Enable: &no}
	// Some setups pass a configuration without Kueue's defaults.
	c.LeaderElection = cmp.Or(c.LeaderElection, defaults.LeaderElection)
	c.LeaderElection.LeaderElect = &no
	qps, burst := p.rest.QPS, int32(p.rest.Burst)
	c.ClientConnection = &config.ClientConnection{QPS: &qps, Burst: &burst}

	c.FeatureGates = map[string]bool{}
	for name, on := range gatesNow() {
		c.FeatureGates[name] = on
	}

	resources := func() *config.Resources {
		if c.Resources == nil {
			c.Resources = &config.Resources{}
		}
		return c.Resources
	}
	if prefixes, ok := last[[]string](p, "excludeResourcePrefixes"); ok && len(prefixes) > 0 {
		resources().ExcludeResourcePrefixes = prefixes
	}
	if transformations, ok := last[[]config.ResourceTransformation](p, "transformations"); ok && len(transformations) > 0 {
		resources().Transformations = transformations
	}
	if options, ok := last[map[string]any](p, "scheduler"); ok {
		if fair, _ := options["fairSharing"].(*config.FairSharing); fair != nil {
			c.FairSharing = fair
		}
		if fair, _ := options["admissionFairSharing"].(*config.AdmissionFairSharing); fair != nil {
			c.AdmissionFairSharing = fair
		}
		if strategy, _ := options["quotaCheckStrategy"].(config.QuotaCheckStrategy); strategy != "" {
			resources().QuotaCheckStrategy = &strategy
		}
	}
	if options, ok := last[map[string]any](p, "cache"); ok {
		if on, _ := options["fairSharing"].(bool); on && c.FairSharing == nil {
			c.FairSharing = &config.FairSharing{}
		}
		if fair, _ := options["admissionFairSharing"].(*config.AdmissionFairSharing); fair != nil {
			c.AdmissionFairSharing = fair
		}
		if on, _ := options["resourceMetrics"].(bool); on {
			c.Metrics.EnableClusterQueueResources = true
		}
		if on, _ := options["podsReadyTracking"].(bool); on && c.WaitForPodsReady != nil {
			c.WaitForPodsReady.BlockAdmission = &on
		}
	}
	if c.FairSharing != nil && len(c.FairSharing.PreemptionStrategies) == 0 {
		// The scheduler has both by default, the file has to name them.
		c.FairSharing = &config.FairSharing{
			PreemptionStrategies: []config.PreemptionStrategy{config.LessThanOrEqualToFinalShare, config.LessThanInitialShare},
		}
	}
	if options, ok := last[map[string]any](p, "queues"); ok {
		if timestamp, _ := options["podsReadyRequeuingTimestamp"].(config.RequeuingTimestamp); timestamp != "" && c.WaitForPodsReady != nil &&
			c.WaitForPodsReady.RequeuingStrategy != nil {
			c.WaitForPodsReady.RequeuingStrategy.Timestamp = &timestamp
		}
		if on, _ := options["resourceMetrics"].(bool); on {
			c.Metrics.EnableClusterQueueResources = true
		}
	}
	p.jobOptions(c, parts)
	return c
}

// jobOptions adds the options of job reconcilers and their webhooks.
func (p *foreign) jobOptions(c *config.Configuration, parts []string) {
	if c.Integrations == nil {
		c.Integrations = &config.Integrations{}
	}
	frameworks := map[string]bool{}
	var jobs, podsReady bool
	for _, part := range parts {
		if name, found := strings.CutPrefix(part, "job="); found {
			frameworks[name], jobs = true, true
		} else if name, found := strings.CutPrefix(part, "webhook="); found {
			frameworks[name] = true
		}
	}
	for _, note := range p.notes["enabled"] {
		frameworks[note.(string)] = true
	}
	c.ManageJobsWithoutQueueName = false
	for _, note := range p.notes["jobs"] {
		options := note.(jobframework.Options)
		for name := range options.EnabledFrameworks {
			frameworks[name] = true
		}
		if len(options.EnabledExternalFrameworks) > 0 {
			c.Integrations.ExternalFrameworks = options.EnabledExternalFrameworks.UnsortedList()
		}
		c.ManageJobsWithoutQueueName = c.ManageJobsWithoutQueueName || options.ManageJobsWithoutQueueName
		podsReady = podsReady || options.WaitForPodsReady
		if options.ManagedJobsNamespaceSelector != nil {
			c.ManagedJobsNamespaceSelector = selector(options.ManagedJobsNamespaceSelector)
		}
		if len(options.LabelKeysToCopy) > 0 {
			c.Integrations.LabelKeysToCopy = options.LabelKeysToCopy.UnsortedList()
		}
		if after := options.WorkloadRetentionPolicy.AfterDeactivatedByKueue; after != nil {
			if c.ObjectRetentionPolicies == nil {
				c.ObjectRetentionPolicies = &config.ObjectRetentionPolicies{}
			}
			if c.ObjectRetentionPolicies.Workloads == nil {
				c.ObjectRetentionPolicies.Workloads = &config.WorkloadRetentionPolicy{}
			}
			c.ObjectRetentionPolicies.Workloads.AfterDeactivatedByKueue = &metav1.Duration{Duration: *after}
		}
	}
	// The default of waitForPodsReady is on, so only the gate turns it off.
	if jobs && !podsReady {
		c.FeatureGates[string(features.DisableWaitForPodsReady)] = true
	}
	if len(frameworks) > 0 {
		c.Integrations.Frameworks = nil
		for name := range frameworks {
			c.Integrations.Frameworks = append(c.Integrations.Frameworks, name)
		}
		slices.Sort(c.Integrations.Frameworks)
	}
}

// selector returns the label selector of an API object that is equal to a parsed one.
func selector(from labels.Selector) *metav1.LabelSelector {
	result := &metav1.LabelSelector{}
	requirements, selectable := from.Requirements()
	if !selectable {
		// It matches nothing: a key has to exist and not to exist.
		for _, operator := range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist} {
			result.MatchExpressions = append(result.MatchExpressions, metav1.LabelSelectorRequirement{Key: "seam/none", Operator: operator})
		}
		return result
	}
	operators := map[string]metav1.LabelSelectorOperator{
		"in": metav1.LabelSelectorOpIn, "=": metav1.LabelSelectorOpIn, "==": metav1.LabelSelectorOpIn, "notin": metav1.LabelSelectorOpNotIn,
		"!=": metav1.LabelSelectorOpNotIn, "exists": metav1.LabelSelectorOpExists, "!": metav1.LabelSelectorOpDoesNotExist,
	}
	for _, r := range requirements {
		values := r.Values().UnsortedList()
		slices.Sort(values)
		result.MatchExpressions = append(result.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operators[string(r.Operator())], Values: values})
	}
	return result
}
