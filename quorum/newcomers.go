package quorum

import (
	"sync"
	"time"

	"lockkeeper/quorum/peer"
)

// newcomers are the disks of members that raft does not count, and that have queried this member
// lately: new members, or ones that have lost their disk. The change loop of the leader takes them
// in.
type newcomers struct {
	mu   sync.Mutex
	seen map[MemberID]newcomer
}

type newcomer struct {
	peer.Identity
	first, last time.Time // query
}

// noteNewcomer records the sender of a query, if raft counts another disk, or none, under its
// number.
func (r *Replica) noteNewcomer(asked peer.Identity) {
	servers := r.servers()
	if len(servers) == 0 || asked.Cluster != 0 && asked.Cluster != r.roster.Cluster() {
		return
	}
	for _, s := range servers {
		if s.ID == peer.ServerID(asked.Member, asked.Disk) {
			return
		}
	}
	r.newcomers.mu.Lock()
	defer r.newcomers.mu.Unlock()
	if r.newcomers.seen == nil {
		r.newcomers.seen = map[MemberID]newcomer{}
	}
	n := newcomer{asked, time.Now(), time.Now()}
	if known, ok := r.newcomers.seen[asked.Member]; ok && known.Identity == asked {
		n.first = known.first
	}
	r.newcomers.seen[asked.Member] = n
	r.membersMayDiffer()
}

// recentNewcomers are the newcomers that have queried this member lately. A blank one queries it
// each queryPauseMax, another one each peerTimeout (queryLoop).
func (r *Replica) recentNewcomers() (list []peer.Identity) {
	n := &r.newcomers
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, c := range n.seen {
		if time.Since(c.last) > 4*max(queryPauseMax, r.peerTimeout()) {
			delete(n.seen, id)
			continue
		}
		list = append(list, c.Identity)
	}
	return list
}

// persists reports whether the newcomer with that number has queried this member for a while.
func (r *Replica) persists(id MemberID) bool {
	r.newcomers.mu.Lock()
	defer r.newcomers.mu.Unlock()
	n, ok := r.newcomers.seen[id]
	return ok && n.last.Sub(n.first) > 3*r.peerTimeout()
}
