package main

import "math/rand"

// object is JSON without a schema.
type object = map[string]any

// generator makes random objects: mostly valid, with values here and there that a rule refuses.
type generator struct{ *rand.Rand }

func (g generator) maybe(percent int) bool { return g.Intn(100) < percent }

func pick[T any](g generator, from ...T) T { return from[g.Intn(len(from))] }

func times[T any](g generator, from, to int, make func() T) []T {
	items := []T{}
	for range from + g.Intn(to-from+1) {
		items = append(items, make())
	}
	return items
}

func (g generator) quantity() any {
	return pick[any](g, "1", "2", "-1", "500m", "1Gi", "0", "3", "1n", "2n", "-1m", "7")
}

func (g generator) resource() string {
	return pick(g, "cpu", "memory", "example.com/gpu", "@r", "pods")
}

func (g generator) labels() object {
	labels := object{}
	for range g.Intn(3) {
		labels[pick(g, "a", "a/b", "@", "app.io/x", "-x", "")] = pick(g, "v", "", "v w", "1.2")
	}
	return labels
}

func (g generator) toleration() object {
	toleration := object{"operator": pick(g, "Exists", "Equal")}
	if g.maybe(70) {
		toleration["key"] = pick(g, "a", "@k", "a/b")
	}
	return toleration
}

func (g generator) groups() []object {
	return times(g, 0, 2, func() object {
		covered := times(g, 1, 2, g.resource)
		flavor := func() object {
			quotas := []object{}
			for i := range 1 + g.Intn(3) {
				quota := object{"name": g.resource(), "nominalQuota": g.quantity()}
				if i < len(covered) && g.maybe(85) {
					quota["name"] = covered[i]
				}
				for _, limit := range []string{"borrowingLimit", "lendingLimit"} {
					if g.maybe(30) {
						quota[limit] = g.quantity()
					}
				}
				quotas = append(quotas, quota)
			}
			return object{"name": pick(g, "a", "b", "f-1"), "resources": quotas}
		}
		return object{"coveredResources": covered, "flavors": times(g, 1, 2, flavor)}
	})
}

func (g generator) clusterQueue(newer bool) object {
	spec := object{"resourceGroups": g.groups()}
	if g.maybe(50) {
		spec[map[bool]string{true: "cohortName", false: "cohort"}[newer]] = pick(g, "all", "")
	}
	if g.maybe(30) {
		requirement := object{"key": pick(g, "a", "@k", ""), "operator": pick(g, "In", "NotIn", "Exists", "DoesNotExist", "Gt")}
		if g.maybe(50) {
			requirement["values"] = []string{pick(g, "a", "b c")}
		}
		spec["namespaceSelector"] = object{"matchLabels": g.labels(), "matchExpressions": []object{requirement}}
	}
	if g.maybe(40) {
		spec["preemption"] = object{"reclaimWithinCohort": pick(g, "Never", "Any"),
			"borrowWithinCohort": object{"policy": pick(g, "Never", "LowerPriority")}}
	}
	if g.maybe(40) {
		borrow, preempt := pick(g, "MayStopSearch", "TryNextFlavor"), "TryNextFlavor"
		if !newer && g.maybe(50) {
			borrow, preempt = "Borrow", "Preempt"
		}
		spec["flavorFungibility"] = object{"whenCanBorrow": borrow, "whenCanPreempt": preempt}
		if g.maybe(50) {
			spec["flavorFungibility"].(object)["preference"] = "BorrowingOverPreemption"
		}
	}
	if g.maybe(30) {
		spec["fairSharing"] = object{"weight": g.quantity()}
	}
	if g.maybe(40) {
		check := object{"name": pick(g, "c1", "c2"), "onFlavors": times(g, 0, 2, func() string { return pick(g, "a", "b", "zz") })}
		spec["admissionChecksStrategy"] = object{"admissionChecks": []object{check}}
	}
	if !newer && g.maybe(40) {
		spec["admissionChecks"] = times(g, 0, 2, func() string { return pick(g, "c1", "c2") })
	}
	if newer && g.maybe(20) {
		migration := object{"mode": pick(g, "TryPreferredFlavors", "RetainFirstAdmission")}
		if g.maybe(50) {
			migration["constraints"] = object{"lastAcceptableFlavorName": pick(g, "a", "zz")}
		}
		spec["concurrentAdmissionPolicy"] = object{"migration": migration}
	}
	status := object{"pendingWorkloads": 3, "fairSharing": object{"weightedShare": 4}}
	if !newer {
		status["pendingWorkloadsStatus"] = object{"lastChangeTime": "2026-01-01T00:00:00Z"}
	}
	return object{"spec": spec, "status": status}
}

func (g generator) cohort(bool) object {
	return object{"spec": object{"resourceGroups": g.groups(), "parentName": pick(g, "root", ""), "fairSharing": object{"weight": g.quantity()}}}
}

func (g generator) resourceFlavor(bool) object {
	taint := func() object {
		return object{"key": pick(g, "a", "@", "b"), "value": pick(g, "", "v", "v w"), "effect": pick(g, "NoSchedule", "NoExecute")}
	}
	return object{"spec": object{"nodeLabels": g.labels(), "nodeTaints": times(g, 0, 3, taint), "tolerations": times(g, 0, 2, g.toleration)}}
}

func (g generator) localQueue(newer bool) object {
	used := map[bool]string{true: "flavorsUsage", false: "flavorUsage"}[newer]
	status := object{used: []object{{"name": "a", "resources": []object{{"name": "cpu", "total": "1"}}}}}
	if !newer {
		status["flavors"] = []object{{"name": "a"}}
	}
	return object{"spec": object{"clusterQueue": "q"}, "status": status}
}

func (g generator) cluster(newer bool) object {
	config := object{"location": pick(g, "secret", ""), "locationType": pick(g, "Secret", "Path")}
	profile := object{"name": "p"}
	if !newer {
		spec := object{"kubeConfig": config}
		if g.maybe(50) {
			spec["clusterProfileRef"] = profile
		}
		return object{"spec": spec}
	}
	source := object{}
	if g.maybe(50) {
		source["kubeConfig"] = config
	}
	if g.maybe(50) {
		source["clusterProfileRef"] = profile
	}
	return object{"spec": object{"clusterSource": source}}
}
