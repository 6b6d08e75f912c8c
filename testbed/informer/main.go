// A client-go program that checks the API server features that operators use: informers, resync, relist after 410 Gone, watch lists with
// bookmarks, paging, the four patch types, conflicts, leases, events, discovery. It runs unmodified on any API server:
//
//	informer --kubeconfig FILE
//
// Each check creates its objects in a common namespace. The program prints a line for each check and a summary. It fails if a check fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The timeout of one check.
const timeout = time.Minute

// environment is the context, the client and the namespace of a check.
type environment struct {
	context.Context
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

type check struct {
	name string
	run  func(b environment) error
}

var checks = []check{
	{"an_informer_receives_every_change_in_order", informerSeesChanges},
	{"an_informer_resyncs_its_objects", informerResyncs},
	{"an_informer_relists_after_410_gone", informerRelists},
	{"an_informer_with_a_selector_deletes_objects_that_no_longer_match", informerBySelector},
	{"a_metadata_informer_receives_metadata", metadataInformer},
	{"a_watch_list_streams_all_objects_and_a_bookmark", streamedList},
	{"all_pages_of_a_list_have_one_resource_version", pages},
	{"json_merge_strategic_and_apply_patches_change_an_object", patches},
	{"apply_conflicts_with_another_field_manager_unless_forced", appliedConflict},
	{"a_stale_update_conflicts_and_a_retry_succeeds", staleUpdate},
	{"the_second_candidate_leads_after_the_first_releases_the_lease", leases},
	{"repeated_events_are_aggregated_by_count", events},
	{"discovery_maps_kinds_to_resources", discovery},
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the API server")
	flag.Parse()
	if err := run(*kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	// Like operators and Kubernetes' own controllers: protobuf for built-in kinds, JSON for custom resources.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "informer-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	failed := 0
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		began := time.Now()
		if err := check.run(environment{ctx, config, client, namespace.Name}); err != nil {
			failed++
			fmt.Printf("FAILED  %s (%.1f s)\n        %v\n", check.name, time.Since(began).Seconds(), err)
		} else {
			fmt.Printf("ok      %s (%.1f s)\n", check.name, time.Since(began).Seconds())
		}
		cancel()
	}
	if err := client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	fmt.Printf("%d passed, %d failed\n", len(checks)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}

// until polls a condition until the timeout of the check.
func (b environment) until(what string, done func() bool) error {
	for !done() {
		select {
		case <-b.Done():
			return fmt.Errorf("no %s within %s", what, timeout)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// configMap creates a ConfigMap in the namespace of the checks.
func (b environment) configMap(name string, labels map[string]string) (*corev1.ConfigMap, error) {
	return b.client.CoreV1().ConfigMaps(b.namespace).Create(b,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
}
