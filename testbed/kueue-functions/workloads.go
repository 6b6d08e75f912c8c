package main

import "strconv"

func (g generator) container() object {
	resources := object{}
	for _, kind := range []string{"requests", "limits"} {
		if g.maybe(50) {
			resources[kind] = object{g.resource(): g.quantity()}
		}
	}
	return object{"name": "c", "resources": resources}
}

func (g generator) podSet(name string, newer bool) object {
	template := object{"metadata": object{"labels": g.labels(), "annotations": g.labels()}, "spec": object{"containers": []object{g.container()}}}
	podSet := object{"name": name, "count": g.Intn(5), "template": template}
	if g.maybe(20) {
		podSet["minCount"] = 1
	}
	if g.maybe(30) {
		request := object{}
		if g.maybe(50) {
			request["podSetSliceRequiredTopology"] = "rack"
		}
		if g.maybe(50) {
			request["podSetSliceSize"] = g.Intn(4) - 1
		}
		if newer && g.maybe(50) {
			request["podsetSliceRequiredTopologyConstraints"] = []object{{"topology": "rack", "size": g.Intn(3)}}
		}
		podSet["topologyRequest"] = request
	}
	return podSet
}

func (g generator) places(newer bool) object {
	levels := []string{"block", "kubernetes.io/hostname"}[g.Intn(2):]
	if g.maybe(20) {
		levels = []string{"rack"}
	}
	if !newer {
		domain := func() object {
			values := []string{}
			for range levels {
				values = append(values, pick(g, "pool-a-", "pool-a-b-", "p-", "node")+pick(g, "node-", "", "x-")+strconv.Itoa(g.Intn(20)))
			}
			return object{"values": values, "count": 1 + g.Intn(2)}
		}
		return object{"levels": levels, "domains": times(g, 0, 12, domain)}
	}
	slice := func() object {
		domains := 1 + g.Intn(3)
		values := []object{}
		for range levels {
			roots := times(g, domains, domains, func() string { return strconv.Itoa(g.Intn(10)) })
			values = append(values, pick(g, object{"universal": "u"}, object{"individual": object{"prefix": "p-", "roots": roots}}))
		}
		counts := object{"individual": times(g, domains, domains, func() int { return 1 + g.Intn(3) })}
		return object{"domainCount": domains, "podCounts": pick(g, counts, object{"universal": 2}), "valuesPerLevel": values}
	}
	return object{"levels": levels, "slices": times(g, 0, 2, slice)}
}

func (g generator) workload(newer bool) object {
	podSets := []object{g.podSet("main", newer)}
	if g.maybe(50) {
		podSets = append(podSets, g.podSet("side", newer))
	}
	spec := object{"podSets": podSets, "queueName": pick(g, "q", "r")}
	class := g.Intn(3)
	if class > 0 {
		spec["priority"] = 3
		if newer {
			spec["priorityClassRef"] = []object{{"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "h"},
				{"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "h"}}[class-1]
		} else {
			spec["priorityClassName"] = "h"
			spec["priorityClassSource"] = []string{"kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"}[class-1]
		}
	}
	return object{"spec": spec, "status": g.workloadStatus(podSets, newer), "metadata": object{"name": "x", "annotations": g.workloadAnnotations()}}
}

func (g generator) workloadStatus(podSets []object, newer bool) object {
	const now = "2026-01-01T00:00:00Z"
	status := object{}
	if g.maybe(70) {
		status["conditions"] = []object{{"type": "QuotaReserved", "status": pick(g, "True", "True", "False"), "reason": "r", "message": "", "lastTransitionTime": now}}
	}
	if g.maybe(60) {
		assignments := []object{}
		for _, podSet := range podSets {
			assignment := object{"name": podSet["name"], "count": 1 + g.Intn(4), "resourceUsage": object{"cpu": pick(g, "1", "4", "3"), "memory": pick(g, "12", "7", "24Gi")}}
			if g.maybe(40) {
				assignment["topologyAssignment"] = g.places(newer)
			}
			assignments = append(assignments, assignment)
		}
		status["admission"] = object{"clusterQueue": pick(g, "q", "q", "r"), "podSetAssignments": assignments}
	}
	if g.maybe(30) {
		status["reclaimablePods"] = []object{{"name": pick(g, "main", "side", "zz"), "count": g.Intn(6)}}
	}
	if g.maybe(30) {
		update := object{"name": pick(g, "main", "side", "zz"), "labels": g.labels(), "annotations": g.labels(), "nodeSelector": g.labels(), "tolerations": []object{g.toleration()}}
		status["admissionChecks"] = []object{{"name": "c", "state": pick(g, "Ready", "Pending"), "message": "", "lastTransitionTime": now, "podSetUpdates": []object{update}}}
	}
	if g.maybe(20) {
		status[map[bool]string{true: "accumulatedPastExecutionTimeSeconds", false: "accumulatedPastExexcutionTimeSeconds"}[newer]] = g.Intn(5)
	}
	if g.maybe(20) {
		status["clusterName"] = pick(g, "c1", "c2")
	}
	if g.maybe(20) {
		status["nominatedClusterNames"] = []string{"c1"}
	}
	return status
}

func (g generator) workloadAnnotations() object {
	annotations := object{}
	if g.maybe(30) {
		annotations["kueue.x-k8s.io/elastic-job"] = "true"
	}
	if g.maybe(30) {
		annotations["kueue.x-k8s.io/admission-gated-by"] = pick(g, "a.b/c", "a.b/c,d/e", "a", "a.b/c,,", "A/b c", " ", "a/b,a/b")
	}
	if g.maybe(10) {
		annotations["kueue.x-k8s.io/workload-slice-replacement-for"] = "x"
	}
	return annotations
}
