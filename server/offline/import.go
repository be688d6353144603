package offline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/wire"
	"lockkeeper/zkdata"
	"lockkeeper/znode"
)

// busyPatience is how long a program may take to answer a connection to the client port.
const busyPatience = time.Second

// ImportOptions are for an import that is not part of a start.
type ImportOptions struct {
	// Others are data directories of the other servers of the ensemble, or copies of them. The most
	// recent of all, by epoch and zxid, is taken. One that is of another ensemble is refused.
	Others []string
	// Progress, unless nil, is called now and then with how much of the files has been read.
	Progress func(bytes, all int64)
}

// Import takes over the data of ZooKeeper in the directories of a member that has none of its own:
// nodes with all fields of their Stat, and sessions with their ephemeral nodes. ZooKeeper's files
// are only read. It can be repeated if it has not come to its end. Errors name the file.
func Import(ctx context.Context, cfg zoocfg.Config, o ImportOptions) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	cfg.Data.Import = true
	dirs, err := datadir.Open(ctx, &cfg)
	if err != nil {
		return err
	}
	defer dirs.Close()
	if stores, found, err := ownStores(&cfg); err != nil {
		return err
	} else if found {
		return errors.Join(cfg.Fault("dataDir", "%s has data of lockkeeper already: nothing is to be imported",
			cfg.Data.Dir), stores.Close())
	}
	return importZooKeeper(ctx, &cfg, o)
}

// ownStores opens the stores of a member that has data; found is false if it has none, or half an
// import.
func ownStores(cfg *zoocfg.Config) (stores store.Stores, found bool, err error) {
	if _, err := os.Stat(filepath.Join(cfg.Data.LogDir, datadir.LogFile)); err != nil {
		return stores, false, nil
	}
	if stores, err = store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore); err == nil &&
		quorum.Importable(&stores) {
		return stores, false, stores.Close()
	}
	return stores, err == nil, err
}

// OpenStores opens the stores of a member, after an import if that is wanted and it has no data.
// The directories are locked.
func OpenStores(ctx context.Context, cfg *zoocfg.Config) (store.Stores, error) {
	if cfg.Data.Import && !datadir.HasAside(cfg) {
		if stores, found, err := ownStores(cfg); found || err != nil {
			return stores, err
		}
		if err := importZooKeeper(ctx, cfg, ImportOptions{}); err != nil {
			return store.Stores{}, err
		}
	}
	stores, err := store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore)
	if err == nil && !cfg.Data.Import && quorum.Importable(&stores) && !datadir.HasAside(cfg) {
		// Perhaps an import was killed early.
		if err := datadir.CheckZooKeeperData(cfg); err != nil {
			return store.Stores{}, errors.Join(err, stores.Close())
		}
	}
	return stores, err
}

func importZooKeeper(ctx context.Context, cfg *zoocfg.Config, o ImportOptions) error {
	began := time.Now()
	if err := checkStopped(ctx, cfg); err != nil {
		return err
	}
	taken, err := readEnsemble(cfg, o)
	if err != nil {
		return err
	}
	counts := taken.store.Counts()
	if l := cfg.Limits; l.Nodes > 0 && counts.Nodes > l.Nodes || l.DataBytes > 0 &&
		counts.DataSizeBytes > int64(l.DataBytes) {
		return cfg.Fault("maxDataBytes", "the %d nodes of ZooKeeper have %d bytes, which is beyond maxNodes or "+
			"maxDataBytes (see maxMemory)",
			counts.Nodes, counts.DataSizeBytes)
	}
	stores, err := store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore)
	if err != nil {
		return err
	}
	member := quorum.Config{ID: quorum.MemberID(cfg.Cluster.ID), Members: cfg.QuorumMembers(), Stores: stores}
	err = quorum.Import(member, taken.origin, taken.store)
	if err := errors.Join(err, stores.Close()); err != nil {
		return err
	}
	cfg.Logger.Info("data of ZooKeeper imported", "dir", taken.dir, "zxid", taken.zxid, "epoch", taken.origin.StateTerm,
		"nodes", counts.Nodes, "sessions", taken.sessions, "snapshot", filepath.Base(taken.report.Snapshot.Path),
		"transactions", taken.report.Txns, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// zooKeeperState is the state in one directory of ZooKeeper.
type zooKeeperState struct {
	dir      string
	origin   quorum.Origin
	zxid     wire.Zxid
	sessions int
	store    *znode.Store
	report   *zkdata.Report
}

// readEnsemble reads the directories of a member, and the other ones, and returns the most recent
// state.
func readEnsemble(cfg *zoocfg.Config, o ImportOptions) (newest *zooKeeperState, err error) {
	for i, dir := range append([]string{cfg.Data.Dir}, o.Others...) {
		logDir := cfg.Data.LogDir
		if i > 0 {
			logDir = dir
		}
		state, err := readZooKeeper(cfg, dir, logDir, o.Progress)
		if err != nil {
			return nil, err
		}
		if newest == nil {
			newest = state
			continue
		}
		if err := quorum.SameHistory(newest.store, state.store); err != nil {
			return nil, fmt.Errorf("server: import: %s and %s are not of one ensemble: %w", newest.dir, state.dir, err)
		}
		if state.origin.StateTerm > newest.origin.StateTerm ||
			state.origin.StateTerm == newest.origin.StateTerm && state.origin.Index > newest.origin.Index {
			newest, state = state, newest
		}
		newest.origin.Term = max(newest.origin.Term, state.origin.Term)
	}
	return newest, nil
}

// readZooKeeper reads one directory; the error for a directory without ZooKeeper's files names the
// remedy.
func readZooKeeper(cfg *zoocfg.Config, dir, logDir string, progress func(bytes, all int64)) (*zooKeeperState, error) {
	files, err := zkdata.List(dir, logDir)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if files.Empty() {
		return nil, cfg.Fault("dataDir", "there are no data of ZooKeeper in %s to import. Start this member without "+
			"an import "+
			"when a majority of the others serves: it gets their state", filepath.Join(dir, datadir.ZooKeeperDir))
	}
	state, report, err := zkdata.Load(files,
		zkdata.Options{Extended: cfg.Reap.ExtendedTypes, NoTTL: cfg.Given("extendedTypesEnabled"),
			Progress: ofAll(files, progress),
			Limits: zkdata.Limits{Nodes: max(cfg.Limits.Nodes, 0), DataBytes: max(int64(cfg.Limits.DataBytes), 0),
				Memory: int64(cfg.MaxMemory)}})
	switch {
	case errors.Is(err, zkdata.ErrTTL):
		return nil, cfg.Fault("extendedTypesEnabled", "is not set, and %v: set it to true if ZooKeeper ran with it, "+
			"perhaps as a system "+
			"property (-Dzookeeper.extendedTypesEnabled=true); with false they are taken for ephemeral nodes of "+
			"sessions that have ended, and left out", err)
	case errors.Is(err, zkdata.ErrTooLarge):
		return nil, cfg.Fault("maxDataBytes", "%v, which is beyond maxNodes, maxDataBytes or maxMemory", err)
	case err != nil:
		return nil, fmt.Errorf("server: import: %w", err)
	}
	for _, notice := range report.Notices {
		cfg.Logger.Warn("import", "notice", notice)
	}
	if again, err := zkdata.List(dir, logDir); err != nil || !sameFiles(files, again) {
		return nil, cfg.Fault("dataDir", "the files in %s have changed while they were read: stop ZooKeeper first",
			filepath.Join(dir, datadir.ZooKeeperDir))
	}
	store, err := state.Store(cfg.Reap.ExtendedTypes)
	if err != nil {
		return nil, fmt.Errorf("server: import: %s: %w", dir, err)
	}
	return &zooKeeperState{dir, origin(files, state.Zxid), state.Zxid, len(state.Sessions), store, report}, nil
}

// ofAll adds to progress, for the bytes that have been read, the greatest number to be read.
func ofAll(files *zkdata.Files, progress func(bytes, all int64)) func(bytes int64) {
	if progress == nil {
		return nil
	}
	var all int64
	if len(files.Snapshots) > 0 {
		all = files.Snapshots[0].Bytes
	}
	for _, f := range files.NeededLogs() {
		all += f.Bytes
	}
	return func(bytes int64) { progress(bytes, all) }
}

// origin says where a state of ZooKeeper is in its ensemble's history. Of two members ZooKeeper
// elects the one with the greater epoch, of equal ones the one with the greater zxid, as Raft does
// with term and index (docs/decisions/016-import.md).
func origin(files *zkdata.Files, zxid wire.Zxid) quorum.Origin {
	epoch := uint64(zxid) >> 32
	if files.CurrentEpoch >= 0 {
		epoch = uint64(files.CurrentEpoch)
	}
	index := uint64(zxid)
	if index>>32 != epoch {
		index = epoch << 32 // it has synced with the leader of this epoch, and has nothing of it
	}
	return quorum.Origin{Term: uint64(max(files.AcceptedEpoch, 0)), StateTerm: max(epoch, 1), Index: max(index, 1)}
}

// checkStopped refuses directories on which ZooKeeper runs: something answers at the client port.
func checkStopped(ctx context.Context, cfg *zoocfg.Config) error {
	dialer := net.Dialer{Timeout: busyPatience}
	host, port, err := net.SplitHostPort(cfg.Client.Addr)
	if err != nil || port == "0" {
		return nil
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil
	}
	_ = c.Close()
	return cfg.Fault("clientPort", "something answers at %s: stop ZooKeeper on all hosts before the import",
		c.RemoteAddr())
}

// sameFiles says that nobody has written between two looks.
func sameFiles(a, b *zkdata.Files) bool {
	return slices.Equal(a.Snapshots, b.Snapshots) && slices.Equal(a.Logs, b.Logs) && a.CurrentEpoch == b.CurrentEpoch
}
