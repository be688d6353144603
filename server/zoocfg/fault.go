package zoocfg

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with a configuration. It reads "file:line: key: reason"; what is not known
// (the line of a key that is missing, the file of a Config that was put together by a program) is left out.
type Fault struct {
	File   string
	Line   int // from 1; 0 when the fault is not at any one line
	Key    string
	Reason string
	Err    error // the cause, where there is one beyond the configuration itself
}

// Error implements error.
func (f Fault) Error() string { return place(f.File, f.Line) + f.Key + ": " + f.Reason }

// place is the beginning of a message about a line of a file, without what is not known.
func place(file string, line int) string {
	switch {
	case file == "":
		return ""
	case line == 0:
		return file + ": "
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}

// Unwrap returns the cause.
func (f Fault) Unwrap() error { return f.Err }

// Faults are all the things wrong with a configuration, in the order of the file, one to a line.
type Faults []Fault

// Error implements error.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As see each fault.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i := range f {
		errs[i] = f[i]
	}
	return errs
}

// Err is f as an error, nil when there is no fault.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}
