// A client-go program that leans on what operators lean on: informers, resync, relisting after 410 Gone, streamed lists with their bookmarks, pages,
// the four patches, conflicts, leases, events, discovery. It runs unmodified on any API server:
//
//	informer --kubeconfig FILE
//
// Each check makes what it needs in a namespace of the run. Prints a line for each, and ends with a summary; fails if any check failed.
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

// How long anything may take before it counts as missing.
const patience = time.Minute

// bench is what a check works with.
type bench struct {
	context.Context
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

type check struct {
	name string
	run  func(b bench) error
}

var checks = []check{
	{"an_informer_sees_every_change_in_order", informerSeesChanges},
	{"an_informer_resyncs_what_it_knows", informerResyncs},
	{"an_informer_lists_again_after_410_gone", informerRelists},
	{"an_informer_by_label_loses_what_no_longer_matches", informerBySelector},
	{"a_metadata_informer_sees_metadata_of_objects", metadataInformer},
	{"a_list_can_be_streamed_by_a_watch", streamedList},
	{"pages_of_a_list_are_one_state", pages},
	{"the_four_patches_do_what_they_say", patches},
	{"owners_of_fields_conflict_unless_forced", appliedConflict},
	{"a_stale_update_conflicts_and_a_retry_succeeds", staleUpdate},
	{"one_of_two_candidates_leads_and_the_other_follows", leases},
	{"the_same_event_again_is_counted", events},
	{"kinds_are_found_by_discovery", discovery},
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
	// As operators and the controllers of Kubernetes have it: protobuf where the server offers it.
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
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		began := time.Now()
		if err := check.run(bench{ctx, config, client, namespace.Name}); err != nil {
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

// until waits for something that others bring about.
func (b bench) until(what string, done func() bool) error {
	for !done() {
		select {
		case <-b.Done():
			return fmt.Errorf("no %s within %s", what, patience)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// configMap makes one in the namespace of the run.
func (b bench) configMap(name string, labels map[string]string) (*corev1.ConfigMap, error) {
	return b.client.CoreV1().ConfigMaps(b.namespace).Create(b,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{})
}
