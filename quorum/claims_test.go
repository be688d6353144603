package quorum

import (
	"context"
	"testing"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

func claimOf(id wire.SessionID) znode.Claim { return znode.Claim{Session: id} }

// knows reports whether a member has applied the creation of a session.
func (c *cluster) knows(i int, id wire.SessionID) (known bool) {
	c.reps[i].View(func(s *znode.Store) { _, known = s.Sessions().Get(id) })
	return known
}

// Every member answers claims, also of sessions that it lacks itself, and nothing is written for
// it.
func TestClaimsAreDecidedByTheLeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		c.agree()
		last := c.reps[l].raft.LastIndex()
		wrong := claimOf(9)
		wrong.Password[15] = 1
		for i, r := range c.reps {
			exist, err := r.MayExist(t.Context(), []znode.Claim{claimOf(8), claimOf(9), wrong})
			if err != nil || len(exist) != 3 || exist[0] || !exist[1] || exist[2] {
				t.Errorf("member %d: %v, %v", i+1, exist, err)
			}
		}
		if _, err := c.reps[f].MayExist(t.Context(), make([]znode.Claim, MaxClaims)); err != nil {
			t.Error(err)
		}
		if now := c.reps[l].raft.LastIndex(); now != last {
			t.Errorf("%d entries were written", now-last)
		}

		c.disks[f].SetSyncTime(300 * time.Millisecond) // it falls behind
		c.recs[l].result(t, c.propose(l, createSession(10)))
		exist, err := c.reps[f].MayExist(t.Context(), []znode.Claim{claimOf(10)})
		if behind := !c.knows(f, 10); !behind || err != nil || !exist[0] {
			t.Errorf("a member that is behind (%v): %v, %v", behind, exist, err)
		}
	})
}

// A leader that has been deposed and does not know it denies no session: that of a client may have
// been created under its successor.
//
// Defends: C9.
func TestDeposedLeaderDeniesNoSession(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.isolate(old)
		type outcome struct {
			exist []bool
			err   error
		}
		asked := make(chan outcome, 2)
		go func() {
			exist, err := c.reps[old].MayExist(t.Context(), []znode.Claim{claimOf(9)})
			asked <- outcome{exist, err}
		}()
		go func() { asked <- outcome{exist: c.reps[old].claims.answerClaims([]znode.Claim{claimOf(9)})} }()
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		for range 2 {
			if o := <-asked; o.err == nil && o.exist != nil {
				t.Errorf("the deposed leader says %v", o.exist)
			}
		}
		if _, err := c.reps[old].MayExist(t.Context(), []znode.Claim{claimOf(9)}); err == nil {
			t.Error("a member without a leader has answered")
		}
		c.heal()
		c.leader()
		for { // it has a leader again
			exist, err := c.reps[old].MayExist(t.Context(), []znode.Claim{claimOf(9)})
			if err == nil && exist[0] {
				break
			}
			if err == nil {
				t.Fatal("the session was denied")
			}
			time.Sleep(time.Millisecond) // virtual
		}
	})
}

// A leader denies nothing before it has applied all that its log had when it was asked.
func TestClaimsWaitForTheLog(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		r := c.reps[l]
		c.recs[l].result(t, c.propose(l, createSession(9)))
		r.state.mu.RLock()
		applied := r.state.appliedIndex
		r.state.mu.RUnlock()
		if last, err := r.lastCommand(0); err != nil || last < applied || applied == 0 {
			t.Errorf("the newest command is %d, applied %d: %v", last, applied, err)
		}
		for i := range c.reps {
			if i != l {
				c.net.Partition(hostName(l), hostName(i))
			}
		}
		before := r.raft.LastIndex()
		c.propose(l, createSession(10))
		for r.raft.LastIndex() == before {
			time.Sleep(time.Millisecond) // virtual
		}
		// Only the proof of its leadership is missing to a leader that has applied all.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := r.claims.settleSince(ctx, time.Time{}); err == nil {
			t.Error("the leader is certain, with an entry that is not committed")
		}
		c.heal()
	})
}

// Claims that no member sends end the stream.
func TestMalformedClaimsAreRefused(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		other := c.impostor(hostName(f), MemberID(f+1))
		for _, frame := range [][]byte{{0, 0, 0, 23}, {0, 1, 0x80, 1}} {
			before := c.reps[l].port.Stats().Refused
			s := c.stream(other, l, peer.StreamClaims)
			_, _ = s.Write(append(frame, make([]byte, maxClaimsFrame)...))
			_ = s.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := s.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("frame %x was answered", frame)
			}
			if c.reps[l].port.Stats().Refused == before {
				t.Errorf("frame %x was not refused", frame)
			}
		}
	})
}
