package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/rafttest"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
)

// The peer port and raft's transport, with whole members.

// logged keeps what is logged.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) lines(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}

// impostor is a process on some host that speaks to members in the name of another one.
type impostor struct {
	*peer.Port
	*raftnet.Transport
}

// impostor makes one that passes for a member of the cluster, on a host.
func (c *cluster) impostor(host string, from MemberID) impostor {
	c.t.Helper()
	h := c.net.Host(host)
	r := c.anyone()
	of := aboveOf(r)
	roster := peer.NewRoster(c.members, false, raftnet.ForPort(of))
	roster.SetCluster(r.roster.Cluster())
	port, err := peer.Listen(peer.Config{ID: from, Disk: peer.DiskID(from), Members: c.members, Listen: h.Listen, Dial: h.Dial, ListenAddr: host + ":9"},
		roster, raftnet.ForPort(of))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(port.Close)
	return impostor{port, raftnet.New(raftnet.Config{Self: raftnet.ServerID(from, peer.DiskID(from)), Local: of, Port: port})}
}

// stream opens a stream to member i.
func (c *cluster) stream(m impostor, i int, kind peer.StreamKind) *peer.Stream {
	c.t.Helper()
	s, err := m.Dial(c.t.Context(), MemberID(i+1), kind)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// A stream that carries something else than requests of raft is closed, no other is, and the log
// says once where that came from.
func TestGarbageEndsItsStreamOnly(t *testing.T) {
	out := &logged{}
	logTo := func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) }
	inCluster(t, 3, logTo, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		f := (l + 1) % 3
		other := c.impostor(hostName((f+1)%3), MemberID((f+1)%3+1))
		term := c.reps[l].raft.CurrentTerm()
		for i, garbage := range [][]byte{
			[]byte("GET / HTTP/1.1\r\n\r\n"),
			{0, 0, 0, 0, 0},
			{0xff, 0xff, 0xff, 0xff, 1},
			{0, 0, 0, 1, 99},
			{0, 0, 0, 1, 1},
		} {
			before := c.reps[f].port.Stats().Connections
			conn := c.stream(other, f, peer.StreamRaft)
			if _, err := conn.Write(garbage); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("garbage %d: the stream goes on: %v", i, err)
			}
			synctest.Wait()
			if after := c.reps[f].port.Stats().Connections; after != before {
				t.Errorf("garbage %d: %d connections before, %d after", i, before, after)
			}
		}
		remote := "remote=" + hostName((f+1)%3)
		if n := out.lines(peer.ErrRefused.Error()); n != 1 || out.lines(remote) != 1 {
			t.Errorf("logged %d times, %d times with the address:\n%s", n, out.lines(remote), out.b.String())
		}
		c.recs[f].result(t, c.propose(f, sequential(9, 1, "/n-")))
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
	})
}

// Followers learn of a commit at once, by a notice: as long after the leader as a message takes,
// and without a request more.
func TestFollowersAreNoticedOfCommits(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		time.Sleep(5 * time.Second)
		for seq := range uint64(20) {
			key := c.propose(l, sequential(9, seq+1, "/n-"))
			c.recs[l].result(t, key)
			start := time.Now()
			for i := range 3 {
				c.recs[i].result(t, key)
			}
			if took := time.Since(start); took > 2*time.Millisecond {
				t.Errorf("a follower applied command %d %v after the leader", seq+1, took)
			}
			time.Sleep(time.Duration(seq) * 20 * time.Millisecond)
		}
		tr := c.reps[l].transport
		for i := range 3 {
			for id := MemberID(i + 1); i != l && !tr.KnowsAll(serverOf(int(id)-1)); {
				time.Sleep(time.Millisecond)
			}
		}
	})
}

// Connections that say nothing are few, from whatever host, and members go on reaching each other.
//
// Defends: C9.
func TestSilentConnectionsAreBounded(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		term := c.reps[l].raft.CurrentTerm()
		port := c.reps[l].port
		for i := range 1500 {
			conn, err := c.net.Host("10.0.0.99").Dial(t.Context(), "tcp", c.members[l].Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if i%100 == 0 {
				c.recs[l].result(t, c.propose((l+1)%3, sequential(9, uint64(i/100)+1, "/n-")))
			}
		}
		synctest.Wait()
		if n := port.Stats().Connections; n > peer.DefaultMaxConns/8+40 {
			t.Errorf("%d connections are open", n)
		}
		time.Sleep(2 * peer.PrefaceTimeout)
		if n := port.Stats().Connections; n > 40 {
			t.Errorf("%d connections are open after the deadline of the preface", n)
		}
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
	})
}

// A connection in the name of a member comes from that member's address.
//
// Defends: C9.
func TestMembersComeFromTheirAddresses(t *testing.T) {
	for _, any := range []bool{false, true} {
		inCluster(t, 3, func(cfg *Config) { cfg.Peers.AnyAddr = any }, func(t *testing.T, c *cluster) {
			l := c.leader()
			other := c.impostor("10.0.0.99", MemberID((l+1)%3+1))
			for _, kind := range []peer.StreamKind{peer.StreamRaft, peer.StreamForward, peer.StreamLease, peer.StreamClaims, peer.StreamTransfer} {
				before := c.reps[l].port.Stats().Rejected
				conn, err := other.Dial(t.Context(), MemberID(l+1), kind)
				if err == nil {
					conn.Close()
				}
				if refused := errors.Is(err, peer.ErrVerdict); refused == any {
					t.Errorf("stream %q from another host, with AnyPeerAddr %v: %v", kind, any, err)
				}
				if n := c.reps[l].port.Stats().Rejected - before; (n == 0) != any {
					t.Errorf("stream %q from another host, with AnyPeerAddr %v: %d rejected", kind, any, n)
				}
			}
		})
	}
}

// Whatever a program that passes for a member sends, its stream ends, nothing of it is in the log,
// and raft has the same leader and term. Afterwards every member starts from its disk.
//
// Defends: C9.
func TestRequestsThatNoMemberSendsAreRefused(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		c.recs[l].result(t, c.propose(l, createSession(9)))
		f := (l + 1) % 3
		lib := c.reps[f].raft
		for c.reps[f].Status().LastIndex != c.reps[l].Status().LastIndex {
			time.Sleep(time.Millisecond)
		}
		last, term := lib.LastIndex(), lib.CurrentTerm()
		var tail raft.Log
		if err := c.reps[f].cfg.Stores.Log.GetLog(last, &tail); err != nil {
			t.Fatal(err)
		}
		leader := c.impostor(hostName(l), MemberID(l+1))
		to := serverOf(f)
		for name, req := range rafttest.Hostile(l+1, term, last, tail.Term) {
			before := c.reps[f].port.Stats().Refused
			var err error
			switch q := req.(type) {
			case *raft.AppendEntriesRequest:
				err = leader.AppendEntries(to, "", q, &raft.AppendEntriesResponse{})
			case *raft.RequestVoteRequest:
				err = leader.RequestVote(to, "", q, &raft.RequestVoteResponse{})
			case *raft.RequestPreVoteRequest:
				err = leader.RequestPreVote(to, "", q, &raft.RequestPreVoteResponse{})
			case *raft.InstallSnapshotRequest:
				err = leader.InstallSnapshot(to, "", q, &raft.InstallSnapshotResponse{}, strings.NewReader(strings.Repeat("x", int(q.Size))))
			}
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the stream goes on: %v", name, err)
			}
			synctest.Wait()
			if n := c.reps[f].port.Stats().Refused - before; n != 1 {
				t.Errorf("%s: counted %d times", name, n)
			}
			if lib.LastIndex() != last || lib.CurrentTerm() != term || c.leader() != l {
				t.Fatalf("%s: entry %d of term %d is the last one, it was %d of %d", name, lib.LastIndex(), lib.CurrentTerm(), last, term)
			}
		}
		c.recs[f].result(t, c.propose(f, sequential(9, 1, "/n-")))
		for i := range 3 {
			c.crash(i)
		}
		for i := range 3 {
			c.start(i)
		}
		c.recs[c.leader()].result(t, c.propose(c.leader(), sequential(9, 2, "/n-")))
		c.agree()
	})
}

// Only the leader can start an election, and only clients that may can transfer the leadership.
func TestLeadershipIsNotMovedByOthers(t *testing.T) {
	right := func(cfg *Config) {
		cfg.Listener.(*recorder).mayTransfer = func(proof string, occasion []byte) error {
			if proof != "right for "+string(occasion) {
				return errors.New("no right")
			}
			return nil
		}
	}
	inCluster(t, 3, right, func(t *testing.T, c *cluster) {
		l := c.leader()
		f, g := (l+1)%3, (l+2)%3
		term := c.reps[l].raft.CurrentTerm()
		if err := c.impostor(hostName(g), MemberID(g+1)).Elect(serverOf(f)); err == nil {
			t.Error("an election was requested by a follower")
		}
		if err := c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), nil); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("without the right: %v", err)
		}
		old := ""
		for name, change := range map[string]func([]byte) []byte{
			"another term":   func(b []byte) []byte { return bytes.Replace(b, fmt.Appendf(nil, "term %d", term), []byte("term 1"), 1) },
			"another member": func(b []byte) []byte { return bytes.Replace(b, fmt.Appendf(nil, "from %d", f+1), []byte("from 9"), 1) },
			"another target": func(b []byte) []byte { return bytes.Replace(b, []byte("\nto "), []byte("\nto 1"), 1) },
		} {
			err := c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), func(occasion []byte) string {
				changed := change(occasion)
				if bytes.Equal(changed, occasion) {
					t.Errorf("%s: not in %q", name, occasion)
				}
				return "right for " + string(changed)
			})
			if err == nil || !strings.Contains(err.Error(), "no right") {
				t.Errorf("a proof for %s: %v", name, err)
			}
		}
		time.Sleep(5 * time.Second)
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
		c.must(c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), func(occasion []byte) string {
			old = "right for " + string(occasion)
			return old
		}))
		if c.leader() != g {
			t.Error("the leadership was not moved")
		}
		c.must(c.reps[g].TransferLeadership(c.ctx(5*time.Second), MemberID(l+1), nil))
		if err := c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), func([]byte) string { return old }); err == nil {
			t.Error("a proof was good for a second transfer")
		}
	})
}

// Streams of which a frame has begun and does not go on hold little, and end; those between frames
// stay.
//
// Defends: C9.
func TestHalfSentFramesEnd(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		head := func(n uint32, b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), b...) }
		other := c.impostor(hostName(f), MemberID(f+1))
		idle := c.stream(other, l, peer.StreamRaft)
		var conns []*peer.Stream
		for kind, frame := range map[peer.StreamKind][]byte{
			peer.StreamRaft:    head(64*raftnet.MaxEntryBytes, 1, 1, 2, 3),
			peer.StreamForward: head(peer.MaxFrame, 1, 2, 3),
			peer.StreamLease:   head(maxLeaseFrame, 1, 2, 3),
			peer.StreamClaims:  head(uint32(maxClaimsFrame), 1, 2, 3),
		} {
			for _, b := range [][]byte{frame, frame[:3]} {
				conn := c.stream(other, l, kind)
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
		}
		synctest.Wait()
		if n := c.reps[l].port.Stats().FrameBytes; n != 0 {
			t.Errorf("%d bytes are held for frames of which 3 bytes have come", n)
		}
		for i, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("half a frame, stream %d: it goes on", i)
			}
		}
		_ = idle.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a stream without a frame: %v", err)
		}
	})
}

// A snapshot of which little comes does not reach the main loop, and so holds up nobody's writes.
func TestSlowSnapshotHoldsUpNobody(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		leader := c.impostor(hostName(l), MemberID(l+1))
		req := &raft.InstallSnapshotRequest{RPCHeader: rafttest.Header(l + 1), SnapshotVersion: raft.SnapshotVersionMax,
			Term: c.reps[l].raft.CurrentTerm(), LastLogIndex: 1 << 30, LastLogTerm: c.reps[l].raft.CurrentTerm(),
			Configuration: rafttest.Configuration(rafttest.Voter(1), rafttest.Voter(2), rafttest.Voter(3)), ConfigurationIndex: 1, Size: 1 << 20}
		data, rest := io.Pipe()
		sent := make(chan error)
		go func() {
			sent <- leader.InstallSnapshot(serverOf(f), "", req, &raft.InstallSnapshotResponse{}, data)
		}()
		if _, err := rest.Write([]byte("lk")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		start := time.Now()
		c.recs[f].result(t, c.propose(f, sequential(9, 1, "/n-")))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a write took %v", took)
		}
		_ = rest.Close()
		if err := <-sent; err == nil {
			t.Error("a snapshot of two bytes was installed")
		}
	})
}

// The same with a whole member, over its port: a snapshot that its leader has sent long ago
// arrives. TestSnapshotIsHeldBack in jepsen/simtest has the network do that.
func TestLateSnapshotTakesNothingBack(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		if err := c.reps[f].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		list, err := c.disks[f].List()
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		meta, r, err := c.disks[f].Open(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(20) {
			c.recs[f].result(t, c.propose(l, sequential(9, seq+1, "/n-")))
		}
		id := []byte(serverOf(l))
		req := &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id},
			SnapshotVersion: meta.Version, Term: c.reps[l].raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: int64(len(data))}
		var resp raft.InstallSnapshotResponse
		err = c.impostor(hostName(l), MemberID(l+1)).InstallSnapshot(serverOf(f), "", req, &resp, bytes.NewReader(data))
		if err != nil || !resp.Success {
			t.Errorf("answered: %+v, %v", resp, err)
		}
		if c.recs[f].restored != 0 || c.digest(f) != c.digest(l) {
			t.Errorf("the state was replaced %d times, and is the leader's: %v", c.recs[f].restored, c.digest(f) == c.digest(l))
		}
		c.recs[f].result(t, c.propose(f, sequential(9, 21, "/n-")))
	})
}

// Early commit: where a leader and one follower are a majority, a follower applies what it has
// written without waiting for the leader to hear of that. A command of a follower takes two
// messages; with more voters it takes four.
func TestEarlyCommitSavesTwoMessages(t *testing.T) {
	const hop = 10 * time.Millisecond
	for _, c := range []struct {
		members, hops int
	}{{2, 2}, {3, 2}, {4, 4}, {5, 4}} {
		t.Run(fmt.Sprint(c.members, " members"), func(t *testing.T) {
			hops := c.hops
			inCluster(t, c.members, nil, func(t *testing.T, c *cluster) {
				l := c.leader()
				f := (l + 1) % len(c.reps)
				c.recs[f].result(t, c.propose(f, createSession(9)))
				for i := range c.reps {
					for j := range c.reps {
						if i != j {
							c.net.SetLatency(hostName(i), hostName(j), hop, 0)
						}
					}
				}
				time.Sleep(5 * time.Second)
				for seq := range uint64(20) {
					time.Sleep(time.Second + time.Duration(seq)*7*time.Millisecond)
					start := time.Now()
					c.recs[f].result(t, c.propose(f, sequential(9, seq+1, "/n-")))
					// The disks take a millisecond.
					if took := time.Since(start); took < time.Duration(hops)*hop || took > time.Duration(hops)*hop+hop/2 {
						t.Errorf("command %d took %v, want %d messages of %v", seq+1, took, hops, hop)
					}
				}
				c.agree()
			})
		})
	}
}

// A follower that was sent an early commit does not apply an entry that is not on its own disk: one
// disk is no majority.
func TestEarlyCommitWaitsForTheFollowersDisk(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		const slow = 20 * time.Second
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(f, createSession(9)))
		for i, d := range c.disks {
			if i != l {
				d.SetSyncTime(slow)
			}
		}
		key := c.propose(f, createSession(10))
		time.Sleep(slow - time.Second)
		if index := c.reps[l].raft.LastIndex(); !has(t, c.disks[l], index) || has(t, c.disks[f], index) {
			t.Fatalf("entry %d is not on the leader's disk, or on the follower's already", index)
		}
		for i, r := range c.recs {
			if _, answered := r.results[key]; answered {
				t.Errorf("member %d (leader %d) has applied what one disk has", i+1, l+1)
			}
		}
		for _, d := range c.disks {
			d.SetSyncTime(time.Millisecond)
		}
		for _, r := range c.recs {
			r.result(t, key)
		}
		c.agree()
	})
}
