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

// Convert moves the log of a stopped member, in logDir, into the other kind, and says from where
// to where. It does nothing if the log is of that kind already. One transaction switches to the new
// form: it writes the manifest of the segments in raft.db. An interrupted conversion leaves the log
// in one of the two forms, whole, and the next start removes the remaining files of the other one.
// The disk needs room for the log twice.
func Convert(logDir string, to LogKind) (string, error) {
	to = cmp.Or(to, LogWAL)
	if err := to.Validate(); err != nil {
		return "", fmt.Errorf("quorum: convert log: its kind %w", err)
	}
	if _, err := os.Stat(filepath.Join(logDir, logFileName)); err != nil {
		return "", fmt.Errorf("quorum: convert log: %w", err)
	}
	s, err := openAnyLog(logDir, 0)
	if err != nil {
		return "", fmt.Errorf("quorum: convert log %w", err)
	}
	from := s.name
	if s.kind() != to {
		err = s.convert(to)
	}
	what := fmt.Sprintf("the log is in %s", s.name)
	if from != s.name {
		what = fmt.Sprintf("the log was moved from %s to %s", from, s.name)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return "", fmt.Errorf("quorum: convert log %s: %w", from, err)
	}
	return what, nil
}

func (s *storedLog) convert(to LogKind) error {
	if to == LogBolt {
		return s.toFile()
	}
	return s.toSegments()
}

// toSegments moves the log from raft.db into segments.
func (s *storedLog) toSegments() error {
	first, last, err := Bounds(s.entries)
	if err != nil {
		return err
	}
	if first == 0 { // all that there was is in a snapshot
		last = s.entries.HighestIndex()
		first = last + 1
	}
	var manifest wal.Manifest // the newest; it counts when raft.db has it
	o := s.options
	o.Save = func(m wal.Manifest) error {
		manifest = m
		return nil
	}
	l, err := wal.Create(o, first, s.entries.CommitIndex())
	if err == nil {
		err = errors.Join(copyEntries(l, s.entries, first, last), l.Close())
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(o.Dir))
	}
	if err := errors.Join(s.options.Save(manifest), s.entries.(*boltLog).stop()); err != nil {
		return err
	}
	// This verifies them, and removes the entries from raft.db.
	return s.openSegments(manifest.Append(nil))
}

// toFile moves the log from segments into raft.db.
func (s *storedLog) toFile() error {
	first, last, err := Bounds(s.entries)
	if err != nil {
		return err
	}
	l := &boltLog{boltFile: s.file, committed: s.entries.CommitIndex(), mark: s.entries.HighestIndex()}
	if err := errors.Join(copyEntries(l, s.entries, first, last), l.stop()); err != nil {
		return err
	}
	if err := errors.Join(s.entries.Close(), s.file.Set(segmentsKey, nil)); err != nil {
		return err
	}
	s.entries = nil
	return s.openInFile()
}

// copyBytes is about how much data copyEntries copies with one write.
const copyBytes = 512 << 10

// copyEntries copies entries from one log to another, many with one write.
func copyEntries(to, from raft.LogStore, first, last uint64) error {
	var logs []*raft.Log
	sizeBytes := 0
	for i := max(first, 1); i <= last; i++ {
		e := new(raft.Log)
		if err := from.GetLog(i, e); err != nil {
			return err
		}
		logs = append(logs, e)
		if sizeBytes += len(e.Data); sizeBytes >= copyBytes || i == last {
			if err := to.StoreLogs(logs); err != nil {
				return err
			}
			logs, sizeBytes = nil, 0
		}
	}
	return nil
}
