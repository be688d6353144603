package offline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/server/datadir"
	"lockkeeper/server/zoocfg"
)

// Survivor is a cluster's state on the disk of a stopped member, or in a snapshot, which has no
// Disk, Voters and CommitIndex.
type Survivor struct {
	Member  int    `json:"member"` // -1 if that is not known
	Disk    string `json:"disk,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Voters  []int  `json:"voters,omitempty"`
	// LastTerm and LastIndex identify the last entry. Of several disks the one with the greater
	// (LastTerm, LastIndex) has every answered update that the other one has.
	LastTerm  uint64 `json:"lastTerm"`
	LastIndex uint64 `json:"lastIndex"`
	// CommitIndex is an index up to which entries are known to be committed.
	CommitIndex uint64 `json:"commitIndex"`
	// Time is the wall clock of the leader that made the newest entry; zero without any.
	Time       time.Time `json:"time"`
	Zxid       string    `json:"zxid"`
	Nodes      int       `json:"nodes"`
	Bytes      int64     `json:"bytes"` // of paths and data
	Sessions   int       `json:"sessions"`
	Ephemerals int       `json:"ephemerals"`
	// Missing is the number of other voters that answered updates which this disk may lack.
	Missing int `json:"missing"`

	state *quorum.Survivor
}

// Survey reads the state that a recovery would begin with: the files of a stopped member, files in
// a directory that were set aside or copied, or a snapshot. An empty from names the member's own
// files. Errors name the file.
func Survey(ctx context.Context, cfg zoocfg.Config, from string) (*Survivor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	v, err := survey(ctx, &cfg, from)
	if err != nil {
		return nil, fmt.Errorf("server: recover: %w", err)
	}
	counts := v.State.Counts()
	s := &Survivor{Member: int(v.Member), LastTerm: v.LastTerm, LastIndex: v.LastIndex, CommitIndex: v.CommitIndex,
		Time: v.Time(),
		Zxid: v.State.Zxid().String(), Nodes: counts.Nodes, Bytes: counts.DataSizeBytes, Sessions: counts.Sessions,
		Ephemerals: counts.Ephemerals,
		state:      v}
	if v.Disk != 0 {
		s.Disk = v.Disk.String()
	}
	if v.Cluster != 0 {
		s.Cluster = v.Cluster.String()
	}
	for _, id := range v.Voters {
		s.Voters = append(s.Voters, int(id))
	}
	if len(s.Voters) > 1 {
		s.Missing = quorum.NewMaj(len(s.Voters)).Size()
	}
	return s, nil
}

func survey(ctx context.Context, cfg *zoocfg.Config, from string) (v *quorum.Survivor, err error) {
	if from == "" {
		err := withStopped(ctx, cfg, func(stores store.Stores) error {
			v, err = quorum.Survey(stores)
			return err
		})
		return v, err
	}
	st, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		store, err := readSnapshot(from)
		if err != nil {
			return nil, err
		}
		return quorum.SurviveSnapshot(store)
	}
	logDir := from
	if _, err := os.Stat(filepath.Join(from, datadir.LogFile)); errors.Is(err, fs.ErrNotExist) {
		logDir = filepath.Join(cfg.Data.LogDir, filepath.Base(from)) // as SetAside moves it
	}
	err = whateverKind(from, logDir, func(c *zoocfg.Config) error {
		return withStopped(ctx, c, func(stores store.Stores) error {
			v, err = quorum.Survey(stores)
			return err
		})
	})
	return v, err
}

// Recovery is the result of Recover.
type Recovery struct {
	Cluster string   // the id of the new one
	Aside   []string // the files of the member that were set aside
}

// Recover begins a new cluster, of which this member is the only voter at first, with the state of
// a survivor (Survey). The member must not run. Its present files are set aside.
func Recover(ctx context.Context, cfg zoocfg.Config, from *Survivor) (r Recovery, err error) {
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	cfg = cfg.WithDefaults()
	if r.Aside, err = datadir.SetAside(ctx, &cfg, time.Now()); err != nil {
		return r, err
	}
	dirs, err := datadir.Lock(ctx, &cfg)
	if err != nil {
		return r, err
	}
	defer dirs.Close()
	stores, err := store.Open(cfg.Data.Dir, cfg.Data.LogDir, cfg.Data.LogStore)
	if err != nil {
		return r, fmt.Errorf("server: recover: %w", err)
	}
	member := quorum.Config{ID: quorum.MemberID(cfg.Cluster.ID), Members: cfg.QuorumMembers(), Stores: stores}
	cluster, err := quorum.Recover(member, from.state)
	if err := errors.Join(err, stores.Close()); err != nil {
		return r, fmt.Errorf("server: recover: %w", err)
	}
	r.Cluster = cluster.String()
	return r, nil
}

// Rejoin sets the files of a member that does not run aside, so that a cluster which another member
// has recovered takes it in. It returns where they are.
func Rejoin(ctx context.Context, cfg zoocfg.Config) (moved []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	if cfg.Standalone() {
		return nil, cfg.Fault("server.N", "there are no server lines: this member stands alone, and there is no "+
			"cluster to join")
	}
	return datadir.SetAside(ctx, &cfg, time.Now())
}
