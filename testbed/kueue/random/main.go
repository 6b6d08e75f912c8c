// Creates the same random queues and Workloads in three clusters, lets Kueue act in two of them and another program in the third, and compares
// what they say in the end. `testbed/kueue/differential` builds it in the copy of Kueue's module.
//
// Each seed has two waves of Workloads. Those of a wave wait outside of their queues until all exist, and are let in at once, by a label of their
// namespace: so no decision depends on which object a program sees first. In the end those that wait are let in once more, so that all say what they
// lack in the end: Kueue's messages are those of the last attempt, Muster's those of the moment they are written. What depends on chance even so is where two runs of Kueue differ; it is
// not compared, but counted. The program plays the controllers of jobs: it releases the quota of evicted Workloads.
//
// Several seeds are played at the same time; their objects have nothing to do with each other.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"
)

func main() {
	crds := flag.String("crds", "", "the folder of Kueue's definitions")
	reference := flag.String("kueue", "", "Kueue's program")
	candidate := flag.String("candidate", "", "the other program")
	out := flag.String("o", "", "the folder of logs")
	first := flag.Int64("first", 1, "the first seed")
	seeds := flag.Int64("seeds", 20, "the number of seeds")
	together := flag.Int64("together", 5, "the number of seeds that are played at the same time")
	show := flag.Bool("print", false, "print the objects of the first seed, and do nothing else")
	flag.BoolVar(&topologies, "topologies", false, "all flavors have topologies with nodes")
	flag.Parse()
	if *show {
		print(*first)
		return
	}
	all := figures{classes: map[string]int{}}
	err := run(*crds, *out, [3]string{*reference, *reference, *candidate}, *first, *seeds, *together, &all)
	all.print()
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	if all.differing > 0 {
		os.Exit(1)
	}
}

func run(crds, out string, programs [3]string, first, seeds, together int64, all *figures) error {
	var sides [3]*side
	err := each(func(at int) (err error) {
		sides[at], err = start([]string{"kueue", "kueue-again", "candidate"}[at], programs[at], crds, out)
		return err
	})
	for _, s := range sides {
		if s != nil {
			defer s.environment.Stop()
		}
	}
	for from := first; err == nil && from < first+seeds; from += together {
		var batch []int64
		for seed := from; seed < min(from+together, first+seeds); seed++ {
			batch = append(batch, seed)
		}
		var ends [3]map[int64]map[string]string
		err = each(func(at int) (err error) {
			ends[at], err = sides[at].play(batch, out)
			return err
		})
		if err != nil {
			return fmt.Errorf("seeds from %d: %w", from, err)
		}
		for _, seed := range batch {
			all.compare(seed, [2]map[string]string{ends[0][seed], ends[1][seed]}, ends[2][seed])
		}
	}
	return err
}

// print writes the objects of a seed.
func print(seed int64) {
	queues, waves := generate(seed)
	for _, object := range slices.Concat(queues, waves[0], waves[1]) {
		text, _ := yaml.Marshal(object)
		fmt.Printf("---\n%s", text)
	}
}

// each calls a function for the three sides at the same time.
func each(call func(at int) error) error {
	var group sync.WaitGroup
	var failed [3]error
	for at := range failed {
		group.Go(func() { failed[at] = call(at) })
	}
	group.Wait()
	return errors.Join(failed[:]...)
}
