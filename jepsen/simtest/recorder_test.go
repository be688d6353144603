package simtest

import (
	"fmt"
	"sync"
	"testing"
)

// recorder is a testing.T that remembers what was wrong.
type recorder struct {
	*testing.T

	mu         sync.Mutex
	violations []string
}

// maxViolations bounds what is kept: what comes after the first few follows from them.
const maxViolations = 20

func (r *recorder) record(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, text)
	}
}

// Errorf implements what tests use of testing.T.
func (r *recorder) Errorf(format string, args ...any) {
	r.T.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Errorf(format, args...)
}

// Error implements what tests use of testing.T.
func (r *recorder) Error(args ...any) {
	r.T.Helper()
	r.record(fmt.Sprint(args...))
	r.T.Error(args...)
}

// Fatalf implements what tests use of testing.T.
func (r *recorder) Fatalf(format string, args ...any) {
	r.T.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Fatalf(format, args...)
}
