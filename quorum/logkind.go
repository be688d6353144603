package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// LogKind is how a member keeps its log on disk. The zero value is the default, LogWAL.
type LogKind string

const (
	// LogBolt keeps the log in raft.db, beside the term and the vote. A write to it takes two syncs.
	LogBolt LogKind = "bolt"
	// LogWAL keeps the log in raft.wal/, in segments that are only ever appended to; the term and the vote are in
	// raft.db. A write to it takes one sync.
	LogWAL LogKind = "wal"
)

// Validate says whether there is such a kind. The zero value is none by itself.
func (k LogKind) Validate() error {
	switch k {
	case LogWAL, LogBolt:
		return nil
	}
	return fmt.Errorf("must be %s or %s, not %q", LogWAL, LogBolt, string(k))
}

// storedLog is a member's log on disk.
type storedLog struct {
	file    *logFile
	entries interface {
		raft.LogStore
		appliedTracker
		bounds() (first, last uint64) // as they are, or as they will be: first is last + 1 when there are none
		Close() error
	}
	segmentBytes int64
	name         string // what messages call it
	repaired     []string
	moved        string
}

// Close closes all files.
func (s *storedLog) Close() error {
	if s.entries == s.file {
		return s.file.Close()
	}
	return errors.Join(s.entries.Close(), s.file.Close())
}

// openLog opens the log in a directory, and creates it if it is missing. If it is of the other kind it is moved. Errors
// begin with the name of the file that they are about.
func openLog(dir string, kind LogKind, segmentBytes int64) (_ *storedLog, err error) {
	kind = cmp.Or(kind, LogWAL)
	if err := kind.Validate(); err != nil {
		return nil, fmt.Errorf("in %s: its kind %w", dir, err)
	}
	path, segments := filepath.Join(dir, logFileName), filepath.Join(dir, segmentLogDir)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if left, err := filepath.Glob(filepath.Join(segments, "*"+segmentSuffix)); err != nil || len(left) > 0 {
			return nil, fmt.Errorf("%s: %w: the file is missing, and %s, which belongs to it, is there", path, errors.Join(ErrDamaged, err), segments)
		}
	}
	s := &storedLog{segmentBytes: segmentBytes}
	defer func() {
		if err != nil && s.file != nil {
			_ = s.Close()
		}
	}()
	if err := s.open(path, segments); err != nil {
		return nil, err
	}
	if _, inSegments := s.entries.(*segmentLog); inSegments == (kind == LogWAL) {
		return s, nil
	}
	if first, last := s.entries.bounds(); kind == LogWAL && first == 1 && last == 0 {
		if err := s.begin(segments); err != nil {
			return nil, fmt.Errorf("%s: begin the log: %w", segments, err)
		}
		return s, nil
	}
	if err := s.move(path, segments, kind); err != nil {
		return nil, fmt.Errorf("%s: move the log: %w", s.name, err)
	}
	return s, nil
}

// open opens the log as it is.
func (s *storedLog) open(path, segments string) error {
	file, err := openLogFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s.file, s.entries, s.name = file, file, path
	if file.state.Load().format() == logFormat {
		if _, err := os.Stat(segments); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		// Left from a move, one from here that was not finished, or one to here.
		if err := os.RemoveAll(segments); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		s.repaired = append(s.repaired, "removed "+segments+", left over from a move of the log: all of it is in "+path)
		return nil
	}
	l, repaired, err := openSegmentLog(file, segments, s.segmentBytes)
	if err != nil {
		return err
	}
	s.entries, s.name = l, segments
	s.repaired = append(s.repaired, repaired...)
	return nil
}

// begin begins a log in segments beside a file without entries, as the first start does. It counts with the note of it.
func (s *storedLog) begin(segments string) error {
	h := segmentHead{first: 1, last: 0, applied: s.entries.Applied(), size: s.segmentBytes}
	l, err := firstSegment(segments, h, s.file.setSegments)
	if err != nil {
		return errors.Join(err, os.RemoveAll(segments)) // makes room; and raft.db does not speak of them
	}
	if err := s.file.beginSegments(l.noted()); err != nil {
		l.broken = err // whether they count is seen at the next start
		return errors.Join(err, l.Close())
	}
	s.entries, s.name = l, segments
	return nil
}

// move has the log in the other form. What makes the new form valid is that raft.db gets another content, by a
// rename; before that the old form is complete, and after that the new one, on the disk. What is left of the
// other one is removed afterwards, or at the next start.
func (s *storedLog) move(path, segments string, to LogKind) error {
	from := s.name
	state := s.file.state.Load().clone()
	first, last := s.entries.bounds()
	state.applied = s.entries.Applied()
	getLog := s.entries.GetLog
	if to == LogWAL {
		note, err := writeSegments(segments, s.segmentBytes, first, last, state.applied, getLog)
		if err != nil {
			return errors.Join(err, os.RemoveAll(segments)) // makes room; and raft.db does not speak of them
		}
		state.values[segmentsKey] = note.append(nil)
		state.first, state.last, getLog = 1, 0, nil
	} else {
		delete(state.values, segmentsKey)
		state.first, state.last = first, last
	}
	// After an error the new file may be in place or not: both forms stay, and the next start sees which one counts.
	if err := writeLogFile(path, state, getLog); err != nil {
		return err
	}
	err := s.Close()
	s.file = nil
	if err == nil && to == LogBolt {
		err = os.RemoveAll(segments)
	}
	if err == nil {
		err = s.open(path, segments) // which checks what was written, from the disk
	}
	if err == nil && first <= last {
		s.moved = fmt.Sprintf("entries %d to %d, from %s to %s", first, last, from, s.name)
	}
	return err
}

// writeSegments writes entries into segments, and returns what is to be noted of them.
func writeSegments(segments string, segmentBytes int64, first, last, applied uint64, getLog func(uint64, *raft.Log) error) (noted segmentsNote, err error) {
	h := segmentHead{first: first, last: first - 1, applied: applied, size: segmentBytes}
	l, err := firstSegment(segments, h, func(n segmentsNote) error {
		noted = n
		return nil
	})
	if err != nil {
		return noted, err
	}
	var logs []*raft.Log
	sizeBytes := 0
	for i := first; err == nil && i <= last; i++ {
		e := new(raft.Log)
		if err = getLog(i, e); err != nil {
			break
		}
		logs = append(logs, e)
		if sizeBytes += len(e.Data); sizeBytes >= bufBytes/2 || i == last {
			err = l.StoreLogs(logs)
			logs, sizeBytes = logs[:0], 0
		}
	}
	err = errors.Join(err, l.Close()) // which notes how far it goes
	return noted, err
}

// firstSegment makes the directory and begins a new log in it. Of h it sets which log and which segment that is.
func firstSegment(segments string, h segmentHead, note func(segmentsNote) error) (*segmentLog, error) {
	if err := os.MkdirAll(segments, 0o750); err != nil {
		return nil, err
	}
	if err := syncDir(filepath.Dir(segments)); err != nil {
		return nil, err
	}
	h.log, h.number = rand.Uint64(), 1
	return newSegmentLog(segments, h, note)
}
