package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

func headerOf(id MemberID) raft.RPCHeader {
	b := []byte(serverID(id))
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: b, Addr: b}
}

func confOf(servers ...raft.Server) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: servers})
}

func voter(id MemberID) raft.Server {
	return raft.Server{Suffrage: raft.Voter, ID: serverID(id), Address: raft.ServerAddress(hostName(int(id)-1) + ":2888")}
}

// hostile are requests that no member sends, with the term and the log of a leader that does.
func hostile(from MemberID, term, last, lastTerm uint64) map[string]any {
	header := headerOf(from)
	entry := func(kind raft.LogType, data []byte) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{RPCHeader: header, Term: term, PrevLogEntry: last, PrevLogTerm: lastTerm,
			Entries: []*raft.Log{{Index: last + 1, Term: term, Type: kind, Data: data}}}
	}
	empty := znode.AppendEntry(nil, 1, 0, nil)
	snapshot := func(conf []byte, size int64) *raft.InstallSnapshotRequest {
		return &raft.InstallSnapshotRequest{RPCHeader: header, SnapshotVersion: raft.SnapshotVersionMax, Term: term, LastLogIndex: last + 1000,
			LastLogTerm: term, Configuration: conf, ConfigurationIndex: 1, Size: size}
	}
	gap := entry(raft.LogCommand, empty)
	gap.Entries[0].Index++
	later := entry(raft.LogCommand, empty)
	later.Entries[0].Term++
	extended := entry(raft.LogCommand, empty)
	extended.Entries[0].Extensions = []byte("x")
	foreign := entry(raft.LogNoop, nil)
	foreign.RPCHeader = headerOf(from + 1)
	three := []raft.Server{voter(1), voter(2), voter(3)}
	return map[string]any{
		"garbage configuration":                 entry(raft.LogConfiguration, []byte("garbage")),
		"empty configuration entry":             entry(raft.LogConfiguration, nil),
		"configuration of nobody":               entry(raft.LogConfiguration, confOf()),
		"configuration without a voter":         entry(raft.LogConfiguration, confOf(raft.Server{Suffrage: raft.Nonvoter, ID: "1", Address: "a"})),
		"configuration of strangers":            entry(raft.LogConfiguration, confOf(voter(77), voter(78))),
		"configuration of two members less":     entry(raft.LogConfiguration, confOf(voter(from))),
		"configuration with one twice":          entry(raft.LogConfiguration, confOf(append(three, three[0])...)),
		"configuration with a name":             entry(raft.LogConfiguration, confOf(append(three, raft.Server{ID: "mallory", Address: "a"})...)),
		"garbage command":                       entry(raft.LogCommand, []byte("garbage")),
		"command with a wrong checksum":         entry(raft.LogCommand, append(bytes.Clone(empty[:len(empty)-1]), 7)),
		"unknown type of entry":                 entry(raft.LogType(99), nil),
		"deprecated type of entry":              entry(raft.LogAddPeerDeprecated, []byte("x")),
		"barrier with data":                     entry(raft.LogBarrier, []byte("x")),
		"extensions":                            extended,
		"gap":                                   gap,
		"entry of a later term":                 later,
		"leader of another number":              foreign,
		"commit without a log":                  &raft.AppendEntriesRequest{RPCHeader: header, Term: term, LeaderCommitIndex: 1 << 40},
		"heartbeat of the last term":            &raft.AppendEntriesRequest{RPCHeader: header, Term: 1<<64 - 1},
		"heartbeat of a far term":               &raft.AppendEntriesRequest{RPCHeader: header, Term: term + 2*termBurst},
		"vote in the last term":                 &raft.RequestVoteRequest{RPCHeader: header, Term: 1<<64 - 1, LastLogIndex: last, LastLogTerm: lastTerm, LeadershipTransfer: true},
		"pre-vote in the last term":             &raft.RequestPreVoteRequest{RPCHeader: header, Term: 1<<64 - 1, LastLogIndex: last, LastLogTerm: lastTerm},
		"vote for a log of its own term":        &raft.RequestVoteRequest{RPCHeader: header, Term: term + 1, LastLogIndex: last, LastLogTerm: term + 1},
		"old version of the protocol":           &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 2, ID: header.ID, Addr: header.Addr}, Term: term + 1},
		"snapshot with an empty configuration":  snapshot(nil, 100),
		"snapshot with a garbage configuration": snapshot([]byte("garbage"), 100),
		"snapshot without a voter":              snapshot(confOf(), 100),
		"snapshot of version 0":                 &raft.InstallSnapshotRequest{RPCHeader: header, Term: term, LastLogIndex: last + 1000, LastLogTerm: term, Size: 100},
		"snapshot of nothing":                   snapshot(confOf(three...), 0),
		"snapshot that is none":                 snapshot(confOf(three...), 100),
	}
}

// Whatever a stranger who passes for a member sends, its stream ends, nothing of it is in the log, and raft has the same leader and term.
// Afterwards every member starts from its disk.
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
		if err := c.disks[f].GetLog(last, &tail); err != nil {
			t.Fatal(err)
		}
		for name, req := range hostile(MemberID(l+1), term, last, tail.Term) {
			before := c.reps[f].port.refused.Load()
			conn := newRaftConn(c.strangerFrom(hostName(l), streamRaft, MemberID(l+1), f), nil)
			if err := conn.send(kindOf(req), req); err != nil {
				t.Fatal(err)
			}
			if q, ok := req.(*raft.InstallSnapshotRequest); ok {
				_, _ = conn.Write(bytes.Repeat([]byte("x"), int(q.Size)))
			}
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the stream goes on: %v", name, err)
			}
			conn.Close()
			if n := c.reps[f].port.refused.Load() - before; n != 1 {
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

// An election is asked for by the leader, and the leadership is moved for those who may.
func TestLeadershipIsNotMovedByStrangers(t *testing.T) {
	right := func(cfg *Config) {
		cfg.MayTransfer = func(proof string) error {
			if proof != "right" {
				return errors.New("no right")
			}
			return nil
		}
	}
	inCluster(t, 3, right, func(t *testing.T, c *cluster) {
		l := c.leader()
		f, g := (l+1)%3, (l+2)%3
		term := c.reps[l].raft.CurrentTerm()
		conn := newRaftConn(c.strangerFrom(hostName(g), streamRaft, MemberID(g+1), f), nil)
		if err := conn.send(rpcTimeoutNow, timeoutNow()); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(conn)
		if err := c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), "wrong"); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("without the right: %v", err)
		}
		time.Sleep(5 * time.Second)
		if c.leader() != l || c.reps[l].raft.CurrentTerm() != term {
			t.Error("another leader has been elected")
		}
		c.must(c.reps[f].TransferLeadership(c.ctx(5*time.Second), MemberID(g+1), "right"))
		if c.leader() != g {
			t.Error("the leadership was not moved")
		}
	})
}

// A member that has missed many elections follows all the same, and the term of a cluster cannot be driven up at once.
func TestTermsRiseAsFastAsElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b termBudget
		if got := b.limit(5, time.Now()); got != 5+termBurst {
			t.Errorf("at first up to %d", got)
		}
		if got := b.limit(5+termBurst, time.Now()); got != 5+termBurst {
			t.Errorf("after the burst up to %d", got)
		}
		time.Sleep(time.Minute)
		if got := b.limit(5+termBurst, time.Now()); got != 5+termBurst+60*termsPerSecond {
			t.Errorf("a minute later up to %d", got)
		}
		if got := b.limit(maxTerm-1, time.Now()); got > maxTerm {
			t.Errorf("in the end up to %d", got)
		}
	})
}

// A configuration follows the one before; what replaces entries that were never committed follows the one before those.
func TestConfigurationsFollowEachOther(t *testing.T) {
	conf := func(servers ...raft.Server) raft.Configuration { return raft.Configuration{Servers: servers} }
	observer := voter(4)
	observer.Suffrage = raft.Nonvoter
	three := []raft.Server{voter(1), voter(2), voter(3)}
	elsewhere := func(servers []raft.Server, more ...raft.Server) []raft.Server {
		moved := slices.Clone(servers)
		for i := range moved {
			moved[i].Address += "0"
		}
		return append(moved, more...)
	}
	terms := []uint64{0, 1, 1, 1} // of the entries
	h := configurationHistory{
		latest: func() raft.Configuration { return conf(append(three, observer)...) },
		last:   func() uint64 { return 3 },
		entry: func(i uint64) (uint64, bool) {
			if i == 0 || i >= uint64(len(terms)) {
				return 0, false
			}
			return terms[i], true
		},
	}
	for _, tt := range []struct {
		about      string
		prev, term uint64 // of the entry before
		of         uint64 // term of the entry
		next       raft.Configuration
		ok         bool
	}{
		{"a vote for the observer", 3, 1, 1, conf(append(three, voter(4))...), true},
		{"the observer removed", 3, 1, 1, conf(three...), true},
		{"two changes", 3, 1, 1, conf(voter(1), voter(2)), false},
		{"it is here already, as it was then", 2, 1, 1, conf(voter(9)), true},
		{"in its place, from three", 2, 1, 2, conf(voter(1), voter(2)), true},
		{"in its place, from nowhere", 2, 1, 2, conf(voter(1)), false},
		{"a vote, and other addresses of the same members", 3, 1, 1, conf(elsewhere(three, voter(4))...), true},
		{"behind an entry that is not here: raft says so", 3, 2, 2, conf(voter(9)), true},
		{"behind the end: raft says so", 9, 1, 2, conf(voter(9)), true},
	} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: tt.prev, PrevLogTerm: tt.term,
			Entries: []*raft.Log{{Index: tt.prev + 1, Term: tt.of, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(tt.next)}}}
		if err := h.check(q); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.about, err)
		}
	}
}

// A member that has a configuration which was never committed takes another one, also if it does not stand in the place of
// that one, but behind it in the same request.
func TestUncommittedConfigurationIsReplaced(t *testing.T) {
	three := []raft.Server{voter(1), voter(2), voter(3)}
	terms := []uint64{0, 1, 1, 1} // of the entries; the third one is a configuration with member 4
	h := configurationHistory{
		latest: func() raft.Configuration { return raft.Configuration{Servers: append(slices.Clone(three), voter(4))} },
		last:   func() uint64 { return 3 },
		entry: func(i uint64) (uint64, bool) {
			if i == 0 || i >= uint64(len(terms)) {
				return 0, false
			}
			return terms[i], true
		},
	}
	next := raft.EncodeConfiguration(raft.Configuration{Servers: append(slices.Clone(three), voter(5))})
	for first, ok := range map[uint64]bool{3: true, 4: false} {
		q := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: first - 1, PrevLogTerm: 1, Entries: []*raft.Log{
			{Index: first, Term: 2, Type: raft.LogNoop}, {Index: first + 1, Term: 2, Type: raft.LogConfiguration, Data: next}}}
		if err := h.check(q); (err == nil) != ok {
			t.Errorf("from entry %d on: %v", first, err)
		}
	}
}

// A snapshot is passed on as it is if it is one; of another the end is never passed on.
func TestSnapshotIsDecodedBeforeItsEnd(t *testing.T) {
	var good bytes.Buffer
	if _, err := znode.New().Snapshot().WriteTo(&good); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good.Bytes())
	flipped[len(flipped)/2] ^= 1
	for name, tt := range map[string]struct {
		data []byte
		ok   bool
	}{
		"a state": {good.Bytes(), true}, "a bit flipped": {flipped, false}, "cut off": {good.Bytes()[:good.Len()-1], false},
		"a byte more": {append(bytes.Clone(good.Bytes()), 0), false}, "nothing": {nil, false}, "garbage": {bytes.Repeat([]byte("x"), 1<<20), false},
	} {
		s := checkSnapshot(bytes.NewReader(tt.data))
		got, err := io.ReadAll(s)
		s.close()
		if (err == nil) != tt.ok || tt.ok && !bytes.Equal(got, tt.data) || !tt.ok && !errors.Is(s.refused(), errRequest) {
			t.Errorf("%s: %d of %d bytes, %v, %v", name, len(got), len(tt.data), err, s.refused())
		}
	}
	s := checkSnapshot(bytes.NewReader(good.Bytes()))
	_, _ = s.Read(make([]byte, 3))
	s.close() // ends the goroutine
}

// Streams of which a frame has begun and does not go on hold little, and end; those between frames stay.
func TestHalfSentFramesEnd(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		head := func(n uint32, b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), b...) }
		idle := c.stranger(l)
		var conns []net.Conn
		for kind, frame := range map[streamKind][]byte{
			streamRaft:    head(maxRequestBytes, byte(rpcAppend), 1, 2, 3),
			streamForward: head(maxPeerFrame, 1, 2, 3),
			streamLease:   head(maxLeaseFrame, 1, 2, 3),
		} {
			for _, b := range [][]byte{frame, frame[:3]} {
				conn := c.strangerFrom(hostName(f), kind, MemberID(f+1), l)
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
		}
		synctest.Wait()
		if n := c.reps[l].port.room.inUse(); n != 0 {
			t.Errorf("%d bytes are held for frames of which 3 bytes have come", n)
		}
		for i, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(2 * frameTime))
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

// What all streams together hold for large frames is bounded, and given back.
func TestLargeFramesShareTheirRoom(t *testing.T) {
	room := &frameRoom{max: 1 << 20}
	frame := func(n int) *frameReader {
		b := append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
		return &frameReader{Reader: newRaftConn(readerConn{r: bytes.NewReader(b)}, nil).r, room: room}
	}
	first, second := frame(1<<20), frame(1<<19)
	if _, err := first.readPeerFrame(maxPeerFrame, nil); err != nil || room.inUse() != 1<<20 {
		t.Fatalf("%v, %d bytes are in use", err, room.inUse())
	}
	if _, err := second.readPeerFrame(maxPeerFrame, nil); !errors.Is(err, errFrameRoom) {
		t.Errorf("a frame for which there is no room: %v", err)
	}
	second.release()
	first.release()
	if room.inUse() != 0 {
		t.Errorf("%d bytes are in use in the end", room.inUse())
	}
	if _, err := frame(frameStep).readPeerFrame(maxPeerFrame, nil); err != nil || room.inUse() != 0 {
		t.Errorf("a small frame: %v, %d bytes are in use", err, room.inUse())
	}
}

// readerConn is a connection of which only Read is there.
type readerConn struct {
	net.Conn
	r io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// A snapshot that comes a byte now and then does not hold the main loop for longer than a leader would wait.
func TestSlowSnapshotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var sender sync.WaitGroup
		defer sender.Wait()
		defer near.Close()
		sender.Go(func() {
			for {
				if _, err := near.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(rpcTimeout / 2)
			}
		})
		s := &snapshotSource{c: far, r: far}
		s.begin(1 << 30)
		start := time.Now()
		if _, err := io.Copy(io.Discard, s); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > 2*rpcTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		far.Close()
	})
}

func FuzzConfiguration(f *testing.F) {
	f.Add(confOf(voter(1), voter(2), voter(3)))
	f.Add([]byte("garbage"))
	f.Add([]byte{0x81, 0xa7, 'S', 'e', 'r', 'v', 'e', 'r', 's', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		conf, err := decodeConfiguration(b)
		if err != nil {
			return
		}
		if again, err := decodeConfiguration(raft.EncodeConfiguration(conf)); err != nil || configurationSteps(conf, again) != 0 {
			t.Errorf("%x decoded, and not when encoded again: %v", b, err)
		}
	})
}

// FuzzRequests decodes and checks what a peer may send on a raft stream.
func FuzzRequests(f *testing.F) {
	for _, req := range hostile(2, 7, 3, 6) {
		f.Add(byte(kindOf(req)), appendRequest(nil, kindOf(req), req)[rpcHeadLen:])
	}
	n := &network{checker: &requestChecker{term: func() uint64 { return 7 }, leader: func() MemberID { return 2 },
		history: configurationHistory{latest: func() raft.Configuration { return raft.Configuration{} },
			last: func() uint64 { return 3 }, entry: func(uint64) (uint64, bool) { return 0, false }}}}
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		req, err := n.decode(2, rpcKind(kind), body)
		if err != nil && strings.Contains(err.Error(), "decoding it") {
			t.Errorf("panic: %v", err)
		}
		if q, ok := req.(*raft.AppendEntriesRequest); err == nil && ok {
			for _, e := range q.Entries {
				if e.Type == raft.LogCommand {
					if _, err := znode.DecodeEntry(e.Data); err != nil {
						t.Errorf("an entry that cannot be applied: %v", err)
					}
				}
			}
		}
	})
}

// FuzzForwardFrame decodes what a peer may send on a forward stream.
func FuzzForwardFrame(f *testing.F) {
	f.Add(appendCommands(nil, [][]byte{createSession(9).Append(nil), sequential(9, 1, "/n-").Append(nil)})[4:])
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, frame []byte) {
		cmds, err := splitCommands(frame)
		if err != nil {
			return
		}
		good, err := checkForwarded(cmds)
		if err != nil && strings.Contains(err.Error(), "decoding it") {
			t.Errorf("panic: %v", err)
		}
		if err := znode.CheckEntry(znode.AppendEntry(nil, 1, 0, cmds[:good])); err != nil {
			t.Errorf("an entry with the commands cannot be applied: %v", err)
		}
	})
}

// FuzzTransfer reads what a peer may send on a transfer stream.
func FuzzTransfer(f *testing.F) {
	f.Add(transferRequest(NoMember, ""))
	f.Add(transferRequest(3, "digest super:x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if to, proof, err := readTransfer(bytes.NewReader(b)); err == nil && to != NoMember && !bytes.HasPrefix(b, transferRequest(to, proof)) {
			t.Errorf("%x read as %d, %q", b, to, proof)
		}
	})
}

// FuzzPeerFrames reads frames off any bytes.
func FuzzPeerFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7, 0, 0, 0, 0}, true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1}, false)
	f.Fuzz(func(t *testing.T, b []byte, raftStream bool) {
		room := &frameRoom{max: DefaultPeerFrameBytes}
		r := &frameReader{Reader: newRaftConn(readerConn{r: bytes.NewReader(b)}, nil).r, room: room}
		for {
			var body []byte
			var err error
			if raftStream {
				_, body, err = r.readRaftFrame(maxRequestBytes)
			} else {
				body, err = r.readPeerFrame(maxPeerFrame, nil)
			}
			if len(body) > 2*len(b)+frameStep {
				t.Errorf("room for %d bytes of %d", len(body), len(b))
			}
			if err != nil {
				break
			}
		}
		r.release()
		if room.inUse() != 0 {
			t.Errorf("%d bytes are in use in the end", room.inUse())
		}
	})
}

// A snapshot of which little comes does not reach the main loop, and so holds up nobody's writes.
func TestSlowSnapshotHoldsUpNobody(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		l := c.leader()
		f := (l + 1) % 3
		c.recs[f].result(t, c.propose(l, createSession(9)))
		conn := newRaftConn(c.strangerFrom(hostName(l), streamRaft, MemberID(l+1), f), nil)
		req := &raft.InstallSnapshotRequest{RPCHeader: headerOf(MemberID(l + 1)), SnapshotVersion: raft.SnapshotVersionMax,
			Term: c.reps[l].raft.CurrentTerm(), LastLogIndex: 1 << 30, LastLogTerm: c.reps[l].raft.CurrentTerm(),
			Configuration: confOf(voter(1), voter(2), voter(3)), ConfigurationIndex: 1, Size: 1 << 20}
		if err := conn.send(rpcSnapshot, req); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("lk")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		start := time.Now()
		c.recs[f].result(t, c.propose(f, sequential(9, 1, "/n-")))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a write took %v", took)
		}
		conn.Close()
	})
}
