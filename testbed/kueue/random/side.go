// A cluster with the program that acts in it.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"
	workloadpatching "sigs.k8s.io/kueue/pkg/workload/patching"
)

const (
	// quiet is so long nothing may change before the end of a wave. Kueue tries parked Workloads again a second after a change.
	quiet = 4 * time.Second
	// patience is the longest time of a wave. Some policies let Workloads preempt each other for ever.
	patience = 25 * time.Second
	// poll is the time between two looks at the Workloads.
	poll = 250 * time.Millisecond
)

type side struct {
	name, program, kubeconfig string
	client                    client.Client
	environment               *envtest.Environment
	process                   *exec.Cmd
	// the messages of each Workload, and how often they changed in this wave
	messages map[string]string
	changes  map[string]int
}

func start(name, program, crds, out string) (*side, error) {
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	if err != nil {
		return nil, err
	}
	s := &side{name: name, program: program, environment: environment, kubeconfig: filepath.Join(out, name+".kubeconfig")}
	text, err := utiltesting.RestConfigToKubeConfig(config)
	if err == nil {
		err = os.WriteFile(s.kubeconfig, text, 0o600)
	}
	if err != nil {
		return s, err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return s, err
	}
	if err := kueue.AddToScheme(scheme); err != nil {
		return s, err
	}
	config.QPS = -1
	s.client, err = client.New(config, client.Options{Scheme: scheme})
	return s, err
}

// play plays some seeds at the same time, and returns what is said about the objects of each in the end.
func (s *side) play(seeds []int64, out string) (map[int64]map[string]string, error) {
	ctx := context.Background()
	waves := [2][]client.Object{}
	for _, seed := range seeds {
		queues, ofSeed := generate(seed)
		if err := s.create(ctx, queues); err != nil {
			return nil, err
		}
		for at := range waves {
			waves[at] = append(waves[at], ofSeed[at]...)
		}
	}
	log, err := os.Create(filepath.Join(out, fmt.Sprintf("%s.%d.log", s.name, seeds[0])))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	arguments := []string{"--kubeconfig", s.kubeconfig}
	if topologies {
		arguments = append(arguments, "--enableTAS")
	}
	s.process = exec.Command(s.program, arguments...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	defer s.stop()
	moving := map[int64]bool{}
	// The last wave is empty: Workloads that are tried again say what they lack in the end.
	for _, wave := range append(waves[:], nil) {
		if err := s.wave(ctx, seeds, wave, moving); err != nil {
			return nil, err
		}
	}
	ends := map[int64]map[string]string{}
	for _, seed := range seeds {
		if ends[seed], err = s.observe(ctx, seed); err != nil {
			return nil, err
		}
		if moving[seed] {
			ends[seed][restless] = "true"
		}
	}
	s.stop()
	return ends, s.clean(ctx, seeds)
}

// wave creates Workloads before a shut door, opens it when they are queued, and adds the seeds that do not come to rest to those that still move.
func (s *side) wave(ctx context.Context, seeds []int64, workloads []client.Object, moving map[int64]bool) error {
	if err := firstOf(s.turn(ctx, seeds, nil), s.create(ctx, workloads), s.queued(ctx, seeds, moving)); err != nil {
		return err
	}
	if err := s.turn(ctx, seeds, door); err != nil {
		return err
	}
	return s.settle(ctx, seeds, moving)
}

// turn opens or shuts the door of each seed.
func (s *side) turn(ctx context.Context, seeds []int64, labels map[string]string) error {
	for _, seed := range seeds {
		var namespace corev1.Namespace
		if err := s.client.Get(ctx, client.ObjectKey{Name: namespaceOf(seed)}, &namespace); err != nil {
			return err
		}
		namespace.Labels = labels
		if err := s.client.Update(ctx, &namespace); err != nil {
			return err
		}
	}
	return nil
}

// queued waits until every queue counts its Workloads, and each was tried.
func (s *side) queued(ctx context.Context, seeds []int64, moving map[int64]bool) error {
	began, last, since := time.Now(), "", time.Now()
	for time.Since(began) < patience {
		var all kueue.WorkloadList
		var queues kueue.ClusterQueueList
		if err := firstOf(s.client.List(ctx, &all), s.client.List(ctx, &queues)); err != nil {
			return err
		}
		counted, now := 0, ""
		for _, queue := range queues.Items {
			counted += int(queue.Status.PendingWorkloads + queue.Status.ReservingWorkloads)
		}
		for _, seed := range seeds {
			workloads, err := s.round(ctx, seed)
			if err != nil {
				return err
			}
			if !moving[seed] {
				now += versions(workloads)
			}
		}
		if now != last {
			last, since = now, time.Now()
		}
		if (counted == len(all.Items) || len(moving) > 0) && time.Since(since) > quiet/4 {
			return nil
		}
		time.Sleep(poll)
	}
	return fmt.Errorf("the queues do not count all Workloads")
}

// settle waits until nothing changes any longer, and adds the seeds in which something still does.
func (s *side) settle(ctx context.Context, seeds []int64, moving map[int64]bool) error {
	began, last, since := time.Now(), map[int64]string{}, map[int64]time.Time{}
	s.messages, s.changes = map[string]string{}, map[string]int{}
	for {
		var waiting []int64
		for _, seed := range seeds {
			workloads, err := s.round(ctx, seed)
			if err != nil {
				return err
			}
			if now := s.state(workloads); now != last[seed] {
				last[seed], since[seed] = now, time.Now()
			}
			if !moving[seed] && time.Since(since[seed]) < quiet {
				waiting = append(waiting, seed)
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		if time.Since(began) > patience {
			for _, seed := range waiting {
				moving[seed] = true
			}
			return nil
		}
		time.Sleep(poll)
	}
}

// round lists the Workloads of a seed, and releases the quota of evicted ones.
func (s *side) round(ctx context.Context, seed int64) ([]kueue.Workload, error) {
	var workloads kueue.WorkloadList
	if err := s.client.List(ctx, &workloads, client.InNamespace(namespaceOf(seed))); err != nil {
		return nil, err
	}
	return workloads.Items, s.releaseEvicted(ctx, workloads.Items)
}

func (s *side) releaseEvicted(ctx context.Context, workloads []kueue.Workload) error {
	for at := range workloads {
		object := &workloads[at]
		if !workloadevict.IsEvicted(object) || !workload.HasQuotaReservation(object) {
			continue
		}
		err := workloadpatching.PatchAdmissionStatus(ctx, s.client, object, clock.RealClock{}, func(object *kueue.Workload) (bool, error) {
			return workload.UnsetQuotaReservationWithCondition(object, "Pending", "released", time.Now()), nil
		})
		if client.IgnoreNotFound(err) != nil && !strings.Contains(err.Error(), "modified") {
			return err
		}
	}
	return nil
}

func versions(workloads []kueue.Workload) string {
	var all []string
	for at := range workloads {
		all = append(all, workloads[at].Name+"="+workloads[at].ResourceVersion)
	}
	return strings.Join(all, " ")
}

// state is what Workloads say, without messages that change without end: Kueue tries the first Workload of a strict queue all the time, and says
// something else each time if it has several flavors.
func (s *side) state(workloads []kueue.Workload) string {
	var all []string
	for _, object := range workloads {
		admission, _ := json.Marshal(object.Status.Admission)
		all = append(all, object.Name, string(admission))
		message := ""
		for _, condition := range object.Status.Conditions {
			all = append(all, condition.Type, string(condition.Status), condition.Reason, condition.LastTransitionTime.String())
			message += condition.Message
		}
		if s.messages[object.Name] != message {
			s.messages[object.Name] = message
			s.changes[object.Name]++
		}
		if !s.keepsTalking(object.Name) {
			all = append(all, message)
		}
	}
	return strings.Join(all, " ")
}

// keepsTalking tells whether the messages of a Workload change without end.
func (s *side) keepsTalking(name string) bool {
	return s.changes[name] > 8
}

// clean deletes all objects. No program runs that would remove their finalizers.
func (s *side) clean(ctx context.Context, seeds []int64) error {
	var err error
	for _, seed := range seeds {
		for _, list := range []client.Object{&kueue.Workload{}, &kueue.LocalQueue{}} {
			err = firstOf(err, s.client.DeleteAllOf(ctx, list, client.InNamespace(namespaceOf(seed))))
		}
	}
	for _, list := range []client.Object{&kueue.ClusterQueue{}, &kueue.Cohort{}, &kueue.ResourceFlavor{}, &kueue.Topology{}, &corev1.Node{}} {
		err = firstOf(err, s.client.DeleteAllOf(ctx, list))
	}
	var queues kueue.ClusterQueueList
	var flavors kueue.ResourceFlavorList
	var workloads kueue.WorkloadList
	var rooms kueue.TopologyList
	err = firstOf(err, s.client.List(ctx, &queues), s.client.List(ctx, &flavors), s.client.List(ctx, &workloads), s.client.List(ctx, &rooms))
	var objects []client.Object
	for at := range queues.Items {
		objects = append(objects, &queues.Items[at])
	}
	for at := range flavors.Items {
		objects = append(objects, &flavors.Items[at])
	}
	for at := range workloads.Items {
		objects = append(objects, &workloads.Items[at])
	}
	for at := range rooms.Items {
		objects = append(objects, &rooms.Items[at])
	}
	for _, object := range objects {
		object.SetFinalizers(nil)
		err = firstOf(err, client.IgnoreNotFound(s.client.Update(ctx, object)))
	}
	return err
}

func firstOf(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *side) stop() {
	if s.process != nil {
		s.process.Process.Signal(syscall.SIGINT)
		s.process.Wait()
		s.process = nil
	}
}

func (s *side) create(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		created := object.DeepCopyObject().(client.Object)
		if err := s.client.Create(ctx, created); err != nil {
			return err
		}
		if node, is := object.(*corev1.Node); is {
			// The API server taints new nodes as not ready.
			created.(*corev1.Node).Spec.Taints = nil
			err := s.client.Update(ctx, created)
			created.(*corev1.Node).Status = node.Status
			if err := firstOf(err, s.client.Status().Update(ctx, created)); err != nil {
				return err
			}
		}
	}
	return nil
}
