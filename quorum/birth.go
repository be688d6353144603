package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/mutant"
	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// A cluster begins when all of its disks are known to be blank: a disk that does not answer may
// have a log. Every voter of the configuration file has to answer, but for those that the operator
// has named (Config.Without). One member, the founder, writes the first configuration, which names
// each disk; the others get it with the log. The argument is in
// docs/decisions/017-a-member-is-its-disk.md.

// state is how far this member has come.
func (r *Replica) state() peer.State {
	switch {
	case len(r.servers()) > 0:
		return peer.Used
	case r.cfg.Lost:
		return peer.Lost
	}
	return peer.Blank
}

// hello answers a query of another member.
func (r *Replica) hello(asked peer.Identity) peer.Hello {
	r.noteNewcomer(asked)
	_, version := r.Members()
	h := peer.Hello{State: r.state(), Version: uint64(version), Imported: r.brought,
		Report: Report{Role: r.Status().Role, ClientAddr: r.cfg.ClientAddr(), PeerAuth: r.cfg.PeerAuth, Details: r.cfg.Details()}}
	h.Ready, h.NotReady = r.readiness()
	h.Stop = r.stopState()
	h.Acked, h.SetBack = r.transport.AckedBy(asked.Disk)
	if h.State == peer.Blank && slices.Contains(r.cfg.Without, asked.Member) {
		h.State = peer.Lost // this member begins a cluster without the one that asks
	}
	return h
}

// birth is what a blank member concludes from the answers of the others.
type birth struct {
	// waits says for whom the member waits, and why; empty: for nobody.
	waits []string
	// cluster is one that exists already; 0: none is known.
	cluster peer.ClusterID
	// foreign says that the cluster exists, and does not count this disk.
	foreign bool
	founder MemberID
	servers []raft.Server
}

// judgeBirth decides whether a cluster can begin. own is what this member would answer itself.
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
		case m.Observer && (!answered || h.State != peer.Blank || h.Listed != own.Listed || h.Imported != (peer.Imported{})):
			continue // the cluster does not wait for an observer, and takes it in when it is well
		case !answered && slices.Contains(cfg.Without, m.ID),
			mutant.On(mutant.BirthByMajority) && !answered && len(all) > len(cfg.Members)/2:
			continue
		case !answered:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s does not answer", m.ID, m.Addr))
			continue
		case h.State == peer.Lost:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s replaces a disk of a cluster, or begins one without this member",
				m.ID, m.Addr))
			continue
		case h.Listed != own.Listed:
			b.waits = append(b.waits, fmt.Sprintf("member %d at %s has other server lines", m.ID, m.Addr))
			continue
		}
		id := peer.ServerID(m.ID, h.Disk)
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
			b.waits = append(b.waits, fmt.Sprintf("members %d and %d have imported different data that end with the same update",
				b.founder, m.ID))
		}
	}
	return b
}

// tryBirth finds out whether the cluster can begin, and if this member is the founder begins it.
func (r *Replica) tryBirth(ctx context.Context, since time.Time) {
	if b := r.queryBirth(ctx, since); b.founder == r.cfg.ID {
		// What has changed during the first round shows in a second one.
		if again := r.queryBirth(ctx, since); again.founder == b.founder && slices.Equal(again.servers, b.servers) {
			if err := r.beget(ctx, b.servers); err != nil {
				r.log.Error("the cluster cannot begin", "err", err)
			}
		}
	}
}

// queryBirth is the judgement of one round of queries. Its founder is NoMember as long as no
// cluster can begin, with the reason in the log.
func (r *Replica) queryBirth(ctx context.Context, since time.Time) birth {
	var others []MemberID
	for _, m := range r.cfg.Members {
		if m.ID != r.cfg.ID {
			others = append(others, m.ID)
		}
	}
	own := peer.Hello{State: r.state(), Disk: r.cfg.Peers.Disk, Cluster: r.roster.Cluster(),
		Listed: peer.Sum(r.cfg.Members), Imported: r.brought}
	b := judgeBirth(&r.cfg, own, r.helloAll(ctx, others))
	late := time.Since(since) > birthPatience
	switch {
	case r.state() == peer.Used:
	case b.cluster != 0 && b.foreign && r.brought != (peer.Imported{}) && !mutant.On(mutant.ImportJoins):
		r.disk.Stop(r.cfg.Stores.Retire(fmt.Sprintf("cluster %v exists already, and does not count this disk, %v: "+
			"its data count, not those that were imported here", b.cluster, own.Disk)))
	case b.cluster != 0:
		if late {
			r.trouble.Warn("join", "waiting to be taken in by a cluster that exists: when a majority of its members has the server lines of "+
				"this one, or, with reconfigEnabled, after 'lockkeeper cluster add'", "cluster", b.cluster, "disk", own.Disk)
		}
	case len(b.waits) > 0 || r.cfg.Lost:
		if late {
			r.trouble.Warn("birth", "the first start of a cluster needs an answer of each of its voters; members that have never "+
				"worked and do not run can be left out: lockkeeper serve -without N", "waiting", strings.Join(b.waits, "; "))
		}
	default:
		return b
	}
	return birth{founder: NoMember}
}

// birthPatience is how long a first start may take without a line in the log.
const birthPatience = 5 * time.Second

// beget writes the first configuration of a cluster with these servers, behind what this member has
// imported, then the id of the cluster, and stands for election. A start that finds the first
// without the second computes it again (checkMembers). An imported snapshot is written again with
// the configuration: others have to be sent it, and take none without.
func (r *Replica) beget(ctx context.Context, servers []raft.Server) error {
	index, term := r.brought.Index, r.brought.StateTerm
	now := max(r.raft.CurrentTerm(), term, 1)
	configuration := raft.Configuration{Servers: servers}
	if r.brought != (peer.Imported{}) {
		state := r.Freeze()
		err := r.cfg.Stores.WriteSnapshot(configuration, index, term, state)
		state.Release()
		if err != nil {
			return err
		}
	}
	entry := &raft.Log{Index: index + 1, Term: now, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configuration)}
	request := raft.AppendEntriesRequest{Term: now, PrevLogEntry: index, PrevLogTerm: term, Entries: []*raft.Log{entry}}
	if err := r.transport.Append(ctx, &request); err != nil {
		return err
	}
	cluster := peer.BirthOf(servers)
	if err := r.join(cluster); err != nil {
		return err
	}
	r.log.Info("a cluster begins", "cluster", cluster, "founder", r.self, "servers", len(servers))
	r.transport.Stand(ctx)
	return nil
}

var errOtherCluster = errors.New("quorum: another cluster")

// join makes a cluster this member's, for good.
func (r *Replica) join(cluster peer.ClusterID) error {
	r.joining <- struct{}{}
	defer func() { <-r.joining }()
	switch known := r.roster.Cluster(); known {
	case cluster:
		return nil
	case 0:
	default:
		return fmt.Errorf("%w: this disk belongs to cluster %v, not to %v", errOtherCluster, known, cluster)
	}
	if err := r.cfg.Stores.SetNumber(store.Cluster, uint64(cluster)); err != nil {
		r.log.Error("cannot record the cluster", "err", err)
		return err
	}
	r.roster.SetCluster(cluster)
	return nil
}
