package quorum

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// members is who the members of the cluster are: this member's part in the first start (birth.go),
// in changes (change.go) and in the replacement of disks.
type members struct {
	*engine
	leadership *leadership
	state      *state

	// file are the members of the configuration file; none for a member alone.
	file    []znode.Member
	brought peer.Imported // the import of a blank disk; zero: none
	growing atomic.Bool   // this member stood alone, and may not begin its cluster yet
	grown   chan struct{} // capacity 1: it may
	joining chan struct{} // capacity 1: full while join runs

	// Lock: mu is a leaf. It guards the newcomers: disks of members that raft does not count, and
	// that have queried this member lately: new members, or ones that have lost their disk. The
	// change loop of the leader takes them in.
	mu        sync.Mutex
	newcomers map[MemberID]newcomer
}

func newMembers(e *engine, l *leadership, s *state, file []znode.Member, brought peer.Imported) *members {
	return &members{engine: e, leadership: l, state: s, file: file, brought: brought, grown: make(chan struct{}, 1),
		joining: make(chan struct{}, 1), newcomers: map[MemberID]newcomer{}}
}

// checkMembers compares the stored members with the configuration. The stored ones count; but a
// member alone must have been alone: the others of its cluster may have entries that it does not.
// One that stood alone may become the first one of a cluster (birth.go).
func (ms *members) check() error {
	servers := ms.Servers()
	if len(servers) > 0 {
		wasAlone := servers[0].Address == raftnet.AloneAddr
		switch {
		case ms.cfg.alone() && !wasAlone:
			return fmt.Errorf("quorum: %s is the log of a member of a cluster (%d members), and this member is to "+
				"stand alone: "+
				"its server lines are missing. If the other members are lost, or to be given up, 'lockkeeper "+
				"recover' makes it one that "+
				"stands alone, and says what may be missing then", ms.cfg.Stores.LogName, len(servers))
		case !ms.cfg.alone() && wasAlone && servers[0].ID != ms.self &&
			raftnet.DiskOf(servers[0].ID) == raftnet.DiskOf(ms.self):
			return fmt.Errorf("quorum: %s is the log of member %d, and this is member %d: compare myid and the "+
				"server lines",
				ms.cfg.Stores.LogName, raftnet.IDOf(servers[0].ID), ms.cfg.ID)
		}
		ms.growing.Store(!ms.cfg.alone() && ms.stoodAlone())
	}
	saved, err := ms.cfg.Stores.Number(store.Cluster)
	cluster := peer.ClusterID(saved)
	if of := ms.state.store.Cluster(); err == nil && of != 0 && cluster != 0 && of != cluster {
		err = fmt.Errorf("quorum: %s: %w: it belongs to cluster %v, and the state is of cluster %v: are these the "+
			"files of one member?",
			ms.cfg.Stores.StableName, errOtherCluster, cluster, of)
	}
	if err == nil && cluster == 0 && len(servers) > 0 {
		// The member has written the first configuration, and ended before it saved the cluster.
		cluster = raftnet.BirthOf(servers)
		err = ms.cfg.Stores.SetNumber(store.Cluster, uint64(cluster))
	}
	if err == nil && len(servers) > 0 {
		err = recordStanding(&ms.cfg.Stores, servers)
	}
	ms.roster.SetCluster(cluster)
	return err
}

// complete proposes the id of the cluster, or the members, if the state lacks them. If it is lost
// with the leadership the next leader does the same.
func (ms *members) complete(ctx context.Context) {
	var unnamed, unset bool
	ms.state.View(func(s *znode.Store) { unnamed, unset = s.Cluster() == 0, ms.toSet(s) })
	if unnamed {
		_ = ms.leadership.propose(ctx, &znode.Command{Body: &znode.NameCluster{ID: ms.roster.Cluster()}})
	}
	if unset {
		_ = ms.leadership.propose(ctx, &znode.Command{Body: &znode.SetMembers{Text: ms.cfg.ConfigText}})
	}
	ms.state.membersMayDiffer()
}

// toSet reports whether this leader is to propose the members for the state: it has none
// yet, or their version is missing, or they have moved, or /zookeeper/config differs from them.
func (ms *members) toSet(s *znode.Store) bool {
	if ms.cfg.ConfigText == "" {
		// A standalone member has none, and a super user's data there stay, as in ZooKeeper.
		return false
	}
	members, version := s.Members()
	config, _, _ := s.Get("/zookeeper/config", []znode.Identity{{Scheme: "super"}})
	reconfig := ms.cfg.Flags&znode.Reconfig != 0
	return members == nil || reconfig && version == 0 || string(config) != znode.ConfigText(members, version) ||
		!reconfig && znode.ConfigText(members, 0) != ms.cfg.ConfigText
}

// toldMembers are the members that Listener.MembersChanged was last called with.
type toldMembers struct {
	version wire.Zxid
	members []znode.Member
	addr    string // of this member's peer port

	newest wire.Zxid // that have been seen
	since  time.Time // when
}

// tellAfter is how long the members must have been the same before others are told of them: a
// member that gets the log goes through all that was ever agreed.
const tellAfter = 200 * time.Millisecond

// followMembers tells the roster, the peer port and the member above who the members are. It
// reports whether to look again soon.
func (ms *members) followMembers(told *toldMembers) (again bool) {
	members, version, change := ms.state.change()
	var coming []znode.Member
	if change != nil {
		coming = change.Members
	}
	ms.roster.Update(members, coming)
	if members == nil || told.version == version && slices.Equal(told.members, members) {
		return false
	}
	if told.newest != version || told.since.IsZero() {
		told.newest, told.since = version, time.Now()
	}
	if time.Since(told.since) < tellAfter {
		return true
	}
	first := told.members == nil
	told.version, told.members = version, members
	agreed := ms.cfg.Flags&znode.Reconfig != 0 && version > 0
	i := slices.IndexFunc(members, func(m znode.Member) bool { return MemberID(m.ID) == ms.cfg.ID })
	switch {
	case i >= 0 && agreed:
		ms.moveTo(told, members[i].PeerAddr())
	case i < 0 && !first:
		ms.log.Warn("this member has been removed from the cluster; it will serve nobody", "version", version)
	}
	ms.cfg.Listener.MembersChanged(members, version)
	return false
}

// moveTo listens for peers where the members have agreed that this one is.
func (ms *members) moveTo(told *toldMembers, addr string) {
	if told.addr == addr || ms.port == nil {
		return
	}
	told.addr = addr
	if err := ms.port.Move(addr); err != nil {
		ms.log.Error("cannot listen for peers at this member's new address; a restart may be needed", "address", addr,
			"err", err)
		return
	}
	ms.log.Info("listening for peers at the agreed address", "address", addr)
}

const (
	queryPauseMin = 10 * time.Millisecond
	queryPauseMax = 500 * time.Millisecond
)

type newcomer struct {
	peer.Identity
	first, last time.Time // query
}

// noteNewcomer records the sender of a query, if raft counts another disk, or none, under its
// number.
func (ms *members) noteNewcomer(asked peer.Identity) {
	servers := ms.Servers()
	if len(servers) == 0 || asked.Cluster != 0 && asked.Cluster != ms.roster.Cluster() {
		return
	}
	for _, s := range servers {
		if s.ID == raftnet.ServerID(asked.Member, asked.Disk) {
			return
		}
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	n := newcomer{asked, time.Now(), time.Now()}
	if known, ok := ms.newcomers[asked.Member]; ok && known.Identity == asked {
		n.first = known.first
	}
	ms.newcomers[asked.Member] = n
	ms.state.membersMayDiffer()
}

// recentNewcomers are the newcomers that have queried this member lately. A blank one queries it
// each queryPauseMax, another one each peerTimeout (queryLoop).
func (ms *members) recentNewcomers() (list []peer.Identity) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for id, c := range ms.newcomers {
		if time.Since(c.last) > 4*max(queryPauseMax, ms.peerTimeout()) {
			delete(ms.newcomers, id)
			continue
		}
		list = append(list, c.Identity)
	}
	return list
}

// persists reports whether the newcomer with that number has queried this member for a while.
func (ms *members) persists(id MemberID) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	n, ok := ms.newcomers[id]
	return ok && n.last.Sub(n.first) > 3*ms.peerTimeout()
}
