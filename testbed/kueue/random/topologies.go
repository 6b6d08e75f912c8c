// Nodes in topologies, and Workloads that ask for places in them.

package main

import (
	"context"
	"fmt"
	"math/rand"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/util/tas"
)

// topologies is set if all flavors have a topology. Places are compared by what they permit then, since there are several that are as good.
var topologies bool

const (
	block = "example.com/block"
	rack  = "example.com/rack"
	pool  = "example.com/pool"
)

// rooms gives a flavor a topology, whose lowest level is a host or a rack, and returns the topology and the nodes.
func rooms(random *rand.Rand, flavor *kueue.ResourceFlavor) []client.Object {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: flavor.Name}}
	topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: block}, {NodeLabel: rack}}
	hosts := random.Intn(3) > 0
	if hosts {
		topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: corev1.LabelHostname})
	}
	name := kueue.TopologyReference(flavor.Name)
	flavor.Spec.TopologyName = &name
	flavor.Spec.NodeLabels = map[string]string{pool: flavor.Name}
	objects := []client.Object{topology}
	for at := range 4 {
		// A rack without a level for hosts has one node: Kueue adds up the nodes of a rack, although a pod needs one that is large enough.
		nodes := 1
		if hosts {
			nodes += random.Intn(3)
		}
		for host := range nodes {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%d", flavor.Name, at, host)}}
			node.Labels = map[string]string{pool: flavor.Name, block: fmt.Sprint("b", at/2), rack: fmt.Sprint("r", at%2), corev1.LabelHostname: node.Name}
			node.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU:  *resource.NewQuantity(int64(1+random.Intn(4)), resource.DecimalSI),
				corev1.ResourcePods: resource.MustParse("110"),
			}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}}
			objects = append(objects, node)
		}
	}
	return objects
}

// request draws what a pod set asks for.
func request(random *rand.Rand) *kueue.PodSetTopologyRequest {
	level := []string{block, rack}[random.Intn(2)]
	yes := true
	switch random.Intn(4) {
	case 0:
		return &kueue.PodSetTopologyRequest{Required: &level}
	case 1:
		return &kueue.PodSetTopologyRequest{Preferred: &level}
	case 2:
		return &kueue.PodSetTopologyRequest{Unconstrained: &yes}
	default:
		return nil
	}
}

// whole counts the domains of a seed of which nothing is given away: lowest ones (hosts, or racks without a level for hosts), racks and blocks.
type whole [3]int

// faults returns the assignments of a seed that no scheduler could follow: domains that hold less than they are given, and pods out of their
// required domain. It also counts the domains that are whole.
func (s *side) faults(ctx context.Context, seed int64, workloads []kueue.Workload) ([]string, whole, error) {
	var free whole
	var nodes corev1.NodeList
	if err := s.client.List(ctx, &nodes); err != nil {
		return nil, free, err
	}
	room, used := map[string]int64{}, map[string]int64{}
	path := func(values []string) string { return fmt.Sprint(values) }
	of, touched := map[string]corev1.Node{}, map[string]bool{}
	for _, node := range nodes.Items {
		of[node.Name] = node
		cpu := node.Status.Allocatable.Cpu().Value()
		room[path([]string{node.Name})] += cpu
		room[path([]string{node.Labels[pool], node.Labels[block], node.Labels[rack]})] += cpu
	}
	var found []string
	for _, object := range workloads {
		if object.Status.Admission == nil {
			continue
		}
		for at, assigned := range object.Status.Admission.PodSetAssignments {
			if assigned.TopologyAssignment == nil {
				found = append(found, fmt.Sprintf("%s has no places", object.Name))
				continue
			}
			set := object.Spec.PodSets[at]
			cpu := set.Template.Spec.Containers[0].Resources.Requests.Cpu().Value()
			within := map[string]bool{}
			pods := int32(0)
			for _, domain := range tas.InternalFrom(assigned.TopologyAssignment).Domains {
				pods += domain.Count
				values := domain.Values
				flavor := string(assigned.Flavors[corev1.ResourceCPU])
				key := path(append([]string{flavor}, values...))
				if len(values) == 1 {
					node := of[values[0]]
					values = []string{node.Labels[block], node.Labels[rack]}
					key = path([]string{node.Name})
				}
				used[key] += cpu * int64(domain.Count)
				for depth := range values {
					touched[path(append([]string{flavor}, values[:depth+1]...))] = true
				}
				if required := set.TopologyRequest; required != nil && required.Required != nil {
					depth := map[string]int{block: 1, rack: 2}[*required.Required]
					within[path(values[:depth])] = true
				}
			}
			if len(within) > 1 {
				found = append(found, fmt.Sprintf("%s is in several required domains", object.Name))
			}
			if pods != set.Count {
				found = append(found, fmt.Sprintf("%s has places for %d of %d pods", object.Name, pods, set.Count))
			}
		}
	}
	for key, cpu := range used {
		if cpu > room[key] {
			found = append(found, fmt.Sprintf("%s holds %d CPUs and is given %d", key, room[key], cpu))
		}
	}
	counted := map[string]bool{}
	for _, node := range nodes.Items {
		if !strings.HasPrefix(node.Labels[pool], fmt.Sprintf("flavor-%d-", seed)) {
			continue
		}
		host, of := path([]string{node.Name}), []string{node.Labels[pool], node.Labels[block], node.Labels[rack]}
		if used[host] == 0 && used[path(of)] == 0 {
			free[0]++
		}
		for at, domain := range []string{path(of), path(of[:2])} {
			if !counted[domain] && !touched[domain] {
				free[at+1]++
			}
			counted[domain] = true
		}
	}
	sort.Strings(found)
	return found, free, nil
}
