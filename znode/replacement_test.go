package znode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"lockkeeper/wire"
)

// restoring drives a restore as a member does: it applies each step as an entry of its own.
type restoring struct {
	t    *testing.T
	s    *Store
	term uint64
	seq  uint64
}

const restoringSession = wire.SessionID(0x77 << 48)

func beginRestoring(t *testing.T, s *Store, term uint64) *restoring {
	r := &restoring{t: t, s: s, term: term}
	r.apply(&Command{Session: restoringSession, Body: &CreateSession{Connection: Connection{TimeoutMs: 30_000, Addr: "127.0.0.1"}}})
	return r
}

func (r *restoring) apply(c *Command) (res Result) {
	r.s.Apply(r.term, &Entry{Stamp: Stamp{TimeMs: 1}, Commands: []Command{*c}}, func(_ *Command, got *Result) { res = *got })
	return res
}

func (r *restoring) step(step byte, body []byte) Result {
	r.seq++
	return r.apply(&Command{Session: restoringSession, Generation: 1, Seq: r.seq, Body: &RestoreStep{Step: step, Data: body}})
}

// load restores a snapshot, and returns the result of the last step.
func (r *restoring) load(snapshot []byte) Result {
	sc := NewSnapshotScanner(bytes.NewReader(snapshot))
	header, err := sc.Header()
	if err != nil {
		r.t.Fatal(err)
	}
	res := r.step(RestoreBegin, header)
	for res.Code == wire.CodeOK {
		block, err := sc.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			r.t.Fatal(err)
		}
		res = r.step(RestoreBlock, block)
	}
	for res.Code == wire.CodeOK {
		if _, ready := r.s.RestoreReady(restoringSession); ready {
			break
		}
		res = r.step(RestoreCheck, nil)
	}
	if res.Code != wire.CodeOK {
		return res
	}
	return r.step(RestoreCommit, nil)
}

// richStore is a state with everything in it: sessions, ephemerals, quotas, ACLs, kinds of nodes.
func richStore(t *testing.T, nodes int) *Store {
	t.Helper()
	s := New()
	seqs := map[wire.SessionID]uint64{}
	do := func(id wire.SessionID, op wire.Op, body wire.Record) {
		seqs[id]++
		c := Command{Session: id, Generation: 1, Seq: seqs[id], Body: &Request{Op: op, Body: body.Append(nil)}}
		s.Apply(3, &Entry{Stamp: Stamp{TimeMs: 1000 + int64(seqs[id]), Flags: ExtendedTypes}, Commands: []Command{c}}, func(_ *Command, r *Result) {
			if r.Code != wire.CodeOK || r.Status != Done {
				t.Fatalf("%v: %v %v", op, r.Code, r.Status)
			}
		})
	}
	ids := []wire.SessionID{0x11 << 48, 0x12 << 48, 0x13 << 48}
	for _, id := range ids {
		s.Apply(3, &Entry{Stamp: Stamp{TimeMs: 1000}, Commands: []Command{{Session: id,
			Body: &CreateSession{Connection: Connection{TimeoutMs: 9000, Addr: "10.0.0.1"}}}}}, nil)
	}
	create := func(id wire.SessionID, path string, data string, acl []wire.ACL, mode wire.CreateMode) {
		do(id, wire.OpCreate, &wire.CreateRequest{Path: path, Data: []byte(data), ACL: acl, Mode: mode})
	}
	create(ids[0], "/a", "first", wire.OpenACL, wire.ModePersistent)
	create(ids[0], "/zookeeper/quota/a", "", wire.OpenACL, wire.ModePersistent)
	create(ids[0], "/zookeeper/quota/a/zookeeper_limits", "count=100000,bytes=-1", wire.OpenACL, wire.ModePersistent)
	create(ids[0], "/zookeeper/quota/a/zookeeper_stats", "", wire.OpenACL, wire.ModePersistent)
	only := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: "u:h"}}}
	for i := range nodes {
		id := ids[i%len(ids)]
		create(id, fmt.Sprintf("/a/n%d", i), strings.Repeat("x", i%50), wire.OpenACL, wire.ModePersistent)
		create(id, fmt.Sprintf("/a/n%d/lock-", i), "me", wire.OpenACL, wire.ModeEphemeralSequential)
		if i%7 == 0 {
			create(id, fmt.Sprintf("/a/n%d/private", i), "", only, wire.ModeEphemeral)
		}
		if i%5 == 0 {
			do(id, wire.OpSetData, &wire.SetDataRequest{Path: fmt.Sprintf("/a/n%d", i), Data: []byte("new"), Version: -1})
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

func snapshotOf(t *testing.T, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	snap := s.Snapshot()
	defer snap.Release()
	if _, err := snap.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReplacement: the state after a restore is the snapshot's after all its sessions have
// been closed, at a zxid beyond those of both, on replicas that took it over whole or from the log.
func TestReplacement(t *testing.T) {
	from := richStore(t, 9000)
	snapshot := snapshotOf(t, from)
	for name, term := range map[string]uint64{"a younger cluster": 1, "an older cluster": 9} {
		to := New()
		r := beginRestoring(t, to, term)
		r.apply(&Command{Session: 0x11 << 48, Body: &CreateSession{Connection: Connection{TimeoutMs: 1000, Addr: "1.2.3.4"}}})
		before := to.Zxid()
		held := to.Snapshot() // as of before, and written afterwards
		want := snapshotOf(t, to)
		res := r.load(snapshot)
		if !res.Restored || res.Code != wire.CodeOK || res.Zxid <= before || res.Zxid <= from.Zxid() || to.Zxid() != res.Zxid {
			t.Fatalf("%s: %+v", name, res)
		}
		if err := to.Check(); err != nil {
			t.Fatal(err)
		}
		closed, err := Restore(bytes.NewReader(snapshot))
		if err != nil {
			t.Fatal(err)
		}
		closed.tx.begin(term, 0, &Command{})
		closed.tx.effects.zxid = res.Zxid
		for _, id := range []wire.SessionID{0x11 << 48, 0x12 << 48, 0x13 << 48} {
			closed.tx.closeSession(closed.state.sessions.slots[id], &Result{})
		}
		closed.state.zxid = res.Zxid
		closed.state.tree.flushQuotas()
		if to.TreeDigest() != closed.TreeDigest() || to.Counts() != closed.Counts() || to.Size() != closed.Size() || to.Counts().Sessions != 0 {
			t.Errorf("%s: %+v %+v, want %+v %+v", name, to.Counts(), to.Size(), closed.Counts(), closed.Size())
		}
		if quota, _, _ := to.Get("/zookeeper/quota/a/zookeeper_stats", []Identity{{Scheme: "super"}}); string(quota) != closed.statsText() {
			t.Errorf("%s: quota %q, want %q", name, quota, closed.statsText())
		}
		var b bytes.Buffer
		if _, err := held.WriteTo(&b); err != nil || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: a snapshot from before the restore has changed (%v)", name, err)
		}
		held.Release()
		if again := r.step(RestoreCommit, nil); again.Status != NoSession {
			t.Errorf("%s: the session of the restore has survived: %+v", name, again)
		}
		r.apply(&Command{Session: 0x22 << 48, Body: &CreateSession{Connection: Connection{TimeoutMs: 1000, Addr: "1.2.3.4"}}})
		if err := to.Check(); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(bytes.NewReader(snapshotOf(t, to))); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *Store) statsText() string { return string(s.state.tree.usageText("/a")) }

// A restore ends the walks and listings that are under way: they hold slots of the old state.
func TestReplacementEndsWalks(t *testing.T) {
	s := richStore(t, 100)
	r := beginRestoring(t, s, 3)
	walk, listing := s.WalkEphemerals(), s.List("/a")
	defer listing.Close()
	visited := 0
	visit := func(Ephemeral) { visited++ }
	if done, lost := walk.Step(s, 5, visit); done || lost || visited == 0 {
		t.Fatalf("done %v, lost %v after %d ephemerals", done, lost, visited)
	}
	if done, lost := listing.Step(s, 5); done || lost {
		t.Fatalf("done %v, lost %v", done, lost)
	}
	if res := r.load(snapshotOf(t, New())); !res.Restored {
		t.Fatalf("%+v", res)
	}
	if done, lost := walk.Step(s, 1000, visit); done || !lost {
		t.Errorf("the walk is done %v, lost %v", done, lost)
	}
	if done, lost := listing.Step(s, 1000); done || !lost {
		t.Errorf("the listing is done %v, lost %v", done, lost)
	}
}

// TestReplacementIsGivenUp: with its session a restore ends, and the state stays as it is; another
// one is refused meanwhile.
func TestReplacementIsGivenUp(t *testing.T) {
	to := richStore(t, 10)
	r := beginRestoring(t, to, 3)
	digest := to.TreeDigest()
	sc := NewSnapshotScanner(bytes.NewReader(snapshotOf(t, richStore(t, 20))))
	header, _ := sc.Header()
	if res := r.step(RestoreBegin, header); res.Code != wire.CodeOK || !to.Restoring() {
		t.Fatalf("%+v", res)
	}
	other := &Command{Session: 0x11 << 48, Generation: 1, Seq: to.state.sessions.rows.row(to.state.sessions.slots[0x11<<48]).lastSeq + 1, Body: &RestoreStep{Step: RestoreBegin, Data: header}}
	if res := r.apply(other); res.Code != wire.CodeReconfigInProgress {
		t.Errorf("another restore: %+v", res)
	}
	block, _ := sc.Next()
	if res := r.step(RestoreBlock, block); res.Code != wire.CodeOK {
		t.Errorf("%+v", res)
	}
	r.seq++
	r.apply(&Command{Session: restoringSession, Generation: 1, Seq: r.seq, Body: &Request{Op: wire.OpCloseSession}})
	if to.Restoring() || to.TreeDigest() != digest {
		t.Error("the restore has not been given up")
	}
}

// TestDamagedReplacementIsRefused: whatever byte of a snapshot is changed, or wherever it is cut
// off, the state stays as it is.
func TestDamagedReplacementIsRefused(t *testing.T) {
	snapshot := snapshotOf(t, richStore(t, 12))
	for i := 0; i < len(snapshot); i += 7 {
		damaged := bytes.Clone(snapshot)
		damaged[i] ^= 0x10
		if _, err := ScanSnapshot(bytes.NewReader(damaged)); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := ScanSnapshot(bytes.NewReader(snapshot[:i])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut off at %d: %v", i, err)
		}
	}
	if _, err := ScanSnapshot(bytes.NewReader(append(bytes.Clone(snapshot), 0))); !errors.Is(err, ErrDamaged) {
		t.Fatalf("with another byte: %v", err)
	}
	to := richStore(t, 3)
	digest := to.TreeDigest()
	r := beginRestoring(t, to, 3)
	// Blocks that a scanner would not let pass, or that come in another order.
	header := snapshot[:snapshotHeaderSize]
	for _, steps := range [][][]byte{{header, header}, {header, snapshot[snapshotHeaderSize:]}, {snapshot[:5]}, {header, nil}} {
		var res Result
		for i, body := range steps {
			res = r.step(byte(RestoreBegin+min(i, 1)), body)
		}
		if res.Code != wire.CodeBadArguments || res.Reason == "" || to.Restoring() {
			t.Errorf("%+v", res)
		}
	}
	for _, step := range []byte{0, RestoreCheck, RestoreCommit, 9} {
		if res := r.step(step, nil); res.Code != wire.CodeBadArguments {
			t.Errorf("step %d: %+v", step, res)
		}
	}
	r.step(RestoreBegin, header)
	if res := r.step(RestoreCheck, nil); res.Code != wire.CodeBadArguments {
		t.Errorf("a check of what has not arrived: %+v", res)
	}
	if to.TreeDigest() != digest {
		t.Error("the state has changed")
	}
}

// FuzzReplacement: no step of a restore stops the member, whatever is in it.
func FuzzReplacement(f *testing.F) {
	f.Add([]byte{RestoreBegin}, []byte{RestoreBlock}, []byte{RestoreCommit})
	var b bytes.Buffer
	snap := New().Snapshot()
	_, _ = snap.WriteTo(&b)
	snapshot := b.Bytes()
	f.Add(append([]byte{RestoreBegin}, snapshot[:snapshotHeaderSize]...), append([]byte{RestoreBlock}, snapshot[snapshotHeaderSize:]...), []byte{RestoreCheck})
	f.Fuzz(func(t *testing.T, one, two, three []byte) {
		s := New()
		r := beginRestoring(t, s, 1)
		for _, b := range [][]byte{one, two, three, {RestoreCheck}, {RestoreCommit}} {
			if len(b) > 0 {
				r.step(b[0], b[1:])
			}
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
