package store

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// When the power fails between the installation of a snapshot and the removal of what it
// contradicts, the log is discarded at the start, and takes the entries behind the snapshot.
func TestConflictingLogIsDiscardedAtTheStart(t *testing.T) {
	for _, kind := range []LogKind{LogWAL, LogBolt} {
		for _, c := range []struct{ last, term, left uint64 }{{5, 3, 0}, {10, 3, 0}, {10, 2, 10}, {4, 3, 4}} {
			dir := t.TempDir()
			s, err := Open(dir, dir, kind)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.last {
				if err := s.Log.StoreLog(&raft.Log{Index: i + 1, Term: 2, Type: raft.LogNoop}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.WriteSnapshot(raft.Configuration{}, 5, c.term, strings.NewReader("state")); err != nil {
				t.Fatal(err)
			}
			if conflict, err := s.DiscardConflict(); err != nil || (conflict != nil) != (c.left == 0) {
				t.Errorf("%v, %+v: discarded %+v: %v", kind, c, conflict, err)
			}
			if _, last, err := Bounds(s.Log); err != nil || last != c.left {
				t.Errorf("%v, %+v: the log ends at %d: %v", kind, c, last, err)
			}
			if next := max(5, c.left) + 1; s.Log.StoreLog(&raft.Log{Index: next, Term: 3, Type: raft.LogNoop}) != nil {
				t.Errorf("%v, %+v: the log takes no entry %d", kind, c, next)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
