// The random objects of a seed.

package main

import (
	"fmt"
	"math/rand"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// door is the label of a namespace that lets its Workloads into their queues.
var door = map[string]string{"door": "open"}

// namespaceOf is the namespace of a seed's Workloads.
func namespaceOf(seed int64) string {
	return fmt.Sprintf("seed-%d", seed)
}

// generate makes the queues of a seed, and the Workloads of its two waves. All priorities differ, so that the order of the Workloads does not
// depend on when they are created.
func generate(seed int64) ([]client.Object, [2][]client.Object) {
	random := rand.New(rand.NewSource(seed))
	pick := func(choices ...string) string { return choices[random.Intn(len(choices))] }
	named := func(kind string, at int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%d", kind, seed, at)}
	}
	quantity := func(most int) resource.Quantity {
		return *resource.NewQuantity(int64(random.Intn(most+1)), resource.DecimalSI)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(seed)}}}
	flavors := 1 + random.Intn(3)
	for at := range flavors {
		flavor := &kueue.ResourceFlavor{ObjectMeta: named("flavor", at)}
		if topologies {
			objects = append(objects, rooms(random, flavor)...)
		}
		objects = append(objects, flavor)
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
		queue.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: door}
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
		local.Namespace = namespaceOf(seed)
		local.Spec.ClusterQueue = kueue.ClusterQueueReference(queue.Name)
		objects = append(objects, queue, local)
	}
	var waves [2][]client.Object
	priorities := random.Perm(20)
	for at, priority := range priorities {
		object := &kueue.Workload{ObjectMeta: named("workload", at)}
		object.Namespace = namespaceOf(seed)
		value := int32(priority)
		object.Spec.Priority = &value
		object.Spec.QueueName = kueue.LocalQueueName(named("queue", random.Intn(queues)).Name)
		for set := range 1 + random.Intn(2) {
			cpu := *resource.NewQuantity(int64(1+random.Intn(3)), resource.DecimalSI)
			container := corev1.Container{Name: "c", Image: "i"}
			container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
			pods := kueue.PodSet{
				Name: kueue.PodSetReference(fmt.Sprintf("set-%d", set)), Count: int32(1 + random.Intn(3)),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{container}}},
			}
			if topologies {
				pods.TopologyRequest = request(random)
			}
			object.Spec.PodSets = append(object.Spec.PodSets, pods)
		}
		wave := min(at/14, 1)
		waves[wave] = append(waves[wave], object)
	}
	return objects, waves
}
