package quorum

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"lockkeeper/znode"
)

// formerAddrs is how many addresses that a member once had are still tried: it may not have heard yet that it has moved.
const formerAddrs = 2

// roster is where the members are. The raft library knows members by their number only.
type roster struct {
	file    []Member             // of the configuration
	servers func() []raft.Server // those that raft counts

	reconfig bool // whether what has been agreed upon counts more than the file

	mu     sync.Mutex
	birth  uint32                // of the cluster that this member belongs to; 0 while it belongs to none
	agreed map[MemberID]string   // by what has been agreed, or is about to be
	coming map[MemberID]string   // by a change that is being carried out
	former map[MemberID][]string // the newest first
}

func newRoster(cfg *Config, servers func() []raft.Server) *roster {
	return &roster{file: cfg.Members, servers: servers, reconfig: cfg.Flags&znode.Reconfig != 0, agreed: map[MemberID]string{}, coming: map[MemberID]string{},
		former: map[MemberID][]string{}}
}

// update takes over what is known now.
func (r *roster) update(agreed, coming []znode.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := addrsOf(agreed)
	for id, old := range r.agreed {
		if addr, ok := now[id]; ok && addr != old {
			r.former[id] = slices.Insert(r.former[id], 0, old)
			r.former[id] = r.former[id][:min(len(r.former[id]), formerAddrs)]
		}
	}
	r.agreed, r.coming = now, addrsOf(coming)
}

func addrsOf(ms []znode.Member) map[MemberID]string {
	addrs := map[MemberID]string{}
	for _, m := range ms {
		addrs[MemberID(m.ID)] = m.PeerAddr()
	}
	return addrs
}

// addrs are the addresses at which a member may be, the most likely first. As long as reconfig is not enabled it is where this member's
// own file says, and nowhere else: members may see each other at different addresses.
func (r *roster) addrs(id MemberID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	add := func(addr string) {
		if addr != "" && !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	file := ""
	for _, m := range r.file {
		if m.ID == id {
			file = m.Addr
		}
	}
	if file != "" && !r.reconfig {
		return []string{file}
	}
	add(r.agreed[id])
	add(r.coming[id])
	for _, addr := range r.former[id] {
		add(addr)
	}
	add(file)
	return all
}

// isPeer says whether a member may take part, as far as this one knows. One that knows nothing yet takes who comes.
func (r *roster) isPeer(id MemberID) bool {
	servers := r.servers()
	if len(servers) == 0 || slices.ContainsFunc(servers, func(s raft.Server) bool { return memberID(s.ID) == id }) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, agreed := r.agreed[id]
	_, coming := r.coming[id]
	return agreed || coming
}

func (r *roster) cluster() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.birth
}

func (r *roster) setCluster(birth uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.birth = birth
}
