package zkdata

import (
	"fmt"
	"maps"
	"slices"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Store returns the state as lockkeeper keeps it: every node with all fields of its Stat, and every
// session with the password that ZooKeeper has given it, so that its client can reconnect.
// /zookeeper/config is left out: it names the members of the old ensemble. extended has the meaning
// that KindOf gives it. An error names the node or session that lockkeeper cannot have.
func (s *State) Store(extended bool) (*znode.Store, error) {
	store, err := znode.FromContent(znode.Content{
		Zxid: s.Zxid,
		Sessions: func(yield func(znode.Session) bool) {
			for _, id := range slices.Sorted(maps.Keys(s.Sessions)) {
				if !yield(znode.Session{ID: id, TimeoutMs: s.Sessions[id], Password: id.ZooKeeperPassword()}) {
					return
				}
			}
		},
		Nodes: func(yield func(znode.Node) bool) {
			for path, n := range s.Nodes() {
				if !yield(n.content(path, extended)) {
					return
				}
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("zkdata: %w", err)
	}
	return store, nil
}

func (n *Node) content(path string, extended bool) znode.Node {
	out := znode.Node{
		Path: path, Data: n.Data, ACL: n.ACL, Czxid: n.Czxid, Mzxid: n.Mzxid, Pzxid: n.Pzxid,
		CtimeMs: n.CtimeMs, MtimeMs: n.MtimeMs, Version: n.Version, Creates: n.Creates, Aversion: n.Aversion,
	}
	switch KindOf(n.Owner, extended) {
	case Ephemeral:
		out.Session = wire.SessionID(n.Owner)
	case TTL:
		out.TTLMs = TTLMs(n.Owner)
	case Container:
		out.Container = true
	}
	return out
}

// FromStore returns a state of lockkeeper as ZooKeeper keeps it. It leaves out sessions with a
// password that ZooKeeper would not accept, and their ephemeral nodes; left is the number of these
// sessions.
func FromStore(store *znode.Store) (s *State, left int) {
	s = emptyState()
	s.Zxid = store.Zxid()
	for info := range store.Sessions().All() {
		if info.Password == info.ID.ZooKeeperPassword() {
			s.Sessions[info.ID] = info.TimeoutMs
		} else {
			left++
		}
	}
	var nodes []znode.Node
	for n := range store.AllNodes() {
		if _, known := s.Sessions[n.Session]; n.Session == 0 || known {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b znode.Node) int { return cmpPaths(a.Path, b.Path) })
	for _, n := range nodes {
		out := &Node{Data: n.Data, ACL: n.ACL, Czxid: n.Czxid, Mzxid: n.Mzxid, Pzxid: n.Pzxid,
			CtimeMs: n.CtimeMs, MtimeMs: n.MtimeMs, Version: n.Version, Creates: n.Creates, Aversion: n.Aversion}
		switch {
		case n.Session != 0:
			out.Owner = int64(n.Session)
		case n.TTLMs != 0:
			out.Owner = ttlOwner | n.TTLMs
		case n.Container:
			out.Owner = ContainerOwner
		}
		path := n.Path
		if path == "/" {
			path = ""
		}
		s.add(path, out)
	}
	return s, left
}

// cmpPaths orders parents before children: a path is longer than its parent's.
func cmpPaths(a, b string) int { return len(a) - len(b) }
