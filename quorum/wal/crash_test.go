package wal_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum/wal"
)

// A machine whose power fails, a process that is killed, and a disk that fails, at any moment of
// any operation, lose nothing that was acknowledged; the operation has taken place or not, and no
// log is refused.
//
// Defends: C1.
func TestLogSurvivesCrashes(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			m := &machine{t: t, rng: rng, disk: simdisk.New(), now: state{first: 1, entries: map[uint64]byte{}}}
			m.disk.SetSyncTime(time.Millisecond)
			m.start()
			for range 60 {
				for range rng.IntN(20) {
					if err := m.now.change(rng).do(m); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
				m.crash(m.now.change(rng))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if err := m.log.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// machine is a log on a disk, and what it must hold.
type machine struct {
	t    *testing.T
	rng  *rand.Rand
	disk *simdisk.Disk
	log  *wal.Log
	now  state
}

// state is what a log holds: the first letter of each entry. committed is the commit index.
type state struct {
	first, last, committed uint64
	entries                map[uint64]byte
}

// operation changes a log, in steps of which a crash may leave the first few.
type operation struct {
	run   func(l *wal.Log) error
	steps []state
}

func (o operation) do(m *machine) error {
	if err := o.run(m.log); err != nil {
		return err
	}
	m.now = o.steps[len(o.steps)-1]
	return nil
}

// change chooses an operation.
func (s state) change(rng *rand.Rand) operation {
	after := s
	switch choice := rng.IntN(10); {
	case choice == 0 && s.last >= s.first: // a snapshot is newer
		after.first += 1 + rng.Uint64N(s.last+1-s.first)
		after.committed = max(s.committed, after.first-1)
		return operation{func(l *wal.Log) error {
			l.SetCommitIndex(after.committed)
			return l.DeleteRange(s.first, after.first-1)
		}, []state{after}}
	case choice == 1 && s.last > max(s.committed, s.first-1): // the leader has other entries
		after.last -= 1 + rng.Uint64N(s.last-max(s.committed, s.first-1))
		return operation{func(l *wal.Log) error { return l.DeleteRange(after.last+1, s.last) }, []state{after}}
	}
	var steps []state
	if rng.IntN(10) == 0 { // a snapshot from the leader replaces all
		after.first, after.last = s.last+5, s.last+4
		steps = append(steps, after)
	}
	after.entries = maps.Clone(s.entries)
	var logs []*raft.Log
	for range 1 + rng.IntN(4) {
		after.last++
		letter := byte('a' + rng.IntN(26))
		after.entries[after.last] = letter
		size := 1 + rng.IntN(1<<rng.IntN(13))
		logs = append(logs, &raft.Log{Index: after.last, Data: []byte(strings.Repeat(string(letter), size))})
	}
	return operation{func(l *wal.Log) error { return l.StoreLogs(logs) }, append(steps, after)}
}

// holds reports an error unless the log holds exactly that.
func (s state) holds(l *wal.Log) error {
	first, last := bounds(l)
	if s.first > s.last {
		if last != 0 || l.HighestIndex() != s.last {
			return fmt.Errorf("entries %d to %d, the highest was %d; there should be none after %d", first, last, l.HighestIndex(), s.last)
		}
		return nil
	}
	if first != s.first || last != s.last {
		return fmt.Errorf("entries %d to %d, there should be %d to %d", first, last, s.first, s.last)
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil || e.Data[0] != s.entries[i] {
			return fmt.Errorf("entry %d is not what was stored: %w", i, err)
		}
	}
	return nil
}

// crash ends the machine or the process while it does something, and starts it again.
func (m *machine) crash(during operation) {
	old := m.log
	result := make(chan error, 1)
	go func() { result <- during.run(old) }()
	time.Sleep(time.Duration(m.rng.IntN(4000)) * time.Microsecond)
	if m.rng.IntN(4) == 0 {
		m.disk.Fail(syscall.EIO)
		time.Sleep(time.Duration(m.rng.IntN(4000)) * time.Microsecond)
	}
	left := m.disk.CrashTorn
	if m.rng.IntN(3) == 0 {
		left = m.disk.Killed
	}
	possible := append([]state{m.now}, during.steps...)
	select {
	case err := <-result:
		if err == nil {
			possible = possible[len(possible)-1:]
		}
		m.disk = left(m.rng)
	default:
		m.disk = left(m.rng)
		<-result // on the disk that nobody reads again
	}
	_ = old.Close()
	m.start()
	for _, s := range possible {
		if s.holds(m.log) == nil {
			s.committed = max(s.committed, m.log.CommitIndex()) // the head of a segment may have it
			m.now = s
			return
		}
	}
	m.t.Errorf("none of the states that there could be: %v", possible[0].holds(m.log))
}

var manifestKey = []byte("lockkeeper/manifest")

func (m *machine) start() {
	disk := m.disk
	o := wal.Options{Dir: "wal", FS: disk.Files(), SegmentBytes: smallSegment, Save: func(n wal.Manifest) error { return disk.Set(manifestKey, n.Append(nil)) }}
	manifest, err := disk.Get(manifestKey)
	if err != nil {
		m.log, err = wal.Create(o, 1, 0)
	} else {
		n, _ := wal.DecodeManifest(manifest)
		m.log, _, err = wal.Open(o, n)
	}
	if err != nil {
		m.t.Fatalf("the log is refused: %v", err)
	}
}
