package quorum

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/wire"
)

// A follower that says that nobody waits there is told of commits with the next entries, or when its pause ends; and at once when it
// is asked for what it knows, has sent a command, or does not say so any more.
func TestQuietFollowersAreToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(&asked{}, 1, func() []raft.Server { return servers("123") })
		defer tr.close()
		p, far := pipelineTo(t, tr)
		defer p.Close()
		index := uint64(0)
		// The next entry, with word of what is committed before it. The answer is of that kind.
		write := func(kind rpcKind) {
			index++
			q := carrying(index)
			q.LeaderCommitIndex = index - 1
			mustAppend(t, p, q)
			far.expect(rpcAppend)
			far.send(kind, &raft.AppendEntriesResponse{Term: 5, Success: true, LastLog: index}, nil)
			<-p.Consumer()
		}
		told := func(when string, want uint64) {
			t.Helper()
			got := uint64(0)
			for synctest.Wait(); len(far.got) > 0; synctest.Wait() {
				f := <-far.got
				if f.kind != rpcNotice || got != 0 {
					t.Errorf("%s: a frame of kind %d, of %d, behind one of %d", when, f.kind, f.req.LeaderCommitIndex, got)
				}
				got = f.req.LeaderCommitIndex
			}
			if got != want {
				t.Errorf("%s it is told of %d, want %d", when, got, want)
			}
		}
		write(rpcAppend | rpcQuiet)
		if tr.wrote(index, 5) {
			t.Error("somebody is to be answered early by a follower where nobody waits")
		}
		tr.applied(index, 5)
		told("at once", 0)
		time.Sleep(quietPause - time.Nanosecond)
		told("before its pause ends", 0)
		time.Sleep(time.Nanosecond)
		told("when its pause ends", 1)

		write(rpcAppend | rpcQuiet)
		tr.applied(index, 5)
		write(rpcAppend | rpcQuiet) // it brings word of the entry before
		time.Sleep(2 * quietPause)
		told("behind the next entries", 0)
		tr.applied(index, 5)
		time.Sleep(2 * quietPause)
		told("of what is committed later", 3)

		write(rpcAppend | rpcQuiet)
		tr.applied(index, 5)
		told("while it is quiet", 0)
		tr.attended("2")
		told("when it has sent a command", 4)
		time.Sleep(2 * quietPause)
		told("once more", 0)

		write(rpcAppend | rpcQuiet)
		tr.applied(index, 5)
		told("while it is quiet again", 0)
		write(rpcAppend)
		tr.applied(index, 5)
		told("when it is quiet no more", 6)
		write(rpcAppend)
		if !tr.wrote(index, 5) {
			t.Error("nobody is to be answered early by a follower where somebody waits")
		}
		told("of what is written", 7)

		write(rpcAppend | rpcQuiet)
		tr.applied(index, 5)
		if tr.knowsAll(2) {
			t.Error("a follower knows what it has not been told")
		}
		synctest.Wait()
		if got := tr.Transport.(*asked).commits; len(got) != 1 || got[0] != 8 {
			t.Errorf("asked for what it knows, it is told of %d, want 8", got)
		}

		// A pause that ends with the term tells nobody.
		write(rpcAppend | rpcQuiet)
		tr.applied(index, 5)
		tr.answered("2", "", time.Now(), &raft.AppendEntriesRequest{Term: 6}, &raft.AppendEntriesResponse{Term: 6, Success: true}, false)
		tr.applied(index, 6)
		time.Sleep(2 * quietPause)
		told("in the next term", 0)
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
