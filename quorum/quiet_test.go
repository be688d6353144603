package quorum

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

// quietPeer is a leader's transport and the follower at the far end of one of its connections.
type quietPeer struct {
	*transport
	t     *testing.T
	p     *pipeline
	far   *farEnd
	index uint64 // of the last entry sent to it
}

// withQuietPeer runs f with such a pair, in a bubble of its own.
func withQuietPeer(t *testing.T, f func(t *testing.T, q *quietPeer)) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(&asked{}, 1, func() []raft.Server { return servers("123") })
		defer tr.close()
		p, far := pipelineTo(t, tr)
		defer p.Close()
		f(t, &quietPeer{transport: tr, t: t, p: p, far: far})
	})
}

// write sends the next entry, with word of what is committed before it; the answer is of that kind.
func (q *quietPeer) write(kind rpcKind) {
	q.index++
	req := carrying(q.index)
	req.LeaderCommitIndex = q.index - 1
	mustAppend(q.t, q.p, req)
	q.far.expect(rpcAppend)
	q.far.send(kind, &raft.AppendEntriesResponse{Term: 5, Success: true, LastLog: q.index}, nil)
	<-q.p.Consumer()
}

// told fails the test unless the follower has been told of commits up to want since the last look, in one frame; 0 is not at all.
func (q *quietPeer) told(when string, want uint64) {
	q.t.Helper()
	got := uint64(0)
	for synctest.Wait(); len(q.far.got) > 0; synctest.Wait() {
		f := <-q.far.got
		if f.kind != rpcNotice || got != 0 {
			q.t.Errorf("%s: a frame of kind %d, of %d, behind one of %d", when, f.kind, f.req.LeaderCommitIndex, got)
		}
		got = f.req.LeaderCommitIndex
	}
	if got != want {
		q.t.Errorf("%s it is told of %d, want %d", when, got, want)
	}
}

// A follower that says that nobody waits there is told of commits with the next entries, or when its pause ends.
func TestQuietFollowersAreToldLater(t *testing.T) {
	withQuietPeer(t, func(t *testing.T, q *quietPeer) {
		q.write(rpcAppend | rpcQuiet)
		if q.wrote(q.index, 5) {
			t.Error("somebody is to be answered early by a follower where nobody waits")
		}
		q.applied(q.index, 5)
		q.told("at once", 0)
		time.Sleep(quietPause - time.Nanosecond)
		q.told("before its pause ends", 0)
		time.Sleep(time.Nanosecond)
		q.told("when its pause ends", 1)

		q.write(rpcAppend | rpcQuiet)
		q.applied(q.index, 5)
		q.write(rpcAppend | rpcQuiet) // it brings word of the entry before
		time.Sleep(2 * quietPause)
		q.told("behind the next entries", 0)
		q.applied(q.index, 5)
		time.Sleep(2 * quietPause)
		q.told("of what is committed later", 3)

		// A pause that ends with the term tells nobody.
		q.write(rpcAppend | rpcQuiet)
		q.applied(q.index, 5)
		q.answered("2", "", time.Now(), &raft.AppendEntriesRequest{Term: 6}, &raft.AppendEntriesResponse{Term: 6, Success: true}, false)
		q.applied(q.index, 6)
		time.Sleep(2 * quietPause)
		q.told("in the next term", 0)
	})
}

// It is told at once when it is asked for what it knows, has sent a command, or does not say so any more.
func TestQuietFollowersAreToldWhenAwaited(t *testing.T) {
	withQuietPeer(t, func(t *testing.T, q *quietPeer) {
		q.write(rpcAppend | rpcQuiet)
		q.applied(q.index, 5)
		q.told("while it is quiet", 0)
		q.attended("2")
		q.told("when it has sent a command", 1)
		time.Sleep(2 * quietPause)
		q.told("once more", 0)

		q.write(rpcAppend | rpcQuiet)
		q.applied(q.index, 5)
		q.told("while it is quiet again", 0)
		q.write(rpcAppend)
		q.applied(q.index, 5)
		q.told("when it is quiet no more", 3)
		q.write(rpcAppend)
		if !q.wrote(q.index, 5) {
			t.Error("nobody is to be answered early by a follower where somebody waits")
		}
		q.told("of what is written", 4)

		q.write(rpcAppend | rpcQuiet)
		q.applied(q.index, 5)
		if q.knowsAll(2) {
			t.Error("a follower knows what it has not been told")
		}
		synctest.Wait()
		if got := q.Transport.(*asked).commits; len(got) != 1 || got[0] != 5 {
			t.Errorf("asked for what it knows, it is told of %d, want 5", got)
		}
	})
}

// A member without clients learns of commits all the same, and soon; and of its first client's without any pause.
func TestMembersWithoutClientsLearnOfCommits(t *testing.T) {
	var attended [3]atomic.Bool
	change := func(cfg *Config) { cfg.Attended = attended[cfg.ID-1].Load }
	inCluster(t, 3, change, func(t *testing.T, c *cluster) {
		l := c.leader()
		f, quiet := (l+1)%3, (l+2)%3
		attended[f].Store(true)
		c.recs[f].result(t, c.propose(f, createSession(9)))
		for seq := range uint64(20) {
			key := c.propose(f, sequential(9, seq+1, "/n-"))
			c.recs[f].result(t, key)
			start := time.Now()
			c.recs[quiet].result(t, key)
			// Its own disk, and a message, come on top of the pause.
			if late := time.Since(start); late < quietPause/2 || late > quietPause+3*time.Millisecond {
				t.Errorf("a member where nobody waits has applied command %d %v later than one where somebody does", seq+1, late)
			}
			time.Sleep(time.Duration(seq) * 7 * time.Millisecond)
		}
		// The answer of the one that was quiet is there before there is anything to be told.
		c.disks[l].SetSyncTime(5 * time.Millisecond)
		for id := range wire.SessionID(5) {
			start := time.Now()
			c.recs[quiet].result(t, c.propose(quiet, createSession(100+id)))
			if took := time.Since(start); took > 5*time.Millisecond+quietPause/2 {
				t.Errorf("a command of a member that was quiet took %v", took)
			}
			time.Sleep(time.Second)
		}
		c.agree()
	})
}
