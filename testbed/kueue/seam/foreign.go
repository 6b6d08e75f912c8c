package framework

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/kueue/pkg/seam"
)

const (
	// Limits for the start until it is ready, and for the end after SIGTERM.
	foreignStart = 30 * time.Second
	foreignStop  = 10 * time.Second
)

// foreign is a controller process in the place of one manager.
type foreign struct {
	framework *Framework
	rest      *rest.Config
	dir       string
	number    int

	// What the setup of the suite has added to the manager.
	controllers []string
	paths       []string
	notes       map[string][]any

	// The process, while it runs.
	process *os.Process
	exited  chan struct{}
	exit    error
	gates   map[string]bool
	mirror  *mirror
	log     string
}

var (
	foreignLock  sync.Mutex
	foreignAll   = map[*Framework]*foreign{}
	foreignCount int
)

// recorder is a manager that never starts. It records the names of the controllers that are added.
type recorder struct {
	manager.Manager
	added []string
}

func (r *recorder) Add(runnable manager.Runnable) error {
	if value := reflect.Indirect(reflect.ValueOf(runnable)); value.Kind() == reflect.Struct {
		if name := value.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
			r.added = append(r.added, name.String())
		}
	}
	return r.Manager.Add(runnable)
}

// paths is a webhook server that never listens. It records the paths that are registered.
type paths struct {
	webhook.Server
	registered []string
}

func (p *paths) Register(path string, hook http.Handler) {
	p.registered = append(p.registered, path)
	p.Server.Register(path, hook)
}

// startForeign starts the program of SEAM_CONTROLLER with the parts that the setup adds to a manager which never starts. It returns false
// if the variable is not set: the suite then runs its own manager.
func (f *Framework) startForeign(ctx context.Context, cfg *rest.Config, setup ManagerSetup, opts ...ManagerOption) bool {
	if !seam.Foreign {
		return false
	}
	ginkgo.By("starting the foreign controller", func() {
		install := &f.testEnv.WebhookInstallOptions
		server := &paths{Server: webhook.NewServer(webhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		})}
		skip := true
		options := manager.Options{
			Scheme:        f.scheme,
			Metrics:       metricsserver.Options{BindAddress: "0"},
			WebhookServer: server,
			Controller:    crconfig.Controller{SkipNameValidation: &skip},
		}
		for _, opt := range opts {
			opt(&options)
		}
		inner, err := ctrl.NewManager(cfg, options)
		gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred(), "failed to create manager")

		seam.Forget()
		wired := &recorder{Manager: inner}
		wiring, cancel := context.WithCancel(ctx)
		setup(wiring, wired)

		p := &foreign{framework: f, rest: cfg, controllers: wired.added, paths: server.registered, notes: map[string][]any{}}
		for _, name := range []string{"configuration", "scheduler", "cache", "queues", "jobs", "excludeResourcePrefixes", "transformations", "requeueBatchPeriod", "noop", "enabled"} {
			p.notes[name] = seam.Notes(name)
		}
		base := os.Getenv("SEAM_LOGS")
		if base == "" {
			base = os.TempDir()
		}
		foreignLock.Lock()
		foreignCount++
		p.number = foreignCount
		foreignAll[f] = p
		foreignLock.Unlock()
		p.dir = filepath.Join(base, fmt.Sprintf("process%d-manager%03d", ginkgo.GinkgoParallelProcess(), p.number))
		gomega.ExpectWithOffset(1, os.MkdirAll(p.dir, 0o755)).To(gomega.Succeed())
		seam.OnGates(gatesChanged)

		done := make(chan struct{})
		f.managerDone = done
		f.managerCancel = func() {
			select {
			case <-done:
				return
			default:
			}
			cancel()
			err := p.stop()
			foreignLock.Lock()
			if foreignAll[f] == p {
				delete(foreignAll, f)
			}
			foreignLock.Unlock()
			close(done)
			gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred(), "the foreign controller did not stop as it should")
		}
		gomega.ExpectWithOffset(1, p.start()).To(gomega.Succeed(), "failed to start the foreign controller")
	})
	return true
}

// stopForeign ends the process of a suite that does not stop its manager. The API server stops after it.
func (f *Framework) stopForeign() {
	if seam.Foreign && f.managerCancel != nil {
		f.managerCancel()
	}
}

func init() {
	if seam.Foreign {
		// First in every spec: a process that has crashed is started again, and feature gates have their defaults again.
		ginkgo.BeforeEach(func() {
			gomega.Expect(refresh()).To(gomega.Succeed())
			forgetLeft()
		})
	}
}

// gatesChanged is called within a spec, once per gate. The process may refuse a combination of the first gates with the defaults of the
// others, so an error is only logged, and the next change starts the process again.
func gatesChanged() {
	if err := refresh(); err != nil {
		fmt.Fprintf(ginkgo.GinkgoWriter, "seam: %v\n", err)
	}
}

// refresh restarts the processes that have ended, and the processes whose feature gates have changed.
func refresh() error {
	foreignLock.Lock()
	var stale []*foreign
	now := gatesNow()
	for _, p := range foreignAll {
		if p.process == nil || p.ended() || !reflect.DeepEqual(p.gates, now) {
			stale = append(stale, p)
		}
	}
	foreignLock.Unlock()
	for _, p := range stale {
		fmt.Fprintf(ginkgo.GinkgoWriter, "seam: starting the foreign controller again, with feature gates %v\n", now)
		if err := p.stop(); err != nil {
			fmt.Fprintf(ginkgo.GinkgoWriter, "seam: %v\n", err)
		}
		if err := p.start(); err != nil {
			_ = p.stop()
			return err
		}
	}
	return nil
}

// ended reports whether the process has ended by itself.
func (p *foreign) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// gatesNow returns the feature gates that differ from their defaults.
func gatesNow() map[string]bool {
	changed := map[string]bool{}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if now := utilfeature.DefaultFeatureGate.Enabled(name); now != spec.Default && !spec.LockToDefault {
			changed[string(name)] = now
		}
	}
	return changed
}

// last returns the latest value that was noted under a name.
func last[T any](p *foreign, name string) (T, bool) {
	values := p.notes[name]
	if len(values) == 0 {
		var none T
		return none, false
	}
	value, ok := values[len(values)-1].(T)
	return value, ok
}

// start writes the configuration, starts the process and waits until it is ready.
func (p *foreign) start() error {
	metrics, err := freeAddress()
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	parts := p.parts()
	p.gates = gatesNow()
	p.exited, p.exit = make(chan struct{}), nil
	text, err := yaml.Marshal(p.configuration(parts, metrics, health))
	if err != nil {
		return err
	}
	kubeconfig, file := filepath.Join(p.dir, "kubeconfig"), filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(kubeconfig, p.framework.testEnv.KubeConfig, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	p.log = filepath.Join(p.dir, "log")
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	program := os.Getenv("SEAM_CONTROLLER")
	if program == "" {
		return fmt.Errorf("SEAM_CONTROLLER is empty")
	}
	command := exec.Command(program, "controller", "--kubeconfig", kubeconfig, "--config", file, "--parts", strings.Join(parts, ","))
	command.Stdout, command.Stderr = output, output
	command.Env = os.Environ()
	if period, ok := last[time.Duration](p, "requeueBatchPeriod"); ok {
		command.Env = append(command.Env, "ORACLE_REQUEUE_BATCH_PERIOD="+period.String())
	}
	// The process ends with this one. The signal is sent when the thread ends that has started it, so the thread is kept.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	fmt.Fprintf(output, "=== %s %s\n", time.Now().Format(time.RFC3339Nano), strings.Join(command.Args, " "))
	started, exited := make(chan error), p.exited
	go func() {
		goruntime.LockOSThread()
		defer output.Close()
		err := command.Start()
		started <- err
		if err != nil {
			return
		}
		err = command.Wait()
		foreignLock.Lock()
		p.exit = err
		foreignLock.Unlock()
		close(exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	foreignLock.Lock()
	p.process = command.Process
	foreignLock.Unlock()

	begin := time.Now()
	for {
		reason := p.ready(health)
		if reason == nil {
			break
		}
		select {
		case <-exited:
			return fmt.Errorf("it ended while starting: %v\n%s", p.exit, p.tail())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begin) > foreignStart {
			return fmt.Errorf("it is not ready after %s: %v\n%s", foreignStart, reason, p.tail())
		}
	}
	p.mirror = mirrorFrom("http://" + metrics + "/metrics")
	return nil
}

// ready returns nil if /readyz answers 200 and the webhook port speaks TLS (if webhooks are added).
func (p *foreign) ready(health string) error {
	if len(p.paths) > 0 {
		install := &p.framework.testEnv.WebhookInstallOptions
		address := net.JoinHostPort(install.LocalServingHost, fmt.Sprint(install.LocalServingPort))
		connection, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		connection.Close()
	}
	answer, err := (&http.Client{Timeout: time.Second}).Get("http://" + health + "/readyz")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", answer.Status)
	}
	return nil
}

// stop ends the process by SIGTERM, and by SIGKILL after the limit. It returns an error if the process was killed or had ended before.
func (p *foreign) stop() error {
	foreignLock.Lock()
	process, exited := p.process, p.exited
	p.process = nil
	foreignLock.Unlock()
	if process == nil {
		return nil
	}
	if p.mirror != nil {
		p.mirror.stop()
		p.mirror = nil
	}
	if p.ended() {
		return fmt.Errorf("it had ended by itself: %v\n%s", p.exit, p.tail())
	}
	_ = process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
		return nil
	case <-time.After(foreignStop):
		_ = process.Kill()
		<-exited
		return fmt.Errorf("it did not end within %s of SIGTERM\n%s", foreignStop, p.tail())
	}
}

// tail returns the end of the log.
func (p *foreign) tail() string {
	text, _ := os.ReadFile(p.log)
	if len(text) > 3000 {
		text = text[len(text)-3000:]
	}
	return p.log + ":\n" + string(text)
}

// freeAddress returns a loopback address with a free port.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
