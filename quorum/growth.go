package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/store"
)

// A member that stood alone becomes the first one of a cluster when it is started with server
// lines. Its log has one voter, itself, so all that it ever answered is on its disk, and it leads
// by itself; the change loop then takes in the other members of its file like new ones. It
// holds its leadership back until every other voter of the file has answered that it has no data:
// two members that both stood alone would else begin two clusters with the same lines. What makes
// it a member of a cluster for good is an address in raft's configuration, which replaces
// peer.AloneAddr. The argument is in docs/decisions/019-members-of-the-files.md.

// growthMark is the address of a server in raft's configuration that is one of a cluster.
func growthMark(id raft.ServerID) raft.ServerAddress { return raft.ServerAddress(id) }

// stoodAlone reports whether raft counts just this member, as one that stands alone.
func (r *Replica) stoodAlone() bool {
	servers := r.servers()
	return len(servers) == 1 && servers[0].Address == peer.AloneAddr && servers[0].ID == r.self
}

// tryGrow lets this member lead once it may begin a cluster with its data.
func (r *Replica) tryGrow(ctx context.Context, since time.Time) {
	for range 2 { // what has changed during the first round shows in a second one
		var others []MemberID
		for _, m := range r.cfg.Members {
			if m.ID != r.cfg.ID {
				others = append(others, m.ID)
			}
		}
		waits := judgeGrowth(&r.cfg, r.roster.Cluster(), r.helloAll(ctx, others))
		if len(waits) == 0 {
			continue
		}
		if time.Since(since) > birthPatience {
			r.trouble.Warn("grow", "this member stood alone, and begins a cluster with its data when each other voter of its server lines "+
				"has answered that it has none; members that have never worked and do not run can be left out: "+
				"lockkeeper serve -without N", "waiting", strings.Join(waits, "; "))
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	r.log.Warn("this member stood alone, and begins a cluster with its data: the others get them", "cluster", r.roster.Cluster(),
		"members", len(r.cfg.Members))
	r.growing.Store(false)
	signal(r.grown)
}

// judgeGrowth says for whom a member that stood alone waits, and why, before it begins a cluster
// with its data.
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
			wait(m, "has data of its own, of cluster %v: if those of member %d count, stop it and move its data directory away", h.Cluster, cfg.ID)
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
func (r *Replica) grow() error {
	f := r.raft.AddVoter(r.self, growthMark(r.self), 0, r.peerTimeout())
	endWith(f, r.batcher.down)
	if err := f.Error(); err != nil {
		return err
	}
	return recordStanding(&r.cfg.Stores, r.servers())
}

// renumber makes stores of a member that stood alone those of member id: a member alone needs no
// number. The log names its only voter by number and disk, so a configuration with the new name is
// added; it is committed, as the disk is the only one that counts. It changes no other stores.
func renumber(s *store.Stores, id MemberID) error {
	identity, err := s.Identity()
	if err != nil || identity.Disk == 0 || identity.Owner == uint64(id) {
		return nil // claim says what is wrong, if anything is
	}
	v, err := Survey(*s)
	if err != nil || len(v.Servers) != 1 || v.Servers[0].Address != peer.AloneAddr {
		return err
	}
	servers := aloneConfiguration(peer.ServerID(id, v.Disk))
	entry := &raft.Log{Index: v.LastIndex + 1, Term: v.LastTerm, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(servers)}
	if err := s.Log.StoreLog(entry); err != nil {
		return fmt.Errorf("quorum: write log: %w", err)
	}
	return s.SetIdentity(store.Identity{Owner: uint64(id), Disk: identity.Disk})
}
