// Creates the same random queues and Workloads in two clusters, lets Kueue act in one and another program in the other, and compares what both say
// about them in the end. `testbed/kueue/differential` builds it in the copy of Kueue's module.
//
// Each seed has two waves. The programs start when the objects of the first one exist, and are stopped at the end. All priorities differ, so that
// the order of the Workloads does not depend on when they are created. The program plays the controllers of jobs: it releases the quota of
// evicted Workloads.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// quiet is so long nothing may change before the end of a wave.
	quiet = 4 * time.Second
	// patience is the longest time of a wave. Some policies let Workloads preempt each other for ever.
	patience = 40 * time.Second
)

// side is a cluster with the program that acts in it.
type side struct {
	name, program, kubeconfig string
	client                    client.Client
	environment               *envtest.Environment
	process                   *exec.Cmd
}

func main() {
	crds := flag.String("crds", "", "the folder of Kueue's definitions")
	reference := flag.String("kueue", "", "Kueue's program")
	candidate := flag.String("candidate", "", "the other program")
	out := flag.String("o", "", "the folder of logs")
	first := flag.Int64("first", 1, "the first seed")
	seeds := flag.Int64("seeds", 20, "the number of seeds")
	flag.Parse()
	differing, err := run(*crds, *out, [2]string{*reference, *candidate}, *first, *seeds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	fmt.Printf("%d seeds, %d with differences\n", *seeds, differing)
	if differing > 0 {
		os.Exit(1)
	}
}

func run(crds, out string, programs [2]string, first, seeds int64) (int, error) {
	var sides []*side
	for at, name := range []string{"kueue", "candidate"} {
		s, err := start(name, programs[at], crds, out)
		if s != nil {
			defer s.environment.Stop()
		}
		if err != nil {
			return 0, err
		}
		sides = append(sides, s)
	}
	differing, classes := 0, map[string]int{}
	for seed := first; seed < first+seeds; seed++ {
		var ends [2]map[string]string
		for at, s := range sides {
			end, err := s.play(seed, out)
			if err != nil {
				return differing, fmt.Errorf("seed %d, %s: %w", seed, s.name, err)
			}
			ends[at] = end
		}
		kueueRuns, candidateRuns := ends[0][restless] != "", ends[1][restless] != ""
		if kueueRuns || candidateRuns {
			fmt.Printf("seed %d: does not come to rest: kueue %t, candidate %t\n", seed, kueueRuns, candidateRuns)
		}
		if kueueRuns && candidateRuns {
			continue
		}
		if kueueRuns || candidateRuns {
			differing++
			classes[restless]++
			continue
		}
		if lines := compare(ends[0], ends[1], classes); len(lines) > 0 {
			differing++
			fmt.Printf("seed %d\n  %s\n", seed, strings.Join(lines, "\n  "))
		}
	}
	for _, class := range sorted(classes) {
		fmt.Printf("%4d  %s\n", classes[class], class)
	}
	return differing, nil
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

// play plays a seed, and returns what is said about each object in the end.
func (s *side) play(seed int64, out string) (map[string]string, error) {
	ctx := context.Background()
	queues, waves := generate(seed)
	if err := s.create(ctx, queues); err != nil {
		return nil, err
	}
	if err := s.create(ctx, waves[0]); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(out, fmt.Sprintf("%s.%d.log", s.name, seed)))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.process = exec.Command(s.program, "--kubeconfig", s.kubeconfig)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.create(ctx, waves[1]); err != nil {
		return nil, err
	}
	rests, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.observe(ctx)
	if !rests {
		end = map[string]string{restless: "true"}
	}
	s.stop()
	for _, list := range []client.Object{&kueue.Workload{}, &kueue.LocalQueue{}} {
		err = firstOf(err, s.client.DeleteAllOf(ctx, list, client.InNamespace("default")))
	}
	for _, list := range []client.Object{&kueue.ClusterQueue{}, &kueue.Cohort{}, &kueue.ResourceFlavor{}} {
		err = firstOf(err, s.client.DeleteAllOf(ctx, list))
	}
	return end, firstOf(err, s.release(ctx))
}

// release removes the finalizers of what is deleted: no program runs.
func (s *side) release(ctx context.Context) error {
	var queues kueue.ClusterQueueList
	var flavors kueue.ResourceFlavorList
	err := firstOf(s.client.List(ctx, &queues), s.client.List(ctx, &flavors))
	var objects []client.Object
	for at := range queues.Items {
		objects = append(objects, &queues.Items[at])
	}
	for at := range flavors.Items {
		objects = append(objects, &flavors.Items[at])
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
		if err := s.client.Create(ctx, object.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	return nil
}

// settle releases evicted Workloads until nothing changes any longer, and returns whether that was within the patience.
func (s *side) settle(ctx context.Context) (bool, error) {
	began, last, since := time.Now(), "", time.Now()
	for time.Since(began) < patience {
		var workloads kueue.WorkloadList
		if err := s.client.List(ctx, &workloads); err != nil {
			return false, err
		}
		state := workloads.ResourceVersion
		if versions := versions(workloads.Items); versions != last {
			last, since = versions, time.Now()
		}
		for at := range workloads.Items {
			object := &workloads.Items[at]
			if workloadevict.IsEvicted(object) && workload.HasQuotaReservation(object) {
				err := workloadpatching.PatchAdmissionStatus(ctx, s.client, object, clock.RealClock{}, func(object *kueue.Workload) (bool, error) {
					return workload.UnsetQuotaReservationWithCondition(object, "Pending", "released", time.Now()), nil
				})
				if client.IgnoreNotFound(err) != nil && !strings.Contains(err.Error(), "modified") {
					return false, err
				}
			}
		}
		if state != "" && time.Since(since) > quiet {
			return true, nil
		}
		time.Sleep(250 * time.Millisecond)
	}
	return false, nil
}

func versions(workloads []kueue.Workload) string {
	var all []string
	for at := range workloads {
		all = append(all, workloads[at].Name+"="+workloads[at].ResourceVersion)
	}
	return strings.Join(all, " ")
}

// uid is a random name in a message, or a time.
var uid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

func (s *side) observe(ctx context.Context) (map[string]string, error) {
	var workloads kueue.WorkloadList
	var queues kueue.ClusterQueueList
	var locals kueue.LocalQueueList
	if err := firstOf(s.client.List(ctx, &workloads), s.client.List(ctx, &queues), s.client.List(ctx, &locals)); err != nil {
		return nil, err
	}
	end := map[string]string{}
	say := func(object, what string, value any) {
		text, _ := json.Marshal(value)
		end[object+" "+what] = uid.ReplaceAllString(string(text), "X")
	}
	conditions := func(object string, conditions []metav1.Condition) {
		for _, condition := range conditions {
			say(object, "condition "+condition.Type, []string{string(condition.Status), condition.Reason, condition.Message})
		}
	}
	for _, object := range workloads.Items {
		name := "Workload " + object.Name
		say(name, "admission", object.Status.Admission)
		conditions(name, object.Status.Conditions)
	}
	for _, object := range queues.Items {
		name := "ClusterQueue " + object.Name
		status := object.Status
		say(name, "counts", []int32{status.PendingWorkloads, status.ReservingWorkloads, status.AdmittedWorkloads})
		say(name, "reservation", status.FlavorsReservation)
		say(name, "usage", status.FlavorsUsage)
		conditions(name, status.Conditions)
	}
	for _, object := range locals.Items {
		status := object.Status
		say("LocalQueue "+object.Name, "counts", []int32{status.PendingWorkloads, status.ReservingWorkloads, status.AdmittedWorkloads})
	}
	return end, nil
}

// restless is the key of a side that did not come to rest.
const restless = "all: it does not come to rest"

// compare returns a line for each difference, and counts them by class.
func compare(one, other map[string]string, classes map[string]int) []string {
	keys := map[string]int{}
	for key := range one {
		keys[key]++
	}
	for key := range other {
		keys[key]++
	}
	var lines []string
	for _, key := range sorted(keys) {
		if one[key] != other[key] {
			classes[class(key, one[key], other[key])]++
			lines = append(lines, fmt.Sprintf("%s\n    kueue      %s\n    candidate  %s", key, one[key], other[key]))
		}
	}
	return lines
}

// class is what differs: the kind and the field, and of a condition whether only its message does.
func class(key, one, other string) string {
	kind, rest, _ := strings.Cut(key, " ")
	_, field, _ := strings.Cut(rest, " ")
	var known, found []string
	if json.Unmarshal([]byte(one), &known) == nil && json.Unmarshal([]byte(other), &found) == nil && len(known) == 3 && len(found) == 3 {
		if known[0] == found[0] && known[1] == found[1] {
			return kind + " " + field + ": message alone"
		}
	}
	return kind + " " + field
}

func sorted(counts map[string]int) []string {
	var keys []string
	for key := range counts {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// generate makes the queues of a seed, and the Workloads of its two waves.
func generate(seed int64) ([]client.Object, [2][]client.Object) {
	random := rand.New(rand.NewSource(seed))
	pick := func(choices ...string) string { return choices[random.Intn(len(choices))] }
	named := func(kind string, at int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%d", kind, seed, at)}
	}
	quantity := func(most int) resource.Quantity {
		return *resource.NewQuantity(int64(random.Intn(most+1)), resource.DecimalSI)
	}
	var objects []client.Object
	flavors := 1 + random.Intn(3)
	for at := range flavors {
		objects = append(objects, &kueue.ResourceFlavor{ObjectMeta: named("flavor", at)})
	}
	cohorts := random.Intn(3)
	for at := range cohorts {
		cohort := &kueue.Cohort{ObjectMeta: named("cohort", at)}
		if at > 0 && random.Intn(2) == 0 {
			cohort.Spec.ParentName = kueue.CohortReference(named("cohort", at-1).Name)
		}
		objects = append(objects, cohort)
	}
	queues := 1 + random.Intn(5)
	for at := range queues {
		queue := &kueue.ClusterQueue{ObjectMeta: named("queue", at)}
		queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
		queue.Spec.QueueingStrategy = kueue.QueueingStrategy(pick("StrictFIFO", "BestEffortFIFO"))
		queue.Spec.Preemption = &kueue.ClusterQueuePreemption{
			WithinClusterQueue:  kueue.PreemptionPolicy(pick("Never", "LowerPriority")),
			ReclaimWithinCohort: kueue.PreemptionPolicy(pick("Never", "LowerPriority", "Any")),
		}
		queue.Spec.FlavorFungibility = &kueue.FlavorFungibility{
			WhenCanBorrow:  kueue.FlavorFungibilityPolicy(pick("MayStopSearch", "TryNextFlavor")),
			WhenCanPreempt: kueue.FlavorFungibilityPolicy(pick("MayStopSearch", "TryNextFlavor")),
		}
		in := cohorts > 0 && random.Intn(4) > 0
		if in {
			queue.Spec.CohortName = kueue.CohortReference(named("cohort", random.Intn(cohorts)).Name)
		}
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}}
		for flavor := range 1 + random.Intn(flavors) {
			quota := kueue.ResourceQuota{Name: corev1.ResourceCPU, NominalQuota: quantity(8)}
			if limit := quantity(6); in && random.Intn(3) == 0 {
				quota.BorrowingLimit = &limit
			}
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
				Name: kueue.ResourceFlavorReference(named("flavor", flavor).Name), Resources: []kueue.ResourceQuota{quota},
			})
		}
		queue.Spec.ResourceGroups = []kueue.ResourceGroup{group}
		local := &kueue.LocalQueue{ObjectMeta: named("queue", at)}
		local.Namespace = "default"
		local.Spec.ClusterQueue = kueue.ClusterQueueReference(queue.Name)
		objects = append(objects, queue, local)
	}
	var waves [2][]client.Object
	priorities := random.Perm(20)
	for at, priority := range priorities {
		object := &kueue.Workload{ObjectMeta: named("workload", at)}
		object.Namespace = "default"
		value := int32(priority)
		object.Spec.Priority = &value
		object.Spec.QueueName = kueue.LocalQueueName(named("queue", random.Intn(queues)).Name)
		for set := range 1 + random.Intn(2) {
			cpu := *resource.NewQuantity(int64(1+random.Intn(3)), resource.DecimalSI)
			container := corev1.Container{Name: "c", Image: "i"}
			container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
			object.Spec.PodSets = append(object.Spec.PodSets, kueue.PodSet{
				Name: kueue.PodSetReference(fmt.Sprintf("set-%d", set)), Count: int32(1 + random.Intn(3)),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}}},
			})
		}
		wave := min(at/14, 1)
		waves[wave] = append(waves[wave], object)
	}
	return objects, waves
}
