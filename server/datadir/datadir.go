package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/quorum/store"
	"lockkeeper/server/zoocfg"
)

// Files in the data directories. Package quorum has raft.db, raft.wal/ and snapshots/ there.
const (
	lockFile       = "lockkeeper.lock" // locked while a member runs; empty, and never removed
	InitializeFile = "initialize"      // see Data.MustHoldData
	LogFile        = "raft.db"
	SegmentsDir    = "raft.wal"
	SnapshotsDir   = "snapshots"
	ZooKeeperDir   = "version-2" // where ZooKeeper has its snapshots and logs
)

// Dirs are the data directories of a member that runs.
type Dirs struct {
	locks []*os.File
}

// Open creates the directories where that is allowed, and locks them against other
// processes.
func Open(ctx context.Context, cfg *zoocfg.Config) (*Dirs, error) {
	d, err := Lock(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := checkData(cfg); err != nil {
		d.Close()
		return nil, err
	}
	if err := writeMyID(cfg); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// writeMyID writes the file myid of a member that got its number from the command line, so that the
// commands that read its directory later know it, too.
func writeMyID(cfg *zoocfg.Config) error {
	if !cfg.Cluster.WriteMyID {
		return nil
	}
	name := filepath.Join(cfg.Data.Dir, "myid")
	tmp := name + ".tmp"
	err := errors.Join(os.WriteFile(tmp, []byte(strconv.Itoa(int(cfg.Cluster.ID))+"\n"), 0o600), os.Rename(tmp, name))
	if err == nil {
		err = store.SyncDir(cfg.Data.Dir)
	}
	if err != nil {
		return fmt.Errorf("server: write %s: %w", name, err)
	}
	return nil
}

// Lock is Open without a look at the data.
func Lock(ctx context.Context, cfg *zoocfg.Config) (_ *Dirs, err error) {
	d := &Dirs{}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	for _, dir := range []struct{ key, path string }{{"dataDir", cfg.Data.Dir}, {"dataLogDir", cfg.Data.LogDir}} {
		if dir.key == "dataLogDir" && dir.path == cfg.Data.Dir {
			continue
		}
		if err := d.open(ctx, cfg, dir.key, dir.path); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *Dirs) open(ctx context.Context, cfg *zoocfg.Config, key, path string) error {
	fault := func(err error, format string, args ...any) error {
		f := cfg.Fault(key, format, args...)
		f.Err = err
		return f
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && cfg.Data.MustExist {
		return fault(err, "%s does not exist, and datadir.autocreate=false forbids to create it", path)
	}
	if err := MakeAll(path, store.SyncDir); err != nil {
		return fault(err, "cannot create the directory: %v", err)
	}
	name := filepath.Join(path, lockFile)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fault(err, "cannot write in the directory: %v", err)
	}
	if err := awaitLock(ctx, f, cfg); err != nil {
		_ = f.Close()
		if errors.Is(err, store.ErrInUse) {
			return fault(err,
				"%s is in use by another process: stop the member that runs on it, or give this one a directory "+
					"of its own", path)
		}
		return fault(err, "cannot lock %s: %v", name, err)
	}
	d.locks = append(d.locks, f)
	return nil
}

const (
	// lockPatience is how long a start waits for another process to release the data directory. One
	// that has been killed releases it when the kernel has freed its memory, some 100 ms later for
	// each GB.
	lockPatience = 3 * time.Second
	lockRetry    = 20 * time.Millisecond
)

// awaitLock is lock, tried again for lockPatience, or until ctx ends, while another process has the
// lock. The log says once that it waits.
func awaitLock(ctx context.Context, f *os.File, cfg *zoocfg.Config) error {
	deadline := time.Now().Add(lockPatience)
	for waiting := false; ; waiting = true {
		err := lock(f)
		if !errors.Is(err, store.ErrInUse) || time.Now().After(deadline) {
			return err
		}
		if !waiting {
			cfg.Logger.Warn("the data directory is in use by another process; waiting for it to end",
				"lock", f.Name(), "for", lockPatience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

// MakeAll creates a directory and the missing ones above it, and has sync make the entry of each
// durable in its parent: otherwise a power cut could remove a log that has been fsynced. Only the
// owner enters them: snapshots and logs have the passwords of sessions.
func MakeAll(path string, sync func(dir string) error) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(path, 0o700) // which has the error for something that is no directory
	}
	parent := filepath.Dir(path)
	if err := MakeAll(parent, sync); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := sync(parent); err != nil {
		// The next start would find the directory, and rely on it.
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (d *Dirs) Close() {
	for _, f := range d.locks {
		_ = f.Close() // releases the lock
	}
	d.locks = nil
}

// checkData refuses directories that are empty although they must hold data, and those that hold
// data of ZooKeeper.
func checkData(cfg *zoocfg.Config) error {
	log := filepath.Join(cfg.Data.LogDir, LogFile)
	switch _, err := os.Stat(log); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("server: %w", err)
	}
	if err := CheckLostLog(cfg); err != nil {
		return err
	}
	if HasAside(cfg) {
		return nil // the member replaces a disk, and gets its data from the others
	}
	if err := CheckZooKeeperData(cfg); err != nil {
		return err
	}
	if cfg.Data.Import {
		return nil // which fails without data
	}
	if !cfg.Data.MustHoldData {
		return nil
	}
	// As in ZooKeeper, a member that has lost its disk must not come back empty and vote as if it
	// had never voted. The file of the operator allows one start.
	init := filepath.Join(cfg.Data.Dir, InitializeFile)
	if err := os.Remove(init); err != nil {
		f := cfg.Fault("db.autocreate", "is false, and %s does not exist: if this member is new, create the file %s",
			log, init)
		f.Err = err
		return f
	}
	return nil
}

// CheckLostLog refuses directories that have snapshots and no log: the votes of the member were in
// the log, too.
func CheckLostLog(cfg *zoocfg.Config) error {
	log := filepath.Join(cfg.Data.LogDir, LogFile)
	if _, err := os.Stat(log); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		return nil
	}
	if list, err := os.ReadDir(filepath.Join(cfg.Data.Dir, SnapshotsDir)); err == nil && len(list) > 0 {
		f := cfg.Fault("dataLogDir",
			"%s is missing although %s has snapshots: a member that has lost its log must not go on (was dataLogDir "+
				"changed?)",
			log, cfg.Data.Dir)
		f.Err = store.ErrDamaged
		return f
	}
	return nil
}

// CheckZooKeeperData refuses to start empty beside data of ZooKeeper, unless the configuration says
// that it is to be ignored: an operator may expect to find that data again.
func CheckZooKeeperData(cfg *zoocfg.Config) error {
	for _, dir := range []struct{ key, path string }{{"dataDir", cfg.Data.Dir}, {"dataLogDir", cfg.Data.LogDir}} {
		found := filepath.Join(dir.path, ZooKeeperDir)
		files, err := os.ReadDir(found)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("server: %w", err)
		}
		if !slices.ContainsFunc(files, isZooKeeperData) {
			continue
		}
		if cfg.Data.Import {
			return nil
		}
		if !cfg.Data.IgnoreZooKeeper {
			return cfg.Fault(dir.key, "%s has data of ZooKeeper, and this member has none yet: stop ZooKeeper on all "+
				"hosts, then "+
				"'lockkeeper serve -import' (or 'lockkeeper import' before) takes over what is there, with its "+
				"sessions. If the data "+
				"is not needed, start it once with -ignore-zookeeper-data", found)
		}
		cfg.Logger.Warn("this directory has data of ZooKeeper, which is left alone and not read; this member "+
			"starts empty",
			"dir", found)
	}
	return nil
}

func isZooKeeperData(f fs.DirEntry) bool {
	return strings.HasPrefix(f.Name(), "snapshot.") || strings.HasPrefix(f.Name(), "log.")
}

// Size adds up the files below dir, in bytes. Files that cannot be read do not count.
func Size(dir string) (sizeBytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sizeBytes += info.Size()
		}
		return nil
	})
	return sizeBytes
}

// Advice adds to err, of files that cannot be used, the steps that an operator takes.
func Advice(cfg *zoocfg.Config, err error) error {
	advice := ""
	var fault zoocfg.Fault
	switch {
	case errors.As(err, &fault):
		return err // its text names the remedy
	case MayReplaceDisk(cfg, err):
		return fmt.Errorf("server: %w", err)
	case errors.Is(err, store.ErrDamaged):
		advice = rebuildAdvice(cfg)
	case errors.Is(err, store.ErrFormat):
		advice = "Start the version of lockkeeper that wrote it, or a later one: a member can go back by one version " +
			"(docs/cluster.md, \"Upgrading\")."
	case errors.Is(err, fs.ErrPermission):
		advice = "the file must belong to the user that runs lockkeeper, and be readable and writable for that user"
	case errors.Is(err, syscall.EROFS):
		advice = "the file system is mounted read-only; a kernel does that to one that it found damaged"
	case errors.Is(err, syscall.ENOSPC), store.IsStarved(err):
		return fmt.Errorf("server: %w: %w", ErrDiskFull, err)
	default:
		return err
	}
	return fmt.Errorf("server: %w\n%s", err, advice)
}

// rebuildAdvice is how a member with damaged files comes back.
func rebuildAdvice(cfg *zoocfg.Config) string {
	logs, snaps := logFiles(cfg), filepath.Join(cfg.Data.Dir, SnapshotsDir)
	if cfg.Standalone() {
		return fmt.Sprintf("This member is alone, so nobody else has its data: put back a backup of %s and %s "+
			"(docs/operations.md, \"Damaged files\").", strings.Join(logs, ", "), snaps)
	}
	return fmt.Sprintf("replaceDisks=false leaves it to the operator to rebuild member %d from the others, while a "+
		`majority of the whole
cluster runs without it:
  1. leave this member stopped; lockkeeper cluster remove %d -servers ANOTHER-MEMBER
  2. move %s and %s away
  3. start this member; lockkeeper cluster add ITS-SERVER-LINE -servers ANOTHER-MEMBER
(docs/operations.md, "Damaged files")`,
		cfg.Cluster.ID, cfg.Cluster.ID, strings.Join(logs, ", "), snaps)
}

// logFiles are the files and directories of the log, with the term and the vote, that are there.
func logFiles(cfg *zoocfg.Config) []string {
	names := []string{filepath.Join(cfg.Data.LogDir, LogFile)}
	segments := filepath.Join(cfg.Data.LogDir, SegmentsDir)
	if _, err := os.Stat(segments); err == nil {
		names = append(names, segments)
	}
	return names
}
