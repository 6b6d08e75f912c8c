// MCAD's end-to-end suite as one program: its specs lie in an importable package, so all that is here is which of them run and what is said of each.
//
// Without --spec it prints the names of the specs, one per line (--focus is a regular expression). With --spec it runs that one against the
// cluster of $HOME/.kube/config, which is where the suite looks, and exits with 0 when it passed and 1 when it failed. What failed is written
// to the file of --failure; all that the suite prints goes to standard output.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/onsi/ginkgo"
	"github.com/onsi/ginkgo/config"
	"github.com/onsi/ginkgo/types"
	"github.com/onsi/gomega"
	_ "github.com/project-codeflare/multi-cluster-app-dispatcher/test/e2e"
)

// The suite's only container: part of every spec's full name.
const container = "AppWrapper E2E Test"

func main() {
	spec := flag.String("spec", "", "name of the spec to run")
	focus := flag.String("focus", "", "list the specs whose name matches")
	failure := flag.String("failure", "", "file for the message of a spec that fails")
	flag.Parse()
	gomega.RegisterFailHandler(ginkgo.Fail)
	if *spec == "" {
		os.Exit(list(*focus))
	}
	os.Exit(run(*spec, *failure))
}

// list prints the names of the specs that match, in the order of the suite.
func list(focus string) int {
	wanted, err := regexp.Compile(focus)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	config.GinkgoConfig.DryRun = true
	names := &reporter{}
	names.done = func(summary *types.SpecSummary) {
		if name := nameOf(summary); wanted.MatchString(name) {
			fmt.Println(name)
		}
	}
	ginkgo.RunSpecsWithCustomReporters(&verdict{}, "MCAD", []ginkgo.Reporter{names})
	return 0
}

// run runs one spec and tells whether it passed.
func run(spec, failure string) int {
	config.GinkgoConfig.FocusString = container + " " + regexp.QuoteMeta(spec) + "$"
	config.DefaultReporterConfig.Verbose = true
	config.DefaultReporterConfig.NoColor = true
	result, ran := &verdict{}, 0
	one := &reporter{}
	one.done = func(summary *types.SpecSummary) {
		if summary.Skipped() || summary.Pending() {
			return
		}
		ran++
		if summary.HasFailureState() && failure != "" {
			if err := os.WriteFile(failure, []byte(describe(summary)+"\n"), 0o644); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	ginkgo.RunSpecsWithDefaultAndCustomReporters(result, "MCAD", []ginkgo.Reporter{one})
	switch {
	case ran != 1:
		fmt.Fprintf(os.Stderr, "%d specs are named %q\n", ran, spec)
		return 2
	case result.failed:
		return 1
	default:
		return 0
	}
}

func nameOf(summary *types.SpecSummary) string {
	texts := summary.ComponentTexts
	return texts[len(texts)-1]
}

// describe tells in one line what a spec says that failed, and where in the suite.
func describe(summary *types.SpecSummary) string {
	message := summary.Failure.Message
	if summary.Failure.ForwardedPanic != "" {
		message += ": " + summary.Failure.ForwardedPanic
	}
	at := summary.Failure.Location
	return fmt.Sprintf("%s (%s:%d)", strings.Join(strings.Fields(message), " "), filepath.Base(at.FileName), at.LineNumber)
}

// verdict is what ginkgo tells when a spec failed.
type verdict struct{ failed bool }

func (v *verdict) Fail() { v.failed = true }

// reporter listens to ginkgo for the end of specs only.
type reporter struct{ done func(*types.SpecSummary) }

func (*reporter) SpecSuiteWillBegin(config.GinkgoConfigType, *types.SuiteSummary) {}
func (*reporter) BeforeSuiteDidRun(*types.SetupSummary)                           {}
func (*reporter) SpecWillRun(*types.SpecSummary)                                  {}
func (r *reporter) SpecDidComplete(summary *types.SpecSummary)                    { r.done(summary) }
func (*reporter) AfterSuiteDidRun(*types.SetupSummary)                            {}
func (*reporter) SpecSuiteDidEnd(*types.SuiteSummary)                             {}
