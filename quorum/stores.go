package quorum

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"lockkeeper/internal/mutant"
	"lockkeeper/znode"
)

// Stores are the places where a member keeps its bytes.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore // term and vote
	Snapshots raft.SnapshotStore
	// Close releases what the stores hold; nil means nothing to do.
	Close func() error
	// Sweep removes what a snapshot that failed has left behind; nil means nothing to do.
	Sweep func() error
	// LogName is what messages call the log, its file for example.
	LogName string
}

const (
	raftFile      = "raft.db"   // in the log directory: log, term and vote
	snapshotsDir  = "snapshots" // in the data directory
	snapshotsKept = 2
	// unfinishedSuffix marks the folder of a snapshot that is being written.
	unfinishedSuffix = ".tmp"
	// boltLockTimeout is how long another process may take to let go of the log.
	boltLockTimeout = 500 * time.Millisecond
)

// ErrInUse says that another process has the data directory open.
var ErrInUse = errors.New("in use by another process")

// OpenStores opens, and creates where missing, the stores of a member on disk: dataDir/snapshots and
// logDir/raft.db. The two directories may be the same. Errors name the file.
func OpenStores(dataDir, logDir string) (_ Stores, err error) {
	for _, dir := range []string{dataDir, logDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return Stores{}, fmt.Errorf("quorum: create data directory: %w", err)
		}
	}
	path := filepath.Join(logDir, raftFile)
	log, err := openBolt(path)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return Stores{}, fmt.Errorf("quorum: open log %s: %w", path, ErrInUse)
	}
	if err != nil {
		return Stores{}, fmt.Errorf("quorum: open log %s: %w", path, err)
	}
	if err := syncDir(logDir); err != nil {
		_ = log.Close()
		return Stores{}, fmt.Errorf("quorum: open log %s: %w", path, err)
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dataDir, snapshotsKept, hclog.NewNullLogger())
	if err != nil {
		_ = log.Close()
		return Stores{}, fmt.Errorf("quorum: open snapshots in %s: %w", dataDir, err)
	}
	sweep := func() error { return sweepSnapshots(dataDir) }
	if err := errors.Join(sweep(), checkSnapshotsListed(dataDir, snaps)); err != nil {
		_ = log.Close()
		return Stores{}, err
	}
	return Stores{Log: log, Stable: log, Snapshots: snaps, Close: log.Close, Sweep: sweep, LogName: path}, nil
}

// openBolt opens the log. bbolt panics on some kinds of damage; that becomes an error here, because
// the operator needs the name of the file more than a stack.
func openBolt(path string) (s *raftboltdb.BoltStore, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // bbolt reads a mapping of the file
	if st, err := os.Stat(path); err == nil && st.Size() == 0 {
		// bbolt would take it for a new file. A crash between create and the first write leaves one,
		// but so does damage, and a member that has lost its log must not vote as if it were new.
		return nil, errors.New("damaged: the file is empty (if this member is new and holds no data, delete it)")
	}
	if err := checkBoltSize(path); err != nil {
		return nil, err
	}
	return raftboltdb.New(raftboltdb.Options{
		Path:        path,
		BoltOptions: &bbolt.Options{Timeout: boltLockTimeout},
	})
}

// checkBoltSize refuses a file that is shorter than what it says of itself. bbolt would find out when it
// reads beyond the end of the mapping.
func checkBoltSize(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: boltLockTimeout})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > st.Size() {
			return fmt.Errorf("damaged: the file has %d bytes of %d", st.Size(), tx.Size())
		}
		return nil
	})
}

// sweepSnapshots removes snapshots that were not finished: the process ended meanwhile, or the disk was
// full, and then what is left of them keeps it full.
func sweepSnapshots(dataDir string) error {
	left, err := filepath.Glob(filepath.Join(dataDir, snapshotsDir, "*"+unfinishedSuffix))
	if err != nil {
		return fmt.Errorf("quorum: list snapshots: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("quorum: remove unfinished snapshot: %w", err)
		}
	}
	return nil
}

// checkSnapshotsListed refuses a snapshot that the library would pass over in silence because its
// description cannot be read: the log that led to it is gone, so going on would lose data.
func checkSnapshotsListed(dataDir string, snaps raft.SnapshotStore) error {
	dir := filepath.Join(dataDir, snapshotsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("quorum: list snapshots: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), unfinishedSuffix) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "meta.json")); err != nil {
			return fmt.Errorf("quorum: snapshot %s is damaged: %w", filepath.Join(dir, e.Name()), err)
		}
		if _, r, err := snaps.Open(e.Name()); err != nil {
			return fmt.Errorf("quorum: snapshot %s is damaged: %w", filepath.Join(dir, e.Name()), err)
		} else {
			_ = r.Close()
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// loadSnapshot restores the newest snapshot, or returns an empty store when there is none.
func loadSnapshot(snaps raft.SnapshotStore) (*znode.Store, error) {
	list, err := snaps.List()
	if err != nil {
		return nil, fmt.Errorf("quorum: list snapshots: %w", err)
	}
	if len(list) == 0 {
		return znode.New(), nil
	}
	_, r, err := snaps.Open(list[0].ID)
	if err != nil {
		return nil, fmt.Errorf("quorum: open snapshot %s: %w", list[0].ID, err)
	}
	defer r.Close()
	store, err := znode.Restore(r)
	if err != nil {
		return nil, fmt.Errorf("quorum: restore snapshot %s: %w", list[0].ID, err)
	}
	return store, nil
}

// guardedStore stops the member at the first write that fails. What a failed write left behind is
// unknown, so this process must not acknowledge anything that relies on it.
type guardedStore struct {
	raft.LogStore
	raft.StableStore
	fatal func(error)
	once  sync.Once
	// released is closed when the member has been cut off from its peers for good.
	released chan struct{}
}

func (g *guardedStore) check(what string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("quorum: %s: %w", what, err)
	g.once.Do(func() { g.fatal(err) })
	return err
}

func (g *guardedStore) StoreLog(l *raft.Log) error {
	return g.check("write log", g.LogStore.StoreLog(l))
}

func (g *guardedStore) StoreLogs(ls []*raft.Log) error {
	return g.check("write log", g.LogStore.StoreLogs(ls))
}

func (g *guardedStore) DeleteRange(lo, hi uint64) error {
	return g.check("truncate log", g.LogStore.DeleteRange(lo, hi))
}

func (g *guardedStore) Set(key, val []byte) error {
	if mutant.On(mutant.VoteNotPersisted) {
		return nil
	}
	return g.check("write vote", g.StableStore.Set(key, val))
}

func (g *guardedStore) SetUint64(key []byte, val uint64) error {
	if g.check("write term", g.StableStore.SetUint64(key, val)) != nil {
		// The library panics when it cannot save its term. The member is being stopped; nothing that raft
		// does after this can reach anybody.
		<-g.released
	}
	return nil
}

// memberKey is where the stable store keeps whose log, term and vote it holds.
var memberKey = []byte("lockkeeper/member")

// claim refuses stores that belong to another member: a member that runs with the vote of another could
// vote twice. Stores that belong to nobody yet become this member's.
func (s *Stores) claim(id MemberID) error {
	owner, err := s.Stable.GetUint64(memberKey)
	switch {
	case err != nil && err.Error() != "not found": // what raft itself compares with: the stores share no error
		return fmt.Errorf("quorum: read owner of %s: %w", s.LogName, err)
	case err != nil || owner == 0:
		if err := s.Stable.SetUint64(memberKey, uint64(id)); err != nil {
			return fmt.Errorf("quorum: write owner of %s: %w", s.LogName, err)
		}
	case owner != uint64(id):
		return fmt.Errorf("quorum: %s holds the log and the votes of member %d, and this is member %d: compare myid and dataDir with the server lines", s.LogName, owner, id)
	}
	return nil
}
