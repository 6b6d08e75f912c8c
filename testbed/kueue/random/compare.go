// What is compared, and what the comparison says.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// uid is a random name in a message, or a time.
var uid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// restless is the key of a side that did not come to rest.
const restless = "all: it does not come to rest"

// wholeDomains is the key of the domains of which nothing is given away. They are counted, and may differ.
const wholeDomains = "all whole"

// changing is the message of a Workload that says something else all the time.
const changing = "(keeps changing)"

// observe returns what is said about each object of a seed, by object and field.
func (s *side) observe(ctx context.Context, seed int64) (map[string]string, error) {
	var workloads kueue.WorkloadList
	var queues kueue.ClusterQueueList
	var locals kueue.LocalQueueList
	namespace := client.InNamespace(namespaceOf(seed))
	if err := firstOf(s.client.List(ctx, &workloads, namespace), s.client.List(ctx, &queues), s.client.List(ctx, &locals, namespace)); err != nil {
		return nil, err
	}
	end := map[string]string{}
	say := func(object, what string, value any) {
		text, _ := json.Marshal(value)
		end[object+" "+what] = uid.ReplaceAllString(string(text), "X")
	}
	conditions := func(object string, conditions []metav1.Condition) {
		for _, condition := range conditions {
			if name, is := strings.CutPrefix(object, "Workload "); is && s.keepsTalking(name) {
				condition.Message = changing
			}
			say(object, "condition "+condition.Type, []string{string(condition.Status), condition.Reason, condition.Message})
		}
	}
	if topologies {
		faults, free, err := s.faults(ctx, seed, workloads.Items)
		for _, object := range workloads.Items {
			say("Workload "+object.Name, "is admitted", object.Status.Admission != nil)
		}
		say("all", "faults", faults)
		say("all", "whole", free)
		return end, err
	}
	for _, object := range workloads.Items {
		name := "Workload " + object.Name
		say(name, "admission", object.Status.Admission)
		conditions(name, object.Status.Conditions)
	}
	for _, object := range queues.Items {
		if !strings.HasPrefix(object.Name, fmt.Sprintf("queue-%d-", seed)) {
			continue
		}
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

// figures counts what was compared.
type figures struct {
	seeds, restless, differing int
	// statements about objects: what two runs of Kueue agree on is determined.
	determined, undetermined int
	classes                  map[string]int
	// seeds in which all three admit the same Workloads, and the domains that are whole then, of a run of Kueue and of the candidate
	alike int
	whole [2]whole
}

// compare prints how the candidate differs from what two runs of Kueue agree on.
func (f *figures) compare(seed int64, kueues [2]map[string]string, candidate map[string]string) {
	f.seeds++
	var rests []string
	for at, end := range []map[string]string{kueues[0], kueues[1], candidate} {
		if end[restless] == "" {
			rests = append(rests, []string{"kueue", "kueue again", "the candidate"}[at])
		}
	}
	if len(rests) < 3 {
		fmt.Printf("seed %d: comes to rest: %s\n", seed, strings.Join(rests, ", "))
	}
	if kueues[0][restless] != "" || kueues[1][restless] != "" {
		f.restless++
		return
	}
	var lines []string
	for _, key := range keys(kueues[0], kueues[1], candidate) {
		known, found := kueues[0][key], candidate[key]
		if key == wholeDomains {
			continue
		}
		if kueues[1][key] != known || contradicts(key, kueues[0]) || strings.Contains(known, changing) {
			f.undetermined++
			continue
		}
		f.determined++
		if known != found {
			f.classes[class(key, known, found)]++
			lines = append(lines, fmt.Sprintf("%s\n    kueue      %s\n    candidate  %s", key, known, found))
		}
	}
	if len(lines) == 0 && admitted(kueues[0]) == admitted(kueues[1]) && topologies {
		f.alike++
		for at, end := range []map[string]string{kueues[0], candidate} {
			var free whole
			_ = json.Unmarshal([]byte(end[wholeDomains]), &free)
			for level := range free {
				f.whole[at][level] += free[level]
			}
		}
	}
	if len(lines) > 0 {
		f.differing++
		fmt.Printf("seed %d\n  %s\n", seed, strings.Join(lines, "\n  "))
	}
}

// admitted names the Workloads of a seed that are admitted.
func admitted(end map[string]string) string {
	var names []string
	for _, key := range keys(end) {
		if name, is := strings.CutSuffix(key, " is admitted"); is && end[key] == "true" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// contradicts tells whether Kueue counts the Workloads of a LocalQueue otherwise than those of its ClusterQueue, though each has one. Its count of a
// LocalQueue lacks the Workload that is just being tried (Manager.heads in pkg/cache/queue), so it depends on when it is written.
func contradicts(key string, end map[string]string) bool {
	queue, is := strings.CutPrefix(key, "LocalQueue ")
	return is && end["ClusterQueue "+queue] != end[key]
}

func (f *figures) print() {
	for _, class := range keys(f.classes) {
		fmt.Printf("%4d  %s\n", f.classes[class], class)
	}
	fmt.Printf("%d seeds: %d with differences, %d in which Kueue does not come to rest\n", f.seeds, f.differing, f.restless)
	if topologies {
		fmt.Printf("%d seeds with the same admissions: hosts, racks and blocks of which nothing is given away: %d under Kueue, %d under the candidate\n",
			f.alike, f.whole[0], f.whole[1])
	}
	fmt.Printf("%d statements compared; in %d others two runs of Kueue differ\n", f.determined, f.undetermined)
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

// keys returns the keys of some maps, each once and in order.
func keys[V any](maps ...map[string]V) []string {
	all := map[string]bool{}
	for _, one := range maps {
		for key := range one {
			all[key] = true
		}
	}
	sorted := make([]string, 0, len(all))
	for key := range all {
		sorted = append(sorted, key)
	}
	sort.Strings(sorted)
	return sorted
}
