package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// File keeps the events of one process: a line of JSON each, written at once, so that a killed
// process loses none.
type File struct {
	now func() time.Duration

	mu   sync.Mutex
	file *os.File
}

// fileNames are the names of such files.
const fileNames = "trace-*.jsonl"

// Create makes the file of this process in a directory. now is a clock that all members have in
// common.
func Create(dir string, now func() time.Duration) (*File, error) {
	f, err := os.CreateTemp(dir, fileNames)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return &File{now: now, file: f}, nil
}

// Write writes an event. It panics when it cannot: a gap would be taken for a fault of the member.
func (f *File) Write(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.At = f.now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = f.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("trace: %v", err))
	}
}

// ReadDir reads the files of all processes in a directory, in the order of time. The last line of a
// file may be cut off: its process was killed.
func ReadDir(dir string) (events []Event, err error) {
	names, err := filepath.Glob(filepath.Join(dir, fileNames))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		for number := 1; len(b) > 0; number++ {
			line, rest, whole := bytes.Cut(b, []byte("\n"))
			if !whole {
				break
			}
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("trace: %s, line %d: %w", name, number, err)
			}
			events, b = append(events, e), rest
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
	return events, nil
}
