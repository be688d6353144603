package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/internal/simdisk"
	"lockkeeper/znode"
)

// heldLog is a log whose writes wait for the test, and that remembers what it was to write.
type heldLog struct {
	*raft.InmemStore
	proceed chan error // one for each write: nil, or how it fails

	mu   sync.Mutex
	done []string
}

func (h *heldLog) wrote(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

func (h *heldLog) StoreLogs(logs []*raft.Log) error {
	if err := <-h.proceed; err != nil {
		return err
	}
	h.wrote("+%d-%d", logs[0].Index, logs[len(logs)-1].Index)
	return h.InmemStore.StoreLogs(logs)
}

func (h *heldLog) DeleteRange(lo, hi uint64) error {
	if err := <-h.proceed; err != nil {
		return err
	}
	h.wrote("-%d-%d", lo, hi)
	return h.InmemStore.DeleteRange(lo, hi)
}

// backlogTest is a backlog of member 1 with a log that waits for the test, in a bubble.
type backlogTest struct {
	*backlog
	t      *testing.T
	log    *heldLog
	guard  *guardedStore
	fatal  []error
	leads  bool
	voters string
	failed int
}

func inBacklog(t *testing.T, f func(b *backlogTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &backlogTest{t: t, log: &heldLog{InmemStore: raft.NewInmemStore(), proceed: make(chan error)}, leads: true, voters: "123"}
		b.guard = &guardedStore{LogStore: b.log, fatal: func(err error) { b.fatal = append(b.fatal, err) }}
		b.backlog = newBacklog(b.guard, rafttest.ServerID(1), func() ([]raft.Server, bool) { return rafttest.Servers(b.voters), b.leads }, func() { b.failed++ })
		f(b)
	})
}

func (b *backlogTest) expect(what string, op func() (error, bool), want bool) {
	b.t.Helper()
	if err, returned := op(); returned != want || err != nil {
		b.t.Errorf("%s: returned %v (%v), want %v", what, returned, err, want)
	}
}

func (b *backlogTest) wrote(want ...string) {
	b.t.Helper()
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if !slices.Equal(b.log.done, want) {
		b.t.Errorf("written: %v, want %v", b.log.done, want)
	}
}

// A leader's entries are there at once, for the goroutines that replicate them, and are durable
// when the disk says so; what is pending by then is written with one append.
func TestLeaderDoesNotWaitForItsDisk(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.log.InmemStore.StoreLogs(rafttest.Entries(1, 2))
		for i := uint64(3); i <= 6; i++ {
			if err := b.StoreLogs(rafttest.Entries(i, i)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is being written
		}
		first, _ := b.FirstIndex()
		last, _ := b.LastIndex()
		if first != 1 || last != 6 {
			t.Errorf("entries %d to %d, want 1 to 6", first, last)
		}
		for i := uint64(1); i <= 6; i++ {
			var l raft.Log
			if err := b.GetLog(i, &l); err != nil || l.Index != i {
				t.Errorf("entry %d: %+v, %v", i, l, err)
			}
			if b.lacks(i) != (i > 2) {
				t.Errorf("entry %d is durable: %v", i, !b.lacks(i))
			}
		}
		if err := b.GetLog(7, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry 7: %v", err)
		}
		b.expect("what was there before", rafttest.Begin(func() error { return b.await(2, nil) }), true)
		three := rafttest.Begin(func() error { return b.await(3, nil) })
		four := rafttest.Begin(func() error { return b.await(4, nil) })
		b.expect("before the first write", three, false)
		b.log.proceed <- nil
		b.expect("after the first write", three, true)
		b.expect("the next while it is under way", four, false)
		b.log.proceed <- nil
		b.expect("after the second write", four, true)
		b.wrote("+3-3", "+4-6")
		if b.lacks(6) {
			t.Error("entry 6 is on the disk")
		}
		b.close()
	})
}

// Only a leader that cannot do without others may go ahead of its disk, before an entry and behind
// it.
func TestOnlyVoterWaitsForItsDisk(t *testing.T) {
	for _, tt := range []struct {
		about  string
		leads  bool
		voters string // of the configuration in force
		next   string // of the configuration that is stored; "" for none
		ahead  bool
	}{
		{"three", true, "123", "", true},
		{"two", true, "12", "", true},
		{"a follower", false, "123", "", false},
		{"alone", true, "1", "", false},
		{"alone with observers", true, "1.23", "", false},
		{"a third", true, "12.3", "123", true},
		{"a second", true, "1.2", "12", false},
		{"the last of the others goes", true, "12", "1.2", false},
		{"the leader goes", true, "12", "2.1", true},
		{"the leader has gone", true, "2.1", "", true},
	} {
		t.Run(tt.about, func(t *testing.T) {
			inBacklog(t, func(b *backlogTest) {
				b.leads, b.voters = tt.leads, tt.voters
				logs := rafttest.Entries(1, 1)
				if tt.next != "" {
					logs[0].Type, logs[0].Data = raft.LogConfiguration, raft.EncodeConfiguration(raft.Configuration{Servers: rafttest.Servers(tt.next)})
				}
				op := rafttest.Begin(func() error { return b.StoreLogs(logs) })
				b.expect("before it is durable", op, tt.ahead)
				b.log.proceed <- nil
				if !tt.ahead {
					b.expect("when it is durable", op, true)
				}
				b.close()
			})
		})
	}
}

// A leader that commits alone from here on has all of its log on the disk, not only the newest
// entry.
func TestLastOfTheOthersLeavesNothingUnwritten(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.voters = "12"
		b.StoreLogs(rafttest.Entries(1, 3))
		l := &raft.Log{Index: 4, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: rafttest.Servers("1.2")})}
		op := rafttest.Begin(func() error { return b.StoreLogs([]*raft.Log{l}) })
		b.log.proceed <- nil
		b.expect("when those before it are durable", op, false)
		b.log.proceed <- nil
		b.expect("when all are", op, true)
		b.wrote("+1-3", "+4-4")
		b.close()
	})
}

// A leader is deposed while its disk writes. What its successor has it do comes behind that.
func TestDeposedLeaderKeepsTheOrder(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.StoreLogs(rafttest.Entries(1, 3))
		synctest.Wait()
		b.StoreLogs(rafttest.Entries(4, 4))
		b.leads = false
		op := rafttest.Begin(func() error {
			return errors.Join(b.DeleteRange(3, 4), b.StoreLogs(rafttest.Entries(3, 3)), b.StoreLogs(rafttest.Entries(9, 9)))
		})
		compact := rafttest.Begin(func() error { return b.DeleteRange(0, 0) })
		b.expect("taking off the beginning", compact, false)
		b.log.proceed <- nil // for what was first in line
		// Compaction need not wait for all that the end of the log waits for.
		b.log.proceed <- nil
		b.expect("taking off the beginning", compact, true)
		for range 4 {
			b.expect("before the last write", op, false)
			b.log.proceed <- nil
		}
		b.expect("the rest", op, true)
		b.log.mu.Lock()
		order := slices.DeleteFunc(slices.Clone(b.log.done), func(s string) bool { return s == "-0-0" })
		b.log.mu.Unlock()
		if want := []string{"+1-3", "+4-4", "-3-4", "+3-3", "+9-9"}; !slices.Equal(order, want) {
			t.Errorf("written: %v, want %v", order, want)
		}
		b.close()
	})
}

// Of a disk that is slow for long no more waits than there is room for.
func TestBacklogIsBounded(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		if err := b.StoreLogs(rafttest.Entries(1, backlogMax)); err != nil {
			t.Fatal(err)
		}
		op := rafttest.Begin(func() error { return b.StoreLogs(rafttest.Entries(backlogMax+1, backlogMax+1)) })
		b.expect("one more", op, false)
		b.log.proceed <- nil
		b.log.proceed <- nil
		b.expect("one more", op, true)
		b.close()
	})
}

// A write that fails in the background ends the member as any other: with the reason, once. Nothing
// that was held back ends with an error, and nothing is written behind what is missing.
func TestFailedBacklogLetsNothingGo(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.log.InmemStore.StoreLogs(rafttest.Entries(1, 2))
		b.StoreLogs(rafttest.Entries(3, 3))
		held := rafttest.Begin(func() error { return b.await(3, nil) })
		b.expect("before the disk is full", held, false)
		b.log.proceed <- &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}
		err, returned := held()
		if !returned || !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("what was held back: %v, %v", returned, err)
		}
		if len(b.fatal) != 1 || !errors.Is(b.fatal[0], ErrDiskFull) || b.failed != 1 {
			t.Errorf("the member ends because of %v, raft is told %d times", b.fatal, b.failed)
		}
		for what, op := range map[string]func() error{
			"store": func() error { return b.StoreLogs(rafttest.Entries(4, 4)) },
			"take":  func() error { return b.DeleteRange(3, 3) },
			"await": func() error { return b.await(4, nil) },
		} {
			if err, returned := rafttest.Begin(op)(); !returned || !errors.Is(err, ErrDiskFull) {
				t.Errorf("%s behind it: %v, %v", what, returned, err)
			}
		}
		b.expect("what was there before", rafttest.Begin(func() error { return b.await(2, nil) }), true)
		if !b.lacks(3) {
			t.Error("entry 3 is not on the disk")
		}
		b.wrote()
		b.close()
	})
}

// Closing ends all waiting, and writes what has been taken.
func TestBacklogCloses(t *testing.T) {
	inBacklog(t, func(b *backlogTest) {
		b.StoreLogs(rafttest.Entries(1, 1))
		synctest.Wait()
		b.StoreLogs(rafttest.Entries(2, 2))
		stop := make(chan struct{})
		one := rafttest.Begin(func() error { return b.await(1, stop) })
		two := rafttest.Begin(func() error { return b.await(1, nil) })
		close(stop)
		if err, returned := one(); !returned || !errors.Is(err, errStopped) {
			t.Errorf("stopped: %v, %v", returned, err)
		}
		b.expect("not stopped", two, false)
		b.release()
		if err, returned := two(); !returned || !errors.Is(err, errStopped) {
			t.Errorf("released: %v, %v", returned, err)
		}
		closed := rafttest.Begin(func() error { b.close(); return nil })
		b.log.proceed <- nil
		b.expect("while it writes", closed, false)
		b.log.proceed <- nil
		b.expect("when it has written", closed, true)
		b.wrote("+1-1", "+2-2")
	})
}

// While the leader's disk is slow, nothing that it has not written is answered, though both
// followers have it. It goes on leading for an election timeout, for heartbeats do not wait. When
// its power fails it comes back with a shorter log, and finds the entry with the others.
func TestSlowDiskOfTheLeaderHoldsBackAnswers(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				c.recs[l].result(t, c.propose(l, createSession(9)))
				const slow = 400 * time.Millisecond // the election timeout is 500 ms
				c.disks[l].SetSyncTime(slow)
				key := c.propose(l, createSession(10))
				time.Sleep(slow - 100*time.Millisecond)
				index := c.reps[l].raft.LastIndex()
				for i := range 3 {
					if n := has(t, c.disks[i], index); n != (i != l) {
						t.Errorf("member %d (leader %d) has the entry on its disk: %v", i+1, l+1, n)
					}
					if _, answered := c.recs[i].results[key]; answered {
						t.Errorf("member %d has applied what the leader's disk does not have", i+1)
					}
				}
				if got := c.leader(); got != l || c.reps[l].transport.ProvenAt(c.reps[l].raft.CurrentTerm(), time.Now()).Before(time.Now().Add(-time.Second)) {
					t.Errorf("member %d leads, it was %d", got+1, l+1)
				}
				if crash {
					c.crash(l)
					if has(t, c.disks[l], index) {
						t.Fatal("the leader has the entry on its disk")
					}
					c.disks[l].SetSyncTime(time.Millisecond)
					c.start(l)
				} else {
					c.disks[l].SetSyncTime(time.Millisecond)
				}
				for i := range 3 {
					c.recs[i].result(t, key)
				}
				c.leader()
				c.agree()
			})
		})
	}
}

// A leader with a slow disk is deposed while it still writes entries, which the others have. Its
// successor's commit index arrives before the successor's entries, as after a link that reorders.
// The member applies the entries when it has written them, and does not stop.
func TestDeposedLeaderAppliesWhatItHasWritten(t *testing.T) {
	stops := func(cfg *Config) { cfg.Fatal = func(err error) { t.Error(err) } }
	inCluster(t, 3, stops, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[l].result(t, c.propose(l, createSession(9)))
		const slow = 20 * time.Second
		for _, d := range c.disks {
			d.SetSyncTime(300 * time.Millisecond) // too slow for the leader to hand over
		}
		c.disks[l].SetSyncTime(slow)
		c.propose(l, createSession(10)) // written from now on
		time.Sleep(time.Second)
		key := c.propose(l, createSession(11)) // written from 20 s on, until 40 s
		time.Sleep(4 * time.Second)
		last, term := c.reps[l].raft.LastIndex(), c.reps[l].raft.CurrentTerm()
		c.isolate(l) // it steps down
		time.Sleep(2 * time.Second)
		c.crash((l + 2) % 3)
		c.crash(f)
		c.heal()
		successor := c.impostor(hostName(f), MemberID(f+1))
		defer successor.Transport.Close()
		commit := &raft.AppendEntriesRequest{RPCHeader: rafttest.Header(f + 1), Term: term + 1,
			PrevLogEntry: last, PrevLogTerm: term, LeaderCommitIndex: last}
		for c.reps[l].raft.CommitIndex() < last && !has(t, c.disks[l], last) {
			time.Sleep(time.Millisecond) // virtual
			_ = successor.AppendEntries(serverOf(l), "", commit, &raft.AppendEntriesResponse{})
		}
		if has(t, c.disks[l], last) {
			t.Fatalf("entry %d is on the disk already", last)
		}
		if _, applied := c.recs[l].results[key]; applied {
			t.Error("an entry is applied before it is on the disk")
		}
		for !has(t, c.disks[l], last) {
			time.Sleep(time.Second)
		}
		c.recs[l].result(t, key)
		c.disks[l].SetSyncTime(time.Millisecond)
	})
}

// has reports whether a power cut now would leave an entry on a disk.
func has(t *testing.T, d *simdisk.Disk, index uint64) bool {
	t.Helper()
	left := d.Crash()
	left.SetSyncTime(0)
	s := simStores(t, left)
	defer s.Close()
	err := s.Log.GetLog(index, new(raft.Log))
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// A leader whose disk hangs hears of a successor all the same, and follows it when the disk is
// back.
func TestLeaderIsDeposedWhileItsDiskHangs(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		c.isolate(l)
		c.disks[l].SetSyncTime(30 * time.Second)
		lost := c.propose(l, createSession(10)) // written long after there is another leader
		time.Sleep(10 * time.Second)
		next := c.leader()
		c.recs[next].result(t, c.propose(next, createSession(11)))
		c.disks[l].SetSyncTime(time.Millisecond)
		c.heal()
		// Its own command is still in its outbox, and is handed over again.
		for i := range 3 {
			c.recs[i].result(t, lost)
			c.recs[i].result(t, createSession(11).Key())
		}
		c.agree()
	})
}

// A leader whose write has failed in the background leads no longer, even while nobody has ended
// it.
func TestLeaderWithAFailedDiskStepsDown(t *testing.T) {
	fails := func(cfg *Config) { cfg.Fatal = func(error) {} }
	inCluster(t, 3, fails, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].await(t, "leadership", func() bool { return c.recs[l].leads })
		c.disks[l].Fail(syscall.EIO)
		key := c.propose((l+1)%3, createSession(9))
		c.recs[(l+1)%3].result(t, key)
		c.recs[(l+2)%3].result(t, key)
		if c.recs[l].leads || len(c.recs[l].results) != 0 {
			t.Error("a member that has lost its disk goes on")
		}
	})
}

// From two voters to one and back: a leader that commits alone has all of it on its disk. That
// nothing is ever applied before is what fsm.ApplyBatch looks at, in all tests.
func TestClusterShrinksToOneVoterAndGrows(t *testing.T) {
	inChanging(t, 2, func(t *testing.T, c *cluster) {
		old := c.change
		c.change = func(cfg *Config) { old(cfg); cfg.Flags |= znode.LoneVoter }
		for i := range 2 {
			c.stop(i)
		}
		for i := range 2 {
			c.start(i)
		}
		l := c.leader()
		o := 1 - l
		c.propose(l, createSession(9))
		c.disks[l].SetSyncTime(50 * time.Millisecond) // slower than everything else
		seq := uint64(0)
		for range 3 {
			for _, observer := range []bool{true, false} {
				result := make(chan error, 1)
				go func() { result <- c.reps[l].AddMember(c.ctx(time.Minute), line(o, observer)) }()
				for range 20 {
					seq++
					c.propose(l, sequential(9, seq, "/n-"))
					time.Sleep(10 * time.Millisecond)
				}
				c.must(<-result)
				last := sequential(9, seq, "").Key()
				c.recs[l].result(t, last)
				index := c.reps[l].raft.AppliedIndex()
				c.crash(l)
				if !has(t, c.disks[l], index) {
					t.Fatalf("observer %v: entry %d was answered, and the leader comes back without it", observer, index)
				}
				c.start(l)
				l, o = c.leader(), 1-c.leader()
				c.recs[l].await(t, "the state", func() bool { return c.recs[l].times[last] > 0 || c.recs[l].leads })
				c.disks[o].SetSyncTime(time.Millisecond)
				c.disks[l].SetSyncTime(50 * time.Millisecond)
			}
		}
		c.agree()
	})
}
