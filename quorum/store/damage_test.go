package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/rafttest"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

var damageLong = flag.Bool("damage.long", false, "damage every byte of the files, not a sample")

// promised is what a log file must still hold, because somebody got an acknowledgement of it.
type promised struct {
	first, last uint64
	entries     map[uint64][]byte
	term        uint64
}

func (p *promised) store(t *testing.T, s *storedLog, sizes ...int) {
	t.Helper()
	var logs []*raft.Log
	for _, size := range sizes {
		p.last++
		data := bytes.Repeat([]byte{byte(p.last), byte(p.last >> 8), 7}, size/3+1)[:size]
		p.entries[p.last] = data
		logs = append(logs, &raft.Log{Index: p.last, Term: p.term, Type: raft.LogCommand, Data: data, Extensions: []byte("ext"), AppendedAt: time.Unix(1, 2)})
	}
	if err := s.entries.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

// cut takes entries off one end.
func (p *promised) cut(t *testing.T, s *storedLog, lo, hi uint64) {
	t.Helper()
	if err := s.entries.DeleteRange(lo, hi); err != nil {
		t.Fatal(err)
	}
	if lo == p.first {
		p.first = hi + 1
	} else {
		p.last = lo - 1
	}
}

// vote begins a new term.
func (p *promised) vote(t *testing.T, s *storedLog) {
	t.Helper()
	p.term++
	if err := errors.Join(s.file.SetUint64([]byte("CurrentTerm"), p.term), s.file.Set([]byte("LastVoteCand"), []byte("3"))); err != nil {
		t.Fatal(err)
	}
}

// kept reports what is missing or different in the file.
func (p *promised) kept(s *storedLog) error {
	first, _ := s.entries.FirstIndex()
	last, _ := s.entries.LastIndex()
	if first != p.first || last != p.last {
		return fmt.Errorf("entries %d to %d, promised were %d to %d", first, last, p.first, p.last)
	}
	for i := p.first; i <= p.last; i++ {
		var l raft.Log
		if err := s.entries.GetLog(i, &l); err != nil {
			return err
		}
		if l.Index != i || !bytes.Equal(l.Data, p.entries[i]) || string(l.Extensions) != "ext" || !l.AppendedAt.Equal(time.Unix(1, 2)) {
			return fmt.Errorf("entry %d has changed", i)
		}
	}
	if term, err := s.file.GetUint64([]byte("CurrentTerm")); err != nil || term != p.term {
		return fmt.Errorf("term %d (%v), promised was %d", term, err, p.term)
	}
	if vote, err := s.file.Get([]byte("LastVoteCand")); err != nil || string(vote) != "3" {
		return fmt.Errorf("vote %q (%v)", vote, err)
	}
	return nil
}

// bounds are the first entry and the last; 0 without entries.
func bounds(s *storedLog) (first, last uint64) {
	first, _ = s.entries.FirstIndex()
	last, _ = s.entries.LastIndex()
	return first, last
}

// busyLog is the directory of a log as it is after some work.
func busyLog(t *testing.T, kind LogKind) (dir string, p *promised) {
	t.Helper()
	dir = t.TempDir()
	s, err := openLog(dir, kind, smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p = &promised{first: 1, entries: map[uint64][]byte{}}
	writes := 0
	rafttest.Work(func(sizes ...int) {
		if writes++; writes%50 == 1 {
			p.vote(t, s)
		}
		p.store(t, s, sizes...)
	}, func(first, last uint64) { p.cut(t, s, first, last) })
	return dir, p
}

// smallSegment is a length of segments that a few entries fill.
const smallSegment = 20 << 10

// expectKeptOrRefused opens a damaged log. It must hold all that was promised, or be refused.
func expectKeptOrRefused(t *testing.T, what, dir string, kind LogKind, p *promised) (refused bool) {
	t.Helper()
	s, err := openLog(dir, kind, smallSegment)
	if err != nil {
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: refused, but not as damaged: %v", what, err)
		}
		return true
	}
	defer s.Close()
	if err := p.kept(s); err != nil {
		t.Errorf("%s: opened, but %v", what, err)
	}
	return false
}

// Defends: C1.
func TestDamagedLogIsRefusedOrKeepsEverything(t *testing.T) {
	t.Parallel()
	dir, p := busyLog(t, LogBolt)
	path := filepath.Join(dir, logFileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if expectKeptOrRefused(t, "undamaged", dir, LogBolt, p) {
		t.Fatal("the undamaged log is refused")
	}
	const page = 4096
	rnd := rand.New(rand.NewPCG(1, 2))
	cases, refused := 0, 0
	try := func(what string, b []byte) {
		t.Helper()
		if testing.Short() && rnd.IntN(8) != 0 {
			return
		}
		cases++
		if refusesFile(t, what, path, b, p) {
			refused++
		}
	}
	changed := func(at int, with ...byte) []byte {
		b := bytes.Clone(whole)
		copy(b[at:], with)
		return b
	}
	for at := 0; at < len(whole); at++ {
		// All that bbolt interprets stands at the beginning of a page; behind that, values
		// with their checksums.
		if !*damageLong && (at%page >= 96 || at%page%16 != 0 || rnd.IntN(4) != 0) && rnd.IntN(8000) != 0 {
			continue
		}
		try(fmt.Sprintf("byte %d flipped", at), changed(at, whole[at]^(1<<rnd.IntN(8))))
	}
	for at := 0; at < len(whole); at += page { // what leads to all other pages
		if isBranch := binary.NativeEndian.Uint16(whole[at+8:]) == 1; isBranch && at/page == int(whole[at]) {
			for bit := range 8 * 64 {
				try(fmt.Sprintf("bit %d of branch page %d flipped", bit, at/page), changed(at+bit/8, whole[at+bit/8]^(1<<(bit%8))))
			}
		}
	}
	for at := 0; at < len(whole); at += page {
		try(fmt.Sprintf("page %d zeroed", at/page), changed(at, make([]byte, page)...))
		try(fmt.Sprintf("sector of page %d zeroed", at/page), changed(at+512*rnd.IntN(8), make([]byte, 512)...))
		other := rnd.IntN(len(whole)/page) * page
		try(fmt.Sprintf("page %d written over page %d", other/page, at/page), changed(at, whole[other:other+page]...))
		try(fmt.Sprintf("cut off at page %d", at/page), whole[:at])
	}
	try("followed by rubbish", append(bytes.Clone(whole), "rubbish"...))
	t.Logf("%d pages, %d cases, %d refused", len(whole)/page, cases, refused)
	if refused < cases/4 || refused == cases {
		t.Errorf("%d of %d refused: the damage is not what it is meant to be", refused, cases)
	}
}

// refusesFile writes a damaged raft.db and reports whether it is refused. Otherwise all that was
// promised must be in it. It is checked as at a start, but may be read from the page cache.
func refusesFile(t *testing.T, what, path string, content []byte, p *promised) bool {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	err := verifyBoltFile(path)
	if errors.Is(err, ErrDamaged) {
		return true
	}
	if err != nil {
		t.Errorf("%s: refused, but not as damaged: %v", what, err)
	}
	db, err := raftboltdb.New(boltOptions(path, true))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	f := &boltFile{db: db, path: path}
	defer f.Close()
	l, err := openBoltLog(f)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if last, _ := l.LastIndex(); last < l.HighestIndex() {
		return true
	}
	if err := p.kept(&storedLog{file: f, entries: l}); err != nil {
		t.Errorf("%s: opened, but %v", what, err)
	}
	return false
}

// TestDamagedTreeIsRefusedAtOnce: a tree that leads back to where it was would keep bbolt busy, its
// own check too, for ever. The file is refused before bbolt reads it.
func TestDamagedTreeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir, p := busyLog(t, LogBolt)
	path := filepath.Join(dir, logFileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	ne := binary.NativeEndian
	branch := 0 // the page of the logs' bucket that refers to all its leaves
	for at := 2 * page; at < len(whole); at += page {
		if ne.Uint64(whole[at:]) == uint64(at/page) && ne.Uint16(whole[at+8:]) == branchPage {
			branch = at
		}
	}
	if branch == 0 || ne.Uint16(whole[branch+10:]) < 3 {
		t.Fatal("the log has no branch page with three leaves")
	}
	below := func(b []byte, i int, id uint64) { ne.PutUint64(b[branch+pageHeaderLen+i*elementLen+8:], id) }
	for name, damage := range map[string]func(b []byte){
		"a branch page below itself":            func(b []byte) { below(b, 1, uint64(branch/page)) },
		"a branch page below itself, behind it": func(b []byte) { below(b, int(ne.Uint16(b[branch+10:]))-1, uint64(branch/page)) },
		"a meta page below a branch page":       func(b []byte) { below(b, 0, 0) },
		"a page beyond the end of the file":     func(b []byte) { below(b, 0, uint64(len(whole)/page)) },
		"one page twice":                        func(b []byte) { copy(b[branch+pageHeaderLen+elementLen+8:][:8], b[branch+pageHeaderLen+8:]) },
		"an empty branch page, and what bbolt takes for its first element leads to it": func(b []byte) {
			below(b, 0, uint64(branch/page))
			ne.PutUint16(b[branch+10:], 0)
		},
		"more elements than a page has": func(b []byte) { ne.PutUint16(b[branch+10:], 60000) },
	} {
		b := bytes.Clone(whole)
		damage(b)
		if !refusesFile(t, name, path, b, p) {
			t.Errorf("%s: not refused", name)
		}
	}
	b := bytes.Clone(whole)
	leaf := int(ne.Uint64(b[branch+pageHeaderLen+8:])) * page
	ne.PutUint32(b[leaf+pageHeaderLen:], bucketElement)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkBoltPages(path); !errors.Is(err, errPageBucket) || !errors.Is(err, ErrDamaged) {
		t.Errorf("a bucket within a bucket: %v", err)
	}
}

// A write that the disk reported as done and did not do leaves an old meta page.
func TestLostWriteIsNoticed(t *testing.T) {
	dir, p := busyLog(t, LogBolt)
	path := filepath.Join(dir, logFileName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openLog(dir, LogBolt, smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	p.store(t, s, 10)
	p.store(t, s, 10)
	p.store(t, s, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for meta := range 2 {
		b := bytes.Clone(after)
		copy(b[meta*4096:], before[meta*4096:][:4096])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if !expectKeptOrRefused(t, "old meta page", dir, LogBolt, p) {
			t.Errorf("meta page %d is three transactions old, and the file was opened", meta)
		}
	}
}

// All entries of a log can be replaced, as those of a follower that has no others since a snapshot,
// and no start misses the ones that were removed.
func TestAllEntriesAreReplaced(t *testing.T) {
	for _, kind := range []LogKind{LogBolt, LogWAL} {
		dir := t.TempDir()
		p := &promised{first: 1, entries: map[uint64][]byte{}}
		for _, replace := range []bool{false, true} {
			s, err := openLog(dir, kind, smallSegment)
			if err != nil {
				t.Fatal(kind, err)
			}
			if !replace {
				p.vote(t, s)
				p.store(t, s, 10, 20, 30)
			} else {
				p.last = 0
				if err := s.entries.DeleteRange(1, 3); err != nil {
					t.Fatal(kind, err)
				}
				if highest := s.entries.HighestIndex(); highest != 0 {
					t.Errorf("%s: entry %d must be there", kind, highest)
				}
				p.store(t, s, 40, 50)
			}
			if err := errors.Join(p.kept(s), s.Close()); err != nil {
				t.Error(kind, err)
			}
		}
		if expectKeptOrRefused(t, string(kind), dir, kind, p) {
			t.Errorf("%s: refused", kind)
		}
	}
}

const killedWriter = "LOCKKEEPER_TEST_LOG"

// TestKilledWriter is the process that TestKilledLogKeepsEverything kills.
func TestKilledWriter(t *testing.T) {
	kind, dir, ok := strings.Cut(os.Getenv(killedWriter), ":")
	if !ok {
		t.Skip("only as a child process of another test")
	}
	s, err := openLog(dir, LogKind(kind), smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	p := &promised{entries: map[uint64][]byte{}}
	p.first, p.last = bounds(s)
	p.first = max(p.first, 1)
	for {
		p.vote(t, s)
		p.store(t, s, 100, 3000, 20)
		p.store(t, s, 6000)
		fmt.Printf("promised %d %d\n", p.term, p.last)
		if p.last-p.first > 60 {
			p.cut(t, s, p.first, p.last-30)
		}
		if p.term%7 == 0 { // as a follower of a new leader: others take their place
			p.cut(t, s, p.last, p.last)
			p.store(t, s, 6000)
		}
	}
}

// kill -9 in the middle of writing loses nothing that was promised, and leaves no file that is
// refused.
//
// Defends: C1.
func TestKilledLogKeepsEverything(t *testing.T) {
	for _, kind := range []LogKind{LogBolt, LogWAL} {
		t.Run(string(kind), func(t *testing.T) { killWriters(t, kind) })
	}
}

func killWriters(t *testing.T, kind LogKind) {
	dir := t.TempDir()
	rounds := 8
	if *damageLong {
		rounds = 200
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), killedWriter+"="+string(kind)+":"+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var term, last uint64
		lines := bufio.NewScanner(out)
		for n := 5 + rnd.IntN(40); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) != 3 || words[0] != "promised" {
				t.Fatalf("the child says: %s", lines.Text())
			}
			term, _ = strconv.ParseUint(words[1], 10, 64)
			last, _ = strconv.ParseUint(words[2], 10, 64)
			if n--; n == 0 {
				_ = cmd.Process.Kill() // and what it still said is read too
			}
		}
		_ = cmd.Wait()
		s, err := openLog(dir, kind, smallSegment)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		hasTerm, _ := s.file.GetUint64([]byte("CurrentTerm"))
		first, hasLast := bounds(s)
		// The last entry was being replaced, perhaps.
		if hasTerm < term || hasLast < last-1 || hasLast < last && hasTerm%7 != 0 || last == 0 {
			t.Errorf("round %d: term %d, entry %d; promised were %d, %d", round, hasTerm, hasLast, term, last)
		}
		for i := first; i <= hasLast; i++ {
			if err := s.entries.GetLog(i, new(raft.Log)); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// onlyFile is the one file that a pattern matches.
func onlyFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(m) != 1 {
		t.Fatalf("%s: %v, %v", pattern, m, err)
	}
	return m[0]
}

func TestDamagedSnapshotIsRefusedOrTheSame(t *testing.T) {
	dir := grown(t)
	stores, err := Open(dir, dir, "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := stores.Snapshots.List()
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	want, r, err := stores.Snapshots.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.Close(), stores.Close()
	for _, pattern := range []string{"snapshots/*/meta.json", "snapshots/*/state.bin"} {
		path := onlyFile(t, dir, pattern)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		same := 0
		for at := range whole {
			if !*damageLong && at%7 != 0 {
				continue
			}
			b := bytes.Clone(whole)
			b[at] ^= 1 << (at % 8)
			if at%5 == 4 {
				b = b[:at]
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			stores, err := Open(dir, dir, "")
			if err != nil {
				if !strings.Contains(err.Error(), "snapshots/"+want.ID) || !errors.Is(err, ErrDamaged) {
					t.Fatalf("byte %d of %s: %v", at, pattern, err)
				}
				continue
			}
			got, r, err := stores.Snapshots.Open(list[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = r.Close(), stores.Close()
			same++
			got.Peers = want.Peers // raft does not look at it in this version of its format
			if fmt.Sprint(*got) != fmt.Sprint(*want) {
				t.Errorf("byte %d of %s: opened as %v, was %v", at, pattern, *got, *want)
			}
		}
		t.Logf("%s: %d bytes, in %d of them damage that changes nothing", pattern, len(whole), same)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
