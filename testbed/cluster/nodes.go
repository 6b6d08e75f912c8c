// Nodes from flags in the format of `muster up`: count=2,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2.
package main

import (
	"fmt"
	"strconv"
	"strings"
)

// The default nodes, as in `muster up`.
var defaultNodes = []string{
	"count=1,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2",
	"count=1,name=cpu,cpu=16,memory=64Gi",
}

// parseNodes builds the Node objects of one flag: `count` nodes named NAME-0, NAME-1, ...; every other key is a resource of each node.
func parseNodes(flag string) ([]map[string]any, error) {
	count, name := 1, "node"
	resources := map[string]string{"pods": "110"}
	for part := range strings.SplitSeq(flag, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found || key == "" || value == "" {
			return nil, fmt.Errorf("--node %s: %q is not of the form key=value", flag, part)
		}
		switch key {
		case "name":
			name = value
		case "count":
			number, err := strconv.Atoi(value)
			if err != nil || number < 0 {
				return nil, fmt.Errorf("--node %s: count %q is not a number", flag, value)
			}
			count = number
		default:
			resources[key] = value
		}
	}
	var nodes []map[string]any
	for at := range count {
		node := fmt.Sprintf("%s-%d", name, at)
		nodes = append(nodes, map[string]any{
			"apiVersion": "v1",
			"kind":       "Node",
			"metadata": map[string]any{
				"name": node,
				"labels": map[string]string{
					"kubernetes.io/hostname": node,
					"kubernetes.io/os":       "linux",
					"kubernetes.io/arch":     "amd64",
				},
				"annotations": map[string]string{"kwok.x-k8s.io/node": "fake"},
			},
			"status": map[string]any{"capacity": resources, "allocatable": resources},
		})
	}
	return nodes, nil
}
