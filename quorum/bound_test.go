package quorum

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/quorum/wal"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// dirBytes is how much the files below a directory hold.
func dirBytes(t *testing.T, dir string) (sizeBytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // a snapshot that is just being replaced
		}
		if info, err := e.Info(); err == nil {
			sizeBytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sizeBytes
}

// However much is written, the disk holds the log that a snapshot is due after, what stays behind
// it, and the snapshots; each with what bbolt, or the segments that are in use in part, and a write
// in progress need besides.
func TestDiskIsBounded(t *testing.T) {
	for _, kind := range []store.LogKind{store.LogBolt, store.LogWAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			boundDisk(t, kind)
		})
	}
}

func boundDisk(t *testing.T, kind store.LogKind) {
	const (
		logBytes   = 4 << 20
		trailBytes = 1 << 20
		stateBytes = 1 << 19 // of the largest node
	)
	growBytes := int64(wal.DefaultSegmentBytes)
	if kind == store.LogBolt {
		growBytes = 16 << 20 // bbolt's
	}
	bound := 2*(logBytes+trailBytes) + 3*stateBytes + growBytes
	written := 5 * bound / 2
	dir := t.TempDir()
	stores, err := store.Open(dir, dir, kind)
	if err != nil {
		t.Fatal(err)
	}
	rec := newRecorder()
	r, err := Open(Config{ID: 1, Members: []Member{{ID: 1}}, Stores: stores, Listener: rec, Logger: testLogger(),
		SnapshotConfig: SnapshotConfig{SnapshotLogBytes: logBytes, TrailingBytes: trailBytes}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	propose := func(c *znode.Command) {
		t.Helper()
		if err := r.Propose(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if res := rec.result(t, c.Key()); res.Status != znode.Done || res.Code != wire.CodeOK {
			t.Fatalf("%+v", res)
		}
	}
	propose(createSession(7))
	propose(&znode.Command{Session: 7, Generation: 1, Seq: 1,
		Body: &znode.Request{Op: wire.OpCreate, Body: wire.CreateRequest{Path: "/n", ACL: wire.OpenACL}.Append(nil)}})
	rnd := rand.New(rand.NewPCG(5, 6))
	var largest, total int64
	for seq := uint64(2); total < written; seq++ {
		dataBytes := 1 + rnd.IntN(150_000)
		if seq%20 == 0 {
			dataBytes = stateBytes
		}
		total += int64(dataBytes)
		propose(&znode.Command{Session: 7, Generation: 1, Seq: seq,
			Body: &znode.Request{Op: wire.OpSetData, Body: wire.SetDataRequest{Path: "/n", Data: make([]byte, dataBytes), Version: -1}.Append(nil)}})
		size := dirBytes(t, dir)
		// The snapshot loop may be late.
		for began := time.Now(); size > bound; size = dirBytes(t, dir) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%d bytes on the disk, the bound is %d", size, bound)
			}
			time.Sleep(time.Millisecond)
		}
		largest = max(largest, size)
	}
	t.Logf("%d MiB written, %.1f MiB on the disk at most", total>>20, float64(largest)/(1<<20))
	if first, _ := stores.Log.FirstIndex(); first == 1 {
		t.Error("the log was never cut")
	}
}
