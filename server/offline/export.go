package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
	"lockkeeper/znode"
)

// Exported describes the files that Export has written.
type Exported struct {
	Zxid wire.Zxid
	// Epoch is the currentEpoch: the term of the last entry.
	Epoch           uint64
	Nodes, Sessions int
	// Left is the number of sessions that are not in it, nor their ephemeral nodes: ZooKeeper
	// computes a session's password from its id, and would not accept theirs.
	Left int
}

// Export writes the data of a member that does not run as ZooKeeper's files, into dir, which must
// be empty or not be there. snapshot, unless empty, is a file of 'lockkeeper snapshot save' that is
// written instead. It appears as a whole or not at all.
func Export(ctx context.Context, cfg zoocfg.Config, snapshot, dir string) (e Exported, err error) {
	if err := cfg.Validate(); err != nil {
		return e, err
	}
	cfg = cfg.WithDefaults()
	if list, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("server: export: %w", err)
	} else if len(list) > 0 {
		return e, fmt.Errorf("server: export: %s is not empty", dir)
	}
	var last stopped
	if snapshot != "" {
		if last.state, err = readSnapshot(snapshot); err != nil {
			err = fmt.Errorf("server: export: %w", err)
		}
	} else {
		last, err = readStopped(ctx, &cfg)
	}
	if err != nil {
		return e, err
	}
	if last.state.Zxid() == 0 {
		return e, errors.New("server: export: there are no data: this member has never applied an update. Export the " +
			"member of the cluster " +
			"with the greatest zxid (lockkeeper inspect)")
	}
	state, left := zkdata.FromStore(last.state)
	e.Zxid, e.Nodes, e.Sessions, e.Left = state.Zxid, state.Len(), len(state.Sessions), left
	e.Epoch = max(last.term, uint64(state.Zxid)>>32)
	if err := writeExport(dir, state, e.Epoch, max(last.accepted, e.Epoch), cfg.Cluster.ID); err != nil {
		return e, fmt.Errorf("server: export: %w", err)
	}
	return e, nil
}

// readSnapshot reads a file of 'lockkeeper snapshot save'.
func readSnapshot(name string) (*znode.Store, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	store, err := znode.Restore(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return store, nil
}

// stopped is what the files of a member that does not run have.
type stopped struct {
	state *znode.Store // after the last entry of the log
	term  uint64       // of that entry
	// accepted is the newest term that the member has voted in or followed.
	accepted uint64
	repaired []string // repairs that were made when the files were opened
}

// readStopped reads the files of a member that does not run.
func readStopped(ctx context.Context, cfg *zoocfg.Config) (last stopped, err error) {
	err = withStopped(ctx, cfg, func(stores store.Stores) error {
		last.repaired = stores.Repaired
		if last.accepted, err = stores.Number(store.Term); err != nil {
			return err
		}
		last.state, last.term, err = quorum.LastState(stores)
		return err
	})
	return last, err
}

// withStopped opens the stores of a member that does not run, as a start of it does.
func withStopped(ctx context.Context, cfg *zoocfg.Config, do func(store.Stores) error) error {
	if _, err := os.Stat(filepath.Join(cfg.Data.LogDir, datadir.LogFile)); err != nil {
		return cfg.Fault("dataDir", "there are no data of lockkeeper: %v", err)
	}
	dirs, err := datadir.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer dirs.Close()
	stores, err := store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore)
	if err != nil {
		return err
	}
	return errors.Join(do(stores), stores.Close())
}

// writeExport makes a directory of ZooKeeper, for its owner alone: the snapshot has the passwords
// of sessions. ZooKeeper elects a member with the greatest current epoch among a majority, and
// begins the epoch after the greatest accepted one. A leader of Raft may have written entries that
// this majority lacks; but a member of the majority voted for it. So the vote's term must count as
// accepted, or ZooKeeper would give the zxids of these entries to other updates.
func writeExport(dir string, state *zkdata.State, current, accepted uint64, id uint8) (err error) {
	if err := datadir.MakeAll(filepath.Dir(dir), store.SyncDir); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp)
		}
	}()
	data := filepath.Join(tmp, datadir.ZooKeeperDir)
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	number := func(n uint64) func(io.Writer) error {
		return func(w io.Writer) error { _, err := fmt.Fprintln(w, n); return err }
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{filepath.Join(datadir.ZooKeeperDir, fmt.Sprintf("snapshot.%x", uint64(state.Zxid))), state.WriteSnapshot},
		{filepath.Join(datadir.ZooKeeperDir, "currentEpoch"), number(current)},
		{filepath.Join(datadir.ZooKeeperDir, "acceptedEpoch"), number(accepted)},
		{"myid", number(uint64(id))},
	} {
		f, err := os.OpenFile(filepath.Join(tmp, file.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(file.write(f), f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	if err := errors.Join(store.SyncDir(data), store.SyncDir(tmp)); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil { // over one that is empty, too
		return err
	}
	return store.SyncDir(filepath.Dir(dir))
}
