// The floor of Kueue's benchmark: admits every Workload as soon as it is seen, with one merge patch of its status. It plans nothing and keeps no
// status of queues but the number of Workloads, by which the runner knows its end. No scheduler that writes once for each admission is faster.
//
// `testbed/kueue/benchmark` builds it in the copy of Kueue's module.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// writers is the number of patches at the same time.
const writers = 32

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the cluster")
	for _, name := range []string{"zap-log-level", "cpuprofile", "memprofile"} {
		flag.String(name, "", "ignored")
	}
	flag.Int("metricsPort", 0, "ignored")
	flag.Bool("enableTAS", false, "ignored")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// floor admits the Workloads of a cluster.
type floor struct {
	client client.Client
	todo   chan *kueue.Workload

	mutex sync.Mutex
	// open has the Workloads that have not ended, by queue.
	open    map[string]map[types.UID]bool
	changed map[string]bool
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, 0
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		return err
	}
	objects, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	watched, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	f := &floor{client: objects, todo: make(chan *kueue.Workload, 100_000), open: map[string]map[types.UID]bool{}, changed: map[string]bool{}}
	workloads, err := watched.GetInformer(ctx, &kueue.Workload{})
	if err != nil {
		return err
	}
	if _, err := workloads.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.seen(object.(*kueue.Workload)) },
		UpdateFunc: func(_, object any) { f.seen(object.(*kueue.Workload)) },
	}); err != nil {
		return err
	}
	for range writers {
		go f.admit(ctx)
	}
	go f.tell(ctx)
	return watched.Start(ctx)
}

// seen queues a new Workload for its admission, and counts it until it ends.
func (f *floor) seen(workload *kueue.Workload) {
	queue := string(workload.Spec.QueueName) // The runner names a queue like its local queue.
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.open[queue] == nil {
		f.open[queue] = map[types.UID]bool{}
	}
	known := f.open[queue][workload.UID]
	switch {
	case meta.IsStatusConditionTrue(workload.Status.Conditions, kueue.WorkloadFinished):
		delete(f.open[queue], workload.UID)
		f.changed[queue] = f.changed[queue] || known
	case !known && len(workload.Status.Conditions) == 0:
		f.open[queue][workload.UID] = true
		f.changed[queue] = true
		f.todo <- workload
	}
}

func (f *floor) admit(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case workload := <-f.todo:
			if err := f.patch(ctx, workload, admission(workload)); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}
	}
}

// admission is the status of an admitted Workload.
func admission(workload *kueue.Workload) map[string]any {
	now := metav1.Now()
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: now}
	}
	sets := []kueue.PodSetAssignment{}
	for _, set := range workload.Spec.PodSets {
		flavors := map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "rf"}
		sets = append(sets, kueue.PodSetAssignment{Name: set.Name, Flavors: flavors, Count: &set.Count})
	}
	queue := kueue.ClusterQueueReference(strings.TrimSpace(string(workload.Spec.QueueName)))
	return map[string]any{
		"admission":  kueue.Admission{ClusterQueue: queue, PodSetAssignments: sets},
		"conditions": []metav1.Condition{condition(kueue.WorkloadQuotaReserved), condition(kueue.WorkloadAdmitted)},
	}
}

// tell writes twice a second how many Workloads of each changed queue are open.
func (f *floor) tell(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(500 * time.Millisecond)
		f.mutex.Lock()
		counts := map[string]int{}
		for queue := range f.changed {
			counts[queue] = len(f.open[queue])
		}
		f.changed = map[string]bool{}
		f.mutex.Unlock()
		for queue, count := range counts {
			object := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
			active := metav1.Condition{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}
			status := map[string]any{"reservingWorkloads": count, "conditions": []metav1.Condition{active}}
			if err := f.patch(ctx, object, status); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "floor:", err)
			}
		}
	}
}

func (f *floor) patch(ctx context.Context, object client.Object, status map[string]any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return f.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, body))
}
