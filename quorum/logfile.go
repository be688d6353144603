package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	entriesBucket = []byte("entries")
	stateBucket   = []byte("state")
	stateKey      = []byte("state")
)

const (
	// newSuffix marks a log file that is being created: under its own name it is complete.
	newSuffix = ".new"
	// boltLockTimeout is how long another process may take to let go of the log.
	boltLockTimeout = 500 * time.Millisecond
	logFileMode     = 0o600
	// growBytes is by how much the file grows at least; bbolt's own 16 MiB would be most of a small disk.
	growBytes = 4 << 20
)

// logFile is a member's term and vote in a bbolt file, and its log if that is not in segments (segmentlog.go). A write is
// one transaction: bbolt writes and syncs its pages, then writes and syncs the page that makes them valid. What a crash
// cuts short was therefore never there.
//
// raft's own store for bbolt would do, but for the checksums: see logrecord.go.
type logFile struct {
	db   *bbolt.DB
	path string

	writing sync.Mutex               // one update at a time
	state   atomic.Pointer[logState] // as it is on disk; replaced, never modified
	applied atomic.Uint64            // see SetApplied
}

var (
	_ raft.LogStore    = (*logFile)(nil)
	_ raft.StableStore = (*logFile)(nil)
)

// openLogFile opens a log after having looked at every page of it, or creates it. Errors do not name the file.
func openLogFile(path string) (*logFile, error) {
	state := newLogState()
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = writeLogFile(path, state, nil)
	case err == nil:
		if state, err = checkLogFile(path); err == nil {
			err = syncDir(filepath.Dir(path)) // whoever made it may not have got so far
		}
	}
	if err != nil {
		return nil, err
	}
	db, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	f := &logFile{db: db, path: path}
	f.state.Store(&state)
	return f, nil
}

func openBolt(path string) (db *bbolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt's way to speak of damage
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	db, err = bbolt.Open(path, logFileMode, &bbolt.Options{
		Timeout: boltLockTimeout,
		// The free pages are those that nothing refers to. A list of them on disk would be one more thing that can
		// be damaged, and is written anew with every transaction.
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		NoStatistics:   true,
	})
	if err == nil {
		db.AllocSize = growBytes
	}
	return db, err
}

// writeLogFile makes a log file of that state and entries, in place of the one that there may be. A crash, and an error,
// leave either that one or the new one, whole.
func writeLogFile(path string, state logState, getLog func(uint64, *raft.Log) error) (err error) {
	temp := path + newSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := openBolt(temp)
	if err != nil {
		return err
	}
	db.NoSync = true // once is enough, below: until the file has its name, nobody looks at what a crash leaves of it
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(entriesBucket); err != nil {
			return err
		}
		b, err := tx.CreateBucket(stateBucket)
		if err != nil {
			return err
		}
		return b.Put(stateKey, state.append(nil))
	})
	for next := state.first; err == nil && next <= state.last; {
		err = db.Update(func(tx *bbolt.Tx) error {
			next, err = putEntries(tx.Bucket(entriesBucket), next, state.last, getLog)
			return err
		})
	}
	if err == nil {
		err = db.Sync()
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// putEntries writes entries, as many as are good for one transaction, and returns which one is the next.
func putEntries(entries *bbolt.Bucket, next, last uint64, getLog func(uint64, *raft.Log) error) (uint64, error) {
	entries.FillPercent = 1
	for sizeBytes := 0; next <= last && sizeBytes < growBytes; next++ {
		var l raft.Log
		if err := getLog(next, &l); err != nil {
			return next, err
		}
		record := appendEntryRecord(nil, &l)
		if err := entries.Put(indexKey(next), record); err != nil {
			return next, err
		}
		sizeBytes += len(record)
	}
	return next, nil
}

// Close closes the file.
func (f *logFile) Close() error {
	if f.applied.Load() > f.state.Load().applied {
		// Only how far the next start gets without a leader depends on it.
		_ = f.update(func(*logState, *bbolt.Bucket) error { return nil })
	}
	return f.db.Close()
}

// SetApplied takes note that the entries up to index are committed. It is written with the next other write.
func (f *logFile) SetApplied(index uint64) { f.applied.Store(index) }

// Applied is an index up to which the entries are known to be committed, as of when the file was opened.
func (f *logFile) Applied() uint64 { return f.state.Load().applied }

// FirstIndex implements raft.LogStore.
func (f *logFile) FirstIndex() (uint64, error) {
	if s := f.state.Load(); !s.empty() {
		return s.first, nil
	}
	return 0, nil
}

// LastIndex implements raft.LogStore.
func (f *logFile) LastIndex() (uint64, error) {
	if s := f.state.Load(); !s.empty() {
		return s.last, nil
	}
	return 0, nil
}

// bounds are the first entry and the last; without entries, the one that will be the first, and the one before it.
func (f *logFile) bounds() (first, last uint64) {
	s := f.state.Load()
	return s.first, s.last
}

// GetLog implements raft.LogStore.
func (f *logFile) GetLog(index uint64, l *raft.Log) error {
	return f.db.View(func(tx *bbolt.Tx) error {
		record := tx.Bucket(entriesBucket).Get(indexKey(index))
		if record == nil {
			return raft.ErrLogNotFound
		}
		if err := decodeEntryRecord(index, record, l); err != nil {
			return fmt.Errorf("quorum: %s is damaged: %w", f.path, err)
		}
		return nil
	})
}

// StoreLog implements raft.LogStore.
func (f *logFile) StoreLog(l *raft.Log) error { return f.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (f *logFile) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	return f.update(func(s *logState, entries *bbolt.Bucket) error {
		entries.FillPercent = 1 // entries are only ever added at the end
		if from := logs[0].Index; from != s.last+1 {
			// raft leaves a hole where a snapshot from the leader has replaced all that is here.
			if from <= s.last {
				return fmt.Errorf("quorum: entry %d written behind entry %d", from, s.last)
			}
			if err := deleteEntries(entries, s.first, s.last); err != nil {
				return err
			}
			s.first, s.last = from, from-1
		}
		for _, l := range logs {
			if l.Index != s.last+1 {
				return fmt.Errorf("quorum: entry %d written behind entry %d", l.Index, s.last)
			}
			if err := entries.Put(indexKey(l.Index), appendEntryRecord(nil, l)); err != nil {
				return err
			}
			s.last = l.Index
		}
		return nil
	})
}

// deleteStep is how many entries a transaction deletes from the beginning of the log: a log of some hundred MB would hold up
// the next write for seconds.
const deleteStep = 1000

// DeleteRange implements raft.LogStore. It takes entries off one end of the log.
func (f *logFile) DeleteRange(lo, hi uint64) error {
	for s := f.state.Load(); lo <= s.first && hi < s.last && hi >= s.first+deleteStep; s = f.state.Load() {
		if err := f.deleteRange(s.first, s.first+deleteStep-1); err != nil {
			return err
		}
	}
	return f.deleteRange(lo, hi)
}

func (f *logFile) deleteRange(lo, hi uint64) error {
	return f.update(func(s *logState, entries *bbolt.Bucket) error {
		lo, hi := max(lo, s.first), min(hi, s.last)
		if lo > hi {
			return nil
		}
		switch {
		case hi == s.last && lo > s.first:
			if lo <= s.applied {
				return fmt.Errorf("quorum: entries from %d are to be replaced, and those up to %d are committed", lo, s.applied)
			}
			s.last = lo - 1
		case lo == s.first:
			s.first = hi + 1
		default:
			return fmt.Errorf("quorum: entries %d to %d are in the middle of the log", lo, hi)
		}
		return deleteEntries(entries, lo, hi)
	})
}

func deleteEntries(entries *bbolt.Bucket, lo, hi uint64) error {
	for i := lo; i <= hi; i++ {
		if err := entries.Delete(indexKey(i)); err != nil {
			return err
		}
	}
	return nil
}

// update changes entries and state in one transaction.
func (f *logFile) update(change func(*logState, *bbolt.Bucket) error) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	next := f.state.Load().clone()
	next.applied = max(next.applied, f.applied.Load())
	err := f.db.Update(func(tx *bbolt.Tx) error {
		if err := change(&next, tx.Bucket(entriesBucket)); err != nil {
			return err
		}
		return tx.Bucket(stateBucket).Put(stateKey, next.append(nil))
	})
	if err == nil {
		f.state.Store(&next)
	}
	return err
}

// Set implements raft.StableStore. What is there already is not written again: at each start raft sets the term that it has read.
func (f *logFile) Set(key, value []byte) error {
	if len(key) > 255 {
		return errKeyLength
	}
	if old, ok := f.state.Load().values[string(key)]; ok && bytes.Equal(old, value) {
		return nil
	}
	return f.update(func(s *logState, _ *bbolt.Bucket) error {
		s.values[string(key)] = slices.Clone(value)
		return nil
	})
}

// Get implements raft.StableStore.
func (f *logFile) Get(key []byte) ([]byte, error) {
	v, ok := f.state.Load().values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return slices.Clone(v), nil
}

// SetUint64 implements raft.StableStore.
func (f *logFile) SetUint64(key []byte, value uint64) error {
	return f.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (f *logFile) GetUint64(key []byte) (uint64, error) {
	v, err := f.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("quorum: %s: %q is not a number", f.path, key)
	}
	return binary.BigEndian.Uint64(v), nil
}

// segments says which segments there must be. Not ok: the entries are in the file itself.
func (f *logFile) segments() (n segmentsNote, ok bool) {
	return decodeSegmentsNote(f.state.Load().values[segmentsKey])
}

// setSegments says that those segments are there.
func (f *logFile) setSegments(n segmentsNote) error { return f.Set([]byte(segmentsKey), n.append(nil)) }

// beginSegments says that, from now on, the entries are in those segments. The file itself holds none.
func (f *logFile) beginSegments(n segmentsNote) error {
	return f.update(func(s *logState, _ *bbolt.Bucket) error {
		s.values[segmentsKey] = n.append(nil)
		s.first, s.last = 1, 0
		return nil
	})
}

// inUse reports whether err says that another process has the file open.
func inUse(err error) bool { return errors.Is(err, bolterrors.ErrTimeout) }
