package simtest

import (
	"syscall"
	"time"
)

// The faults of this file take more than a line.

// halves are the members in two parts, by chance, neither of them empty.
func (n *nemesis) halves() (a, b []*member) {
	for len(a) == 0 || len(b) == 0 {
		a, b = nil, nil
		for _, m := range n.members {
			if n.rng.IntN(2) == 0 {
				a = append(a, m)
			} else {
				b = append(b, m)
			}
		}
	}
	return a, b
}

// splitInHalves cuts the members in two parts, which may both be too small.
func (n *nemesis) splitInHalves() func() {
	a, b := n.halves()
	var undo []func()
	for _, x := range a {
		for _, y := range b {
			undo = append(undo, n.partition(x, y))
		}
	}
	return all(undo)
}

// ring leaves each member its two neighbours.
func (n *nemesis) ring() func() {
	members := n.members
	order := n.rng.Perm(len(members))
	var undo []func()
	for i := range order {
		for j := i + 2; j < len(order) && (i > 0 || j < len(order)-1); j++ {
			undo = append(undo, n.partition(members[order[i]], members[order[j]]))
		}
	}
	return all(undo)
}

// slowDisks has the disks of all members take up to most for each write.
func (n *nemesis) slowDisks(most time.Duration) func() {
	var undo []func()
	for _, m := range n.members {
		undo = append(undo, n.slow(m, time.Duration(n.rng.Int64N(int64(most)))))
	}
	return all(undo)
}

func (n *nemesis) partition(a, b *member) func() {
	n.note("partition m%d m%d", a.id, b.id)
	n.c.net.Partition(a.name, b.name)
	return func() { n.c.net.Heal(a.name, b.name) }
}

// slowLinks delays the members' messages, some ways more than others, each connection for itself:
// so a later message on another connection arrives earlier.
func (n *nemesis) slowLinks(most time.Duration) func() {
	for _, from := range n.members {
		for _, to := range n.members {
			if from != to && n.rng.IntN(2) == 0 {
				latency := time.Duration(n.rng.Int64N(int64(most)))
				n.c.net.SetLatency(from.name, to.name, latency/2, latency/2+1)
			}
		}
	}
	return n.c.usualLatency
}

// stallingLink loses segments of one way between two members now and then: the bytes behind them
// wait until they have been sent again.
func (n *nemesis) stallingLink() func() {
	a, b := n.two()
	n.note("link from m%d to m%d stalls", a.id, b.id)
	for range 3 + n.rng.IntN(20) {
		n.c.net.Cut(a.name, b.name)
		time.Sleep(time.Duration(n.rng.IntN(400)) * time.Millisecond)
		n.c.net.Heal(a.name, b.name)
		time.Sleep(time.Duration(n.rng.IntN(1000)) * time.Millisecond)
	}
	return func() {}
}

// crashLoop has one member lose its power again and again, as soon as it runs.
func (n *nemesis) crashLoop() func() {
	m := n.any()
	n.note("crash loop of m%d", m.id)
	for range 2 + n.rng.IntN(6) {
		m.powerCut()
		m.start()
		time.Sleep(time.Duration(n.rng.IntN(1500)) * time.Millisecond)
	}
	return func() {}
}

// contestedElections takes the leader away while messages are slow, and has the others lose their
// power and come back between asking for votes and giving them. That is when a member could vote
// twice.
func (n *nemesis) contestedElections() func() {
	undoLinks := n.slowLinks(n.c.shape.tick / 2)
	if n.rng.IntN(2) == 0 { // saving a term and a vote takes long, too
		undoLinks = all([]func(){undoLinks, n.slowDisks(n.c.shape.tick / 4)})
	}
	l := n.leader()
	undo := n.isolate(l)
	for range 5 + n.rng.IntN(15) {
		time.Sleep(time.Duration(n.rng.IntN(400)) * time.Millisecond)
		m := n.any()
		switch n.rng.IntN(4) {
		case 0, 1:
			n.note("power of m%d fails for a moment", m.id)
			m.powerCut()
			m.start()
		case 2:
			undo()
			l = n.leader()
			undo = n.isolate(l)
		case 3:
			undo()
			a, b := n.two()
			undo = n.cut(a, b)
		}
	}
	undo()
	return undoLinks
}

// leaderBehind is for entries that a leader has sent to as few as make a majority with it, and does
// not have on its own disk: the disk is slow, and the other followers hear nothing. Then its power
// fails, and when it comes back those who did hear are cut off, so that it and the others decide.
func (n *nemesis) leaderBehind() func() {
	l := n.leader()
	var near, far []*member // of its followers
	for _, i := range n.rng.Perm(len(n.members)) {
		switch m := n.members[i]; {
		case m == l || m.observer:
		case len(near) < n.c.shape.voters/2:
			near = append(near, m)
		default:
			far = append(far, m)
		}
	}
	cut := func(some []*member) func() {
		var undo []func()
		for _, m := range some {
			undo = append(undo, n.isolate(m))
		}
		return all(undo)
	}
	slow := time.Duration(50+n.rng.IntN(1000)) * time.Millisecond
	n.note("disk of m%d takes %v", l.id, slow)
	quick := n.slow(l, slow)
	heal := cut(far)
	time.Sleep(time.Duration(n.rng.IntN(3000)) * time.Millisecond)
	start := n.down(l, (*member).powerCut)
	quick()
	heal()
	heal = cut(near)
	start()
	return heal
}

// failingDisk makes a member's disk fail all writes, or reads too. The member must stop; it is
// started again when the disk is well, as an operator would.
func (n *nemesis) failingDisk() func() {
	m := n.any()
	reads := n.rng.IntN(2) == 0
	n.note("disk of m%d fails; reads too: %v", m.id, reads)
	m.failDisk(syscall.EIO, reads)
	return func() {
		n.note("disk of m%d is well", m.id)
		if why := m.repairDisk(); why != nil {
			n.note("m%d gave up: %v", m.id, why)
		}
		m.start()
	}
}

// paceDisk has each write of the member's disk take so long from now on.
func (m *member) paceDisk(d time.Duration) {
	m.lock()
	defer m.unlock()
	m.disk.SetSyncTime(d)
}

// failDisk makes all writes of the member fail, and reads of its log if reads is true. While that
// is so it may give up, and is not started.
func (m *member) failDisk(err error, reads bool) {
	m.lock()
	defer m.unlock()
	m.diskFault = err
	m.disk.Fail(err)
	if reads {
		m.disk.FailReads(err)
	}
	if p := m.running(); p != nil {
		p.mayFail = true
	}
}

// repairDisk ends that, and the member's program if it has given up, and says why it has.
func (m *member) repairDisk() (why error) {
	m.lock()
	defer m.unlock()
	m.diskFault = nil
	m.disk.Hang(false)
	m.disk.Fail(nil)
	m.disk.FailReads(nil)
	p := m.running()
	if p == nil || p.failure() == nil {
		return nil
	}
	m.prog.Store(nil)
	m.c.wind(p)
	return p.failure()
}

// usualLatency restores the latencies between members after faults. In a cluster of distant
// machines they are longer.
func (c *cluster) usualLatency() {
	for _, from := range c.machines() {
		for _, to := range c.machines() {
			if from != to {
				c.net.SetLatency(from.name, to.name, latency, jitter+c.shape.wan)
			}
		}
	}
}

// valueWrite is the next write of a stable value.
type valueWrite struct {
	key  string        // "": of any
	done chan struct{} // closed behind it
}

// wrote is called behind each write of a stable value. It has the power fail there if somebody
// waits for that.
func (m *member) wrote(key string) {
	w := m.cutAtValue.Load()
	if w != nil && (w.key == "" || w.key == key) && m.cutAtValue.CompareAndSwap(w, nil) {
		close(w.done)
		time.Sleep(10 * time.Millisecond) // it is powerless by then
	}
}

// cutAtValues has the power of members fail right behind the write of a stable value, while there
// are elections.
func (n *nemesis) cutAtValues() func() {
	undo := func() {}
	for range 2 + n.rng.IntN(6) {
		m := n.any()
		undo()
		undo = n.isolate(n.leader())
		for range 1 + n.rng.IntN(3) {
			failing := &valueWrite{done: make(chan struct{})}
			m.cutAtValue.Store(failing)
			select {
			case <-failing.done:
				n.note("the power of m%d fails behind the write of a value", m.id)
				m.powerCut()
				m.start()
			case <-time.After(3 * time.Second):
				m.cutAtValue.Store(nil)
			}
		}
	}
	return undo
}
