package simtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// neighbour is a second cluster, of members with the same numbers, on the network of the first. Now
// and then the addresses of a member of each are exchanged. Nobody gets the data, or the cluster
// id, of the other cluster, and the second one works all the time (C1).
type neighbour struct {
	x, y      *cluster
	ids       map[*cluster]peer.ClusterID
	written   int  // nodes below neighbourPath
	exchanged bool // addresses are at present
	exchanges int
}

// neighbourPath is where all nodes of the second cluster are.
const neighbourPath = "/neighbour"

// newNeighbour starts a second cluster beside x, which works.
func newNeighbour(x *cluster, seed uint64) *neighbour {
	s := directedShape
	s.snapCount, s.trailing, s.anyPeerAddr = 20, 5, x.shape.anyPeerAddr
	n := &neighbour{x: x, y: clusterOn(x.t, x.net, "10.0.9.", s, seed^1<<40, x.journal.of("neighbour "))}
	x.exchanged = func() bool { return n.exchanged }
	n.y.each((*member).start)
	n.ids = map[*cluster]peer.ClusterID{}
	for _, c := range []*cluster{x, n.y} {
		n.ids[c] = c.awaitLeader().running().Replica().Cluster()
	}
	if n.y.awaitLeader().write(neighbourPath) {
		n.write()
	}
	return n
}

// write has a client of a member with its own address create a node. The other two are enough.
func (n *neighbour) write() {
	if !n.y.members[0].write(fmt.Sprintf("%s/n%d", neighbourPath, n.written)) {
		n.x.t.Errorf("after %v: the neighbour answers no write for 15 s though nothing is wrong with it but an address", n.x.journal.age())
		return
	}
	n.written++
}

// apart checks that no member has anything of the other cluster.
func (n *neighbour) apart() {
	for _, c := range []*cluster{n.x, n.y} {
		for _, m := range c.machines() {
			p := m.running()
			if p == nil {
				continue
			}
			if id := p.Replica().Cluster(); id != 0 && id != n.ids[c] {
				n.x.t.Errorf("after %v: %s is of the cluster %v, and was to be of %v", n.x.journal.age(), m.name, id, n.ids[c])
			}
			p.view(func(s *znode.Store) {
				names, _, _ := s.Children("/", []znode.Identity{{Scheme: "super"}})
				if slices.ContainsFunc(names, func(name string) bool {
					return name != "zookeeper" && strings.HasPrefix(neighbourPath, "/"+name) == (c == n.x)
				}) {
					n.x.t.Errorf("after %v: %s has data of the other cluster: %v", n.x.journal.age(), m.name, names)
				}
			})
		}
	}
}

// watch checks that they stay apart, all the time.
func (n *neighbour) watch(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(250 * time.Millisecond):
			n.apart()
		}
	}
}

// whole checks that the neighbour has all that it has answered. Everything is healed.
func (n *neighbour) whole() {
	n.write()
	n.y.settled(30 * time.Second)
	for _, m := range n.y.members {
		for i := range n.written {
			if path := fmt.Sprintf("%s/n%d", neighbourPath, i); !m.has(path) {
				n.x.t.Errorf("after %v: %s of the neighbour has lost %s", n.x.journal.age(), m.name, path)
			}
		}
	}
}

// stop ends the neighbour.
func (n *neighbour) stop() {
	n.y.each((*member).stop)
	n.y.ending.Wait()
}

// exchange exchanges the addresses of a member of each cluster, for those who connect to them.
// Meanwhile no member gets a blank disk: one at the address of a member, with its number, would be
// taken for that member which has lost its disk.
func (n *nemesis) exchange() func() {
	b := n.neighbour
	if b == nil || b.exchanged || !b.x.complete() || !b.y.complete() {
		return func() {}
	}
	from, to := b.x.members[n.rng.IntN(len(b.x.members))], b.y.members[1+n.rng.IntN(len(b.y.members)-1)]
	n.note("addresses of %s and %s are exchanged", from.name, to.name)
	b.exchanges++
	b.exchanged = true
	b.x.redirect.Store(&map[string]string{from.name: to.name})
	b.y.redirect.Store(&map[string]string{to.name: from.name})
	b.breakConnections(from, to)
	n.pause(20)
	b.write()
	return func() {
		n.note("each has its address again")
		b.x.redirect.Store(nil)
		b.y.redirect.Store(nil)
		b.breakConnections(from, to)
		b.exchanged = false
	}
}

// breakConnections breaks the connections of the members at exchanged addresses: open ones would
// stay where they lead.
func (b *neighbour) breakConnections(of ...*member) {
	for _, m := range of {
		for _, o := range slices.Concat(b.x.machines(), b.y.machines()) {
			if o != m {
				b.x.net.Break(o.name, m.name)
			}
		}
	}
}

// complete reports whether all members run, each with the disk that the others count.
func (c *cluster) complete() bool {
	for _, m := range c.members {
		if p := m.running(); p == nil || p.failure() != nil {
			return false
		}
	}
	return c.leader() != nil && c.uncounted() == ""
}
