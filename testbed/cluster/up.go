// The start of one cluster: its programs, their flags and their order.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
)

// heartbeats is the flag by which kube-controller-manager takes no node for dead: KWOK renews no leases of nodes, and never stops.
const heartbeats = "--node-monitor-grace-period=24h"

// options are the flags of `cluster up`.
type options struct {
	dir        string
	nodes      []string
	with       []string
	kubeconfig string            // The kubeconfig of a cluster to join; empty: start a control plane.
	noNodes    bool              // Start no KWOK.
	apiOnly    bool              // Start no scheduler, no workload controllers and no nodes.
	backoff    string            // MCAD's backoff time, in seconds.
	programs   map[string]string // The paths of the programs by name; the manifests of a program are in folders beside it.
}

// up starts the cluster, waits until its nodes are ready, and prints the path of its kubeconfig.
// After an error it stops all started processes.
func up(o options) (err error) {
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	known, err := processes(o.dir)
	if err != nil {
		return err
	}
	for _, p := range known {
		if p.alive() {
			return fmt.Errorf("a cluster already runs in %s (%s is process %d); stop it with: testbed/down --dir %s", o.dir, p.Name, p.Pid, o.dir)
		}
	}
	for _, stale := range []string{"etcd", "logs", "processes.json"} {
		if err := os.RemoveAll(filepath.Join(o.dir, stale)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(o.dir, "logs"), 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w (logs: %s)", err, filepath.Join(o.dir, "logs")), down(o.dir))
		}
	}()

	var api *client
	var running []process
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dir, "kubeconfig")
		api, running, err = o.startControlPlane()
	} else {
		if o.kubeconfig, err = filepath.Abs(o.kubeconfig); err == nil {
			api, err = clientOf(o.kubeconfig)
		}
	}
	if err != nil {
		return err
	}
	if !o.noNodes && !o.apiOnly {
		if err := o.startNodes(api, &running); err != nil {
			return err
		}
	}
	for _, name := range o.with {
		switch name {
		case "kube-controller-manager", "kube-scheduler":
			command := []string{
				o.programs["controlplane"], name, "--kubeconfig=" + o.kubeconfig, "--leader-elect=false", "--secure-port=0",
				"--kube-api-qps=500", "--kube-api-burst=1000",
			}
			if name == "kube-controller-manager" {
				command = append(command, heartbeats)
			}
			err = o.start(&running, process{Name: name, Command: command})
		case "kuberay":
			err = o.startKubeRay(api, &running)
		case "mcad":
			err = o.startMcad(api, &running)
		default:
			err = fmt.Errorf("--with %s: no such operator; known are kuberay, mcad, kube-controller-manager and kube-scheduler", name)
		}
		if err != nil {
			return err
		}
	}
	fmt.Println(o.kubeconfig)
	return nil
}

// startControlPlane starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and writes the kubeconfig.
func (o options) startControlPlane() (*client, []process, error) {
	secrets := filepath.Join(o.dir, "secrets")
	token, err := writeSecrets(secrets)
	if err != nil {
		return nil, nil, err
	}
	tokens := filepath.Join(secrets, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return nil, nil, err
	}
	authority, err := os.ReadFile(filepath.Join(secrets, "ca.crt"))
	if err != nil {
		return nil, nil, err
	}
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, nil, err
	}
	etcd, peer, secure := addresses[0], addresses[1], addresses[2]
	server := "https://" + secure
	if err := writeKubeconfig(o.kubeconfig, server, token, authority); err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(secure)
	accounts := filepath.Join(secrets, "service-accounts.key")
	var running []process
	component := func(name string, flags ...string) error {
		return o.start(&running, process{Name: name, Command: append([]string{o.programs["controlplane"], name}, flags...)})
	}
	if err := component("etcd",
		"--data-dir="+filepath.Join(o.dir, "etcd"),
		"--listen-client-urls=http://"+etcd, "--advertise-client-urls=http://"+etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer,
		"--unsafe-no-fsync", "--log-level=warn",
	); err != nil {
		return nil, nil, err
	}
	if err := component("kube-apiserver",
		"--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--secure-port="+port, "--advertise-address=127.0.0.1",
		"--tls-cert-file="+filepath.Join(secrets, "apiserver.crt"), "--tls-private-key-file="+filepath.Join(secrets, "apiserver.key"),
		"--token-auth-file="+tokens, "--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts,
		"--service-cluster-ip-range=127.96.0.0/16", "--endpoint-reconciler-type=none",
		"--requestheader-client-ca-file="+filepath.Join(secrets, "front-proxy-ca.crt"), "--requestheader-allowed-names="+frontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+filepath.Join(secrets, "front-proxy-client.crt"),
		"--proxy-client-key-file="+filepath.Join(secrets, "front-proxy-client.key"),
	); err != nil {
		return nil, nil, err
	}
	api, err := newClient(server, token, authority)
	if err != nil {
		return nil, nil, err
	}
	if err := api.until("ready API server", "/readyz", running, func([]byte) bool { return true }); err != nil {
		return nil, nil, err
	}
	controllers := "*"
	if o.apiOnly {
		controllers = "garbage-collector-controller,namespace-controller,serviceaccount-controller"
	}
	if err := component("kube-controller-manager",
		"--kubeconfig="+o.kubeconfig, "--controllers="+controllers, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true",
		"--service-account-private-key-file="+accounts, "--root-ca-file="+filepath.Join(secrets, "ca.crt"),
		"--kube-api-qps=500", "--kube-api-burst=1000", heartbeats,
	); err != nil {
		return nil, nil, err
	}
	if !o.apiOnly {
		if err := component("kube-scheduler",
			"--kubeconfig="+o.kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000",
		); err != nil {
			return nil, nil, err
		}
	}
	// The API server rejects pods until the namespace has its default service account.
	err = api.until("default service account", "/api/v1/namespaces/default/serviceaccounts/default", running, func([]byte) bool { return true })
	return api, running, err
}

// startNodes creates the nodes and starts KWOK, which simulates their kubelets with the stages of its own module.
func (o options) startNodes(api *client, running *[]process) error {
	flags := o.nodes
	if len(flags) == 0 {
		flags = defaultNodes
	}
	for _, flag := range flags {
		nodes, err := parseNodes(flag)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			body, err := json.Marshal(node)
			if err != nil {
				return err
			}
			if err := api.create("/api/v1/nodes", "application/json", body); err != nil {
				return err
			}
		}
	}
	kwok := o.programs["kwok"]
	// Without leases of nodes: KWOK leaves the pods of a node alone until it sees its own lease. A pod that is bound before, by a DaemonSet on
	// a new node or while the lease of a node with the same name is collected, then never starts.
	command := []string{kwok, "--kubeconfig=" + o.kubeconfig, "--manage-all-nodes=true", "--node-lease-duration-seconds=0", "--cidr=10.244.0.0/16", "--node-ip=10.0.0.1"}
	stages, err := filepath.Glob(filepath.Join(filepath.Dir(kwok), "stages", "*.yaml"))
	if err != nil || len(stages) == 0 {
		return fmt.Errorf("no stages beside %s", kwok)
	}
	for _, stage := range stages {
		command = append(command, "--config="+stage)
	}
	if err := o.start(running, process{Name: "kwok", Command: command}); err != nil {
		return err
	}
	return api.until("ready nodes", "/api/v1/nodes", *running, func(answer []byte) bool {
		ready, all := countReady(answer, "Ready")
		return ready == all
	})
}

// startKubeRay installs the operator's CRDs, and starts the operator and a simulated dashboard for all Ray clusters.
func (o options) startKubeRay(api *client, running *[]process) error {
	operator := o.programs["kuberay"]
	if err := o.install(api, *running, operator); err != nil {
		return err
	}
	addresses, err := freeAddresses(1)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := o.start(running, process{Name: "ray-dashboard", Command: []string{self, "ray-dashboard", "--listen", addresses[0]}}); err != nil {
		return err
	}
	return o.start(running, process{
		Name:    "kuberay",
		Command: []string{operator, "-enable-leader-election=false", "-metrics-addr=0", "-health-probe-bind-address=0"},
		// Go's HTTP client uses no proxy for loopback, so the operator reaches the API server directly.
		Environment: []string{"KUBECONFIG=" + o.kubeconfig, "HTTP_PROXY=http://" + addresses[0]},
	})
}

// startMcad installs the CRDs of MCAD, and starts it.
func (o options) startMcad(api *client, running *[]process) error {
	controller := o.programs["mcad"]
	if err := o.install(api, *running, controller); err != nil {
		return err
	}
	addresses, err := freeAddresses(1)
	if err != nil {
		return err
	}
	return o.start(running, process{
		Name:        "mcad",
		Command:     []string{controller, "--kubeconfig=" + o.kubeconfig, "--healthProbeListenAddr=" + addresses[0], "--backofftime=" + o.backoff, "-v=4"},
		Environment: []string{"BACKOFFTIME=" + o.backoff},
	})
}

// install creates the CRDs beside an operator's program, and waits until they are established.
func (o options) install(api *client, running []process, program string) error {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if err := api.createAll(path, filepath.Join(filepath.Dir(program), "crds")); err != nil {
		return err
	}
	return api.until("established CRDs", path, running, func(answer []byte) bool {
		ready, all := countReady(answer, "Established")
		return ready == all
	})
}

// start starts one program of the cluster and appends it to `running`, so that until() detects its exit.
func (o options) start(running *[]process, p process) error {
	if slices.Contains(p.Command[:1], "") {
		return fmt.Errorf("no program for %s; set --program", p.Name)
	}
	started, err := p.start(o.dir)
	*running = append(*running, started)
	return err
}

// freeAddresses finds distinct free ports on loopback.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// writeKubeconfig writes a kubeconfig as JSON, which is valid YAML.
func writeKubeconfig(path, server, token string, authority []byte) error {
	data, err := json.MarshalIndent(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "testbed",
		"clusters":        []any{map[string]any{"name": "testbed", "cluster": map[string]any{"server": server, "certificate-authority-data": authority}}},
		"users":           []any{map[string]any{"name": "admin", "user": map[string]any{"token": token}}},
		"contexts":        []any{map[string]any{"name": "testbed", "context": map[string]any{"cluster": "testbed", "user": "admin"}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}
