package framework

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sigs.k8s.io/kueue/pkg/controller/jobframework"
)

// partOf returns the part to which a controller belongs, by its name.
func partOf(controller string) string {
	switch controller {
	case "clusterqueue_controller", "localqueue_controller", "cohort_controller", "resourceflavor_controller", "admissioncheck_controller",
		"workload_controller", "workloadpriorityclass_controller", "resourceslice_controller":
		return "core"
	case "elastic_job_ungater":
		return "elasticjobs"
	case "concurrent-admission-controller":
		return "concurrentadmission"
	case "pod_termination_controller":
		return "failurerecovery"
	case "multikueue_incremental_dispatcher":
		return "dispatcher"
	case "v1_pod":
		return "job=pod"
	case "statefulset_pod":
		return "job=statefulset"
	}
	switch {
	case strings.HasPrefix(controller, "tas_"), controller == "tas-non-tas-usage-controller":
		return "tas"
	case strings.HasPrefix(controller, "provisioning_"):
		return "provisioning"
	case strings.HasPrefix(controller, "multikueue_"):
		return "multikueue"
	}
	part := ""
	_ = jobframework.ForEachIntegration(func(name string, cb jobframework.IntegrationCallbacks) error {
		kind := cb.GVK.Kind
		if cb.NewJob != nil {
			kind = cb.NewJob().GVK().Kind
		}
		if strings.ToLower(kind) == controller {
			part = "job=" + name
		}
		return nil
	})
	if part == "" {
		return "controller=" + controller
	}
	return part
}

// serving returns the part that serves a webhook path; empty if the webhook allows everything, as a path does that no part serves.
func (p *foreign) serving(path string) string {
	if path == "/convert" || strings.Contains(path, "-kueue-x-k8s-io-") {
		return "webhooks"
	}
	for _, object := range p.notes["noop"] {
		if serves(path, object.(runtime.Object), p.framework.scheme) {
			return ""
		}
	}
	part := "webhook-path=" + path
	_ = jobframework.ForEachIntegration(func(name string, cb jobframework.IntegrationCallbacks) error {
		if serves(path, cb.JobType, p.framework.scheme) {
			part = "webhook=" + name
		}
		return nil
	})
	return part
}

// serves reports whether a webhook path belongs to the kind of an object.
func serves(path string, object runtime.Object, scheme *runtime.Scheme) bool {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return false
	}
	tail := fmt.Sprintf("-%s-%s-%s", strings.ReplaceAll(gvk.Group, ".", "-"), gvk.Version, strings.ToLower(gvk.Kind))
	return path == "/mutate"+tail || path == "/validate"+tail
}

// parts returns the value of --parts: core, scheduler, tas, provisioning, job=NAME, webhooks, webhook=NAME, and so on.
func (p *foreign) parts() []string {
	wired := map[string]bool{}
	for _, name := range p.controllers {
		wired[partOf(name)] = true
	}
	for _, path := range p.paths {
		if part := p.serving(path); part != "" {
			wired[part] = true
		}
	}
	if len(p.notes["scheduler"]) > 0 {
		wired["scheduler"] = true
	}
	list := make([]string, 0, len(wired))
	without := strings.Split(os.Getenv("SEAM_WITHOUT"), ",")
	for part := range wired {
		if !slices.Contains(without, part) {
			list = append(list, part)
		}
	}
	sort.Strings(list)
	return list
}
