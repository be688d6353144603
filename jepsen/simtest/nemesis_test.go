package simtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"lockkeeper/jepsen"
)

// nemesis breaks a cluster, one fault after the other, sometimes two at once.
type nemesis struct {
	c *cluster
	// members are the targets of faults: the cluster's members, and the spare machine while it
	// works.
	members []*member
	reg     *registry
	// neighbour is another cluster; nil: there is none.
	neighbour *neighbour
	rng       *rand.Rand
	clients   []string // their hosts
	// gentle leaves out cuts between a client and the members that are healed
	// before the client's library has noticed.
	gentle bool
	counts map[string]int
	struck int // the faults that are not undone
	// changed counts the changes of the members that were answered.
	changed atomic.Int64
	tell    func(host, f string) // hears of faults of a client's own link; nil for nobody
}

// fault makes a fault and returns the function that ends it.
type fault struct {
	name string
	do   func(n *nemesis) (undo func())
}

var faults = []fault{
	{"isolate leader", func(n *nemesis) func() { return n.isolate(n.leader()) }},
	{"isolate member", func(n *nemesis) func() { return n.isolate(n.any()) }},
	{"isolate the holder's member", (*nemesis).isolateHolder},
	{"isolate the holder's member", (*nemesis).isolateHolder},
	{"what a member learns is late", (*nemesis).besiege},
	{"what a member learns is late", (*nemesis).besiege},
	{"cut one way", func(n *nemesis) func() {
		a, b := n.two()
		return n.cut(a, b)
	}},
	{"cut leader's sending", func(n *nemesis) func() {
		l := n.leader()
		var undo []func()
		for _, m := range n.members {
			if m != l {
				undo = append(undo, n.cut(l, m))
			}
		}
		return all(undo)
	}},
	{"cut leader's hearing", func(n *nemesis) func() {
		l := n.leader()
		var undo []func()
		for _, m := range n.members {
			if m != l {
				undo = append(undo, n.cut(m, l))
			}
		}
		return all(undo)
	}},
	{"bridge", func(n *nemesis) func() {
		a, b := n.two()
		n.note("partition m%d m%d", a.id, b.id)
		n.c.net.Partition(a.name, b.name)
		return func() { n.c.net.Heal(a.name, b.name) }
	}},
	{"power cut of leader", func(n *nemesis) func() { return n.down(n.leader(), (*member).powerCutInWrite) }},
	{"power cut of member", func(n *nemesis) func() { return n.down(n.any(), (*member).powerCutInWrite) }},
	{"power cut of all", func(n *nemesis) func() {
		var undo []func()
		for _, m := range n.members {
			undo = append(undo, n.down(m, (*member).powerCut))
		}
		return all(undo)
	}},
	{"kill leader", func(n *nemesis) func() { return n.down(n.leader(), (*member).kill) }},
	{"kill member", func(n *nemesis) func() { return n.down(n.any(), (*member).kill) }},
	{"kill two", func(n *nemesis) func() {
		a, b := n.two()
		return all([]func(){n.down(a, (*member).kill), n.down(b, (*member).kill)})
	}},
	{"power cut of some", func(n *nemesis) func() {
		some, _ := n.halves()
		var undo []func()
		for _, m := range some {
			undo = append(undo, n.down(m, (*member).powerCut))
		}
		return all(undo)
	}},
	{"halves", (*nemesis).splitInHalves},
	{"ring", (*nemesis).ring},
	{"slow links", func(n *nemesis) func() { return n.slowLinks(time.Second) }},
	{"stalling link", (*nemesis).stallingLink},
	{"crash loop", (*nemesis).crashLoop},
	{"contested elections", (*nemesis).contestedElections},
	{"failing disk", (*nemesis).failingDisk},
	{"leader behind its followers", (*nemesis).leaderBehind},
	{"leader transfer", (*nemesis).transfer},
	{"leader transfer", (*nemesis).transfer},
	{"members are changed", (*nemesis).changeMembers},
	{"members are changed", (*nemesis).changeMembers},
	{"members are changed", (*nemesis).changeMembers},
	{"restart in an orderly way", func(n *nemesis) func() { return n.down(n.any(), (*member).stop) }},
	{"slow disk", func(n *nemesis) func() {
		m := n.any()
		slow := time.Duration(1+n.rng.IntN(1000)) * time.Millisecond
		n.note("disk of m%d takes %v", m.id, slow)
		return n.slow(m, slow)
	}},
	{"break connections between members", func(n *nemesis) func() {
		a, b := n.two()
		n.note("break m%d m%d", a.id, b.id)
		n.c.net.Break(a.name, b.name)
		return func() {}
	}},
	{"break connections of a client", func(n *nemesis) func() {
		host := n.client()
		n.note("break %s", host)
		for _, m := range n.members {
			n.c.net.Break(host, m.name)
		}
		return func() {}
	}},
	{"suspend", (*nemesis).suspendMember},
	{"pause a process", (*nemesis).pauseProcess},
	{"disk hangs", (*nemesis).hangDisk},
	{"power cuts behind the writes of values", (*nemesis).cutAtValues},
	{"disk is lost", (*nemesis).loseDisk},
	{"disk is lost", (*nemesis).loseDisk},
	{"disks are lost, one after the other", (*nemesis).loseDisks},
	{"replaced disk comes back", (*nemesis).oldDiskBack},
	{"addresses of two clusters are exchanged", (*nemesis).exchange},
	{"addresses of two clusters are exchanged", (*nemesis).exchange},
	{"disk is lost, and old data are imported", (*nemesis).importAgain},
	{"disk is set back", (*nemesis).setDiskBack},
	{"damaged disk", (*nemesis).damageDisk},
	{"wall clock jumps", func(n *nemesis) func() {
		m := n.any()
		jump := time.Duration(n.rng.IntN(48*3600)-24*3600) * time.Second
		n.note("clock of m%d jumps by %v", m.id, jump)
		m.clock.Add(int64(jump))
		return func() {}
	}},
	{"cut client off", func(n *nemesis) func() {
		host := n.client()
		n.note("partition %s", host)
		tell := n.tell
		if n.gentle || tell == nil {
			tell = func(string, string) {}
		}
		tell(host, jepsen.FCut)
		for _, m := range n.members {
			n.c.net.Partition(host, m.name)
		}
		if n.gentle {
			time.Sleep(silence)
		}
		return func() {
			for _, m := range n.members {
				n.c.net.Heal(host, m.name)
			}
			tell(host, jepsen.FHeal)
		}
	}},
}

// round is some faults, one at a time or two, each followed by a rest that may
// be too short for the cluster to recover. It ends early when something is wrong.
func (n *nemesis) round() {
	for range 5 + n.rng.IntN(10) {
		if n.c.t.Failed() {
			return
		}
		undo := n.strike()
		n.pause(40)
		if n.rng.IntN(4) == 0 {
			second := n.strike()
			n.pause(10)
			second()
			n.pause(5)
		}
		undo()
		n.note("undone")
		n.pause(10)
	}
	n.c.net.HealAll()
	for _, m := range n.members {
		m.start()
		m.heal()
	}
	n.outdateImports()
	n.restoreMembers()
	n.note("all healed")
}

func (n *nemesis) strike() (undo func()) {
	f := faults[n.rng.IntN(len(faults))]
	n.counts[f.name]++
	n.note("%s", f.name)
	n.struck++
	heal := f.do(n)
	return func() {
		heal()
		n.struck--
	}
}

// pause waits for up to that number of seconds, often much less.
func (n *nemesis) pause(seconds float64) {
	x := n.rng.Float64()
	time.Sleep(time.Duration(x * x * seconds * float64(time.Second)))
}

func (n *nemesis) note(format string, args ...any) {
	n.c.journal.printf("nemesis: %s", fmt.Sprintf(format, args...))
}

func (n *nemesis) any() *member { return n.members[n.rng.IntN(len(n.members))] }

func (n *nemesis) two() (a, b *member) {
	i := n.rng.IntN(len(n.members))
	j := (i + 1 + n.rng.IntN(len(n.members)-1)) % len(n.members)
	return n.members[i], n.members[j]
}

// leader is the leader if there is one, else any member.
func (n *nemesis) leader() *member {
	if l := n.c.leader(); l != nil {
		return l
	}
	return n.any()
}

func (n *nemesis) memberAt(server string) *member {
	for _, m := range n.members {
		if m.clientAddr() == server {
			return m
		}
	}
	return n.any()
}

func (n *nemesis) client() string { return n.clients[n.rng.IntN(len(n.clients))] }

// isolate cuts a member off from the other members; clients still reach it.
func (n *nemesis) isolate(m *member) func() {
	n.note("isolate m%d", m.id)
	for _, o := range n.members {
		if o != m {
			n.c.net.Partition(m.name, o.name)
		}
	}
	return func() {
		for _, o := range n.members {
			n.c.net.Heal(m.name, o.name)
		}
	}
}

func (n *nemesis) cut(from, to *member) func() {
	n.note("cut m%d to m%d", from.id, to.id)
	n.c.net.Cut(from.name, to.name)
	return func() { n.c.net.Heal(from.name, to.name) }
}

func (n *nemesis) down(m *member, how func(*member)) func() {
	n.note("down m%d", m.id)
	how(m)
	return m.start
}

func (n *nemesis) slow(m *member, d time.Duration) func() {
	m.paceDisk(d)
	return func() { m.paceDisk(syncTime) }
}

func all(undo []func()) func() {
	return func() {
		for _, f := range undo {
			f()
		}
	}
}
