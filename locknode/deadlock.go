package locknode

import "slices"

// Lock is a lock with its contenders, as [Resolve] returns them.
type Lock struct {
	Path       string
	Contenders []Contender
}

// Ref names a contender: Locks[Lock].Contenders[Contender].
type Ref struct{ Lock, Contender int }

// Edge is that one session waits for another one.
type Edge struct {
	Waiter, Holder int64
	Path           string // of the lock that it waits for
	// Within: the waiter holds a lock around the program that waits.
	Within bool
}

// Deadlock are sessions that wait for each other in a cycle.
type Deadlock struct {
	Sessions []int64 // in ascending order
	Edges    []Edge  // between them
	Waiting  []Ref   // the contenders of the cycle
}

// Deadlocks finds the sessions that wait, over any number of locks, for themselves. Its time and
// memory are linear in the number of contenders of locks that could be part of one.
//
// A session that waits for itself in one queue is no deadlock: programs share one among their
// threads. The holders of the locks around a contender ([Info].Within) do not release them before
// it has ended, so they wait for the same contenders.
func Deadlocks(locks []Lock) []Deadlock {
	g := newWaitGraph(locks)
	if g == nil {
		return nil
	}
	g.components()
	return g.cycles()
}

// waitGraph has a vertex for each session, and two for each contender: for all contenders up to it
// in its lock, and for the exclusive ones of them. So a queue of n has 5n edges, not n squared.
type waitGraph struct {
	locks    []Lock
	used     []int // the locks that are part of it
	sessions map[int64]int32
	ids      []int64 // of the first vertices, which are sessions
	edges    [][]int32
	part     []int32 // the strongly connected component of each vertex
}

// newWaitGraph returns nil if there can be no cycle: only a session that is in two queues, or that
// has locks around others, can be part of one.
func newWaitGraph(locks []Lock) *waitGraph {
	nodes := map[int64]int{}
	for _, l := range locks {
		for i := range l.Contenders {
			c := &l.Contenders[i]
			nodes[c.Session]++
			for _, s := range c.Info.WithinSessions() {
				nodes[s]++
			}
		}
	}
	g := &waitGraph{locks: locks, sessions: map[int64]int32{}}
	for n := range locks {
		cs := locks[n].Contenders
		waits := len(cs) > 1 && !cs[len(cs)-1].Held && !cs[len(cs)-1].MayHold
		if waits && slices.ContainsFunc(cs, func(c Contender) bool { return nodes[c.Session] > 1 }) {
			g.used = append(g.used, n)
		}
	}
	if len(g.used) == 0 {
		return nil
	}
	for _, n := range g.used {
		for i := range locks[n].Contenders {
			c := &locks[n].Contenders[i]
			g.session(c.Session)
			for _, s := range c.Info.WithinSessions() {
				g.session(s)
			}
		}
	}
	for _, n := range g.used {
		g.add(n)
	}
	return g
}

func (g *waitGraph) session(id int64) int32 {
	v, ok := g.sessions[id]
	if !ok {
		v = g.vertex()
		g.sessions[id] = v
		g.ids = append(g.ids, id)
	}
	return v
}

func (g *waitGraph) vertex(to ...int32) int32 {
	g.edges = append(g.edges, to)
	return int32(len(g.edges) - 1)
}

// add adds the vertices and edges of a lock.
func (g *waitGraph) add(n int) {
	cs := g.locks[n].Contenders
	all, exclusive := make([]int32, len(cs)+1), make([]int32, len(cs)+1) // of those before each
	all[0], exclusive[0] = g.vertex(), g.vertex()
	for i := range cs {
		c := &cs[i]
		own := g.session(c.Session)
		if !c.Held && !c.MayHold {
			// Its own session may be among those. That it reaches itself makes no cycle of two.
			to := all[i]
			if c.Kind == KindRead {
				to = exclusive[i]
			}
			g.edges[own] = append(g.edges[own], to)
			for _, s := range c.Info.WithinSessions() {
				v := g.session(s)
				g.edges[v] = append(g.edges[v], own)
			}
		}
		all[i+1] = g.vertex(all[i], own)
		if exclusive[i+1] = exclusive[i]; c.Kind != KindRead {
			exclusive[i+1] = g.vertex(exclusive[i], own)
		}
	}
}

// components finds the strongly connected components (Tarjan), without recursion: a queue is a
// chain as long as it is.
func (g *waitGraph) components() {
	n := len(g.edges)
	g.part = make([]int32, n)
	index, low := make([]int32, n), make([]int32, n)
	next, parts := int32(1), int32(0)
	var stack []int32
	type frame struct {
		v    int32
		edge int
	}
	var calls []frame
	for root := range n {
		if index[root] != 0 {
			continue
		}
		calls = append(calls[:0], frame{v: int32(root)})
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			v := f.v
			if f.edge == 0 {
				index[v], low[v] = next, next
				next++
				stack = append(stack, v)
			}
			if f.edge < len(g.edges[v]) {
				w := g.edges[v][f.edge]
				f.edge++
				switch {
				case index[w] == 0:
					calls = append(calls, frame{v: w})
				case g.part[w] == 0:
					low[v] = min(low[v], index[w])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].v
				low[up] = min(low[up], low[v])
			}
			if low[v] == index[v] {
				parts++
				for {
					w := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					g.part[w] = parts
					if w == v {
						break
					}
				}
			}
		}
	}
}

// cycles returns the components of more than one session.
func (g *waitGraph) cycles() (list []Deadlock) {
	members := map[int32][]int64{}
	for _, id := range g.ids {
		part := g.part[g.sessions[id]]
		members[part] = append(members[part], id)
	}
	at := map[int32]int{}
	for part, ids := range members {
		if len(ids) > 1 {
			slices.Sort(ids)
			list = append(list, Deadlock{Sessions: ids})
			at[part] = -1
		}
	}
	slices.SortFunc(list, func(a, b Deadlock) int { return slices.Compare(a.Sessions, b.Sessions) })
	for i := range list {
		at[g.part[g.sessions[list[i].Sessions[0]]]] = i
	}
	for _, n := range g.used {
		g.explain(n, at, list)
	}
	return list
}

// lastTwo are the two newest different sessions of a sequence.
type lastTwo [2]int64

func (l *lastTwo) add(session int64) {
	if l[0] != session {
		l[1], l[0] = l[0], session
	}
}

// other returns the newest that is not session; 0 if there is none.
func (l *lastTwo) other(session int64) int64 {
	if l[0] != session {
		return l[0]
	}
	return l[1]
}

// explain notes which contenders of a lock are part of the cycles, and for whom they wait.
func (g *waitGraph) explain(n int, at map[int32]int, list []Deadlock) {
	l := &g.locks[n]
	front := map[int32]*[2]lastTwo{} // by component: all in front, and the exclusive ones
	for i := range l.Contenders {
		c := &l.Contenders[i]
		part := g.part[g.sessions[c.Session]]
		k, ok := at[part]
		if !ok {
			continue
		}
		d, f := &list[k], front[part]
		if f == nil {
			f = &[2]lastTwo{}
			front[part] = f
		}
		if !c.Held && !c.MayHold {
			holder := f[0].other(c.Session)
			if c.Kind == KindRead {
				holder = f[1].other(c.Session)
			}
			if holder != 0 {
				d.Waiting = append(d.Waiting, Ref{n, i})
				d.Edges = append(d.Edges, Edge{Waiter: c.Session, Holder: holder, Path: l.Path})
			}
			for _, s := range c.Info.WithinSessions() {
				if s != c.Session && g.part[g.sessions[s]] == part {
					d.Edges = append(d.Edges, Edge{Waiter: s, Holder: c.Session, Path: l.Path, Within: true})
				}
			}
		}
		f[0].add(c.Session)
		if c.Kind != KindRead {
			f[1].add(c.Session)
		}
	}
}
