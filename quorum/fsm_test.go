package quorum

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// slowListener takes its time for each command.
type slowListener struct {
	*recorder
	takes time.Duration
}

func (l slowListener) Applied(s *znode.Store, c *znode.Command, res *znode.Result) {
	time.Sleep(l.takes)
	l.recorder.Applied(s, c, res)
}

// The state's lock is given up between the commands of an entry that takes long, so that readers
// get their turn.
//
// Defends: C9.
func TestLockIsGivenUpWithinALongEntry(t *testing.T) {
	for takes, wantHeld := range map[time.Duration]time.Duration{
		2 * time.Millisecond:  8 * time.Millisecond, // all four commands
		6 * time.Millisecond:  0,                    // two and two
		11 * time.Millisecond: 0,                    // each by itself
	} {
		inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
			c.leader()
			c.recs[0].result(t, c.propose(0, createSession(9)))
			r := c.reps[0]
			r.state.mu.Lock()
			r.cfg.Listener = slowListener{c.recs[0], takes}
			index := r.state.appliedIndex
			r.state.mu.Unlock()
			var cmds [][]byte
			for id := wire.SessionID(1); id <= 4; id++ {
				cmds = append(cmds, createSession(id).Append(nil))
			}
			entry := znode.AppendEntry(nil, znode.Stamp{TimeMs: time.Now().UnixMilli()}, cmds)
			r.state.ApplyBatch([]*raft.Log{{Index: index, Term: 1, Type: raft.LogCommand, Data: entry}})
			r.state.mu.RLock()
			defer r.state.mu.RUnlock()
			if held := time.Since(r.state.lockedAt); held != wantHeld || r.state.store.Counts().Sessions != 5 {
				t.Errorf("with %v for each command, the lock was held for %v at the end; %+v", takes, held, r.state.store.Counts())
			}
		})
	}
}
