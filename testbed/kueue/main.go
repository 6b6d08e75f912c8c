// The tools of Kueue's suites.
//
//	kueue apply SEAM MODULE COPY    inserts the seam into a copy of Kueue's module
//	kueue summary REPORT            prints the counts of a JSON report of ginkgo, and its failed specs
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testbed/kueue:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 4 && arguments[0] == "apply":
		return apply(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 2 && arguments[0] == "summary":
		return summary(arguments[1])
	}
	return fmt.Errorf("usage: kueue apply SEAM MODULE COPY | kueue summary REPORT")
}

// suite is a suite of a report.
type suite struct {
	SpecReports []spec
}

// spec is one node of a suite: a spec (`It`), or a setup node.
type spec struct {
	State                   string
	LeafNodeType            string
	LeafNodeText            string
	ContainerHierarchyTexts []string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.TrimSpace(strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "))
}

// result returns the count to which a spec belongs, and the line about its failure. A spec of an ordered container that is skipped after the
// failure of an earlier one has failed, too. Setup nodes are only reported when they fail.
func (s spec) result() (count, failure string) {
	switch {
	case s.LeafNodeType != "It":
		if s.State != "passed" && s.State != "skipped" {
			return "", fmt.Sprintf("[%s] %s", s.LeafNodeType, s.name())
		}
		return "", ""
	case s.State == "passed":
		return "passed", ""
	case s.State != "skipped" && s.State != "pending":
		return "failed", s.name()
	case strings.Contains(s.Failure.Message, "earlier spec"):
		return "failed", "(after an earlier failure) " + s.name()
	}
	return "skipped", ""
}

func summary(report string) error {
	text, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	var suites []suite
	if err := json.Unmarshal(text, &suites); err != nil {
		return fmt.Errorf("%s: %w", report, err)
	}
	counts := map[string]int{}
	var failures []string
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			count, failure := spec.result()
			counts[count]++
			if failure != "" {
				failures = append(failures, failure)
			}
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", counts["passed"], counts["failed"], counts["skipped"])
	for _, failure := range failures {
		fmt.Println("FAILED", failure)
	}
	return nil
}
