// Package seam records the options that a test suite passes to its manager, so that another process gets the same ones. It records nothing
// unless SEAM_CONTROLLER is set.
package seam

import (
	"os"
	"sync"
)

// Foreign reports whether another process runs in the place of the manager.
var Foreign = os.Getenv("SEAM_CONTROLLER") != ""

var (
	lock  sync.Mutex
	notes = map[string][]any{}
	gates func()
)

// Note records a value under a name. Values of a name keep their order.
func Note(name string, value any) {
	if !Foreign {
		return
	}
	lock.Lock()
	defer lock.Unlock()
	notes[name] = append(notes[name], value)
}

// Forget drops all values. It is called before the setup of a manager.
func Forget() {
	lock.Lock()
	defer lock.Unlock()
	notes = map[string][]any{}
}

// Notes returns the values of a name since Forget.
func Notes(name string) []any {
	lock.Lock()
	defer lock.Unlock()
	return append([]any(nil), notes[name]...)
}

// OnGates sets the function that is called after a change of feature gates.
func OnGates(f func()) {
	lock.Lock()
	defer lock.Unlock()
	gates = f
}

// GatesChanged is called by the helpers that switch feature gates in a spec.
func GatesChanged() {
	lock.Lock()
	f := gates
	lock.Unlock()
	if Foreign && f != nil {
		f()
	}
}
