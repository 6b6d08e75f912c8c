// Processes of one cluster. Each process has its own session and is recorded in DIR/processes.json, by which it is stopped.
// A process is identified by its id and start time, so that a reused process id is never signalled.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process is one started program, with everything that a restart needs.
type process struct {
	Name        string   `json:"name"`
	Pid         int      `json:"pid"`
	Started     string   `json:"started"` // Start time in ticks since boot, field 22 of /proc/PID/stat.
	Command     []string `json:"command"`
	Environment []string `json:"environment,omitempty"`
}

// start runs the command in the background with its output appended to DIR/logs/NAME.log, and records it.
func (p process) start(dir string) (process, error) {
	log, err := os.OpenFile(filepath.Join(dir, "logs", p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return p, err
	}
	defer log.Close()
	command := exec.Command(p.Command[0], p.Command[1:]...)
	command.Stdout, command.Stderr = log, log
	command.Dir = dir
	command.Env = append(os.Environ(), p.Environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return p, fmt.Errorf("cannot start %s: %w", p.Name, err)
	}
	// Reaps the child while this program runs, so that alive() detects an early exit.
	go command.Wait()
	p.Pid = command.Process.Pid
	p.Started, _ = startTime(p.Pid)
	return p, record(dir, p)
}

// alive reports whether the process still runs and is the recorded one.
func (p process) alive() bool {
	started, err := startTime(p.Pid)
	return err == nil && started == p.Started
}

// end sends SIGTERM, and SIGKILL after ten seconds.
func (p process) end() error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !p.alive() {
			return nil
		}
		if err := syscall.Kill(p.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("cannot stop %s (%d): %w", p.Name, p.Pid, err)
		}
		for deadline := time.Now().Add(10 * time.Second); p.alive() && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if p.alive() {
		return fmt.Errorf("%s (%d) does not exit", p.Name, p.Pid)
	}
	return nil
}

// startTime reads the start time of a process. A zombie counts as exited.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the name in parentheses, which may contain spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if fields[0] == "Z" || fields[0] == "X" {
		return "", os.ErrProcessDone
	}
	return fields[19], nil
}

func processesFile(dir string) string { return filepath.Join(dir, "processes.json") }

// processes reads the recorded processes of the cluster in `dir`, in start order. A missing record is not an error.
func processes(dir string) ([]process, error) {
	data, err := os.ReadFile(processesFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []process
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", processesFile(dir), err)
	}
	return found, nil
}

// record adds or replaces one process in the record of the cluster.
func record(dir string, p process) error {
	known, err := processes(dir)
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(known, func(other process) bool { return other.Name == p.Name }); at >= 0 {
		known[at] = p
	} else {
		known = append(known, p)
	}
	data, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(processesFile(dir), append(data, '\n'), 0o644)
}

// down stops the processes of the cluster in `dir`, in reverse start order. Logs and the kubeconfig are kept.
func down(dir string) error {
	known, err := processes(dir)
	if err != nil {
		return err
	}
	var failures []error
	for _, p := range slices.Backward(known) {
		failures = append(failures, p.end())
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	if err := os.Remove(processesFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// restart stops the named processes and starts them with the same command. State on disk is kept.
func restart(dir string, names []string) error {
	known, err := processes(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		at := slices.IndexFunc(known, func(p process) bool { return p.Name == name })
		if at < 0 {
			return fmt.Errorf("no process %q in %s", name, processesFile(dir))
		}
		if err := known[at].end(); err != nil {
			return err
		}
		if _, err := known[at].start(dir); err != nil {
			return err
		}
	}
	return nil
}
