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

// vote is the key of a number in VoteStore, own of one in ValuesStore.
var vote, own = []byte("LastVoteTerm"), []byte("lockkeeper/member")

func expectNumbers(t *testing.T, d *simdisk.Disk, wantVote, wantOwn uint64) {
	t.Helper()
	v, _ := d.GetUint64(vote)
	o, _ := d.GetUint64(own)
	if v != wantVote || o != wantOwn {
		t.Errorf("the disk has %d and %d, want %d and %d", v, o, wantVote, wantOwn)
	}
}

// A crash loses the write that is under way, or with chance all or nothing of it; and nothing that
// was written before.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.SetSyncTime(10 * time.Millisecond)
		start := time.Now()
		d.SetUint64(vote, 1)
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("a write took %v", took)
		}
		go d.SetUint64(vote, 2)
		time.Sleep(5 * time.Millisecond)
		during := d.Crash()
		found := make(map[uint64]int)
		rng := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			v, _ := d.CrashTorn(rng).GetUint64(vote)
			found[v]++
		}
		if len(found) != 2 || found[1] == 0 || found[2] == 0 {
			t.Errorf("values after a hundred crashes: %v", found)
		}
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		expectNumbers(t, during, 1, 0)
		expectNumbers(t, d.Crash(), 2, 0)
	})
}

// What a program has not synced is lost, unless it is old; each store for itself.
func TestWriteBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.SetSyncTime(time.Millisecond)
		d.SetUint64(vote, 1)
		d.SetWriteBack(simdisk.VoteStore, time.Second)
		start := time.Now()
		d.SetUint64(vote, 2)
		if time.Since(start) != 0 {
			t.Error("a write that is not synced took time")
		}
		time.Sleep(700 * time.Millisecond)
		d.SetUint64(vote, 3)
		d.SetUint64(own, 7)
		expectNumbers(t, d, 3, 7)
		expectNumbers(t, d.Crash(), 1, 7)
		killed := d.Killed(rand.New(rand.NewPCG(1, 1)))
		expectNumbers(t, killed, 3, 7)
		expectNumbers(t, killed.Crash(), 1, 7)
		time.Sleep(300 * time.Millisecond)
		expectNumbers(t, d.Crash(), 2, 7)
		expectNumbers(t, killed.Crash(), 2, 7)
		d.SetWriteBack(simdisk.VoteStore, 0)
		d.SetUint64(vote, 4)
		expectNumbers(t, d.Crash(), 4, 7)
	})
}

func TestFail(t *testing.T) {
	d := simdisk.New()
	full := errors.New("disk full")
	d.Fail(full)
	if err := d.SetUint64(vote, 1); err != full {
		t.Errorf("write on a failing disk: %v", err)
	}
	expectNumbers(t, d, 0, 0)
	d.Fail(nil)
	d.SetUint64(vote, 1)
	if expectNumbers(t, d, 1, 0); d.Writes() != 1 {
		t.Errorf("%d writes, want 1", d.Writes())
	}
}

// A write to a disk that hangs ends when the disk answers again.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := simdisk.New()
		d.Hang(true)
		start := time.Now()
		time.AfterFunc(time.Minute, func() { d.Hang(false) })
		if err := d.SetUint64(vote, 1); err != nil || time.Since(start) != time.Minute || d.Hangs() {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
