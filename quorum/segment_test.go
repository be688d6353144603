package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// segmentImage is what a log in segments has on the disk, in memory: the segments in their order.
type segmentImage struct {
	segmentsNote
	dir      string
	numbers  []uint64
	contents [][]byte
}

func readSegments(t *testing.T, dir string) segmentImage {
	t.Helper()
	file, err := openBoltFile(filepath.Join(dir, logFileName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	img := segmentImage{dir: dir}
	note, err := file.value(segmentsKey)
	if err != nil {
		t.Fatal(err)
	}
	img.segmentsNote, _ = decodeSegmentsNote(note)
	if img.numbers, _, err = listSegments(filepath.Join(dir, segmentLogDir), img.newest); err != nil {
		t.Fatal(err)
	}
	for _, n := range img.numbers {
		content, err := os.ReadFile(segmentPath(filepath.Join(dir, segmentLogDir), n))
		if err != nil {
			t.Fatal(err)
		}
		img.contents = append(img.contents, content)
	}
	return img
}

// open verifies the segments, as openSegmentLog does with those on the disk.
func (img segmentImage) open() (l *segmentLog, torn int64, err error) {
	l = &segmentLog{}
	r := replay{log: l}
	for i, content := range img.contents {
		s := &segment{path: fmt.Sprint(img.numbers[i])}
		if err := s.check(content, img.log, img.numbers[i]); err != nil {
			return nil, 0, err
		}
		if err := r.next(s, content); err != nil {
			return nil, 0, err
		}
	}
	torn, err = r.finish(img.end)
	return l, torn, err
}

// with is the image with one segment replaced.
func (img segmentImage) with(i int, content []byte) segmentImage {
	img.contents = slices.Clone(img.contents)
	img.contents[i] = content
	return img
}

// entry reads an entry.
func (img segmentImage) entry(l *segmentLog, index uint64) (e raft.Log, err error) {
	p := l.places[index-l.first]
	content := img.contents[slices.Index(img.numbers, p.seg.number)]
	return e, takeEntryRecord(index, bytes.Clone(content[p.at:p.at+p.length]), &e)
}

// prefix reports whether the log holds what was promised, up to some entry.
func (img segmentImage) prefix(l *segmentLog, p *promised) error {
	if l.first != p.first || l.last > p.last {
		return fmt.Errorf("entries %d to %d, promised were %d to %d", l.first, l.last, p.first, p.last)
	}
	for i := l.first; i <= l.last; i++ {
		if e, err := img.entry(l, i); err != nil || !bytes.Equal(e.Data, p.entries[i]) || string(e.Extensions) != "ext" {
			return fmt.Errorf("entry %d has changed: %w", i, err)
		}
	}
	return nil
}

func TestDamagedSegmentsAreRefusedOrKeepEverything(t *testing.T) {
	t.Parallel()
	dir, p := busyLog(t, LogWAL)
	img := readSegments(t, dir)
	if l, _, err := img.open(); err != nil || l.last != p.last || img.prefix(l, p) != nil {
		t.Fatalf("the undamaged log: %v", err)
	}
	cases, refused := 0, 0
	try := func(what string, i int, b []byte) {
		t.Helper()
		cases++
		damaged := img.with(i, b)
		l, _, err := damaged.open()
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrFormat):
			refused++
		case err != nil:
			t.Errorf("segment %d: %s: refused, but not as damaged: %v", i, what, err)
		case l.last != p.last:
			t.Errorf("segment %d: %s: opened with the last entry %d of %d", i, what, l.last, p.last)
		default:
			if err := damaged.prefix(l, p); err != nil {
				t.Errorf("segment %d: %s: opened, but %v", i, what, err)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	step := 97
	if *damageLong {
		step = 1
	}
	for i, whole := range img.contents {
		changed := func(at int, with ...byte) []byte {
			b := bytes.Clone(whole)
			copy(b[at:], with)
			return b
		}
		for at := rnd.IntN(step); at < len(whole); at += step {
			try(fmt.Sprintf("byte %d flipped", at), i, changed(at, whole[at]^(1<<rnd.IntN(8))))
		}
		for at := 0; at < len(whole); at += sectorBytes {
			try(fmt.Sprintf("sector at %d zeroed", at), i, changed(at, make([]byte, sectorBytes)...))
			try(fmt.Sprintf("zeros from %d on", at), i, changed(at, make([]byte, len(whole)-at)...))
			other := rnd.IntN(len(whole)/sectorBytes) * sectorBytes
			try(fmt.Sprintf("sector at %d written over the one at %d", other, at), i, changed(at, whole[other:other+sectorBytes]...))
			try(fmt.Sprintf("cut off at %d", at), i, whole[:at])
		}
		try("followed by rubbish", i, append(bytes.Clone(whole), "rubbish"...))
		try("another segment in its place", i, img.contents[(i+1)%len(img.contents)])
	}
	t.Logf("%d segments, %d cases, %d refused", len(img.contents), cases, refused)
	if refused < cases/4 || refused == cases {
		t.Errorf("%d of %d refused: the damage is not what it is meant to be", refused, cases)
	}
}

// Files that are missing, come from elsewhere, or should not be there.
func TestMissingSegmentsAreRefused(t *testing.T) {
	dir, p := busyLog(t, LogWAL)
	segments := filepath.Join(dir, segmentLogDir)
	img := readSegments(t, dir)
	for _, n := range img.numbers {
		path := segmentPath(segments, n)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if !expectKeptOrRefused(t, "missing", dir, LogWAL, p) {
			t.Errorf("segment %d is missing, and the log was opened", n)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	other, _ := busyLog(t, LogWAL)
	path := segmentPath(segments, img.newest)
	away, err := os.ReadFile(segmentPath(filepath.Join(other, segmentLogDir), img.newest))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, away, 0o600); err != nil {
		t.Fatal(err)
	}
	if !expectKeptOrRefused(t, "foreign", dir, LogWAL, p) {
		t.Error("a segment of another log was taken")
	}
	if err := os.WriteFile(path, img.contents[len(img.contents)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	later := segmentPath(segments, img.newest+1)
	if err := os.WriteFile(later, away, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openLog(dir, LogWAL, smallSegment); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), later) {
		t.Errorf("a segment too many: %v", err)
	}
	if err := os.Remove(later); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, logFileName)); err != nil {
		t.Fatal(err)
	}
	if _, err := openLog(dir, LogWAL, smallSegment); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), logFileName) {
		t.Errorf("segments without %s: %v", logFileName, err)
	}
}

// crashed is a log whose process ended in the middle of things: nothing was closed, and no mark was written since mark entries.
func crashed(t *testing.T, marked int, sizes ...[]int) (img segmentImage, p *promised, ends []int64) {
	t.Helper()
	dir := t.TempDir()
	s, err := openLog(dir, LogWAL, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	l := s.entries.(*segmentLog)
	p = &promised{first: 1, entries: map[uint64][]byte{}}
	for i, size := range sizes {
		p.store(t, s, size...)
		ends = append(ends, l.end)
		if i+1 == marked {
			if err := l.writeMark(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.broken = errors.New("crashed") // no more marks
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return readSegments(t, dir), p, ends
}

// Of a write that a power cut has cut short, any of its sectors may be there. Nothing that was written before is lost,
// nothing is refused, and what is there is not half of it.
func TestTornWriteIsRemoved(t *testing.T) {
	for name, size := range map[string][]int{"within a sector": {40}, "over a boundary": {700}, "many entries": {300, 0, 900, 20}, "zeros": {0, 0}, "large": {9000, 100}} {
		t.Run(name, func(t *testing.T) {
			before := [][]int{{100}, {250, 30}, {61}}
			if name == "zeros" {
				before = append(before, []int{3000})
			}
			img, p, ends := crashed(t, 0, append(before, size)...)
			i := len(img.contents) - 1
			whole := img.contents[i]
			from, to := ends[len(ends)-2], ends[len(ends)-1]
			sectors := int((to-1)/sectorBytes - from/sectorBytes + 1)
			rnd := rand.New(rand.NewPCG(8, 9))
			for round := range min(1<<min(sectors, 10), 300) {
				b := bytes.Clone(whole)
				there := 0
				for n := range sectors {
					lo := max(from, (from/sectorBytes+int64(n))*sectorBytes)
					hi := min(to, (from/sectorBytes+int64(n)+1)*sectorBytes)
					written := round>>n&1 == 1
					if sectors > 8 {
						written = rnd.IntN(2) == 1
					}
					if written || isZero(whole[lo:hi]) {
						there++
					} else {
						clear(b[lo:hi])
					}
				}
				torn := img.with(i, b)
				l, used, err := torn.open()
				if err != nil {
					t.Fatalf("sectors %b of %d: %v", round, sectors, err)
				}
				want := p.last - uint64(len(size))
				if there == sectors {
					want = p.last
				}
				if l.last != want {
					t.Fatalf("sectors %b of %d: the last entry is %d, not %d", round, sectors, l.last, want)
				}
				if err := torn.prefix(l, p); err != nil {
					t.Fatal(err)
				}
				if l.last < p.last && used == 0 && !isZero(b[l.end:]) {
					t.Fatal("the rest of it stays")
				}
				// What the repair leaves when it is cut short itself is repaired by the next one.
				clear(b[used/2 : used])
				if l, _, err := img.with(i, b).open(); used/2 > from && (err != nil || l.last != want) {
					t.Fatalf("after half a repair: %v", err)
				}
			}
		})
	}
}

// What is left of a write that was cut short is removed from the disk, once, and the log goes on from there.
func TestTornWriteOnDisk(t *testing.T) {
	img, p, ends := crashed(t, 1, []int{100}, []int{61}, []int{4000, 10})
	path := segmentPath(filepath.Join(img.dir, segmentLogDir), img.newest)
	b := bytes.Clone(img.contents[0])
	clear(b[ends[1]+1024 : ends[1]+2048])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p.last -= 2
	for start, wantRepaired := range []bool{true, false, false} {
		s, err := openLog(img.dir, LogWAL, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		if repaired := strings.Join(s.repaired, "\n"); (repaired != "") != wantRepaired || wantRepaired && !strings.Contains(repaired, path) {
			t.Errorf("start %d: repaired %q", start, repaired)
		}
		if first, last := bounds(s); first != p.first || last != p.last {
			t.Errorf("start %d: entries %d to %d, not %d to %d", start, first, last, p.first, p.last)
		}
		p.store(t, s, 30)
		l := s.entries.(*segmentLog)
		l.broken = errors.New("crashed")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	img = readSegments(t, img.dir)
	if l, _, err := img.open(); err != nil || l.last != p.last {
		t.Fatal(err)
	} else if err := img.prefix(l, p); err != nil {
		t.Error(err)
	}
}

// Damage to the last write, which a crash could have cut short, is told from that: a sector that is there is as it was
// written. And of what a mark says is on the disk nothing may be missing.
func TestDamageIsNotTakenForATornWrite(t *testing.T) {
	img, p, ends := crashed(t, 4, []int{100}, []int{200}, []int{5000}, []int{30}, []int{40}, []int{3000, 20})
	i := len(img.contents) - 1
	whole := img.contents[i]
	last := ends[len(ends)-1]
	step := 7
	if *damageLong {
		step = 1
	}
	for at := int64(segmentStart); at < last; at += int64(step) {
		b := bytes.Clone(whole)
		b[at] ^= 0x20
		if _, _, err := img.with(i, b).open(); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	marked := ends[3]
	for at := int64(sectorBytes); at < last; at += sectorBytes {
		b := bytes.Clone(whole)
		clear(b[at:])
		l, _, err := img.with(i, b).open()
		switch {
		case at < marked && !errors.Is(err, ErrDamaged):
			t.Errorf("zeros from %d on, where a mark says that up to %d all is there: %v", at, marked, err)
		case at >= marked && err == nil && l.last < 4:
			t.Errorf("zeros from %d on: entry %d is the last one, and the mark is behind entry 4", at, l.last)
		case at >= marked && err != nil:
			t.Errorf("zeros from %d on, as a crash could leave them: %v", at, err)
		}
		if err == nil {
			if err := img.with(i, b).prefix(l, p); err != nil {
				t.Error(err)
			}
		}
	}
}

// A sector that is gone from a write that others followed is damage, even if no mark says so: that write was synced.
func TestBlankSectorBeforeLaterWritesIsDamage(t *testing.T) {
	img, _, ends := crashed(t, 0, []int{100}, []int{2000, 900}, []int{700}, []int{20})
	whole := img.contents[0]
	for at := (ends[0]/sectorBytes + 1) * sectorBytes; at+sectorBytes <= ends[2]; at += sectorBytes {
		b := bytes.Clone(whole)
		clear(b[at : at+sectorBytes])
		if _, _, err := img.with(0, b).open(); !errors.Is(err, ErrDamaged) {
			t.Errorf("the sector at %d is gone: %v", at, err)
		}
	}
}

// A mark is written with the writes that go on, and a while after the last one.
func TestMarksFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := openLog(t.TempDir(), LogWAL, 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l := s.entries.(*segmentLog)
		p := &promised{first: 1, entries: map[uint64][]byte{}}
		state := func() (end, marked int64) {
			l.writing.Lock()
			defer l.writing.Unlock()
			return l.end, l.mark.end
		}
		var ends []int64 // one each 400 ms
		for range 10 {
			p.store(t, s, 50)
			end, marked := state()
			if n := len(ends); n >= 3 && marked < ends[n-3] {
				t.Errorf("the mark is at %d; up to %d it was written 1.2 s ago", marked, ends[n-3])
			}
			ends = append(ends, end)
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(2 * markAfter)
		if end, marked := state(); marked != end {
			t.Errorf("the mark is at %d, the end at %d", marked, end)
		}
	})
}

// After an orderly end, all that there was must be there.
func TestEndOfAClosedLogIsKnown(t *testing.T) {
	dir := t.TempDir()
	s, err := openLog(dir, LogWAL, smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	p.store(t, s, 10)
	p.store(t, s, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	img := readSegments(t, dir)
	l, _, err := img.open()
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(img.contents[0])
	clear(b[l.end-64:])
	if _, _, err := img.with(0, b).open(); !errors.Is(err, ErrDamaged) {
		t.Errorf("the last entry is gone: %v", err)
	}
}

// A write that has failed has left nobody knows what: nothing is written behind it, and what was written before is there.
func TestNothingIsWrittenBehindAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	s, err := openLog(dir, LogWAL, smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	p.store(t, s, 10, 20)
	p.vote(t, s)
	l := s.entries.(*segmentLog)
	working := l.tail().f
	readOnly, err := os.Open(l.tail().path) // cannot be written to
	if err != nil {
		t.Fatal(err)
	}
	l.tail().f = readOnly
	entry := &raft.Log{Index: 3, Term: 1, Data: []byte("x")}
	if err := l.StoreLog(entry); err == nil {
		t.Fatal("written to a file that cannot be written to")
	}
	l.tail().f = working
	for range 2 {
		if err := l.StoreLog(entry); err == nil {
			t.Error("written behind a failed write")
		}
	}
	if err := l.DeleteRange(1, 1); err == nil {
		t.Error("deleted behind a failed write")
	}
	if err := p.kept(s); err != nil {
		t.Error(err)
	}
	if err := errors.Join(readOnly.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if expectKeptOrRefused(t, "after a failed write", dir, LogWAL, p) {
		t.Error("refused")
	}
}

// No room for the next segment, wherever that shows, is a full disk: the log is as it was.
func TestNoRoomForTheNextSegment(t *testing.T) {
	dir := t.TempDir()
	s, err := openLog(dir, LogWAL, smallSegment)
	if err != nil {
		t.Fatal(err)
	}
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	p.vote(t, s)
	p.store(t, s, 10_000)
	// Something in the way, for a disk without room.
	obstacle := segmentPath(filepath.Join(dir, segmentLogDir), 2) + newSuffix
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	err = s.entries.StoreLog(&raft.Log{Index: 2, Data: make([]byte, 15_000)})
	var at *fs.PathError
	if !errors.As(err, &at) || at.Op != opPreallocate {
		t.Fatalf("stored: %v", err)
	}
	at.Err = &fs.PathError{Op: "open", Err: syscall.ENOSPC}
	if !isFull(fmt.Errorf("quorum: write log: %w", err)) {
		t.Errorf("not taken for a full disk: %v", err)
	}
	if err := errors.Join(s.Close(), os.Remove(obstacle)); err != nil {
		t.Fatal(err)
	}
	if expectKeptOrRefused(t, "after no room", dir, LogWAL, p) {
		t.Error("refused")
	}
}

// A segment for which there is no room leaves nothing behind, and the error says what it is.
func TestSegmentWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	_, err := createSegment(dir, segmentHead{log: 1, number: 2, first: 1, size: 1 << 60})
	if err == nil {
		t.Fatal("a segment of 2^60 bytes was made")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// An entry that is larger than a segment gets one of its own size; a hole in the log, which a snapshot fills, is kept; and
// segments that hold nothing any more are gone.
func TestSegmentsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	open := func() *storedLog {
		t.Helper()
		s, err := openLog(dir, LogWAL, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	files := func() int {
		t.Helper()
		m, err := filepath.Glob(filepath.Join(dir, segmentLogDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(m)
	}
	s := open()
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	p.vote(t, s)
	for range 30 {
		p.store(t, s, 5000)
	}
	p.store(t, s, 3*smallSegment, 10)
	if n := files(); n < 10 {
		t.Errorf("%d files", n)
	}
	p.cut(t, s, 1, 31)
	if n := files(); n > 2 { // the large one, and perhaps one for the next entries
		t.Errorf("%d files for one entry", n)
	}
	p.cut(t, s, 32, 32)
	p.last = 99
	p.first = 100
	p.store(t, s, 50)
	if err := s.entries.StoreLog(&raft.Log{Index: 100}); err == nil {
		t.Error("an entry was written a second time")
	}
	p.store(t, s, 60, 70)
	if err := s.entries.DeleteRange(101, 101); err == nil {
		t.Error("an entry was removed from the middle")
	}
	s.entries.(*segmentLog).SetApplied(101)
	if err := s.entries.DeleteRange(101, 102); err == nil {
		t.Error("a committed entry was removed")
	}
	for range 2 {
		if err := p.kept(s); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s = open(); s.entries.Applied() != 101 || len(s.repaired) > 0 {
			t.Errorf("applied %d, repaired %v", s.entries.Applied(), s.repaired)
		}
	}
	p.cut(t, s, 100, 102)
	if first, _ := s.entries.FirstIndex(); first != 0 || files() != 1 {
		t.Errorf("empty: first entry %d, %d files", first, files())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.entries.StoreLog(&raft.Log{Index: 103}); err == nil {
		t.Error("written to a closed log")
	}
	s = open()
	if first, last := bounds(s); first != 0 || last != 0 || s.entries.promised() != 102 {
		t.Errorf("empty, opened again: %d, %d", first, last)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
