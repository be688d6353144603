package quorum

import (
	"errors"
	"testing"
)

// A log is the same whether its tail passes by the page cache or not, and can go from one to the other with each start.
func TestTailIsWrittenEitherWay(t *testing.T) {
	dir := t.TempDir()
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	for round, segmentBytes := range []int64{aheadBytes + 16<<10, aheadBytes + 16<<10 + 32, aheadBytes + 16<<10} {
		s, err := openLog(dir, LogWAL, segmentBytes)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			p.vote(t, s)
		}
		l := s.entries.(*segmentLog)
		begun := l.newest
		for n := 0; l.newest == begun || n < 20; n++ {
			p.store(t, s, 10, 5000)
			p.store(t, s, 3000)
			if err := p.kept(s); err != nil {
				t.Fatal(err)
			}
		}
		if blocks := l.newest.size%blockBytes == 0; !blocks && l.newest.direct != nil {
			t.Errorf("a file of %d bytes is written in blocks", l.newest.size)
		} else if blocks && l.newest.direct == nil {
			t.Logf("%s is on a file system that cannot be written to past the page cache", dir)
		}
		l.broken = errors.New("crashed")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if expectKeptOrRefused(t, "in the end", dir, LogWAL, p) {
		t.Error("refused")
	}
}

// A mark that is the first write after a start writes its own block, and nothing of the batches behind it.
func TestMarkWritesItsBlockOnly(t *testing.T) {
	dir := t.TempDir()
	p := &promised{first: 1, entries: map[uint64][]byte{}}
	for range 2 {
		s, err := openLog(dir, LogWAL, aheadBytes+16<<10)
		if err != nil {
			t.Fatal(err)
		}
		p.vote(t, s)
		l := s.entries.(*segmentLog)
		l.writing.Lock()
		err = l.writeMark()
		l.writing.Unlock()
		if err != nil || l.newest.written != 0 {
			t.Errorf("a mark has written up to %d: %v", l.newest.written, err)
		}
		p.store(t, s, 5000, 10)
		if l.newest.direct != nil && l.newest.written <= aheadBytes {
			t.Errorf("written up to %d: no zeros ahead", l.newest.written)
		}
		l.broken = errors.New("crashed")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if expectKeptOrRefused(t, "in the end", dir, LogWAL, p) {
		t.Error("refused")
	}
}
