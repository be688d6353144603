package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// A cluster begins when all of its disks are known to be blank: a disk that does not answer may
// have a log. Every voter of the configuration file has to answer, but for those that the operator
// has named (Config.Without). One member, the founder, writes the first configuration, which names
// each disk; the others get it with the log. The argument is in
// docs/decisions/017-a-member-is-its-disk.md.

// birth is the conclusion of a blank member from the answers of the others.
type birth struct {
	// waits names the members that this one waits for, with reasons; empty: it waits for nobody.
	waits []string
	// cluster is one that exists already; 0: none is known.
	cluster peer.ClusterID
	// foreign says that the cluster exists, and does not count this disk.
	foreign bool
	founder MemberID
	servers []raft.Server
}

// judgeBirth decides whether a cluster can begin. own is this member's own answer.
func judgeBirth(cfg *Config, own peer.Hello, answers map[MemberID]peer.Hello) birth {
	b := birth{founder: NoMember, cluster: own.Cluster}
	all := map[MemberID]peer.Hello{cfg.ID: own}
	for id, h := range answers {
		all[id] = h
		if h.Cluster != 0 && (b.cluster == 0 || h.State == peer.Used) {
			b.cluster = h.Cluster
		}
		b.foreign = b.foreign || h.State == peer.Used && h.Counted != own.Disk
	}
	if b.cluster != 0 {
		return b
	}
	var best peer.Imported
	for _, m := range cfg.Members {
		h, answered := all[m.ID]
		switch {
		case m.Observer && (!answered || h.State != peer.Blank || h.Listed != own.Listed ||
			h.Imported != (peer.Imported{})):
			continue // the cluster does not wait for an observer, and takes it in when it is well
		case !answered && slices.Contains(cfg.Without, m.ID):
			continue
		case !answered:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s does not answer", m.ID, m.Addr))
			continue
		case h.State == peer.Lost:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s replaces a disk of a cluster, or begins one "+
				"without this member",
				m.ID, m.Addr))
			continue
		case h.Listed != own.Listed:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s has other server lines", m.ID, m.Addr))
			continue
		}
		id := raftnet.ServerID(m.ID, h.Disk)
		s := raft.Server{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)}
		if m.Observer {
			s.Suffrage = raft.Nonvoter
			b.servers = append(b.servers, s)
			continue
		}
		b.servers = append(b.servers, s)
		switch later := h.Compare(best); {
		case b.founder == NoMember || later > 0:
			b.founder, best = m.ID, h.Imported
		case later == 0 && h.Digest != best.Digest:
			b.waits = append(b.waits, fmt.Sprintf("members %d and %d have imported different data that end with the "+
				"same update",
				b.founder, m.ID))
		}
	}
	return b
}

// tryBirth finds out whether the cluster can begin, and if this member is the founder begins it.
func (ms *members) tryBirth(ctx context.Context, since time.Time) {
	if b := ms.queryBirth(ctx, since); b.founder == ms.cfg.ID {
		// A second round shows the changes of the first one's time.
		if again := ms.queryBirth(ctx, since); again.founder == b.founder && slices.Equal(again.servers, b.servers) {
			if err := ms.begin(ctx, b.servers); err != nil {
				ms.log.Error("the cluster cannot begin", "err", err)
			}
		}
	}
}

// queryBirth is the judgement of one round of queries. Its founder is NoMember as long as no
// cluster can begin, with the reason in the log.
func (ms *members) queryBirth(ctx context.Context, since time.Time) birth {
	own := peer.Hello{State: ms.birthState(), Disk: ms.cfg.Peers.Disk, Cluster: ms.roster.Cluster(),
		Listed: peer.Sum(ms.cfg.Members), Imported: ms.brought}
	b := judgeBirth(&ms.cfg, own, ms.queryListed(ctx))
	late := time.Since(since) > birthPatience
	switch {
	case ms.birthState() == peer.Used:
	case b.cluster != 0 && b.foreign && ms.brought != (peer.Imported{}):
		ms.disk.Stop(ms.cfg.Stores.Retire(fmt.Sprintf("cluster %v exists already, and does not count this disk, %v: "+
			"its data count, not those that were imported here", b.cluster, own.Disk)))
	case b.cluster != 0:
		if late {
			ms.trouble.Warn("join", "waiting to be taken in by a cluster that exists: when a majority of its members "+
				"has the server lines of "+
				"this one, or, with reconfigEnabled, after 'lockkeeper cluster add'", "cluster", b.cluster, "disk",
				own.Disk)
		}
	case len(b.waits) > 0 || ms.cfg.Lost:
		if late {
			ms.trouble.Warn("birth", "the first start of a cluster needs an answer of each of its voters; members "+
				"that have never "+
				"worked and do not run can be left out: lockkeeper serve -without N", "waiting",
				strings.Join(b.waits, "; "))
		}
	default:
		return b
	}
	return birth{founder: NoMember}
}

// queryListed queries the other members of this member's server lines.
func (ms *members) queryListed(ctx context.Context) map[MemberID]peer.Hello {
	var others []MemberID
	for _, m := range ms.cfg.Members {
		if m.ID != ms.cfg.ID {
			others = append(others, m.ID)
		}
	}
	return ms.helloAll(ctx, others)
}

// birthPatience is how long a first start may take without a line in the log.
const birthPatience = 5 * time.Second

// begin writes the first configuration of a cluster with these servers, behind the imported
// entries, then the id of the cluster, and stands for election. A start that finds the first
// without the second computes it again (check). An imported snapshot is written again with the
// configuration: others have to be sent it, and take none without.
func (ms *members) begin(ctx context.Context, servers []raft.Server) error {
	index, term := ms.brought.Index, ms.brought.StateTerm
	now := max(ms.raft.CurrentTerm(), term, 1)
	configuration := raft.Configuration{Servers: servers}
	if ms.brought != (peer.Imported{}) {
		state := ms.state.Freeze()
		err := ms.cfg.Stores.WriteSnapshot(configuration, index, term, state)
		state.Release()
		if err != nil {
			return err
		}
	}
	entry := &raft.Log{Index: index + 1, Term: now, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(configuration)}
	request := raft.AppendEntriesRequest{Term: now, PrevLogEntry: index, PrevLogTerm: term, Entries: []*raft.Log{entry}}
	if err := ms.transport.Append(ctx, &request); err != nil {
		return err
	}
	cluster := raftnet.BirthOf(servers)
	if err := ms.join(cluster); err != nil {
		return err
	}
	ms.log.Info("a cluster begins", "cluster", cluster, "founder", ms.self, "servers", len(servers))
	ms.transport.Stand(ctx)
	return nil
}

// join makes a cluster this member's, for good.
func (ms *members) join(cluster peer.ClusterID) error {
	ms.joining <- struct{}{}
	defer func() { <-ms.joining }()
	switch known := ms.roster.Cluster(); known {
	case cluster:
		return nil
	case 0:
	default:
		return fmt.Errorf("%w: this disk belongs to cluster %v, not to %v", errOtherCluster, known, cluster)
	}
	if err := ms.cfg.Stores.SetNumber(store.Cluster, uint64(cluster)); err != nil {
		ms.log.Error("cannot record the cluster", "err", err)
		return err
	}
	ms.roster.SetCluster(cluster)
	return nil
}

// A member that stood alone becomes the first one of a cluster when it is started with server
// lines. Its log has one voter, itself, so all that it ever answered is on its disk, and it leads
// by itself; the change loop then takes in the other members of its file like new ones. It holds
// its leadership back until every other voter of the file has answered that it has no data: two
// members that both stood alone would else begin two clusters with the same lines. An address in
// raft's configuration makes it a member of a cluster for good; it replaces raftnet.AloneAddr. The
// argument is in docs/decisions/019-members-of-the-files.md.

// growthMark is the address of a server in raft's configuration that is one of a cluster.
func growthMark(id raft.ServerID) raft.ServerAddress { return raft.ServerAddress(id) }

// tryGrow lets this member lead once it may begin a cluster with its data.
func (ms *members) tryGrow(ctx context.Context, since time.Time) {
	for range 2 { // a second round shows the changes of the first one's time
		waits := judgeGrowth(&ms.cfg, ms.roster.Cluster(), ms.queryListed(ctx))
		if len(waits) == 0 {
			continue
		}
		if time.Since(since) > birthPatience {
			ms.trouble.Warn("grow", "this member stood alone, and begins a cluster with its data when each other "+
				"voter of its server lines "+
				"has answered that it has none; members that have never worked and do not run can be left out: "+
				"lockkeeper serve -without N", "waiting", strings.Join(waits, "; "))
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	ms.log.Warn("this member stood alone, and begins a cluster with its data: the others get them", "cluster",
		ms.roster.Cluster(),
		"members", len(ms.cfg.Members))
	ms.growing.Store(false)
	signal(ms.grown)
}

// judgeGrowth names the members that one which stood alone waits for before it begins a cluster
// with its data, with reasons.
func judgeGrowth(cfg *Config, own peer.ClusterID, answers map[MemberID]peer.Hello) (waits []string) {
	wait := func(m Member, format string, args ...any) {
		waits = append(waits, fmt.Sprintf("member %d at %s ", m.ID, m.Addr)+fmt.Sprintf(format, args...))
	}
	for _, m := range cfg.Members {
		h, answered := answers[m.ID]
		switch {
		case m.ID == cfg.ID, !answered && (m.Observer || slices.Contains(cfg.Without, m.ID)):
		case !answered:
			wait(m, "does not answer")
		case h.Cluster == own:
		case h.State == peer.Used || h.Cluster != 0:
			wait(m, "has data of its own, of cluster %v: if those of member %d count, stop it and move its data "+
				"directory away", h.Cluster, cfg.ID)
		case h.State == peer.Lost:
			wait(m, "replaces a disk of a cluster, or begins one without this member")
		case h.Imported != (peer.Imported{}):
			wait(m, "has imported data: if those of member %d count, stop it and move its data directory away", cfg.ID)
		case h.Listed != peer.Sum(cfg.Members):
			wait(m, "has other server lines")
		}
	}
	return waits
}

// grow makes this leader, which stood alone, one of a cluster for good. Nothing has been answered
// before in the name of the cluster.
func (ms *members) grow() error {
	f := ms.raft.AddVoter(ms.self, growthMark(ms.self), 0, ms.peerTimeout())
	endWith(f, ms.down)
	if err := f.Error(); err != nil {
		return err
	}
	return recordStanding(&ms.cfg.Stores, ms.Servers())
}
