package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// insertion is a text that is inserted into a function of Kueue.
type insertion struct {
	// function is the start of the line that declares the function.
	function string
	// before is a line of the function, without its end. The text is inserted before it. Empty: at the start of the body.
	before string
	text   string
}

// record returns the text that records an option of the setup.
func record(name, value string) string { return fmt.Sprintf("\tseam.Note(%q, %s)", name, value) }

// insertions by file of the module.
var insertions = map[string][]insertion{
	"pkg/controller/core/core.go": {
		{"func SetupControllers(", "", record("configuration", "cfg")},
	},
	"pkg/scheduler/scheduler.go": {
		{"func New(", "\tif options.resourceFormatter == nil {", record("scheduler", `map[string]any{"fairSharing": options.fairSharing,
		"admissionFairSharing": options.admissionFairSharing, "quotaCheckStrategy": options.quotaCheckStrategy}`)},
	},
	"pkg/cache/scheduler/cache.go": {
		{"func WithExcludedResourcePrefixes(", "", record("excludeResourcePrefixes", "excludedPrefixes")},
		{"func WithResourceTransformations(", "", record("transformations", "transforms")},
		{"func New(", "\tcache.podsReadyCond.L = &cache.RWMutex", record("cache", `map[string]any{"fairSharing": cache.fairSharingEnabled,
		"admissionFairSharing": cache.admissionFairSharing, "podsReadyTracking": cache.podsReadyTracking,
		"resourceMetrics": cache.resourceMetricsEnabled}`)},
	},
	"pkg/cache/queue/manager.go": {
		{"func WithExcludedResourcePrefixes(", "", record("excludeResourcePrefixes", "excludedPrefixes")},
		{"func WithResourceTransformations(", "", record("transformations", "transforms")},
		{"func NewManager(", "\tm.requeuer.setManager(m)", record("queues", `map[string]any{
		"podsReadyRequeuingTimestamp": m.workloadOrdering.PodsReadyRequeuingTimestamp, "resourceMetrics": m.resourceMetricsEnabled}`)},
	},
	"pkg/cache/queue/inadmissible_workloads.go": {
		{"func NewRequeuer(", "\treturn &workqueueRequeuer{", record("requeueBatchPeriod", "options.batchPeriod")},
	},
	"pkg/controller/jobframework/reconciler.go": {
		{"func ProcessOptions(", "\treturn options", record("jobs", "options")},
	},
	"pkg/controller/jobframework/integrationmanager.go": {
		{"func EnableIntegration(", "", record("enabled", "name")},
	},
	"pkg/features/kube_features.go": {
		{"func SetFeatureGateDuringTest(", "", "\tdefer seam.GatesChanged()"},
		{"func SetFeatureGatesDuringTest(", "", "\tdefer seam.GatesChanged()"},
	},
	"pkg/util/webhook/noop_webhook.go": {
		{"func SetupNoopWebhook[", "", record("noop", "apiType")},
	},
	"test/integration/framework/framework.go": {
		{"func (f *Framework) StartManager(", "", "\tif f.startForeign(ctx, cfg, managerSetup, opts...) {\n\t\treturn\n\t}"},
		{"func (f *Framework) Teardown(", "", "\tf.stopForeign()"},
	},
}

// files of the seam by their path in the copy.
var files = map[string]string{
	"pkg/seam/record.go":                               "record.go",
	"test/integration/framework/seam_foreign.go":       "foreign.go",
	"test/integration/framework/seam_parts.go":         "parts.go",
	"test/integration/framework/seam_configuration.go": "configuration.go",
	"test/integration/framework/seam_mirror.go":        "mirror.go",
}

// apply inserts the seam into a copy of the module. It starts from the files of the module, so it can be repeated. A function or line that
// the module does not have exactly once is an error: the seam has to be adapted to a new version.
func apply(seam, module, copied string) error {
	for name, list := range insertions {
		source, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return err
		}
		text := string(source)
		for _, i := range list {
			if text, err = i.insert(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if strings.Contains(text, "seam.") {
			if strings.Count(text, "\nimport (\n") != 1 {
				return fmt.Errorf("%s has no block of imports", name)
			}
			text = strings.Replace(text, "\nimport (\n", "\nimport (\n\t\"sigs.k8s.io/kueue/pkg/seam\"\n", 1)
		}
		if err := write(filepath.Join(copied, name), text); err != nil {
			return err
		}
	}
	for name, own := range files {
		text, err := os.ReadFile(filepath.Join(seam, own))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(copied, name), string(text)); err != nil {
			return err
		}
	}
	return vectors(module, copied)
}

func (i insertion) insert(text string) (string, error) {
	if strings.Count(text, "\n"+i.function) != 1 {
		return "", fmt.Errorf("%q is not there exactly once", i.function)
	}
	start := strings.Index(text, "\n"+i.function) + 1
	end := start + strings.Index(text[start:], "\n}\n")
	place := start + strings.Index(text[start:], "{\n") + len("{\n")
	if i.before != "" {
		if strings.Count(text[start:end+1], "\n"+i.before) != 1 {
			return "", fmt.Errorf("%q is not there exactly once after %q", i.before, i.function)
		}
		place = start + strings.Index(text[start:], "\n"+i.before) + 1
	}
	return text[:place] + i.text + "\n" + text[place:], nil
}

var vector = regexp.MustCompile(`(?m)^\t([A-Za-z]+)\s+\*prometheus\.(?:Counter|Gauge|Histogram)Vec$`)

// vectors writes a function that returns the metric vectors of the module by their names, so that they can be set from outside.
func vectors(module, copied string) error {
	source, err := os.ReadFile(filepath.Join(module, "pkg/metrics/metrics.go"))
	if err != nil {
		return err
	}
	found := vector.FindAllSubmatch(source, -1)
	if len(found) < 50 {
		return fmt.Errorf("pkg/metrics/metrics.go: only %d metric vectors found", len(found))
	}
	var list bytes.Buffer
	for _, match := range found {
		fmt.Fprintf(&list, "\t\t%s,\n", match[1])
	}
	return write(filepath.Join(copied, "pkg/metrics/seam_vectors.go"), fmt.Sprintf(`package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// SeamVectors returns the metric vectors by their full names.
func SeamVectors() map[string]any {
	named := map[string]any{}
	for _, vector := range []prometheus.Collector{
%s	} {
		descriptions := make(chan *prometheus.Desc, 1)
		vector.Describe(descriptions)
		_, rest, _ := strings.Cut((<-descriptions).String(), "fqName: \"")
		name, _, _ := strings.Cut(rest, "\"")
		named[name] = vector
	}
	return named
}
`, list.String()))
}

// write writes a file if its contents differ. Otherwise it keeps its time, so that nothing is compiled again.
func write(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
