package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/zoocfg"
)

// Files in the data directories. Package quorum has raft.db, raft.wal/ and snapshots/ there.
const (
	lockFile       = "lockkeeper.lock" // locked while a member runs; empty, and never removed
	initializeFile = "initialize"      // see Config.MustHoldData
	logFile        = "raft.db"
	segmentsDir    = "raft.wal"
	snapshotsDir   = "snapshots"
	zooKeeperDir   = "version-2" // where ZooKeeper has its snapshots and logs
)

// dataDirs are the data directories of a member that runs.
type dataDirs struct {
	locks []*os.File
}

// openDataDirs creates the directories where that is allowed, and locks them against other
// processes.
func openDataDirs(ctx context.Context, cfg *Config) (*dataDirs, error) {
	d, err := lockDataDirs(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := checkData(cfg); err != nil {
		d.close()
		return nil, err
	}
	if err := writeMyID(cfg); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// writeMyID writes the file myid of a member that got its number from the command line, so that the
// commands that read its directory later know it, too.
func writeMyID(cfg *Config) error {
	if !cfg.WriteMyID {
		return nil
	}
	name := filepath.Join(cfg.DataDir, "myid")
	tmp := name + ".tmp"
	err := errors.Join(os.WriteFile(tmp, []byte(strconv.Itoa(int(cfg.ID))+"\n"), 0o600), os.Rename(tmp, name))
	if err == nil {
		err = quorum.SyncDir(cfg.DataDir)
	}
	if err != nil {
		return fmt.Errorf("server: write %s: %w", name, err)
	}
	return nil
}

// lockDataDirs is openDataDirs without a look at the data.
func lockDataDirs(ctx context.Context, cfg *Config) (_ *dataDirs, err error) {
	d := &dataDirs{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	for _, dir := range []struct{ key, path string }{{"dataDir", cfg.DataDir}, {"dataLogDir", cfg.DataLogDir}} {
		if dir.key == "dataLogDir" && dir.path == cfg.DataDir {
			continue
		}
		if err := d.open(ctx, cfg, dir.key, dir.path); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *dataDirs) open(ctx context.Context, cfg *Config, key, path string) error {
	fault := func(err error, format string, args ...any) error {
		f := cfg.Fault(key, format, args...)
		f.Err = err
		return f
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && cfg.MustExist {
		return fault(err, "%s does not exist, and datadir.autocreate=false forbids to create it", path)
	}
	if err := makeDirs(path, quorum.SyncDir); err != nil {
		return fault(err, "cannot create the directory: %v", err)
	}
	name := filepath.Join(path, lockFile)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fault(err, "cannot write in the directory: %v", err)
	}
	if err := awaitLock(ctx, f, cfg); err != nil {
		_ = f.Close()
		if errors.Is(err, quorum.ErrInUse) {
			return fault(err,
				"%s is in use by another process: stop the member that runs on it, or give this one a directory of its own", path)
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
func awaitLock(ctx context.Context, f *os.File, cfg *Config) error {
	deadline := time.Now().Add(lockPatience)
	for waiting := false; ; waiting = true {
		err := lock(f)
		if !errors.Is(err, quorum.ErrInUse) || time.Now().After(deadline) {
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

// makeDirs creates a directory and the missing ones above it, and has sync make the entry of each
// durable in its parent: otherwise a power cut could remove a log that has been fsynced. Only the
// owner enters them: snapshots and logs have the passwords of sessions.
func makeDirs(path string, sync func(dir string) error) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(path, 0o700) // which has the error for something that is no directory
	}
	parent := filepath.Dir(path)
	if err := makeDirs(parent, sync); err != nil {
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

func (d *dataDirs) close() {
	for _, f := range d.locks {
		_ = f.Close() // releases the lock
	}
	d.locks = nil
}

// checkData refuses directories that are empty although they must hold data, and those that hold
// data of ZooKeeper.
func checkData(cfg *Config) error {
	log := filepath.Join(cfg.DataLogDir, logFile)
	switch _, err := os.Stat(log); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("server: %w", err)
	}
	if err := checkLostLog(cfg); err != nil {
		return err
	}
	if hasAside(cfg) {
		return nil // the member replaces a disk, and gets its data from the others
	}
	if err := checkZooKeeperData(cfg); err != nil {
		return err
	}
	if cfg.Import {
		return nil // which fails without data
	}
	if !cfg.MustHoldData {
		return nil
	}
	// As in ZooKeeper, a member that has lost its disk must not come back empty and vote as if it
	// had never voted. The file of the operator allows one start.
	init := filepath.Join(cfg.DataDir, initializeFile)
	if err := os.Remove(init); err != nil {
		f := cfg.Fault("db.autocreate", "is false, and %s does not exist: if this member is new, create the file %s",
			log, init)
		f.Err = err
		return f
	}
	return nil
}

// checkZooKeeperData refuses to start empty beside data of ZooKeeper, unless the configuration says
// that it is to be ignored: an operator may expect to find that data again.
func checkZooKeeperData(cfg *Config) error {
	for _, dir := range []struct{ key, path string }{{"dataDir", cfg.DataDir}, {"dataLogDir", cfg.DataLogDir}} {
		found := filepath.Join(dir.path, zooKeeperDir)
		files, err := os.ReadDir(found)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("server: %w", err)
		}
		if !slices.ContainsFunc(files, isZooKeeperData) {
			continue
		}
		if cfg.Import {
			return nil
		}
		if !cfg.IgnoreZooKeeperData {
			return cfg.Fault(dir.key, "%s has data of ZooKeeper, and this member has none yet: stop ZooKeeper on all hosts, then "+
				"'lockkeeper serve -import' (or 'lockkeeper import' before) takes over what is there, with its sessions. If the data "+
				"is not needed, start it once with -ignore-zookeeper-data", found)
		}
		cfg.Logger.Warn("this directory has data of ZooKeeper, which is left alone and not read; this member starts empty",
			"dir", found)
	}
	return nil
}

func isZooKeeperData(f fs.DirEntry) bool {
	return strings.HasPrefix(f.Name(), "snapshot.") || strings.HasPrefix(f.Name(), "log.")
}

// sizeOf adds up the files below dir, in bytes. Files that cannot be read do not count.
func sizeOf(dir string) (sizeBytes int64) {
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

// ErrDiskFull is what Server.Err wraps when the member has stopped because its log has no room.
// Nothing is lost: when AwaitRoom returns, the member can be started again.
var ErrDiskFull = quorum.ErrDiskFull

const (
	// roomBytes is how much must be free before a member with a full disk starts again: many large
	// entries.
	roomBytes = 16 << 20
	// roomFile is written to find out whether there is room: a quota shows only in a write.
	roomFile      = "lockkeeper.room"
	roomCheck     = time.Second
	roomLogPeriod = time.Minute
)

// AwaitRoom waits until 16 MiB can be written where the log of cfg is, or ctx ends. It logs once a
// minute what it waits for.
func AwaitRoom(ctx context.Context, cfg Config) error {
	cfg = cfg.WithDefaults()
	from := time.Now()
	ticker := time.NewTicker(roomCheck)
	defer ticker.Stop()
	var logged time.Time
	for {
		err := probeRoom(cfg.DataLogDir)
		if err == nil {
			cfg.Logger.Info("the disk has room again, this member starts",
				"dir", cfg.DataLogDir, "waited", time.Since(from).Round(time.Second))
			return nil
		}
		if time.Since(logged) >= roomLogPeriod {
			logRoom(cfg.Logger, cfg.DataLogDir, err)
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func logRoom(log *slog.Logger, dir string, err error) {
	if quorum.IsStarved(err) {
		log.Error("no file descriptor left (ulimit -n): this member has stopped, it acknowledges nothing and serves "+
			"no clients until there is one, and then starts by itself", "err", err)
		return
	}
	free, ok := freeBytes(dir)
	args := []any{"dir", dir, "neededBytes", roomBytes, "err", err}
	if ok {
		args = append(args, "freeBytes", free)
	}
	log.Error("disk full: this member has stopped, it acknowledges nothing and serves no clients until there is "+
		"room, and then starts by itself", args...)
}

var errNoRoom = errors.New("too little is free")

// probeRoom returns nil if there is room. It leaves no file.
func probeRoom(dir string) error {
	if free, ok := freeBytes(dir); ok && free < roomBytes {
		return errNoRoom
	}
	path := filepath.Join(dir, roomFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("server: look for room: %w", err)
	}
	block := make([]byte, 1<<20)
	for n := 0; n < roomBytes && err == nil; n += len(block) {
		_, err = f.Write(block)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close(), os.Remove(path)); err != nil {
		return fmt.Errorf("server: look for room: %w", err)
	}
	return nil
}

// withAdvice adds what an operator can do about files that cannot be used.
func (s *Server) withAdvice(err error) error {
	advice := ""
	var fault zoocfg.Fault
	switch {
	case errors.As(err, &fault):
		return err // it says what to do
	case mayReplaceDisk(&s.cfg, err):
		return fmt.Errorf("server: %w", err)
	case errors.Is(err, quorum.ErrDamaged):
		advice = s.rebuildAdvice()
	case errors.Is(err, quorum.ErrFormat):
		advice = "Start the version of lockkeeper that wrote it, or a later one: a member can go back by one version " +
			"(docs/cluster.md, \"Upgrading\")."
	case errors.Is(err, fs.ErrPermission):
		advice = "the file must belong to the user that runs lockkeeper, and be readable and writable for that user"
	case errors.Is(err, syscall.EROFS):
		advice = "the file system is mounted read-only; a kernel does that to one that it found damaged"
	case errors.Is(err, syscall.ENOSPC), quorum.IsStarved(err):
		return fmt.Errorf("server: %w: %w", ErrDiskFull, err)
	default:
		return err
	}
	return fmt.Errorf("server: %w\n%s", err, advice)
}

// rebuildAdvice is how a member with damaged files comes back.
func (s *Server) rebuildAdvice() string {
	logs, snaps := s.logFiles(), filepath.Join(s.cfg.DataDir, snapshotsDir)
	if s.cfg.Standalone() {
		return fmt.Sprintf("This member is alone, so nobody else has its data: put back a backup of %s and %s "+
			"(docs/operations.md, \"Damaged files\").", strings.Join(logs, ", "), snaps)
	}
	return fmt.Sprintf(`replaceDisks=false leaves it to the operator to rebuild member %d from the others, while a majority of the whole
cluster runs without it:
  1. leave this member stopped; lockkeeper cluster remove %d -servers ANOTHER-MEMBER
  2. move %s and %s away
  3. start this member; lockkeeper cluster add ITS-SERVER-LINE -servers ANOTHER-MEMBER
(docs/operations.md, "Damaged files")`,
		s.cfg.ID, s.cfg.ID, strings.Join(logs, ", "), snaps)
}

// logFiles are the files and directories of the log, with the term and the vote, that are there.
func (s *Server) logFiles() []string {
	names := []string{filepath.Join(s.cfg.DataLogDir, logFile)}
	segments := filepath.Join(s.cfg.DataLogDir, segmentsDir)
	if _, err := os.Stat(segments); err == nil {
		names = append(names, segments)
	}
	return names
}
