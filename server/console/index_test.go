package console

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/wire"
)

func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// unlimited is an account with room for everything.
type unlimited struct{}

func (unlimited) Hold(int) bool { return true }
func (unlimited) Release(int)   {}

// limited is an account of so many bytes.
type limited struct{ left int }

func (l *limited) Hold(n int) bool {
	if l.left < n {
		return false
	}
	l.left -= n
	return true
}

func (l *limited) Release(n int) { l.left += n }

// What an index says that it takes is at least what it takes, whatever the locks look like; and it
// says so again when they have changed.
func TestIndexBytes(t *testing.T) {
	const nodes = 5000
	info := `{"by":"lockkeeper/recipes","host":"worker-17.example.org","pid":12345,"since":"2026-01-01T00:00:00Z"}`
	empty := `{"by":"lockkeeper/recipes","within":[` + strings.Repeat(`"",`, 500) + `""]}`
	for _, data := range []string{"", info, empty} {
		for _, form := range []string{"/one/x-%08d-lock-", "/each%08d/x-lock-", "/plain%08d"} {
			p := newTape(t, 0)
			p.open(1)
			p.create(1, "/one", "", wire.ModePersistent)
			for i := range nodes {
				path, mode := fmt.Sprintf(form, i), wire.ModeEphemeralSequential
				if dir, name := locknode.Split(path); name == "x-lock-" {
					p.create(1, dir, "", wire.ModePersistent)
				} else if dir == "/" {
					mode = wire.ModeEphemeral
				}
				p.create(1, path, data, mode)
			}
			before := heapBytes()
			x := newIndex(p.view, p.r, unlimited{})
			if err := x.with(func() {}); err != nil {
				t.Fatal(err)
			}
			if takes := heapBytes() - before; takes > x.bytes || x.bytes > x.held {
				t.Errorf("%s with %d bytes of data: it takes %d, says %d, and has reserved %d", form, len(data), takes, x.bytes, x.held)
			}
			p.request(1, wire.OpCloseSession, nil)
			if err := x.with(func() {}); err != nil || x.bytes != 0 || x.held > 2*holdStep {
				t.Errorf("%s: without nodes it says %d, and has reserved %d (%v)", form, x.bytes, x.held, err)
			}
			runtime.KeepAlive(p)
		}
	}
}

// An index that does not fit into its account gives all back, says so, and is not built again at
// once.
func TestIndexDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape(t, 0)
		p.open(1)
		var last string
		for i := range 2 * holdStep / lockBytes {
			last = p.create(1, fmt.Sprintf("/n%d", i), "", wire.ModeEphemeral)
		}
		account := &limited{2 * holdStep}
		x := newIndex(p.view, p.r, account)
		if err := x.with(func() { t.Error("it is used") }); err != errIndexMemory || account.left != 2*holdStep {
			t.Errorf("%v, %d bytes left", err, account.left)
		}
		for range 1000 {
			p.request(1, wire.OpDelete, wire.DeleteRequest{Path: last, Version: -1})
			p.create(1, last, "", wire.ModeEphemeral)
		}
		account.left = 10 * holdStep
		if err := x.with(func() {}); err != errIndexMemory {
			t.Errorf("a moment later: %v", err)
		}
		time.Sleep(indexRetry)
		if err := x.with(func() {}); err != nil {
			t.Error(err)
		}
		account.left = 0
		for i := range 5 * holdStep / lockBytes {
			p.create(1, fmt.Sprintf("/more%d", i), "", wire.ModeEphemeral)
		}
		if err := x.with(func() {}); err != errIndexMemory || account.left == 0 {
			t.Errorf("grown: %v, %d bytes left", err, account.left)
		}
	})
}
