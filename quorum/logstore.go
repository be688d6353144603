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
	// LogBolt keeps the log in raft.db, with raft-boltdb, beside the term and the vote. A write to
	// it takes two syncs.
	LogBolt LogKind = "bolt"
	// LogWAL keeps the log in raft.wal/, in segments that are only ever appended to; the term and
	// the vote are in raft.db. A write to it takes one sync.
	LogWAL LogKind = "wal"
)

// ErrLogKind says that the log on disk is of another kind than the one asked for.
var ErrLogKind = errors.New("the log is of another kind")

// Validate says whether there is such a kind. The zero value is none by itself.
func (k LogKind) Validate() error {
	switch k {
	case LogWAL, LogBolt:
		return nil
	}
	return fmt.Errorf("must be %s or %s, not %q", LogWAL, LogBolt, string(k))
}

// segmentsKey is where raft.db says which segments there must be. An empty value, or none: the log
// is in raft.db.
var segmentsKey = []byte("lockkeeper/segments")

// storedLog is a member's log on disk.
type storedLog struct {
	file    *boltFile
	entries interface {
		raft.LogStore
		appliedTracker
		promised() uint64 // an entry that has been in the log; 0 for none
		Close() error
	}
	segmentBytes int64
	name         string // what messages call it
	repaired     []string
}

// Close closes all files.
func (s *storedLog) Close() error {
	switch {
	case s.entries == nil:
		return s.file.Close()
	case s.kind() == LogBolt:
		return s.entries.Close()
	}
	return errors.Join(s.entries.Close(), s.file.Close())
}

func (s *storedLog) kind() LogKind {
	if _, inFile := s.entries.(*boltLog); inFile {
		return LogBolt
	}
	return LogWAL
}

// openLog opens the log in a directory, and creates it if it is missing. A log of the other kind is
// refused with ErrLogKind, unless nothing has been written to it. Errors begin with the name of the
// file that they are about.
func openLog(dir string, kind LogKind, segmentBytes int64) (_ *storedLog, err error) {
	kind = cmp.Or(kind, LogWAL)
	if err := kind.Validate(); err != nil {
		return nil, fmt.Errorf("in %s: its kind %w", dir, err)
	}
	s, err := openAnyLog(dir, segmentBytes)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.kind() == kind {
		return s, nil
	}
	last, err := s.entries.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if kind == LogBolt || last > 0 || s.entries.promised() > 0 {
		return nil, fmt.Errorf("%s: %w: the log is here, of kind %s, and logStore is %s: set logStore=%s, or move it with 'lockkeeper log convert' while the member is stopped",
			s.name, ErrLogKind, s.kind(), kind, s.kind())
	}
	if err := s.begin(filepath.Join(dir, segmentLogDir), segmentHead{first: 1, last: 0, size: segmentBytes}); err != nil {
		return nil, fmt.Errorf("%s: begin the log: %w", filepath.Join(dir, segmentLogDir), err)
	}
	return s, nil
}

// openAnyLog opens the log in a directory as it is; a new one is in raft.db.
func openAnyLog(dir string, segmentBytes int64) (_ *storedLog, err error) {
	path, segments := filepath.Join(dir, logFileName), filepath.Join(dir, segmentLogDir)
	left, err := filepath.Glob(filepath.Join(segments, "*"+segmentSuffix))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && len(left) > 0 {
		return nil, fmt.Errorf("%s: %w: the file is missing, and %s, which belongs to it, is there", path, ErrDamaged, segments)
	}
	file, err := openBoltFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &storedLog{file: file, segmentBytes: segmentBytes, name: path}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	note, err := file.value(segmentsKey)
	if err != nil {
		return nil, err // names the file
	}
	if len(note) == 0 {
		return s, s.openInFile(segments)
	}
	return s, s.openSegments(segments, note)
}

// openInFile opens the log in raft.db.
func (s *storedLog) openInFile(segments string) error {
	entries, err := openBoltLog(s.file)
	if err != nil {
		return err
	}
	s.entries = entries
	if _, err := os.Stat(segments); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// From a beginning or a conversion that was cut short, or one that was finished but for this.
	if err := os.RemoveAll(segments); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.repaired = append(s.repaired, "removed "+segments+", which is not in use: the log is in "+s.name)
	return nil
}

// openSegments opens the log in segments that raft.db has noted.
func (s *storedLog) openSegments(segments string, note []byte) error {
	noted, ok := decodeSegmentsNote(note)
	if !ok {
		return fmt.Errorf("%s: %w: it does not say which segments there are", s.name, ErrDamaged)
	}
	l, repaired, err := openSegmentLog(noted, s.setSegments, segments, s.segmentBytes)
	if err != nil {
		return err
	}
	unused, err := s.file.db.LastIndex()
	if err == nil && unused > 0 {
		// From a conversion that was cut short.
		err = (&boltLog{boltFile: s.file}).deleteLocked(0, unused)
		repaired = append(repaired, "removed entries from "+s.name+", which are not in use: the log is in "+segments)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.name, err), l.Close())
	}
	s.entries, s.name = l, segments
	s.repaired = append(s.repaired, repaired...)
	return nil
}

// setSegments says in raft.db that those segments are there.
func (s *storedLog) setSegments(n segmentsNote) error { return s.file.Set(segmentsKey, n.append(nil)) }

// begin begins a log in segments, in place of the empty one in raft.db. It counts with the note of
// it. Of h it sets which log and which segment that is.
func (s *storedLog) begin(segments string, h segmentHead) error {
	l, err := firstSegment(segments, h, s.setSegments)
	if err != nil {
		return errors.Join(err, os.RemoveAll(segments)) // makes room; and raft.db does not speak of them
	}
	if err := s.setSegments(l.noted()); err != nil {
		l.broken = err // whether they count is seen at the next start
		return errors.Join(err, l.Close())
	}
	s.entries, s.name = l, segments
	return nil
}

// firstSegment makes the directory and begins a new log in it. Of h it sets which log and which
// segment that is.
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
