package fence

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// The ways of the disk at a call.
var (
	errDisk   = errors.New("input/output error")
	errKilled = errors.New("the process is killed")
	errCut    = errors.New("the power is cut")
)

// fileSteps are checks by two processes that share a file. All are accepted, in this order.
var fileSteps = []struct {
	process  int
	resource string
	token    int64
}{
	{0, "a", 5}, {0, "a", 5}, {1, "a", 5}, {1, "b", 3}, {0, "b", 3}, {0, "a", 9}, {1, "a", 9},
}

// fileRun is one execution of the steps.
type fileRun struct {
	t        *testing.T
	name     string
	path     string
	disk     *testDisk
	files    [2]*File
	accepted map[string]int64
}

// check is one step. It opens the file first, if the process has just started.
func (r *fileRun) check(process int, resource string, token int64) (err error) {
	if r.files[process] == nil {
		if r.files[process], err = openFile(r.path, r.disk); err != nil {
			return err
		}
	}
	return r.files[process].Check(resource, token)
}

// end ends a process.
func (r *fileRun) end(process int) {
	if r.files[process] != nil {
		r.files[process].Close()
		r.files[process] = nil
	}
}

// try does one thing, and returns the error, or the disk's blow to the process instead.
func (r *fileRun) try(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	return do()
}

// play executes the steps until the power is cut. A call that fails is made once more.
func (r *fileRun) play() {
	for _, step := range fileSteps {
		check := func() error { return r.check(step.process, step.resource, step.token) }
		err := r.try(check)
		switch {
		case errors.Is(err, errCut):
			return
		case errors.Is(err, errKilled):
			r.end(step.process)
			continue
		case errors.Is(err, errDisk):
			if err = r.try(check); errors.Is(err, errCut) {
				return
			}
		}
		if err != nil {
			r.t.Fatalf("%s: %+v: %v", r.name, step, err)
		}
		r.accepted[step.resource] = max(r.accepted[step.resource], step.token)
	}
}

// restarted checks that no power cut after the last call takes an accepted token back.
func (r *fileRun) restarted() {
	for way := range survivors {
		f, err := openFile(r.path, r.disk.crash(way))
		if err != nil {
			r.t.Fatalf("%s: opened after a power cut of way %d: %v", r.name, way, err)
		}
		for resource, token := range r.accepted {
			if err := f.Check(resource, token-1); !errors.Is(err, ErrStale) {
				r.t.Fatalf("%s: after a power cut of way %d token %d of %s, older than %d, is %v", r.name, way,
					token-1, resource, token, err)
			}
			if err := f.Check(resource, token+100); err != nil {
				r.t.Fatalf("%s: after a power cut of way %d: %v", r.name, way, err)
			}
		}
		f.Close()
	}
}

// playFile plays the steps with a fault at a call and the power cut at another.
func playFile(t *testing.T, path string, fault error, late bool, faultAt, cutAt int) *fileRun {
	r := &fileRun{t: t, name: fmt.Sprintf("%v at call %d (late: %v), power cut at %d", fault, faultAt, late, cutAt),
		path: path, disk: newTestDisk(), accepted: make(map[string]int64)}
	r.disk.failsLate = late
	r.disk.before = func(call int, _ string) error {
		switch call {
		case cutAt:
			panic(errCut)
		case faultAt:
			if fault == errKilled {
				panic(fault)
			}
			return fault
		}
		return nil
	}
	r.play()
	r.restarted()
	for process := range r.files {
		r.end(process)
	}
	return r
}

// TestFilePowerCut: whichever call fails, or ends the process, and at whichever call the power is
// cut then, a token that was accepted is remembered.
func TestFilePowerCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	calls := playFile(t, path, nil, false, 0, 0).disk.calls
	if calls < 20 {
		t.Fatalf("%d calls", calls)
	}
	for _, fault := range []struct {
		err  error
		late bool
	}{{errDisk, false}, {errDisk, true}, {errKilled, false}} {
		for faultAt := range calls + 1 { // 0: nothing fails
			for cutAt := faultAt + 1; ; cutAt++ {
				if r := playFile(t, path, fault.err, fault.late, faultAt, cutAt); r.disk.calls < cutAt {
					break // the steps have ended
				}
			}
		}
	}
}

// TestFileWritesAnew counts the writes. An equal token costs one where this File does not know that
// the content is durable, and none where it does.
func TestFileWritesAnew(t *testing.T) {
	path, disk := filepath.Join(t.TempDir(), "tokens"), newTestDisk()
	var fail string // the call that fails
	writes := 0
	disk.before = func(_ int, name string) error {
		if name == "write" {
			writes++
		}
		if name == fail {
			return errDisk
		}
		return nil
	}
	open := func() *File {
		f, err := openFile(path, disk)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, other := open(), open()
	for i, step := range []struct {
		file   *File
		token  int64
		fail   string
		writes int
	}{
		{one, 5, "", 1},
		{one, 5, "", 0},
		{other, 5, "", 1}, // it has not seen the sync
		{other, 5, "", 0},
		{one, 5, "", 0}, // the content is the same
		{other, 6, "", 1},
		{one, 6, "", 1},
		{one, 7, "syncdir", 1},
		{one, 7, "syncdir", 1},
		{one, 7, "", 1},
		{one, 7, "", 0},
		{one, 8, "sync", 1},
		{one, 7, "", 1}, // after a failure nothing is taken for granted
		{one, 8, "rename", 1},
		{one, 8, "", 1},
		{open(), 8, "", 1},
	} {
		writes, fail = 0, step.fail
		if err := step.file.Check("a", step.token); errors.Is(err, errDisk) != (fail != "") || err != nil && fail == "" {
			t.Errorf("step %d: %v", i, err)
		}
		if fail = ""; writes != step.writes {
			t.Errorf("step %d: %d writes, want %d", i, writes, step.writes)
		}
	}
}
