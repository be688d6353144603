package server

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
	"lockkeeper/wire"
	"lockkeeper/zkdata"
)

// busyPatience is how long a program may take to answer a connection to the client port.
const busyPatience = time.Second

// Import takes over the data of ZooKeeper in the directories of a member that has none of its own:
// nodes with all fields of their Stat, and sessions with their ephemeral nodes. ZooKeeper's files
// are only read. It can be repeated if it has not come to its end. Errors name the file.
func Import(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	cfg.Import = true
	dirs, err := openDataDirs(ctx, &cfg)
	if err != nil {
		return err
	}
	defer dirs.close()
	if stores, found, err := ownStores(&cfg); err != nil {
		return err
	} else if found {
		return errors.Join(cfg.Fault("dataDir", "%s has data of lockkeeper already: nothing is to be imported", cfg.DataDir), stores.Close())
	}
	return importZooKeeper(ctx, &cfg)
}

// ownStores opens the stores of a member that has data; found is false if it has none, or half an
// import.
func ownStores(cfg *Config) (stores quorum.Stores, found bool, err error) {
	if _, err := os.Stat(filepath.Join(cfg.DataLogDir, logFile)); err != nil {
		return stores, false, nil
	}
	if stores, err = quorum.OpenStores(cfg.DataDir, cfg.DataLogDir, cfg.LogStore); err == nil && stores.Importable() {
		return stores, false, stores.Close()
	}
	return stores, err == nil, err
}

// openOrImport opens the stores of a member, after an import if that is wanted and it has no data.
// The directories are locked.
func openOrImport(ctx context.Context, cfg *Config) (quorum.Stores, error) {
	if cfg.Import {
		if stores, found, err := ownStores(cfg); found || err != nil {
			return stores, err
		}
		if err := importZooKeeper(ctx, cfg); err != nil {
			return quorum.Stores{}, err
		}
	}
	return quorum.OpenStores(cfg.DataDir, cfg.DataLogDir, cfg.LogStore)
}

func importZooKeeper(ctx context.Context, cfg *Config) error {
	began := time.Now()
	files, err := zkdata.List(cfg.DataDir, cfg.DataLogDir)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if files.Empty() {
		return cfg.Fault("dataDir", "there are no data of ZooKeeper in %s to import. Start this member without an import "+
			"when a majority of the others serves: it gets their state", filepath.Join(cfg.DataDir, zooKeeperDir))
	}
	if err := checkStopped(ctx, cfg); err != nil {
		return err
	}
	state, report, err := zkdata.Load(files, zkdata.Options{Extended: cfg.ExtendedTypes})
	if err != nil {
		return fmt.Errorf("server: import: %w", err)
	}
	for _, notice := range report.Notices {
		cfg.Logger.Warn("import", "notice", notice)
	}
	if again, err := zkdata.List(cfg.DataDir, cfg.DataLogDir); err != nil || !sameFiles(files, again) {
		return cfg.Fault("dataDir", "the files in %s have changed while they were read: stop ZooKeeper first", filepath.Join(cfg.DataDir, zooKeeperDir))
	}
	store, err := state.Store(cfg.ExtendedTypes)
	if err != nil {
		return fmt.Errorf("server: import: %w", err)
	}
	counts := store.Counts()
	if l := cfg.Limits; l.Nodes > 0 && counts.Nodes > l.Nodes || l.DataBytes > 0 && counts.DataSizeBytes > int64(l.DataBytes) {
		return cfg.Fault("maxDataBytes", "the %d nodes of ZooKeeper have %d bytes, which is beyond maxNodes or maxDataBytes (see maxMemory)",
			counts.Nodes, counts.DataSizeBytes)
	}
	stores, err := quorum.OpenStores(cfg.DataDir, cfg.DataLogDir, cfg.LogStore)
	if err != nil {
		return err
	}
	from := origin(files, state.Zxid)
	err = quorum.Import(quorum.Config{ID: quorum.MemberID(cfg.ID), Members: quorumMembers(cfg), Stores: stores}, from, store)
	if err := errors.Join(err, stores.Close()); err != nil {
		return err
	}
	cfg.Logger.Info("data of ZooKeeper imported", "dir", cfg.DataDir, "zxid", state.Zxid, "epoch", from.StateTerm, "nodes", counts.Nodes,
		"sessions", len(state.Sessions), "snapshot", filepath.Base(report.Snapshot.Path), "transactions", report.Txns,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
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
func checkStopped(ctx context.Context, cfg *Config) error {
	dialer := net.Dialer{Timeout: busyPatience}
	host, port, err := net.SplitHostPort(cfg.ClientAddr)
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
	return cfg.Fault("clientPort", "something answers at %s: stop ZooKeeper on all hosts before the import", c.RemoteAddr())
}

// sameFiles says that nobody has written between two looks.
func sameFiles(a, b *zkdata.Files) bool {
	return slices.Equal(a.Snapshots, b.Snapshots) && slices.Equal(a.Logs, b.Logs) && a.CurrentEpoch == b.CurrentEpoch
}
