// Runs Kueue's own conversion and validation on random objects, and prints inputs and results as JSON lines, for
// `cargo run -p xtask -- kueue-functions`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/kueue/apis/kueue/v1beta1"
	"sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

// result is one line of the output.
type result struct {
	// To is the version of a conversion; absent for a validation.
	To string `json:"to,omitempty"`
	// Resource is the plural name of the resource of a validation.
	Resource string `json:"resource,omitempty"`
	Object   object `json:"object"`
	// Old is the stored object of an update.
	Old object `json:"old,omitempty"`
	// Converted is the result of a conversion.
	Converted any `json:"converted,omitempty"`
	// Errors are those of a validation.
	Errors []string `json:"errors"`
}

func main() {
	seed := flag.Int64("seed", 1, "seed of the random objects")
	count := flag.Int("count", 5000, "number of objects")
	flag.Parse()
	g := generator{rand.New(rand.NewSource(*seed))}
	output := json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	for range *count {
		next := g.validated
		if g.maybe(45) {
			next = g.converted
		}
		if err := output.Encode(next()); err != nil {
			panic(err)
		}
	}
}

// as decodes a random object into a type of Kueue.
func as[T any](from object, into T) T {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(err)
	}
	return into
}

func (g generator) wrap(fields object, kind, version string) object {
	if fields["metadata"] == nil {
		fields["metadata"] = object{"name": "x"}
	}
	fields["apiVersion"], fields["kind"] = "kueue.x-k8s.io/"+version, kind
	return fields
}

func (g generator) converted() result {
	kinds := []struct {
		kind string
		make func(bool) object
		old  conversion.Convertible
		new  conversion.Hub
	}{
		{"ClusterQueue", g.clusterQueue, &v1beta1.ClusterQueue{}, &v1beta2.ClusterQueue{}},
		{"Cohort", g.cohort, &v1beta1.Cohort{}, &v1beta2.Cohort{}},
		{"LocalQueue", g.localQueue, &v1beta1.LocalQueue{}, &v1beta2.LocalQueue{}},
		{"MultiKueueCluster", g.cluster, &v1beta1.MultiKueueCluster{}, &v1beta2.MultiKueueCluster{}},
		{"Workload", g.workload, &v1beta1.Workload{}, &v1beta2.Workload{}},
	}
	kind := pick(g, kinds...)
	if g.maybe(50) {
		from := g.wrap(kind.make(false), kind.kind, "v1beta1")
		if err := as(from, kind.old).ConvertTo(kind.new); err != nil {
			panic(err)
		}
		return result{To: "kueue.x-k8s.io/v1beta2", Object: from, Converted: kind.new}
	}
	from := g.wrap(kind.make(true), kind.kind, "v1beta2")
	if err := kind.old.ConvertFrom(as(from, kind.new)); err != nil {
		panic(err)
	}
	return result{To: "kueue.x-k8s.io/v1beta1", Object: from, Converted: kind.old}
}

func (g generator) validated() result {
	switch g.Intn(4) {
	case 0:
		return validate(g, "clusterqueues", "ClusterQueue", g.clusterQueue, &webhooks.ClusterQueueWebhook{}, func() *v1beta2.ClusterQueue { return &v1beta2.ClusterQueue{} })
	case 1:
		return validate(g, "cohorts", "Cohort", g.cohort, &webhooks.CohortWebhook{}, func() *v1beta2.Cohort { return &v1beta2.Cohort{} })
	case 2:
		return validate(g, "resourceflavors", "ResourceFlavor", g.resourceFlavor, &webhooks.ResourceFlavorWebhook{}, func() *v1beta2.ResourceFlavor { return &v1beta2.ResourceFlavor{} })
	default:
		return validate(g, "workloads", "Workload", g.workload, &webhooks.WorkloadWebhook{}, func() *v1beta2.Workload { return &v1beta2.Workload{} })
	}
}

func validate[T runtime.Object](g generator, resource, kind string, random func(bool) object, webhook admission.Validator[T], empty func() T) result {
	line := result{Resource: resource, Object: g.wrap(random(true), kind, "v1beta2"), Errors: []string{}}
	var err error
	if g.maybe(60) {
		line.Old = g.wrap(random(true), kind, "v1beta2")
		// An update changes little: it takes most parts from the stored object.
		for _, part := range []string{"spec", "status", "metadata"} {
			if g.maybe(60) {
				line.Object[part] = line.Old[part]
			}
		}
		_, err = webhook.ValidateUpdate(context.Background(), as(line.Old, empty()), as(line.Object, empty()))
	} else {
		_, err = webhook.ValidateCreate(context.Background(), as(line.Object, empty()))
	}
	if all, ok := err.(errors.Aggregate); ok {
		for _, one := range all.Errors() {
			line.Errors = append(line.Errors, one.Error())
		}
	}
	return line
}
