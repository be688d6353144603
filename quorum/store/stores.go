package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/wal"
)

// Stores are the places where a member keeps its bytes.
type Stores struct {
	Log       Log
	Stable    Stable // term and vote
	Snapshots raft.SnapshotStore
	// Close closes the files; nil: there are none.
	Close func() error
	// LogName is the name of the log in messages, its file for example.
	LogName string
	// StableName is the name of the stable store in messages.
	StableName string
	// Repaired has a sentence for each repair during Open.
	Repaired []string
	// Files waits for file descriptors for the log; nil: it needs none.
	Files *wal.OS
}

// Log is a log that saves the commit index, and writes its watermark in the background.
type Log interface {
	raft.LogStore
	// SetCommitIndex takes note that the entries up to index are committed. It becomes durable
	// with a later write.
	SetCommitIndex(index uint64)
	// CommitIndex is an index up to which the entries were known to be committed when the log
	// was opened.
	CommitIndex() uint64
	// Failed has the error of a write in the background. Nothing more can be written then.
	Failed() <-chan error
}

// logFileName is the log, term and vote, in the log directory.
const logFileName = "raft.db"

var (
	// ErrInUse says that another process has the data directory open.
	ErrInUse = errors.New("in use by another process")
	// ErrDamaged says that the bytes of a file have changed since they were written. The
	// message names the file.
	ErrDamaged = wal.ErrDamaged
	// ErrFormat says that a file was written by another version of this program.
	ErrFormat = wal.ErrFormat
)

// SyncDir makes the names of the files in a directory durable.
func SyncDir(dir string) error { return new(wal.OS).SyncDir(dir) }

// Open opens, and creates where missing, the stores of a member on disk: dataDir/snapshots
// and logDir/raft.db, with logDir/raft.wal if kind says so. The two directories may be the same. It
// reads and verifies all files, and refuses damage. A log of the other kind is refused with
// ErrLogKind. Errors name the file.
func Open(dataDir, logDir string, kind LogKind) (_ Stores, err error) {
	for _, dir := range []string{dataDir, logDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return Stores{}, fmt.Errorf("quorum: create data directory: %w", err)
		}
	}
	log, err := openLog(logDir, kind, 0)
	if err != nil {
		return Stores{}, fmt.Errorf("quorum: open log %w", err)
	}
	defer func() {
		if err != nil {
			_ = log.Close()
		}
	}()
	snaps, swept, err := openSnapshotFiles(dataDir, SyncDir)
	if err != nil {
		return Stores{}, err
	}
	newest, repaired, err := snaps.verify()
	if err != nil {
		return Stores{}, err
	}
	covered := uint64(0)
	if newest != nil {
		covered = newest.Index
	}
	if err := checkReach(log.entries, log.name, covered, filepath.Join(dataDir, snapshotsDir)); err != nil {
		return Stores{}, err
	}
	return Stores{Log: log.entries, Stable: log.file, Snapshots: snaps, Close: log.Close, LogName: log.name,
		StableName: log.file.path,
		Repaired:   slices.Concat(log.repaired, swept, repaired), Files: log.files}, nil
}

// OpenOn opens, and creates if it is missing, a log in segments of segmentBytes in a file
// system, with the same checks as Open. The other two stores are the caller's; stable holds
// the manifest of the segments. It is for members with a simulated disk.
func OpenOn(files wal.FS, segmentBytes int64, stable Stable, snaps raft.SnapshotStore) (_ Stores, err error) {
	o := wal.Options{Dir: segmentLogDir, FS: files, SegmentBytes: segmentBytes, Save: saveManifest(stable)}
	manifest, err := stable.Get(segmentsKey)
	if err != nil && !isAbsent(err) {
		return Stores{}, fmt.Errorf("quorum: read manifest: %w", err)
	}
	var l *wal.Log
	var repaired []string
	if len(manifest) == 0 {
		l, err = wal.Create(o, 1, 0)
	} else {
		l, repaired, err = openManifest(o, manifest)
	}
	if err != nil {
		return Stores{}, fmt.Errorf("quorum: open log %w", err)
	}
	s := Stores{Log: l, Stable: stable, Snapshots: snaps, Close: l.Close, LogName: o.Dir, StableName: o.Dir,
		Repaired: repaired}
	covered := uint64(0)
	newest, err := s.Newest()
	if newest != nil {
		covered = newest.Index
	}
	if err == nil {
		err = checkReach(l, o.Dir, covered, snapshotsDir)
	}
	if err != nil {
		return Stores{}, errors.Join(err, l.Close())
	}
	return s, nil
}

// checkReach verifies that a log and the newest snapshot, which covers the entries up to covered,
// hold all entries together.
func checkReach(l entryLog, name string, covered uint64, snapshots string) error {
	first, last, err := Bounds(l)
	if err != nil {
		return fmt.Errorf("quorum: %s: %w", name, err)
	}
	if highest := l.HighestIndex(); max(last, covered) < highest {
		return fmt.Errorf("quorum: %s: %w: entry %d was there, and now there are those up to %d, and a snapshot that "+
			"ends with %d", name, ErrDamaged, highest, last, covered)
	}
	if covered+1 < first {
		return fmt.Errorf("quorum: %s: %w: there must be a snapshot that holds the entries before %d, with which %s "+
			"begins; the newest one ends with %d",
			snapshots, ErrDamaged, first, name, covered)
	}
	return nil
}

// Bounds returns the indexes of the first entry of a log and of the last; 0 without entries.
func Bounds(l raft.LogStore) (first, last uint64, err error) {
	if first, err = l.FirstIndex(); err == nil {
		last, err = l.LastIndex()
	}
	return first, last, err
}
