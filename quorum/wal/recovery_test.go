package wal_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lockkeeper/quorum/wal"
)

var damageLong = flag.Bool("damage.long", false, "damage every byte of the files, not a sample")

// Defends: C1.
func TestDamagedSegmentsAreRefusedOrKeepEverything(t *testing.T) {
	t.Parallel()
	m, p := busy(t)
	if p.refused(t, "undamaged", m.clone()) {
		t.Fatal("the undamaged log is refused")
	}
	cases, refused := 0, 0
	rnd := rand.New(rand.NewPCG(1, 2))
	step := 97
	if *damageLong {
		step = 1
	}
	paths := m.paths()
	for i, path := range paths {
		whole := m.files[path]
		try := func(what string, b []byte) {
			t.Helper()
			cases++
			if p.refused(t, path+": "+what, m.with(path, b)) {
				refused++
			}
		}
		changed := func(at int, with ...byte) []byte {
			b := bytes.Clone(whole)
			copy(b[at:], with)
			return b
		}
		for at := rnd.IntN(step); at < len(whole); at += step {
			try(fmt.Sprintf("byte %d flipped", at), changed(at, whole[at]^(1<<rnd.IntN(8))))
		}
		for at := 0; at < len(whole); at += wal.SectorBytes {
			try(fmt.Sprintf("sector at %d zeroed", at), changed(at, make([]byte, wal.SectorBytes)...))
			try(fmt.Sprintf("zeros from %d on", at), changed(at, make([]byte, len(whole)-at)...))
			other := rnd.IntN(len(whole)/wal.SectorBytes) * wal.SectorBytes
			try(fmt.Sprintf("sector at %d written over the one at %d", other, at), changed(at, whole[other:other+wal.SectorBytes]...))
			try(fmt.Sprintf("cut off at %d", at), bytes.Clone(whole[:at]))
		}
		try("followed by rubbish", append(bytes.Clone(whole), "rubbish"...))
		try("another segment in its place", bytes.Clone(m.files[paths[(i+1)%len(paths)]]))
	}
	t.Logf("%d segments, %d cases, %d refused", len(paths), cases, refused)
	if refused < cases/4 || refused == cases {
		t.Errorf("%d of %d refused: the damage is not what it is meant to be", refused, cases)
	}
}

// Files that are missing, come from elsewhere, or should not be there.
func TestMissingSegmentsAreRefused(t *testing.T) {
	m, p := busy(t)
	for _, path := range m.paths() {
		without := m.clone()
		delete(without.files, path)
		if !p.refused(t, "missing", without) {
			t.Errorf("%s is missing, and the log was opened", path)
		}
	}
	other, _ := busy(t)
	last := m.lastPath()
	if !p.refused(t, "foreign", m.with(last, other.files[last])) {
		t.Error("a segment of another log was taken")
	}
	later := wal.SegmentPath("wal", m.manifest.Newest+1)
	_, _, err := m.with(later, other.files[last]).open()
	if !errors.Is(err, wal.ErrDamaged) || !strings.Contains(err.Error(), later) {
		t.Errorf("a segment too many: %v", err)
	}
}

// Of a write that a power cut has cut short, any of its sectors may be there. Nothing that was
// written before is lost, nothing is refused, and what is there is not half of it.
//
// Defends: C1.
func TestTornWriteIsRemoved(t *testing.T) {
	for name, size := range map[string][]int{"within a sector": {40}, "over a boundary": {700}, "many entries": {300, 0, 900, 20}, "zeros": {0, 0}, "large": {9000, 100}} {
		t.Run(name, func(t *testing.T) {
			before := [][]int{{100}, {250, 30}, {61}}
			if name == "zeros" {
				before = append(before, []int{3000})
			}
			m, p, ends := crashed(t, 0, append(before, size)...)
			from, to := ends[len(ends)-2], ends[len(ends)-1]
			sectors := int((to-1)/wal.SectorBytes - from/wal.SectorBytes + 1)
			rnd := rand.New(rand.NewPCG(8, 9))
			for round := range min(1<<min(sectors, 10), 300) {
				written := func(n int) bool {
					if sectors > 8 {
						return rnd.IntN(2) == 1
					}
					return round>>n&1 == 1
				}
				tearAt(t, m, p, from, to, written, uint64(len(size)))
			}
		})
	}
}

// tearAt opens the log with some sectors of its last write, of so many entries between two offsets.
func tearAt(t *testing.T, m *image, p *stored, from, to int64, written func(n int) bool, entries uint64) {
	t.Helper()
	path := m.lastPath()
	whole := m.files[path]
	b := bytes.Clone(whole)
	complete := true
	for n := 0; ; n++ {
		lo := max(from, (from/wal.SectorBytes+int64(n))*wal.SectorBytes)
		if lo >= to {
			break
		}
		hi := min(to, (from/wal.SectorBytes+int64(n)+1)*wal.SectorBytes)
		if !written(n) {
			complete = complete && isZero(whole[lo:hi])
			clear(b[lo:hi])
		}
	}
	torn := m.with(path, bytes.Clone(b))
	l, repaired, err := torn.open()
	if err != nil {
		t.Fatal(err)
	}
	want := p.last - entries
	if complete {
		want = p.last
	}
	if _, last := bounds(l); last != want {
		t.Fatalf("the last entry is %d, not %d", last, want)
	}
	if err := p.prefix(l); err != nil {
		t.Fatal(err)
	}
	end, _ := l.End()
	if !isZero(torn.files[path][end:]) || (len(repaired) > 0) != !isZero(b[end:]) {
		t.Fatalf("some of it stays; repaired %q", repaired)
	}
	// A crash in the middle of the repair is repaired by the next one.
	used := int64(len(bytes.TrimRight(b, "\x00")))
	if complete || used/2 <= from {
		return
	}
	clear(b[used/2 : used])
	l, _, err = m.with(path, b).open()
	if err != nil {
		t.Fatalf("after half a repair: %v", err)
	}
	if _, last := bounds(l); last != want {
		t.Fatalf("after half a repair: the last entry is %d, not %d", last, want)
	}
}

func isZero(b []byte) bool { return len(bytes.TrimRight(b, "\x00")) == 0 }

// What is left of a torn write is removed once, and the log goes on from there.
func TestLogGoesOnAfterATornWrite(t *testing.T) {
	m, p, ends := crashed(t, 1, []int{100}, []int{61}, []int{4000, 10})
	path := m.lastPath()
	clear(m.files[path][ends[1]+1024 : ends[1]+2048])
	p.last -= 2
	for start, wantRepaired := range []bool{true, false, false} {
		l, repaired, err := m.open()
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(repaired, "\n"); (all != "") != wantRepaired || wantRepaired && !strings.Contains(all, path) {
			t.Errorf("start %d: repaired %q", start, all)
		}
		if err := p.kept(l); err != nil {
			t.Errorf("start %d: %v", start, err)
		}
		p.store(t, l, 30)
		m = m.clone()
	}
	if err := p.kept(m.opens(t)); err != nil {
		t.Error(err)
	}
}

// Damage to the last write, which a crash could have cut short, is told from a torn write: a sector
// that is there is as it was written. And nothing up to the watermark may be missing.
func TestDamageIsNotTakenForATornWrite(t *testing.T) {
	m, p, ends := crashed(t, 4, []int{100}, []int{200}, []int{5000}, []int{30}, []int{40}, []int{3000, 20})
	path := m.lastPath()
	whole := m.files[path]
	last := ends[len(ends)-1]
	step := 7
	if *damageLong {
		step = 1
	}
	for at := int64(wal.SegmentStart); at < last; at += int64(step) {
		b := bytes.Clone(whole)
		b[at] ^= 0x20
		if _, _, err := m.with(path, b).open(); !errors.Is(err, wal.ErrDamaged) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	marked := ends[3]
	for at := int64(wal.SectorBytes); at < last; at += wal.SectorBytes {
		b := bytes.Clone(whole)
		clear(b[at:])
		l, _, err := m.with(path, b).open()
		switch {
		case at < marked && !errors.Is(err, wal.ErrDamaged):
			t.Errorf("zeros from %d on, and the watermark is at %d: %v", at, marked, err)
		case at >= marked && err != nil:
			t.Errorf("zeros from %d on, as a crash could leave them: %v", at, err)
		}
		if err != nil {
			continue
		}
		if _, index := bounds(l); index < 4 {
			t.Errorf("zeros from %d on: entry %d is the last one, and the watermark is after entry 4", at, index)
		}
		if err := p.prefix(l); err != nil {
			t.Error(err)
		}
	}
}

// A sector that is gone from a write that others followed is damage, even if no watermark says so:
// that write was synced.
func TestBlankSectorBeforeLaterWritesIsDamage(t *testing.T) {
	m, _, ends := crashed(t, 0, []int{100}, []int{2000, 900}, []int{700}, []int{20})
	for at := (ends[0]/wal.SectorBytes + 1) * wal.SectorBytes; at+wal.SectorBytes <= ends[2]; at += wal.SectorBytes {
		b := bytes.Clone(m.files[m.lastPath()])
		clear(b[at : at+wal.SectorBytes])
		if _, _, err := m.with(m.lastPath(), b).open(); !errors.Is(err, wal.ErrDamaged) {
			t.Errorf("the sector at %d is gone: %v", at, err)
		}
	}
}

// After Close, all that there was must be there.
func TestEndOfAClosedLogIsKnown(t *testing.T) {
	m, p := newImage(), newStored()
	l := m.create(t, smallSegment)
	p.store(t, l, 10)
	p.store(t, l, 10)
	end, _ := l.End()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	clear(m.files[m.lastPath()][end-64:])
	if _, _, err := m.open(); !errors.Is(err, wal.ErrDamaged) {
		t.Errorf("the last entry is gone: %v", err)
	}
}

// A crash while a segment is created leaves a file that is removed, whether it has its name yet or
// not.
func TestUnfinishedSegmentIsRemoved(t *testing.T) {
	m, p := busy(t)
	next := wal.SegmentPath("wal", m.manifest.Newest+1)
	for _, path := range []string{next, next + ".new"} {
		left := m.with(path, make([]byte, smallSegment))
		l, repaired, err := left.open()
		if err != nil || len(repaired) != 1 || !strings.Contains(repaired[0], path) || slices.Contains(left.paths(), path) {
			t.Fatalf("%v, repaired %q", err, repaired)
		}
		if err := errors.Join(p.kept(l), l.Close()); err != nil {
			t.Error(err)
		}
	}
}
