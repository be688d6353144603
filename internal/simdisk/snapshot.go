package simdisk

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// snapshotsKept is the number of snapshots that a disk holds; older ones are deleted.
const snapshotsKept = 2

type snapshot struct {
	meta raft.SnapshotMeta
	data []byte // never changed
}

// Create implements raft.SnapshotStore. The snapshot exists when the sink has
// been closed.
func (d *Disk) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("simdisk: snapshots of version %d are not supported", version)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &sink{disk: d, snapshot: snapshot{meta: raft.SnapshotMeta{
		Version: version, Index: index, Term: term,
		ID:                 fmt.Sprintf("%d-%d-%d", term, index, d.writes),
		Configuration:      configuration.Clone(),
		ConfigurationIndex: configurationIndex,
	}}}, nil
}

// List implements raft.SnapshotStore: the newest first, which is the one of the
// highest index, as in the library's file store, and not the one written last.
func (d *Disk) List() ([]*raft.SnapshotMeta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*raft.SnapshotMeta
	for i := len(d.seen.snapshots) - 1; i >= 0; i-- {
		meta := d.seen.snapshots[i].meta
		list = append(list, &meta)
	}
	return list, nil
}

// Open implements raft.SnapshotStore.
func (d *Disk) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.seen.snapshots {
		if s.meta.ID == id {
			return &s.meta, io.NopCloser(bytes.NewReader(s.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("simdisk: no snapshot %s", id)
}

// DamageSnapshot changes a bit of the newest snapshot, as readers see it and a power cut leaves it,
// or cuts its end off. It returns the id of the snapshot; empty: there is none. Nobody may use the
// disk meanwhile.
func (d *Disk) DamageSnapshot(rng *rand.Rand) (id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.seen.snapshots) - 1
	if last < 0 || len(d.seen.snapshots[last].data) == 0 {
		return ""
	}
	damaged := d.seen.snapshots[last]
	damaged.data = bytes.Clone(damaged.data)
	if at := rng.IntN(len(damaged.data)); rng.IntN(2) == 0 {
		damaged.data = damaged.data[:at]
	} else {
		damaged.data[at] ^= 1 << rng.IntN(8)
	}
	for _, c := range []*contents{&d.seen, d.synced} {
		if c == nil {
			continue
		}
		c.snapshots = slices.Clone(c.snapshots)
		for i := range c.snapshots {
			if c.snapshots[i].meta.ID == damaged.meta.ID {
				c.snapshots[i] = damaged
			}
		}
	}
	return damaged.meta.ID
}

// sink is a snapshot that is being written.
type sink struct {
	disk *Disk
	once sync.Once
	snapshot
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return s.meta.ID }

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	s.data = append(s.data, p...)
	return len(p), nil
}

// Close makes the snapshot durable.
func (s *sink) Close() error {
	var err error
	s.once.Do(func() {
		s.meta.Size = int64(len(s.data))
		written := s.snapshot
		err = s.disk.write(SnapshotStore, func(c *contents) {
			all := append(slices.Clone(c.snapshots), written)
			slices.SortStableFunc(all, func(a, b snapshot) int {
				return cmp.Or(cmp.Compare(a.meta.Term, b.meta.Term), cmp.Compare(a.meta.Index, b.meta.Index))
			})
			c.snapshots = all[max(0, len(all)-snapshotsKept):]
		})
	})
	return err
}

// Cancel forgets the written bytes.
func (s *sink) Cancel() error {
	s.once.Do(func() {})
	return nil
}
