package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

var otherKind = map[LogKind]LogKind{LogWAL: LogBolt, LogBolt: LogWAL}

// A log of the other kind is refused, with what to do, and left as it is.
func TestLogOfTheOtherKindIsRefused(t *testing.T) {
	for _, kind := range []LogKind{LogWAL, LogBolt} {
		dir, p := busyLog(t, kind)
		_, err := Open(dir, dir, otherKind[kind])
		if !errors.Is(err, ErrLogKind) || !strings.Contains(err.Error(), "log convert") || !strings.Contains(err.Error(), "logStore="+string(kind)) {
			t.Errorf("%s: %v", kind, err)
		}
		if expectKeptOrRefused(t, "after that", dir, kind, p) {
			t.Errorf("%s: refused", kind)
		}
	}
}

// The log goes from one form to the other, and nothing is lost.
func TestLogIsConverted(t *testing.T) {
	for to, from := range otherKind {
		dir, p := busyLog(t, from)
		for range 2 { // the second time there is nothing to do
			if _, err := Convert(dir, to); err != nil {
				t.Fatal(err)
			}
			s, err := openLog(dir, to, smallSegment)
			if err != nil || len(s.repaired) > 0 {
				t.Fatalf("to %s: %v, repaired %v", to, err, s.repaired)
			}
			if err := p.kept(s); err != nil {
				t.Error(err)
			}
			p.store(t, s, 77)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, segmentLogDir)); (err == nil) != (to == LogWAL) {
			t.Errorf("the segments: %v", err)
		}
	}
}

// A log whose entries are all in a snapshot goes on behind them in its other form.
func TestEmptiedLogIsConverted(t *testing.T) {
	dir, p := busyLog(t, LogWAL)
	for _, kind := range []LogKind{LogWAL, LogBolt, LogWAL} {
		if _, err := Convert(dir, kind); err != nil {
			t.Fatal(err)
		}
		s, err := openLog(dir, kind, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		if p.first <= p.last {
			s.entries.SetCommitIndex(p.last)
			p.cut(t, s, p.first, p.last)
		}
		if s.entries.HighestIndex() != p.last {
			t.Errorf("%s: highest %d, not %d", kind, s.entries.HighestIndex(), p.last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A conversion that is cut short before raft.db has the manifest leaves the old form whole, and one
// after it the new form. What there is of the other one is removed.
func TestConversionIsCutShort(t *testing.T) {
	for to, from := range otherKind {
		dir, p := busyLog(t, from)
		s, err := openAnyLog(dir, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		if to == LogWAL { // segments are there, and no manifest
			o := s.options
			o.Save = func(wal.Manifest) error { return nil }
			l, err := wal.Create(o, p.first, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(copyEntries(l, s.entries, p.first, p.last), l.Close()); err != nil {
				t.Fatal(err)
			}
		} else { // some entries are in raft.db, and it has its manifest
			l := &boltLog{boltFile: s.file}
			if err := errors.Join(copyEntries(l, s.entries, p.first, p.last-10), l.stop()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = openLog(dir, from, smallSegment); err != nil || len(s.repaired) != 1 {
			t.Fatalf("to %s: %v, repaired %v", to, err, s.repaired)
		}
		if err := errors.Join(p.kept(s), s.Close()); err != nil {
			t.Error(err)
		}
		if _, err := Convert(dir, to); err != nil {
			t.Fatal(err)
		}
		if expectKeptOrRefused(t, "converted after all", dir, to, p) {
			t.Error("refused")
		}
	}
}

// A first start that is cut short anywhere is followed by one that begins anew.
func TestBeginningIsCutShort(t *testing.T) {
	opens := func(t *testing.T, dir string, kind LogKind) {
		t.Helper()
		s, err := openLog(dir, kind, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		p := &promised{first: 1, entries: map[uint64][]byte{}}
		p.vote(t, s)
		p.store(t, s, 77)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = openLog(dir, kind, smallSegment); err != nil || len(s.repaired) > 0 {
			t.Fatalf("opened again: %v; repaired %v", err, s.repaired)
		}
		if err := errors.Join(p.kept(s), s.Close()); err != nil {
			t.Error(err)
		}
	}
	// What each step leaves behind it, up to the one with which the segments count.
	steps := []struct {
		name string
		do   func(dir string) error
	}{
		{"half of a file", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, logFileName+newSuffix), []byte("half of a file"), logFileMode)
		}},
		{"a file", func(dir string) error { return createBoltFile(filepath.Join(dir, logFileName)) }},
		{"a directory", func(dir string) error { return os.Mkdir(filepath.Join(dir, segmentLogDir), 0o750) }},
		{"half of a segment", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, segmentLogDir, "0000000000000001.log.new"), []byte("half of it"), logFileMode)
		}},
		{"a segment", func(dir string) error {
			l, err := wal.Create(wal.Options{Dir: filepath.Join(dir, segmentLogDir), FS: new(wal.OS), SegmentBytes: smallSegment,
				Save: func(wal.Manifest) error { return nil }}, 1, 0)
			if err != nil {
				return err
			}
			return l.Close()
		}},
	}
	for n := range steps {
		for _, kind := range []LogKind{LogWAL, LogBolt} {
			t.Run(steps[n].name+", "+string(kind), func(t *testing.T) {
				dir := t.TempDir()
				for _, step := range steps[:n+1] {
					if err := step.do(dir); err != nil {
						t.Fatal(err)
					}
				}
				opens(t, dir, kind)
			})
		}
	}
}

// The watermark of a log in raft.db follows its writes, and a log without the entries up to it is
// refused.
func TestWatermark(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := openLog(dir, LogBolt, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		p := &promised{first: 1, entries: map[uint64][]byte{}}
		l := s.entries.(*boltLog)
		p.store(t, s, 10, 20, 30)
		if l.HighestIndex() != 0 {
			t.Errorf("the watermark is at %d at once", l.HighestIndex())
		}
		time.Sleep(2 * markAfter)
		if l.HighestIndex() != 3 {
			t.Errorf("the watermark is at %d, not 3", l.HighestIndex())
		}
		p.cut(t, s, 3, 3)
		if l.HighestIndex() != 2 {
			t.Errorf("the watermark is at %d behind the end of the log", l.HighestIndex())
		}
		if err := l.db.DeleteRange(2, 2); err != nil { // as damage would
			t.Fatal(err)
		}
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Open(dir, dir, LogBolt); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "entry 2 was there") {
		t.Errorf("opened without entry 2: %v", err)
	}
}

// A watermark that cannot be written to raft.db is reported at once, though nobody writes.
func TestFailedWatermarkIsReported(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := openLog(dir, LogBolt, smallSegment)
		if err != nil {
			t.Fatal(err)
		}
		(&promised{first: 1, entries: map[uint64][]byte{}}).store(t, s, 10)
		if err := s.file.db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-s.entries.Failed(); err == nil || s.Close() == nil {
			t.Errorf("reported: %v", err)
		}
	})
}

// The checksum of an entry covers each of its fields.
func TestEntryChecksum(t *testing.T) {
	entry := raft.Log{Index: 3, Term: 2, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("ext"), AppendedAt: time.Unix(5, 6)}
	if err := checkExtension(3, extend(&entry)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*raft.Log){
		"index":      func(l *raft.Log) { l.Index = 4 },
		"term":       func(l *raft.Log) { l.Term++ },
		"type":       func(l *raft.Log) { l.Type = raft.LogNoop },
		"time":       func(l *raft.Log) { l.AppendedAt = l.AppendedAt.Add(1) },
		"data":       func(l *raft.Log) { l.Data = []byte("dates") },
		"extensions": func(l *raft.Log) { l.Extensions = l.Extensions[:5] },
		"all of it":  func(l *raft.Log) { l.Extensions = nil },
	} {
		e := extend(&entry)
		change(e)
		if err := checkExtension(e.Index, e); err == nil {
			t.Errorf("another %s is not noticed", name)
		}
	}
}
