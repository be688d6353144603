package simdisk_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
)

func store(t *testing.T, d *simdisk.Disk, indexes ...uint64) {
	t.Helper()
	var logs []*raft.Log
	for _, i := range indexes {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: []byte{byte(i)}})
	}
	if err := d.StoreLogs(logs); err != nil {
		t.Fatalf("store %v: %v", indexes, err)
	}
}

func expectRange(t *testing.T, d *simdisk.Disk, low, high uint64) {
	t.Helper()
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	if first != low || last != high {
		t.Errorf("the log goes from %d to %d, want %d to %d", first, last, low, high)
	}
}

func TestLog(t *testing.T) {
	d := simdisk.New()
	expectRange(t, d, 0, 0)
	store(t, d, 1, 2, 3, 4, 5)
	expectRange(t, d, 1, 5)
	if err := d.DeleteRange(1, 2); err != nil {
		t.Fatal(err)
	}
	expectRange(t, d, 3, 5)
	d.DeleteRange(5, 5)
	expectRange(t, d, 3, 4)
	var l raft.Log
	if err := d.GetLog(4, &l); err != nil || l.Index != 4 || l.Data[0] != 4 {
		t.Errorf("entry 4: %+v, %v", l, err)
	}
	l.Data[0] = 99
	if d.GetLog(4, &l); l.Data[0] != 4 {
		t.Error("a reader has changed what is on the disk")
	}
	if err := d.GetLog(5, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("deleted entry: %v", err)
	}
	d.DeleteRange(3, 4)
	expectRange(t, d, 0, 0)
	store(t, d, 90)
	expectRange(t, d, 90, 90)
}

func TestStable(t *testing.T) {
	d := simdisk.New()
	if _, err := d.Get([]byte("vote")); err == nil || err.Error() != "not found" {
		t.Errorf("missing value: %v", err)
	}
	if _, err := d.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
		t.Errorf("missing number: %v", err)
	}
	d.Set([]byte("vote"), []byte("me"))
	d.SetUint64([]byte("term"), 7)
	v, err := d.Get([]byte("vote"))
	n, err2 := d.GetUint64([]byte("term"))
	if string(v) != "me" || n != 7 || err != nil || err2 != nil {
		t.Errorf("read %q %v, %d %v", v, err, n, err2)
	}
}

func TestSnapshots(t *testing.T) {
	d := simdisk.New()
	take := func(index uint64, end func(raft.SnapshotSink) error) {
		s, err := d.Create(1, index, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(s, "state ")
		io.WriteString(s, string(rune('a'+index)))
		if err := end(s); err != nil {
			t.Fatal(err)
		}
	}
	take(1, raft.SnapshotSink.Close)
	take(2, raft.SnapshotSink.Cancel)
	take(3, raft.SnapshotSink.Close)
	before := d.Crash()
	take(4, raft.SnapshotSink.Close)
	take(2, raft.SnapshotSink.Close) // an older one that comes late is older still
	for _, c := range []struct {
		disk   *simdisk.Disk
		newest uint64
		data   string
	}{{before, 3, "state d"}, {d, 4, "state e"}} {
		list, err := c.disk.List()
		if err != nil || len(list) != 2 || list[0].Index != c.newest {
			t.Fatalf("list: %v, %v", list, err)
		}
		meta, r, err := c.disk.Open(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := io.ReadAll(r); string(data) != c.data || meta.Size != int64(len(data)) {
			t.Errorf("snapshot %+v holds %q", meta, data)
		}
	}
	if _, _, err := d.Open("nonsense"); err == nil {
		t.Error("a snapshot that does not exist was opened")
	}
}

func TestTrailing(t *testing.T) {
	d := simdisk.New()
	d.SetTrailing(2)
	store(t, d, 1, 2, 3, 4, 5, 6)
	s, _ := d.Create(1, 5, 1, raft.Configuration{}, 1, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	expectRange(t, d, 4, 6)
}

// A crash loses what was being written, and nothing that had been.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.SetSyncTime(10 * time.Millisecond)
		start := time.Now()
		store(t, d, 1)
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("a write took %v", took)
		}
		go d.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3}})
		time.Sleep(5 * time.Millisecond)
		during := d.Crash()
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		after := d.Crash()
		expectRange(t, during, 1, 1)
		expectRange(t, after, 1, 3)
		store(t, during, 2)
		expectRange(t, during, 1, 2)
		expectRange(t, d, 1, 3)
	})
}

// What was being written at a crash is there to any part, the first records first.
func TestTornWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.SetSyncTime(10 * time.Millisecond)
		store(t, d, 1)
		go d.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3}})
		time.Sleep(5 * time.Millisecond)
		found := make(map[uint64]int)
		rng := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			last, _ := d.CrashTorn(rng).LastIndex()
			found[last]++
		}
		if len(found) != 3 || found[1] == 0 || found[2] == 0 || found[3] == 0 {
			t.Errorf("last entries after a hundred crashes: %v", found)
		}
		time.Sleep(5 * time.Millisecond)
	})
}

// What a program has not synced is lost, unless it is old; each file for itself.
func TestWriteBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.SetSyncTime(time.Millisecond)
		store(t, d, 1)
		d.SetWriteBack(simdisk.LogFile, time.Second)
		start := time.Now()
		store(t, d, 2)
		if time.Since(start) != 0 {
			t.Error("a write that is not synced took time")
		}
		time.Sleep(700 * time.Millisecond)
		store(t, d, 3)
		d.Set([]byte("vote"), []byte("me"))
		expectRange(t, d, 1, 3)
		expectRange(t, d.Crash(), 1, 1)
		if v, _ := d.Crash().Get([]byte("vote")); string(v) != "me" {
			t.Error("another file was lost, too")
		}
		killed := d.Killed(rand.New(rand.NewPCG(1, 1)))
		expectRange(t, killed, 1, 3)
		expectRange(t, killed.Crash(), 1, 1)
		time.Sleep(300 * time.Millisecond)
		expectRange(t, d.Crash(), 1, 2)
		expectRange(t, killed.Crash(), 1, 2)
		d.SetWriteBack(simdisk.LogFile, 0)
		store(t, d, 4)
		expectRange(t, d.Crash(), 1, 4)
	})
}

func TestFail(t *testing.T) {
	d := simdisk.New()
	full := errors.New("disk full")
	d.Fail(full)
	if err := d.StoreLog(&raft.Log{Index: 1}); err != full {
		t.Errorf("write on a failing disk: %v", err)
	}
	expectRange(t, d, 0, 0)
	d.Fail(nil)
	store(t, d, 1)
	if d.Writes() != 1 {
		t.Errorf("%d writes, want 1", d.Writes())
	}
}
