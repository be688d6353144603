package offline

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
	"lockkeeper/zkdata"
)

// CheckData inspects the data directories of a Config as a start would: it returns notices for an
// operator, and Faults that would keep the member from starting. It changes nothing. The log and
// the snapshots themselves are not read: a start does that, and 'lockkeeper inspect'.
func CheckData(cfg zoocfg.Config) (notices []zoocfg.Notice, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil // CheckFiles says it
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = slog.New(slog.DiscardHandler)
	note := func(format string, args ...any) {
		notices = append(notices, cfg.Warning("dataDir", format, args...))
	}
	log := filepath.Join(cfg.Data.LogDir, datadir.LogFile)
	switch _, err := os.Stat(log); {
	case errors.Is(err, fs.ErrNotExist):
		return checkEmptyData(&cfg)
	case err != nil:
		return nil, cfg.Fault("dataLogDir", "%v", err)
	}
	for _, dir := range []string{cfg.Data.Dir, cfg.Data.LogDir} {
		if files, err := zkdata.List(dir, dir); err == nil && !files.Empty() {
			note("%s has data of ZooKeeper, which are not read: those of lockkeeper count",
				filepath.Join(dir, datadir.ZooKeeperDir))
			break
		}
	}
	owner, err := quorum.Peek(cfg.Data.LogDir)
	switch {
	case errors.Is(err, store.ErrInUse):
		n := cfg.Warning("dataLogDir", "%s is in use by a process, and is not looked at", log)
		n.Level = slog.LevelInfo
		return append(notices, n), nil
	case errors.Is(err, store.ErrDamaged) && datadir.MayReplaceDisk(&cfg, err):
		note("%v: a start sets the files aside, and gets the data from the other members", err)
		return notices, nil
	case err != nil:
		f := cfg.Fault("dataLogDir", "%v", err)
		f.Err = err
		return notices, f
	}
	more, err := checkOwner(&cfg, owner)
	return append(notices, more...), err
}

// checkEmptyData is CheckData of directories without data of lockkeeper.
func checkEmptyData(cfg *zoocfg.Config) (notices []zoocfg.Notice, err error) {
	if cfg.Data.MustHoldData && !cfg.Data.Import && !datadir.HasAside(cfg) {
		if init := filepath.Join(cfg.Data.Dir, datadir.InitializeFile); !datadir.Exists(init) {
			return nil, cfg.Fault("db.autocreate", "is false, and there are no data: if this member is new, create "+
				"the file %s", init)
		}
	}
	files, err := zkdata.List(cfg.Data.Dir, cfg.Data.LogDir)
	if err != nil || files.Empty() || datadir.HasAside(cfg) || cfg.Data.IgnoreZooKeeper {
		return nil, nil // CheckFiles reports the fault
	}
	state, err := readZooKeeper(cfg, cfg.Data.Dir, cfg.Data.LogDir, nil)
	if err != nil {
		var f zoocfg.Fault
		if !errors.As(err, &f) {
			f = cfg.Fault("dataDir", "an import of the data of ZooKeeper would be refused: %v", err)
			f.Err = err
		}
		return nil, f
	}
	for _, text := range state.report.Notices {
		notices = append(notices, cfg.Warning("dataDir", "an import of the data of ZooKeeper would say: %s", text))
	}
	return notices, nil
}

// checkOwner compares the owner of a data directory with the configuration.
func checkOwner(cfg *zoocfg.Config, o quorum.Owner) (notices []zoocfg.Notice, err error) {
	id := quorum.MemberID(cfg.Cluster.ID)
	switch {
	case o.Outdated != "" && !datadir.MayReplaceDisk(cfg, store.ErrOutdated):
		return nil, cfg.Fault("dataLogDir", "%s: outdated: %s", cfg.Data.LogDir, o.Outdated)
	case o.Outdated != "":
		return []zoocfg.Notice{cfg.Warning("dataLogDir", "%s: outdated: %s. A start sets the files aside, and gets "+
			"the data from the other members",
			cfg.Data.LogDir, o.Outdated)}, nil
	case o.Kind != cfg.Data.LogStore && o.Cluster != 0:
		return nil, cfg.Fault("logStore", "is %s, and the log in %s is of kind %s: set logStore=%s, or move it with "+
			"'lockkeeper log convert'",
			cfg.Data.LogStore, cfg.Data.LogDir, o.Kind, o.Kind)
	case cfg.Standalone() && o.InCluster:
		return nil, cfg.Fault("dataDir", "%s has the data of member %d of cluster %v, and this member is to stand "+
			"alone: its server lines are "+
			"missing. If the other members are lost, or to be given up: lockkeeper recover", cfg.Data.Dir, o.Member,
			o.Cluster)
	case !cfg.Standalone() && o.Alone:
		return []zoocfg.Notice{cfg.Warning("dataDir", "%s has the data of a member that stood alone: it begins a "+
			"cluster with them when each "+
			"other voter has answered that it has none", cfg.Data.Dir)}, nil
	case o.Member != quorum.NoMember && o.Member != id:
		return nil, cfg.Fault("myid", "%s has the log and the votes of member %d, and this is member %d: compare "+
			"myid and dataDir with the server lines",
			cfg.Data.LogDir, o.Member, id)
	}
	return nil, nil
}
