package console

import (
	"fmt"
	"math"
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

// The bytes that an index counts are at least the bytes of its memory, for locks of all kinds, and
// also after changes.
func TestIndexBytes(t *testing.T) {
	const nodes = 2000
	info := `{"by":"lockkeeper/recipes","host":"worker-17.example.org","pid":12345,"since":"2026-01-01T00:00:00Z"}`
	long := `{"by":"lockkeeper/recipes","note":"` + strings.Repeat("x", 4000) + `","within":["0x1234567890abcdef","0x1234567890abcdee"]}`
	empty := `{"by":"lockkeeper/recipes","within":[` + strings.Repeat(`"",`, 500) + `""]}`
	for _, data := range []string{"", info, long, empty} {
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
			x := newIndex(p.view, p.r, math.MaxInt)
			if err := x.with(func() {}); err != nil {
				t.Fatal(err)
			}
			if takes := heapBytes() - before; takes > x.bytes {
				t.Errorf("%s with %d bytes of data: it takes %d, and says %d", form, len(data), takes, x.bytes)
			}
			p.request(1, wire.OpCloseSession, nil)
			if err := x.with(func() {}); err != nil || x.bytes != 0 {
				t.Errorf("%s: without nodes it says %d (%v)", form, x.bytes, err)
			}
			runtime.KeepAlive(p)
		}
	}
}

// An index that does not fit says so, and is not built again at once.
func TestIndexDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape(t, 0)
		p.open(1)
		var last string
		for i := range 100 {
			last = p.create(1, fmt.Sprintf("/n%d", i), "", wire.ModeEphemeral)
		}
		x := newIndex(p.view, p.r, 100*lockBytes)
		if err := x.with(func() { t.Error("it is used") }); err != errIndexMemory || x.built {
			t.Errorf("%v, built: %v", err, x.built)
		}
		for range 1000 {
			p.request(1, wire.OpDelete, wire.DeleteRequest{Path: last, Version: -1})
			p.create(1, last, "", wire.ModeEphemeral)
		}
		x.maxBytes = 1000 * lockBytes
		if err := x.with(func() {}); err != errIndexMemory {
			t.Errorf("a moment later: %v", err)
		}
		time.Sleep(indexRetry)
		if err := x.with(func() {}); err != nil {
			t.Error(err)
		}
		for i := range 1000 {
			p.create(1, fmt.Sprintf("/more%d", i), "", wire.ModeEphemeral)
		}
		if err := x.with(func() {}); err != errIndexMemory || x.refused.Load() != 2 {
			t.Errorf("grown: %v, %d refused", err, x.refused.Load())
		}
	})
}

// A plain lock that changes hands keeps its node's name: the next holder holds since its own node
// is there, also if nobody has looked in between.
func TestPlainLockHeldSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape(t, 1<<20)
		p.open(1)
		path := p.create(1, "/plain", "", wire.ModeEphemeral)
		x := newIndex(p.view, p.r, 1000*lockBytes)
		held := func() (since time.Time) {
			t.Helper()
			if err := x.with(func() { since = x.where[path].since }); err != nil {
				t.Fatal(err)
			}
			return since
		}
		first := held()
		p.request(1, wire.OpDelete, wire.DeleteRequest{Path: path, Version: -1})
		p.create(1, path, "", wire.ModeEphemeral)
		if next := held(); !next.After(first) {
			t.Errorf("the next holder holds since %v, the first one since %v", next, first)
		}
	})
}

// A reader holds since the last writer in front of it has gone, or is content with reading,
// whatever readers beside it do.
func TestReaderHeldSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape(t, 1<<20)
		p.open(1)
		p.create(1, "/rw-lock", "", wire.ModePersistent)
		writer := p.create(1, "/rw-lock/x-__WRIT__0000000001", "", wire.ModeEphemeral)
		beside := p.create(1, "/rw-lock/x-__READ__0000000002", "", wire.ModeEphemeral)
		reader := p.create(1, "/rw-lock/x-__READ__0000000003", "", wire.ModeEphemeral)
		x := newIndex(p.view, p.r, 1000*lockBytes)
		if err := x.with(func() {}); err != nil {
			t.Fatal(err)
		}
		p.request(1, wire.OpDelete, wire.DeleteRequest{Path: writer, Version: -1})
		freed := p.ms
		time.Sleep(time.Second)
		p.request(1, wire.OpDelete, wire.DeleteRequest{Path: beside, Version: -1})
		if err := x.with(func() {
			l := x.where[reader]
			if got := l.heads[keyOf(&l.queue[0])]; !l.queue[0].Held || got != (since{instant(freed), true}) {
				t.Errorf("held since %+v, want %v", got, instant(freed))
			}
		}); err != nil {
			t.Fatal(err)
		}
	})
}
