package zoocfg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"lockkeeper/quorum"
	"lockkeeper/znode"
)

// Fault is one thing wrong with a configuration. It reads "file:line: key: reason", without what is
// not known: the line of a key that is missing, the file of a Config that a program has made.
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

// Fault returns a fault at the line of key, if the file has it.
func (c *Config) Fault(key, format string, args ...any) Fault {
	f := Fault{File: c.File, Key: key, Reason: fmt.Sprintf(format, args...)}
	if at, ok := c.origin[key]; ok {
		f.File, f.Line, f.Key = at.file, at.line, at.key // clientPort may come from a server line
	}
	return f
}

// Given reports whether the configuration file has a key.
func (c *Config) Given(key string) bool {
	_, ok := c.origin[key]
	return ok
}

// Notice is something about the configuration that an operator should know and that does not stop
// the start.
type Notice struct {
	Level slog.Level // Info or Warn
	File  string
	Line  int    // 0 when it is not about any one line
	Key   string // "" when it is not about any one key
	Text  string
}

// Notices are what Load found, and a warning about an even number of voters. Start writes them to
// the Logger.
func (c *Config) Notices() []Notice {
	notices := slices.Clone(c.notices)
	if n := znode.Voters(c.Cluster.Members); n > 1 {
		if text := quorum.NewMaj(n).EvenWarning(); text != "" {
			notices = append(notices, Notice{Level: slog.LevelWarn, File: c.File, Text: text})
		}
	}
	return notices
}

// String is the notice as "file:line: key: warning: text", without what is not known.
func (n Notice) String() string {
	kind := "warning: "
	if n.Level < slog.LevelWarn {
		kind = "note: "
	}
	key := n.Key
	if key != "" {
		key += ": "
	}
	return place(n.File, n.Line) + key + kind + n.Text
}

// Log writes the notice to a logger.
func (n Notice) Log(l *slog.Logger) {
	var args []any
	if n.File != "" {
		args = append(args, "file", n.File)
	}
	if n.Line > 0 {
		args = append(args, "line", n.Line)
	}
	if n.Key != "" {
		args = append(args, "key", n.Key)
	}
	l.Log(context.Background(), n.Level, n.Text, args...)
}

// Warning returns a warning at the line of key, if the file has it.
func (c *Config) Warning(key, format string, args ...any) Notice {
	f := c.Fault(key, format, args...)
	return Notice{Level: slog.LevelWarn, File: f.File, Line: f.Line, Key: f.Key, Text: f.Reason}
}

// report collects everything that is to be said about a file.
type report struct {
	file    string
	origin  map[string]property // where each key is in the file
	faults  Faults
	notices []Notice
}

func (r *report) fault(p property, format string, args ...any) {
	r.faults = append(r.faults, Fault{File: p.file, Line: p.line, Key: p.key, Reason: fmt.Sprintf(format, args...)})
}

func (r *report) faulty(key string) bool {
	return slices.ContainsFunc(r.faults, func(f Fault) bool { return f.Key == key })
}

func (r *report) warn(p property, format string, args ...any) {
	r.notices = append(r.notices, Notice{slog.LevelWarn, p.file, p.line, p.key, fmt.Sprintf(format, args...)})
}

// at is the property with that key, or one with only the file when the key is not set.
func (r *report) at(key string) property {
	if p, ok := r.origin[key]; ok {
		return p
	}
	return property{file: r.file, key: key}
}

func (r *report) has(key string) bool {
	_, ok := r.origin[key]
	return ok
}

func (r *report) isTrue(key string) bool {
	p, ok := r.origin[key]
	return ok && strings.EqualFold(p.val, "true")
}

// warnIfReadable warns if everybody on the machine can read a file that has secrets.
func (r *report) warnIfReadable(p property, file string) {
	if st, err := os.Stat(file); err == nil && st.Mode()&0o004 != 0 && runtime.GOOS != "windows" {
		r.warn(p, "everybody on this machine can read %s, and log in with what is in it (chmod o-r %s)",
			file, filepath.Base(file))
	}
}
