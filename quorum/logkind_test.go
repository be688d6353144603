package quorum

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log goes from one form to the other, and nothing is lost, whenever that is cut short.
func TestLogIsMoved(t *testing.T) {
	for _, to := range []LogKind{LogWAL, LogBolt} {
		t.Run("to "+string(to), func(t *testing.T) {
			from := map[LogKind]LogKind{LogWAL: LogBolt, LogBolt: LogWAL}[to]
			dir, p := busyLog(t, from)
			s, err := openLog(dir, to, smallSegment)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.moved, "entries 151 to ") || !strings.HasSuffix(s.moved, s.name) || len(s.repaired) > 0 {
				t.Errorf("it says that it moved %q, and repaired %v", s.moved, s.repaired)
			}
			for range 2 {
				if err := p.kept(s); err != nil {
					t.Error(err)
				}
				p.store(t, s, 77)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = openLog(dir, to, smallSegment); err != nil || s.moved != "" || len(s.repaired) > 0 {
					t.Fatalf("opened again: %v; moved %q, repaired %v", err, s.moved, s.repaired)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, segmentLogDir)); (err == nil) != (to == LogWAL) {
				t.Errorf("the segments: %v", err)
			}
		})
	}
}

// A move that is cut short before the rename leaves the old form whole, and one after it the new one.
func TestMoveIsCutShort(t *testing.T) {
	copyTo := func(from, to string) {
		t.Helper()
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []LogKind{LogWAL, LogBolt} {
		t.Run("to "+string(to), func(t *testing.T) {
			from := map[LogKind]LogKind{LogWAL: LogBolt, LogBolt: LogWAL}[to]
			before, p := busyLog(t, from)
			after := filepath.Join(t.TempDir(), "after")
			copyTo(before, after)
			s, err := openLog(after, to, smallSegment)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wal := func(dir string) string { return filepath.Join(dir, segmentLogDir) }
			for what, raftDB := range map[string]string{"before the rename": before, "after the rename": after} {
				// Both forms are there, as far as they are written; raft.db says which one counts.
				dir := filepath.Join(t.TempDir(), "cut")
				copyTo(raftDB, dir)
				if raftDB == before && to == LogWAL {
					copyTo(wal(after), wal(dir))
				}
				if raftDB == after && to == LogBolt {
					copyTo(wal(before), wal(dir))
				}
				if err := os.WriteFile(filepath.Join(dir, logFileName+newSuffix), []byte("half of a file"), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, kind := range []LogKind{to, from, to} {
					s, err := openLog(dir, kind, smallSegment)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if err := errors.Join(p.kept(s), s.Close()); err != nil {
						t.Errorf("%s, opened as %s: %v", what, kind, err)
					}
				}
			}
		})
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
		{"a file", func(dir string) error {
			return writeLogFile(filepath.Join(dir, logFileName), newLogState(), nil)
		}},
		{"a directory", func(dir string) error { return os.Mkdir(filepath.Join(dir, segmentLogDir), 0o750) }},
		{"half of a segment", func(dir string) error {
			return os.WriteFile(segmentPath(filepath.Join(dir, segmentLogDir), 1)+newSuffix, []byte("half of it"), logFileMode)
		}},
		{"a segment", func(dir string) error {
			l, err := firstSegment(filepath.Join(dir, segmentLogDir), segmentHead{first: 1, size: smallSegment}, func(segmentsNote) error { return nil })
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

// A program that does not know of segments would take the log for empty: the format stops it.
func TestFormatOfALogInSegments(t *testing.T) {
	s := newLogState()
	if b := s.append(nil); b[4] != logFormat {
		t.Errorf("format %d", b[4])
	}
	s.values[segmentsKey] = segmentsNote{log: 1, newest: 2}.append(nil)
	b := s.append(nil)
	if b[4] != segmentsFormat {
		t.Errorf("format %d, with segments", b[4])
	}
	if got, err := decodeLogState(b); err != nil || got.format() != segmentsFormat {
		t.Errorf("%v, %v", got, err)
	}
}
