package simtest

import (
	"fmt"
	"sync"
	"testing"
)

// recorder is a testing.T that remembers the errors.
type recorder struct {
	*testing.T

	mu         sync.Mutex
	violations []string
}

// maxViolations bounds the kept violations: later ones follow from the first few.
const maxViolations = 20

func (r *recorder) record(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, text)
	}
}

// Errorf is testing.T's.
func (r *recorder) Errorf(format string, args ...any) {
	r.T.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Errorf(format, args...)
}

// Error is testing.T's.
func (r *recorder) Error(args ...any) {
	r.T.Helper()
	r.record(fmt.Sprint(args...))
	r.T.Error(args...)
}

// Fatalf is testing.T's.
func (r *recorder) Fatalf(format string, args ...any) {
	r.T.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Fatalf(format, args...)
}
