package zkdata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lockkeeper/wire"
)

// recorded is a directory that a real ZooKeeper 3.8.0 has written, with dump.txt: what the same
// ZooKeeper has in memory after a start on it. Nodes of every kind, with ACLs and quotas, were
// created, changed and deleted by several sessions, with multis that failed and such that did not.
const recorded = "testdata/zookeeper-3.8.0"

// dump prints a state as dump.txt has it.
func dump(s *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "zxid %x\n", uint64(s.Zxid))
	for _, id := range slices.Sorted(maps.Keys(s.Sessions)) {
		fmt.Fprintf(&b, "session %x %d\n", uint64(id), s.Sessions[id])
	}
	for path, n := range s.Nodes() {
		data := "null"
		if n.Data != nil {
			data = "x" + hex.EncodeToString(n.Data)
		}
		fmt.Fprintf(&b, "node %s %s %x %x %x %d %d %d %d %d %x ", path, data, uint64(n.Czxid), uint64(n.Mzxid),
			uint64(n.Pzxid), n.CtimeMs, n.MtimeMs, n.Version, n.Creates, n.Aversion, uint64(n.Owner))
		for _, a := range n.ACL {
			fmt.Fprintf(&b, "%d:%s:%s,", a.Perms, a.ID.Scheme, a.ID.ID)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// copyRecorded returns a copy of the directory.
func copyRecorded(t testing.TB) string {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(recorded)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func load(t testing.TB, dir string) (*State, *Report, error) {
	f, err := List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return Load(f, Options{Extended: true})
}

func wantRecorded(t *testing.T, s *State) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(recorded, "dump.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(dump(s), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || got[i] != lines[i] {
			t.Fatalf("line %d differs:\n%s\nZooKeeper has\n%s", i+1, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""),
				strings.Join(lines[min(i, len(lines)):min(i+1, len(lines))], ""))
		}
	}
}

// TestLoadRecorded begins with each of the snapshots: the logs lead to the same state from all of
// them, though each was written while transactions were applied.
func TestLoadRecorded(t *testing.T) {
	dir := copyRecorded(t)
	f, err := List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for len(f.Snapshots) > 0 {
		s, r, err := Load(f, Options{Extended: true})
		if err != nil {
			t.Fatal(err)
		}
		wantRecorded(t, s)
		t.Logf("%s and %d transactions of %d logs", filepath.Base(r.Snapshot.Path), r.Txns, len(r.Logs))
		f.Snapshots = f.Snapshots[1:]
	}
	if _, _, err := Load(f, Options{}); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("logs without a snapshot: %v", err)
	}
	s, _, err := Load(f, Options{Extended: true, TrustEmpty: true})
	if err != nil || s.Node("/zookeeper/config") != nil {
		t.Errorf("logs alone: %v, and %v", s.Node("/zookeeper/config"), err)
	}
}

// TestStoreAndBack takes the recorded state into lockkeeper, writes it as ZooKeeper's snapshot and
// reads that.
func TestStoreAndBack(t *testing.T) {
	s, _, err := load(t, copyRecorded(t))
	if err != nil {
		t.Fatal(err)
	}
	config := s.Node("/zookeeper/config")
	store, err := s.Store(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Check(); err != nil {
		t.Fatal(err)
	}
	back, left := FromStore(store)
	if left != 0 {
		t.Errorf("%d sessions have another password than ZooKeeper gave them", left)
	}
	var file bytes.Buffer
	if err := back.WriteSnapshot(&file); err != nil {
		t.Fatal(err)
	}
	again, err := ReadSnapshot(&file, "snapshot", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	again.Zxid = back.Zxid
	*again.Node("/zookeeper/config") = *config // it is not taken over
	wantRecorded(t, again)
}

// TestTornLogs cuts the newest log at every byte: what is whole before the cut counts.
func TestTornLogs(t *testing.T) {
	dir := copyRecorded(t)
	f, err := List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	newest := f.Logs[len(f.Logs)-1]
	whole, err := os.ReadFile(newest.Path)
	if err != nil {
		t.Fatal(err)
	}
	ends := recordEnds(t, whole)
	before := *f
	before.Logs = f.Logs[:len(f.Logs)-1] // the one before goes on behind the snapshot
	start, r, err := Load(&before, Options{Extended: true})
	if err != nil {
		t.Fatal(err)
	}
	earlier := r.Txns
	for cut := range ends[len(ends)-1] {
		if err := os.WriteFile(newest.Path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s, r, err := Load(f, Options{Extended: true})
		if err != nil {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		records := 0
		for _, end := range ends[1:] {
			if int64(cut) >= end {
				records++
			}
		}
		torn := int64(cut) < logHeaderLen || !slices.Contains(ends, int64(cut))
		if r.Txns != earlier+records || torn != (len(r.Notices) > 0) {
			t.Fatalf("cut at byte %d: %d transactions instead of %d, notices %q", cut, r.Txns, records, r.Notices)
		}
		if s.Zxid != start.Zxid+wire.Zxid(records) {
			t.Fatalf("cut at byte %d: zxid %v behind %v and %d transactions", cut, s.Zxid, start.Zxid, records)
		}
	}
}

// recordEnds are the offset of the first record and those behind each.
func recordEnds(t *testing.T, log []byte) []int64 {
	l, err := NewLogReader(bytes.NewReader(log), "log")
	if err != nil {
		t.Fatal(err)
	}
	ends := []int64{l.Offset()}
	for {
		switch _, err := l.Next(); {
		case err == io.EOF:
			return ends
		case err != nil:
			t.Fatal(err)
		}
		ends = append(ends, l.Offset())
	}
}

// TestDamageIsNamed flips each bit of a snapshot and of the records of a log: no flip goes
// unnoticed, and none is taken for the end of the file.
func TestDamageIsNamed(t *testing.T) {
	dir := copyRecorded(t)
	f, err := List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	s, _, err := Load(f, Options{Extended: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteSnapshot(&plain); err != nil {
		t.Fatal(err)
	}
	b := plain.Bytes()
	for i := range b {
		b[i] ^= 1 << (i % 8)
		_, err := ReadSnapshot(bytes.NewReader(b), "snapshot.72", Limits{})
		b[i] ^= 1 << (i % 8)
		var damage *DamageError
		if !errors.As(err, &damage) || damage.File != "snapshot.72" || damage.Offset < 0 || damage.Offset > int64(len(b)) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	log, err := os.ReadFile(f.Logs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	end := recordEnds(t, log)
	for i := int64(logHeaderLen); i < end[len(end)-1]; i++ {
		log[i] ^= 1 << (i % 8)
		n, err := countRecords(log)
		log[i] ^= 1 << (i % 8)
		if err == nil && n == len(end)-1 {
			t.Fatalf("byte %d of the log: nothing is noticed", i)
		}
	}
}

// TestWrongLength gives a record in the middle of a log another length. ZooKeeper takes some of
// them for the end of the log, and forgets what was acknowledged behind it.
func TestWrongLength(t *testing.T) {
	f, err := List(copyRecorded(t), "")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(f.Logs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	at := recordEnds(t, log)[3]
	length := log[at+8 : at+12]
	for _, c := range []struct{ length, reason string }{
		{"\x00\x00\x00\x01", "another record begins"},
		{"\x00\x00\x00\x60", "another record begins"},
		{"\x00\x00\x10\x01", "another record begins"},
		{"\x00\x01\x10\x01", "another record begins"},
		{"\x01\x00\x00\x40", "goes beyond the end of the file"},
		{"\x80\x00\x00\x40", "a record of -"},
	} {
		before := string(length)
		copy(length, c.length)
		_, err := countRecords(log)
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Offset != at || !strings.Contains(damage.Reason, c.reason) {
			t.Errorf("length %q: %v", c.length, err)
		}
		copy(length, before)
	}
}

// A record that is not whole, with whole ones behind it, hides what may have been acknowledged.
// ZooKeeper takes it for the end of the log.
func TestDamagedRecordHidesNothing(t *testing.T) {
	f, err := List(copyRecorded(t), "")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(f.Logs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	ends := recordEnds(t, log)
	torn := len(ends) - 4
	for name, damage := range map[string]func([]byte){
		"a part was never written": func(record []byte) { clear(record[20:]) },
		"its end is another byte":  func(record []byte) { record[len(record)-1] = 'C' },
	} {
		damaged := bytes.Clone(log)
		damage(damaged[ends[torn]:ends[torn+1]])
		n, err := countRecords(damaged)
		if n != torn || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "may have been acknowledged") {
			t.Errorf("%s: %d records before it, instead of %d, and %v", name, n, torn, err)
		}
	}
}

func countRecords(log []byte) (n int, err error) {
	l, err := NewLogReader(bytes.NewReader(log), "log")
	for err == nil {
		if _, err = l.Next(); err == nil {
			n++
		}
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// TestDamagedSnapshot: an older snapshot takes the place of a damaged one only if the logs lead
// past it.
func TestDamagedSnapshot(t *testing.T) {
	dir := copyRecorded(t)
	f, err := List(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	newest := f.Snapshots[0]
	if err := os.WriteFile(newest.Path, []byte("\x1f\x8b no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, r, err := Load(f, Options{Extended: true})
	if err != nil {
		t.Fatal(err)
	}
	wantRecorded(t, s)
	if len(r.Notices) != 1 || !strings.Contains(r.Notices[0], newest.Path) || r.Snapshot != f.Snapshots[1] {
		t.Errorf("%s was used, notices %q", r.Snapshot.Path, r.Notices)
	}
	f.Logs = f.Logs[:len(f.Logs)-2]
	if _, _, err := Load(f, Options{Extended: true}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), newest.Path) {
		t.Errorf("the logs end before the damaged snapshot, and the error is %v", err)
	}
}

// TestPassword compares with java.util.Random.
func TestPassword(t *testing.T) {
	for id, want := range map[wire.SessionID]string{
		0x1000042aa180000: "5ab050f3df235983c86bc31ec0dc0c0e",
		-1<<56 + 1:        "054cc74a37327db215e702e20c73f005",
		1:                 "054cc74a37327db215e702e20c73f005",
	} {
		password := id.ZooKeeperPassword()
		if got := hex.EncodeToString(password[:]); got != want {
			t.Errorf("session %v: %s, not %s", id, got, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		owner    int64
		extended bool
		kind     Kind
	}{
		{0, true, Persistent}, {5, true, Ephemeral}, {ContainerOwner, false, Container},
		{ttlOwner | 5000, true, TTL}, {ttlOwner | 5000, false, Ephemeral},
		{ttlOwner | 1<<40, true, Ephemeral}, {-1 << 57, true, Ephemeral},
	} {
		if got := KindOf(c.owner, c.extended); got != c.kind {
			t.Errorf("%#x, extended %v: kind %d, not %d", uint64(c.owner), c.extended, got, c.kind)
		}
	}
	if TTLMs(ttlOwner|5000) != 5000 {
		t.Error("the time to live is lost")
	}
}

// TestRoundTrip writes random states and reads them again.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(50) {
		s := randomState(rand.New(rand.NewPCG(seed, 1)))
		var file bytes.Buffer
		if err := s.WriteSnapshot(&file); err != nil {
			t.Fatal(err)
		}
		back, err := ReadSnapshot(&file, "snapshot", Limits{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back.Zxid = s.Zxid
		if dump(back) != dump(s) {
			t.Fatalf("seed %d:\n%s\nis not\n%s", seed, dump(back), dump(s))
		}
	}
}

func randomState(r *rand.Rand) *State {
	s := NewState()
	paths := []string{""}
	for zxid := range wire.Zxid(r.IntN(200)) {
		c := &Create{Op: wire.OpCreate, ParentCreates: -1, Ephemeral: r.IntN(4) == 0,
			Path: fmt.Sprintf("%s/ü%d", paths[r.IntN(len(paths))], r.IntN(20))}
		if r.IntN(3) > 0 {
			c.Data = make([]byte, r.IntN(9))
		}
		if r.IntN(3) == 0 {
			c.ACL = []wire.ACL{{Perms: wire.Perm(r.IntN(32)), ID: wire.ID{Scheme: "digest", ID: fmt.Sprint(r.IntN(3))}}}
		}
		session := wire.SessionID(1 + r.IntN(3))
		s.Sessions[session] = 5000
		s.Apply(&Txn{Session: session, Zxid: zxid + 1, TimeMs: 1000 + int64(zxid), Op: c.Op, Body: c})
		if !c.Ephemeral {
			paths = append(paths, c.Path)
		}
	}
	return s
}

// FuzzReadSnapshot: whatever the bytes are, there is a state or an error, and a state can be
// written.
func FuzzReadSnapshot(f *testing.F) {
	files, err := filepath.Glob(recorded + "/version-2/snapshot.*")
	if err != nil || len(files) == 0 {
		f.Fatal("no snapshots", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	var plain bytes.Buffer
	if err := randomState(rand.New(rand.NewPCG(1, 1))).WriteSnapshot(&plain); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Add(append(slices.Clone(snappyMagic), 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 5, 0x10))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSnapshot(bytes.NewReader(b), "snapshot", Limits{})
		if err != nil {
			return
		}
		if err := s.WriteSnapshot(io.Discard); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Store(true)
	})
}

// FuzzLog: whatever the bytes are, the log ends or is damaged, and its transactions can be applied.
func FuzzLog(f *testing.F) {
	files, err := filepath.Glob(recorded + "/version-2/log.*")
	if err != nil || len(files) == 0 {
		f.Fatal("no logs", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.TrimRight(b, "\x00"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := NewLogReader(bytes.NewReader(b), "log")
		s := NewState()
		for err == nil {
			var txn *Txn
			if txn, err = l.Next(); err == nil {
				s.Apply(txn)
			}
		}
		if err != io.EOF && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

// FuzzTxn: the checksums of records keep the fuzzer of logs from most of what DecodeTxn may see.
func FuzzTxn(f *testing.F) {
	files, _ := filepath.Glob(recorded + "/version-2/log.*")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		ends := recordEnds(&testing.T{}, b)
		for i := range ends[1:] {
			f.Add(b[ends[i]+12 : ends[i+1]-1])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		txn, err := DecodeTxn(b)
		if err != nil {
			return
		}
		s := NewState()
		s.Apply(txn)
		s.RemoveExpiredSessions(true)
		if err := s.WriteSnapshot(io.Discard); err != nil {
			t.Fatal(err)
		}
	})
}
