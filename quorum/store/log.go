package store

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// segmentLogDir holds the segments of a log, in the log directory.
const segmentLogDir = "raft.wal"

// LogKind is how a member keeps its log on disk. The zero value is the default, LogWAL.
type LogKind string

const (
	// LogBolt keeps the log in raft.db, with raft-boltdb, beside the term and the vote. A write
	// to it takes two syncs.
	LogBolt LogKind = "bolt"
	// LogWAL keeps the log in raft.wal/, in segments that are only ever appended to; the term
	// and the vote are in raft.db. A write to it takes one sync.
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

// segmentsKey is where raft.db has the manifest of the segments. An empty value, or none: the log
// is in raft.db.
var segmentsKey = []byte("lockkeeper/segments")

// entryLog is a log of either kind.
type entryLog interface {
	Log
	// HighestIndex is the highest index of an entry that the log has had, as far as it knows; 0
	// for none. The entry must be in the log, or in a snapshot.
	HighestIndex() uint64
	Close() error
}

// storedLog is a member's log on disk.
type storedLog struct {
	file     *boltFile
	entries  entryLog
	files    *wal.OS
	options  wal.Options // of a log in segments
	name     string      // the name of the log in messages
	repaired []string
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
	if kind == LogBolt || last > 0 || s.entries.HighestIndex() > 0 {
		return nil, fmt.Errorf("%s: %w: the log is here, of kind %s, and logStore is %s: set logStore=%s, or move it "+
			"with 'lockkeeper log convert' while the member is stopped",
			s.name, ErrLogKind, s.kind(), kind, s.kind())
	}
	l, err := wal.Create(s.options, 1, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: begin the log: %w", s.options.Dir, err)
	}
	s.entries, s.name = l, s.options.Dir
	return s, nil
}

// openAnyLog opens the log in a directory as it is; a new one is in raft.db.
func openAnyLog(dir string, segmentBytes int64) (_ *storedLog, err error) {
	path, segments := filepath.Join(dir, logFileName), filepath.Join(dir, segmentLogDir)
	files := new(wal.OS)
	left, err := files.ReadDir(segments)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && len(left) > 0 {
		return nil, fmt.Errorf("%s: %w: the file is missing, and %s, which belongs to it, is there", path, ErrDamaged,
			segments)
	}
	file, err := openBoltFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &storedLog{file: file, files: files, name: path,
		options: wal.Options{Dir: segments, FS: files, SegmentBytes: segmentBytes, Save: saveManifest(file)}}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	manifest, err := file.value(segmentsKey)
	if err != nil {
		return nil, err // names the file
	}
	if len(manifest) == 0 {
		return s, s.openInFile()
	}
	return s, s.openSegments(manifest)
}

// openInFile opens the log in raft.db.
func (s *storedLog) openInFile() error {
	entries, err := openBoltLog(s.file)
	if err != nil {
		return err
	}
	s.entries, s.name = entries, s.file.path
	if _, err := os.Stat(s.options.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// From a creation or a conversion that was cut short, or one that was finished but for
	// this.
	if err := os.RemoveAll(s.options.Dir); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	s.repaired = append(s.repaired, "removed "+s.options.Dir+", which is not in use: the log is in "+s.name)
	return nil
}

// openSegments opens the log in the segments of a manifest.
func (s *storedLog) openSegments(manifest []byte) error {
	l, repaired, err := openManifest(s.options, manifest)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	unused, err := s.file.db.LastIndex()
	if err == nil && unused > 0 {
		// From a conversion that was cut short.
		err = (&boltLog{boltFile: s.file}).deleteLocked(0, unused)
		repaired = append(repaired, "removed entries from "+s.name+
			", which are not in use: the log is in "+s.options.Dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.name, err), l.Close())
	}
	s.entries, s.name = l, s.options.Dir
	s.repaired = append(s.repaired, repaired...)
	return nil
}

// saveManifest returns the function that keeps the manifest of a log in a stable store.
func saveManifest(s raft.StableStore) func(wal.Manifest) error {
	return func(m wal.Manifest) error { return s.Set(segmentsKey, m.Append(nil)) }
}

// openManifest opens the log of an encoded manifest.
func openManifest(o wal.Options, manifest []byte) (*wal.Log, []string, error) {
	m, ok := wal.DecodeManifest(manifest)
	if !ok {
		return nil, nil, fmt.Errorf("%w: it does not say which segments there are", ErrDamaged)
	}
	return wal.Open(o, m)
}
