package simnet

import (
	"cmp"
	"maps"
	"slices"
	"syscall"
	"time"
)

// Cut stops all segments from one host to the other, including those in flight. The opposite
// direction is not touched, but for the acknowledgements (see the package's comment). Cutting twice
// is cutting once. A host cannot be cut from itself.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutLocked(from, to)
}

// Partition cuts both directions between a and b.
func (n *Network) Partition(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutLocked(a, b)
	n.cutLocked(b, a)
}

// Isolate partitions a host from all the others that exist.
func (n *Network) Isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(n.hosts)) {
		n.cutLocked(name, other)
		n.cutLocked(other, name)
	}
}

// Reconnect mends all links of a host.
func (n *Network) Reconnect(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(n.hosts)) {
		n.healLocked(n.linkLocked(name, other))
		n.healLocked(n.linkLocked(other, name))
	}
}

// Heal mends both directions between a and b; segments that were held back arrive.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.healLocked(n.linkLocked(a, b))
	n.healLocked(n.linkLocked(b, a))
}

// HealAll mends every link.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	byName := func(a, b *link) int {
		return cmp.Or(cmp.Compare(a.key.from, b.key.from), cmp.Compare(a.key.to, b.key.to))
	}
	for _, l := range slices.SortedFunc(maps.Values(n.links), byName) {
		n.healLocked(l)
	}
}

// Reset is a power cut followed by a reboot that takes no time: the host's listeners and
// connections are gone, and no peer is notified. Segments of the host that a cut had held back are
// lost; segments on their way arrive. Programs that still use the old *Host get errors; Host(name)
// is the new one.
func (n *Network) Reset(name string) { n.restart(name, (*Conn).vanishLocked) }

// Kill is kill -9 of the host's programs: as Reset, but the operating system survives and closes
// their connections, so that peers see EOF, or a reset where the programs had not read everything.
func (n *Network) Kill(name string) { n.restart(name, (*Conn).shutLocked) }

// Close kills the programs of all hosts, for the end of a test: goroutines that a library leaves
// behind must not wait for an answer any more.
func (n *Network) Close() {
	n.mu.Lock()
	names := slices.Sorted(maps.Keys(n.hosts))
	n.mu.Unlock()
	for _, name := range names {
		n.Kill(name)
	}
}

// restart ends a host's listeners and connections and makes its next incarnation.
func (n *Network) restart(name string, end func(*Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.hosts[name]
	if old == nil {
		return
	}
	old.dead = true
	for _, l := range slices.Collect(maps.Values(old.listeners)) {
		l.closeLocked(end)
	}
	for _, c := range old.sortedConns() {
		end(c)
	}
	h := newHost(n, name, old.addr)
	h.lastPort = old.lastPort // so that new connections do not look like old ones
	n.hosts[name], n.byAddr[old.addr] = h, h
}

// Break resets all connections between a and b, at both ends and at once, even across a cut.
func (n *Network) Break(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ha := n.hosts[a]
	if ha == nil {
		return
	}
	for _, c := range ha.sortedConns() {
		if c.peerName == b {
			c.failLocked(syscall.ECONNRESET)
			c.peer.failLocked(syscall.ECONNRESET)
		}
	}
}

func (n *Network) cutLocked(from, to string) {
	l := n.linkLocked(from, to)
	if from == to || l.down {
		return
	}
	l.down = true
	for _, p := range l.sortedPipes() {
		p.stallLocked()
	}
}

func (n *Network) healLocked(l *link) {
	if !l.down {
		return
	}
	l.down = false
	for _, p := range l.sortedPipes() {
		p.resumeLocked()
	}
	// Acknowledgements that this direction owes to the writers of the other.
	opposite := n.linkLocked(l.key.to, l.key.from)
	for _, p := range opposite.sortedPipes() {
		p.releaseAcksLocked()
	}
}

// retransmission returns when a sender that first lost something at since sends again, at or after
// now: since + RTO*(2^k - 1), and every two minutes once the steps would be longer.
func (cfg *Config) retransmission(since, now time.Time) time.Time {
	if cfg.RTO <= 0 || since.IsZero() {
		return now
	}
	at, step := since, cfg.RTO
	for at.Before(now) {
		at = at.Add(step)
		step = min(2*step, maxRTO)
	}
	return at
}
