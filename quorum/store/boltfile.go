package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lockkeeper/quorum/wal"
)

const (
	// boltLockTimeout bounds the wait for another process to release its lock of the file.
	boltLockTimeout = 500 * time.Millisecond
	logFileMode     = 0o600
	// newSuffix marks a file that is being created: under its own name it is complete.
	newSuffix = ".new"
	// boltFormat is the version of the values in the file.
	boltFormat  = 1
	valueSumLen = 4
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errChecksum = errors.New("its checksum does not match")
	errTooShort = errors.New("it is too short")
)

func damagedf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// boltFormatKey is where the file has boltFormat. It is the greatest of the keys: a page that was
// damaged so that it ends too early hides this one first.
var boltFormatKey = []byte("~lockkeeper/format")

// The buckets of raft-boltdb.
var (
	boltLogs = []byte("logs")
	boltConf = []byte("conf")
)

// boltFile is raft.db, a file of hashicorp/raft-boltdb, as raft.StableStore: term, vote and the few
// other values of a member. Behind each value is its checksum, because neither raft-boltdb nor
// bbolt keeps one:
//
//	+-------+------------------------------------+
//	| value | crc32c of key, a zero byte, value  |
//	+-------+------------------------------------+
//
// A write is one transaction: bbolt writes and syncs its pages, then writes and syncs the meta page
// that makes them valid. So a write that a crash cuts short has not taken place.
type boltFile struct {
	db   *raftboltdb.BoltStore
	path string
}

var _ Stable = (*boltFile)(nil)

func boltOptions(path string, readOnly bool) raftboltdb.Options {
	return raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: boltLockTimeout, ReadOnly: readOnly}}
}

// openBoltFile opens the file after having verified it, or creates it. Errors do not name the file.
func openBoltFile(path string) (*boltFile, error) {
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = createBoltFile(path)
	case err == nil:
		if err = checkBoltFile(path); err == nil {
			// The process that created it may have ended before that.
			err = SyncDir(filepath.Dir(path))
		}
	}
	if err != nil {
		return nil, err
	}
	db, err := raftboltdb.New(boltOptions(path, false))
	if err != nil {
		return nil, err
	}
	return &boltFile{db: db, path: path}, nil
}

// createBoltFile creates the file. A crash leaves either none under this name, or a complete one.
func createBoltFile(path string) error {
	temp := path + newSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := raftboltdb.New(boltOptions(temp, false))
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	f := &boltFile{db: db, path: temp}
	if err := errors.Join(f.SetUint64(boltFormatKey, boltFormat), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Close closes the file.
func (f *boltFile) Close() error { return f.db.Close() }

// Set implements raft.StableStore. A value that is there already is not written again: at each
// start raft sets the term that it has read.
func (f *boltFile) Set(key, value []byte) error {
	if old, err := f.Get(key); err == nil && bytes.Equal(old, value) {
		return nil
	}
	return f.db.Set(key, summedValue(key, value))
}

// SetVote implements Stable.
func (f *boltFile) SetVote(term uint64, candidate []byte) error {
	db, err := f.bbolt()
	if err != nil {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		conf := tx.Bucket(boltConf)
		return errors.Join(conf.Put(keyVoteTerm, summedValue(keyVoteTerm, binary.BigEndian.AppendUint64(nil, term))),
			conf.Put(keyVoteCandidate, summedValue(keyVoteCandidate, candidate)))
	})
}

// bbolt is the open file below raft-boltdb, which writes one value in a transaction (UPSTREAM.md,
// 16). Errors: raft-boltdb has changed.
func (f *boltFile) bbolt() (*bbolt.DB, error) {
	conn := reflect.ValueOf(f.db).Elem().FieldByName("conn")
	if !conn.IsValid() || conn.Type() != reflect.TypeFor[*bbolt.DB]() {
		return nil, errors.New("raft-boltdb has no field conn")
	}
	return *(**bbolt.DB)(conn.Addr().UnsafePointer()), nil
}

// Get implements raft.StableStore. The error for a value that is not there has the text that the
// raft library looks for.
func (f *boltFile) Get(key []byte) ([]byte, error) {
	b, err := f.db.Get(key)
	if err != nil {
		return nil, err
	}
	value, err := checkedValue(key, b)
	if err != nil {
		return nil, fmt.Errorf("quorum: %s: %w", f.path, err)
	}
	return value, nil
}

// SetUint64 implements raft.StableStore.
func (f *boltFile) SetUint64(key []byte, value uint64) error {
	return f.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (f *boltFile) GetUint64(key []byte) (uint64, error) {
	v, err := f.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("quorum: %s: %q is not a number", f.path, key)
	}
	return binary.BigEndian.Uint64(v), nil
}

// value is a value that may not be there; nil then.
func (f *boltFile) value(key []byte) ([]byte, error) {
	v, err := f.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return v, err
}

func valueSum(key, value []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, []byte{0})
	return crc32.Update(sum, castagnoli, value)
}

// summedValue is a value with its checksum, as it stands in the file.
func summedValue(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(value), valueSum(key, value))
}

// checkedValue verifies a value with its checksum and returns it without.
func checkedValue(key, b []byte) ([]byte, error) {
	n := len(b) - valueSumLen
	if n < 0 || binary.BigEndian.Uint32(b[n:]) != valueSum(key, b[:n]) {
		return nil, fmt.Errorf("%w: value %q: %w", ErrDamaged, key, errChecksum)
	}
	return b[:n:n], nil
}

// checkBoltFile verifies the file as it is on the disk.
func checkBoltFile(path string) error {
	f, err := new(wal.OS).Open(path) // which has it read from the disk, not from the page cache
	if err != nil {
		return err
	}
	defer f.Close()
	return verifyBoltFile(path)
}

// verifyBoltFile verifies a file before raft-boltdb opens it: its pages, the checksums of all
// values and entries, the sequence of the entries, and bbolt's own check. bbolt trusts the bytes
// that it reads: damage makes it panic.
func verifyBoltFile(path string) (err error) {
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			_ = f.Close() // after a panic bbolt has left it open and locked
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damagedf("%v", p)
		}
	}()
	options := boltOptions(path, true)
	options.BoltOptions.PreLoadFreelist = true // here, where a panic is caught
	options.BoltOptions.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		if err == nil {
			opened = append(opened, f)
		}
		return f, err
	}
	if err := checkBoltPages(path); err != nil {
		return err
	}
	db, err := bbolt.Open(path, logFileMode, options.BoltOptions)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return ErrInUse
	case errors.Is(err, os.ErrPermission):
		return err
	case err != nil:
		return damagedf("%v", err)
	}
	tx, err := db.Begin(false)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	err = checkBoltContent(tx, options)
	for damage := range tx.Check() { // to its end: it writes to a channel
		if err == nil {
			err = damagedf("%v", damage)
		}
	}
	if closeErr := errors.Join(tx.Rollback(), db.Close()); err == nil {
		err = closeErr
	}
	return err
}

// checkBoltContent verifies values and entries.
func checkBoltContent(tx *bbolt.Tx, options raftboltdb.Options) error {
	first, last, err := checkBuckets(tx)
	if err != nil {
		return err
	}
	store, err := raftboltdb.New(options)
	if err != nil {
		return damagedf("%v", err)
	}
	defer store.Close()
	return checkBoltEntries(store, first, last)
}

// checkBuckets verifies the values, and that entries follow one another without a gap.
func checkBuckets(tx *bbolt.Tx) (first, last uint64, err error) {
	logs, conf := tx.Bucket(boltLogs), tx.Bucket(boltConf)
	if logs == nil || conf == nil {
		return 0, 0, damagedf("it does not have the buckets that it should have")
	}
	format := []byte(nil)
	c := conf.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		value, err := checkedValue(k, v)
		if err != nil {
			return 0, 0, err
		}
		if bytes.Equal(k, boltFormatKey) {
			format = value
		}
	}
	switch {
	case len(format) != 8:
		return 0, 0, damagedf("its values are not all there")
	case binary.BigEndian.Uint64(format) != boltFormat:
		return 0, 0, fmt.Errorf("%w: the file has format %d, this program reads %d", ErrFormat,
			binary.BigEndian.Uint64(format), boltFormat)
	}
	c = logs.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if first == 0 && len(k) == 8 {
			first = binary.BigEndian.Uint64(k)
			last = first - 1
		}
		if last++; !bytes.Equal(k, binary.BigEndian.AppendUint64(nil, last)) || last == 0 {
			return 0, 0, damagedf("entry %d is missing, or another one is in its place", last)
		}
	}
	return first, last, nil
}

// checkBoltEntries verifies the checksums of entries.
func checkBoltEntries(store *raftboltdb.BoltStore, first, last uint64) error {
	for i := first; first > 0 && i <= last; i++ {
		var l raft.Log
		if err := store.GetLog(i, &l); err != nil {
			return damagedf("entry %d: %v", i, err)
		}
		if err := checkExtension(i, &l); err != nil {
			return damagedf("%v", err)
		}
	}
	return nil
}
