// The clusters of the testbed: starts and stops a real Kubernetes control plane on loopback, with simulated nodes and optional operators
// for comparison. It uses only the standard library, so that it builds quickly.
//
// This file holds the command line. What is started and in which order stands in up.go, processes in processes.go.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

const usage = `usage:
  cluster up      --dir DIR [--node SPEC]... [--with NAME,...] [--kubeconfig FILE] --program NAME=PATH...
  cluster down    --dir DIR
  cluster restart --dir DIR NAME...
  cluster ray-dashboard --listen ADDRESS [--runs DURATION]
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the cluster: state, logs, kubeconfig")
	switch arguments[0] {
	case "up":
		var options options
		var with string
		programs := pairs{}
		flags.Var((*list)(&options.nodes), "node", "nodes of one shape, as for `muster up`: count=1,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2")
		flags.StringVar(&with, "with", "", "programs to start as well: kuberay, mcad; on another cluster also kube-controller-manager, kube-scheduler")
		flags.StringVar(&options.kubeconfig, "kubeconfig", "", "start nodes and operators on this cluster instead of a control plane of their own")
		flags.BoolVar(&options.noNodes, "no-kwok", false, "no simulated nodes: the cluster has its own")
		flags.BoolVar(&options.apiOnly, "api-only", false, "only the API server, garbage collection and namespaces: nothing else writes")
		flags.StringVar(&options.backoff, "mcad-backoff", "20", "MCAD's back-off time in seconds")
		flags.Var(programs, "program", "where a program is: name=path")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		if *dir == "" {
			return errors.New("up: --dir is missing")
		}
		options.dir, options.programs = *dir, programs
		if with != "" {
			options.with = strings.Split(with, ",")
		}
		return up(options)
	case "down":
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return down(*dir)
	case "restart":
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return restart(*dir, flags.Args())
	case "ray-dashboard":
		listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
		runs := flags.Duration("runs", defaultRun, "how long a job is RUNNING after the first question about it")
		if err := flags.Parse(arguments[1:]); err != nil {
			return err
		}
		return serveDashboard(*listen, *runs)
	default:
		return fmt.Errorf("no command %q\n%s", arguments[0], usage)
	}
}

// list is a repeatable flag.
type list []string

func (l *list) String() string         { return strings.Join(*l, " ") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

// pairs is a repeatable flag of the form name=value.
type pairs map[string]string

func (p pairs) String() string { return fmt.Sprint(map[string]string(p)) }

func (p pairs) Set(value string) error {
	name, path, found := strings.Cut(value, "=")
	if !found {
		return fmt.Errorf("%q is not of the form name=path", value)
	}
	p[name] = path
	return nil
}
