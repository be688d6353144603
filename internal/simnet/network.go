package simnet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config says how a network behaves. The zero value is a network without
// latency on which Heal delivers at once.
type Config struct {
	// Seed determines the jitter of every connection.
	Seed uint64

	// Latency is the time a segment takes from one host to another, at least;
	// 0 is allowed. A host reaches itself without latency.
	Latency time.Duration

	// Jitter is added to the latency of each segment: evenly distributed in
	// [0, Jitter). Segments of one direction of a connection stay in order.
	Jitter time.Duration

	// BufferBytes bounds the bytes that one direction of a connection holds between the writer and
	// the reader. 0 means 64 KiB.
	BufferBytes int

	// RTO is the first retransmission timeout; each later one is twice as long as the one before,
	// up to 2 minutes. Segments that a cut held back arrive with the first retransmission after the
	// cut is healed, so a connection that was cut for a minute may stay silent for another. 0
	// means: at once when healed.
	RTO time.Duration

	// GiveUp breaks a connection with a sender that has got nothing across for so long (Linux:
	// about 15 minutes, tcp_retries2). 0 means 15 minutes, a negative value never.
	GiveUp time.Duration

	// KeepAlive is after how much silence an end probes its peer, and how often from then on. A
	// host that has forgotten the connection answers with a reset; after 9 probes without an answer
	// the connection breaks with ETIMEDOUT. As on Linux, nobody probes while something that was
	// sent is in transit: then GiveUp holds. 0 means no probes; Go's default is 15 s.
	KeepAlive time.Duration

	// DialTimeout ends a dial that nobody answers, when its context does not end
	// it before. 0 means 127 s (Linux: tcp_syn_retries = 6).
	DialTimeout time.Duration

	// Backlog is the number of connections that wait for Accept, per listener; a dial beyond that
	// tries again every second until there is room. 0 means 128.
	Backlog int
}

const (
	defaultBufferBytes = 64 << 10
	defaultGiveUp      = 15 * time.Minute
	defaultDialTimeout = 127 * time.Second
	defaultBacklog     = 128
	synRetry           = time.Second // the wait of a dial at a full backlog
	maxRTO             = 2 * time.Minute
	maxProbes          = 9
	firstPort          = 32768 // ephemeral ports, as Linux has them
	lastPort           = 60999
)

// Network is a set of hosts and the links between them. Its methods may be
// called from any goroutine.
type Network struct {
	cfg Config

	mu     sync.Mutex // guards everything below, and all hosts, links, connections
	hosts  map[string]*Host
	byAddr map[netip.Addr]*Host
	links  map[linkKey]*link
	lastID uint64 // of connections, in the order of their dials
	stats  Stats
}

// Stats counts the events of a network since it was made.
type Stats struct {
	Dials     int64 // connections asked for
	Segments  int64 // segments delivered, those without data included
	DataBytes int64 // bytes delivered
	Resets    int64 // connections ended by a reset or a timeout, each end counted
}

type linkKey struct{ from, to string }

// link is one direction between two hosts, by name: a link outlives the incarnations of its hosts.
type link struct {
	key     linkKey
	down    bool
	latency time.Duration
	jitter  time.Duration
	dialled uint64             // connections, to seed their jitter
	pipes   map[*pipe]struct{} // those with something in transit, or acks held
}

// New returns a network without hosts.
func New(cfg Config) *Network {
	if cfg.BufferBytes == 0 {
		cfg.BufferBytes = defaultBufferBytes
	}
	if cfg.GiveUp == 0 {
		cfg.GiveUp = defaultGiveUp
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = defaultDialTimeout
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = defaultBacklog
	}
	return &Network{
		cfg:    cfg,
		hosts:  make(map[string]*Host),
		byAddr: make(map[netip.Addr]*Host),
		links:  make(map[linkKey]*link),
	}
}

// Host returns the host of that name, which is made when it does not exist: an
// IP address as the name is the host's address, any other name gets the next
// free one of 10.0.0.0/16. After Reset or Kill it returns the new incarnation.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[name]; h != nil {
		return h
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		addr = n.freeAddrLocked()
	}
	if other := n.byAddr[addr]; other != nil {
		panic(fmt.Sprintf("simnet: address %v of host %q belongs to host %q", addr, name, other.name))
	}
	h := newHost(n, name, addr)
	n.hosts[name], n.byAddr[addr] = h, h
	return h
}

func (n *Network) freeAddrLocked() netip.Addr {
	for i := len(n.hosts) + 1; i < 1<<16; i++ {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if n.byAddr[addr] == nil {
			return addr
		}
	}
	panic("simnet: no address left")
}

// SetLatency changes the latency and jitter of segments that are sent from one host to the other
// from now on. Both are names of hosts.
func (n *Network) SetLatency(from, to string, latency, jitter time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(from, to)
	l.latency, l.jitter = latency, jitter
}

// Stats returns the counters.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Conns returns the number of open ends of connections. It counts an end until its Close, whether
// or not the other end is still there.
func (n *Network) Conns() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := 0
	for _, h := range n.hosts {
		open += len(h.conns)
	}
	return open
}

func (n *Network) linkLocked(from, to string) *link {
	key := linkKey{from, to}
	l := n.links[key]
	if l == nil {
		l = &link{key: key, pipes: make(map[*pipe]struct{})}
		if from != to {
			l.latency, l.jitter = n.cfg.Latency, n.cfg.Jitter
		}
		n.links[key] = l
	}
	return l
}

// sortedPipes is the order in which a fault reaches the connections of a link: the order of their
// dials, so that it does not depend on the order of a map.
func (l *link) sortedPipes() []*pipe {
	return slices.SortedFunc(maps.Keys(l.pipes), func(a, b *pipe) int { return cmp.Compare(a.id, b.id) })
}

// jitterSource returns the random source for the next connection over l.
func (n *Network) jitterSource(l *link) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s>%s#%d", l.key.from, l.key.to, l.dialled)
	l.dialled++
	return rand.New(rand.NewPCG(n.cfg.Seed, h.Sum64()))
}
