package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
)

// DefaultMaxConns bounds the connections to a peer port. A member has about ten to each other one.
const DefaultMaxConns = 256

// admission bounds the connections that the peer port has accepted: in total, for each address, for
// each member, and before their preface. A full port closes the connection that has been silent for
// the longest rather than refuse a new one: healthy members are never silent for long where it
// matters, and dial again.
type admission struct {
	max int // in total; the other bounds follow from it

	mu   sync.Mutex
	open *connlimit.Table[*inbound] // spare before they have said, and proved, who they are
}

// inbound is an accepted connection. It records when something was last received.
type inbound struct {
	net.Conn
	addr  netip.Addr   // zero if it has none that is known
	heard atomic.Int64 // ns since processStart
	from  MemberID     // of its preface
	named bool         // it has proved that. Lock of both, and of place: admission.mu
	place connlimit.Place[*inbound]

	// The goroutine that serves the connection reads from it, and has these: a byte that was read
	// ahead, and the number of bytes that may still be read; negative: any number.
	ahead   []byte
	allowed int
}

// TablePlace implements connlimit.Conn.
func (in *inbound) TablePlace() *connlimit.Place[*inbound] { return &in.place }

var errTooMuch = errors.New("peer: too many bytes before the proof")

// processStart is when heard begins to count.
var processStart = time.Now()

// minSilence is the silence after which a connection may be closed in favour of another.
const minSilence = time.Second

var errTooManyConns = errors.New("peer: too many connections")

func newAdmission(total int) *admission {
	return &admission{max: total, open: connlimit.New[*inbound](total, max(total/2, 1))}
}

// newInbound wraps a connection that has just been accepted.
func newInbound(c net.Conn) *inbound {
	in := &inbound{Conn: c, addr: remoteIP(c), allowed: -1}
	in.hear()
	return in
}

func (in *inbound) hear() { in.heard.Store(int64(time.Since(processStart))) }

// Read implements net.Conn.
func (in *inbound) Read(b []byte) (int, error) {
	if len(in.ahead) > 0 {
		n := copy(b, in.ahead)
		in.ahead = in.ahead[n:]
		return n, nil
	}
	if in.allowed >= 0 {
		if in.allowed == 0 && len(b) > 0 {
			return 0, errTooMuch
		}
		b = b[:min(len(b), in.allowed)]
	}
	n, err := in.Conn.Read(b)
	if in.allowed >= 0 {
		in.allowed -= n
	}
	if n > 0 {
		in.hear()
	}
	return n, err
}

// peek returns the next byte without taking it.
func (in *inbound) peek() (byte, error) {
	b := make([]byte, 1)
	if _, err := io.ReadFull(in, b); err != nil {
		return 0, err
	}
	in.ahead = b
	return b[0], nil
}

// remoteIP is where a connection comes from; the zero Addr if that is no IP address.
func remoteIP(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// unnamed bounds the connections that have not said, or not proved, who they are, perMember those
// of one member.
func (a *admission) unnamed() int   { return max(a.max/4, 1) }
func (a *admission) perMember() int { return max(a.max/8, 8) }

// admit admits a connection, for which another one may be closed. Errors: errTooManyConns.
func (a *admission) admit(in *inbound) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	unnamed := func(o *inbound) bool { return !o.named }
	sameAddr := func(o *inbound) bool { return o.addr == in.addr }
	unnamedOf := func(network netip.Prefix) func(o *inbound) bool {
		return func(o *inbound) bool { return unnamed(o) && connlimit.NetworkOf(o.addr) == network }
	}
	// A connection that has not said who it is may be closed at once: members say it with their
	// first packets. It is one of the address that has the most of these, so that a flood from a
	// few addresses closes its own.
	if a.open.LenSpare() >= a.unnamed() {
		a.makeSpaceLocked(unnamedOf(a.busiestLocked()), 1, 0)
	}
	if !a.makeSpaceLocked(unnamedOf(connlimit.NetworkOf(in.addr)), a.unnamed()/2, 0) ||
		a.open.HostFull(in.addr) && !a.makeSpaceLocked(sameAddr, 1, minSilence) ||
		a.open.Full() && !a.makeSpaceLocked(func(*inbound) bool { return true }, 1, minSilence) {
		return errTooManyConns
	}
	a.open.Add(in, in.addr)
	return nil
}

// busiestLocked returns the network with the most connections that have not said who they are.
func (a *admission) busiestLocked() (busiest netip.Prefix) {
	counts := map[netip.Prefix]int{}
	for o := range a.open.All() {
		if !o.named {
			from := connlimit.NetworkOf(o.addr)
			counts[from]++
			if counts[from] > counts[busiest] {
				busiest = from
			}
		}
	}
	return busiest
}

// name records who the sender of a connection has said, and proved, to be. Errors: errTooManyConns,
// net.ErrClosed.
func (a *admission) name(in *inbound, from MemberID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open.Has(in) {
		return net.ErrClosed
	}
	if !a.makeSpaceLocked(func(o *inbound) bool { return o.named && o.from == from }, a.perMember(), minSilence) {
		return errTooManyConns
	}
	in.from, in.named = from, true
	a.open.Keep(in)
	return nil
}

// makeSpaceLocked ensures that fewer than limit of the connections that match are open, by closing
// the one that has been silent for the longest, if that is at least silence. It reports whether it
// could.
func (a *admission) makeSpaceLocked(match func(*inbound) bool, limit int, silence time.Duration) bool {
	n := 0
	var oldest *inbound
	for o := range a.open.All() {
		if !match(o) {
			continue
		}
		n++
		if oldest == nil || o.heard.Load() < oldest.heard.Load() {
			oldest = o
		}
	}
	if n < max(limit, 1) {
		return true
	}
	if time.Since(processStart)-time.Duration(oldest.heard.Load()) < silence {
		return false
	}
	a.open.Remove(oldest)
	_ = oldest.Conn.Close()
	return true
}

func (a *admission) forget(in *inbound) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open.Remove(in)
}

// unproved counts the open connections that have not said, or not proved, who they are.
func (a *admission) unproved() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open.LenSpare()
}

func (a *admission) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open.Len()
}

// origins tells whether a connection can come from a member, by the addresses of that member in the
// roster. A host name may have several addresses; any of them will do. Only machines can be told
// apart: a process on the machine of a member, or one that can send from its address and receive
// there, passes for the member.
type origins struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	names map[string]*resolved
}

// resolved is the newest answer of the resolver for a host name.
type resolved struct {
	busy  chan struct{} // capacity 1: full while the fields below are in use, or looked up
	addrs []netip.Addr
	at    time.Time // when the query ended
}

const (
	// lookupTime bounds a query of the resolver.
	lookupTime = 2 * time.Second
	// resolvedFor is how long its answer is used, and lookupPause how long after it an address that
	// does not fit causes another query.
	resolvedFor = time.Minute
	lookupPause = time.Second
)

func newOrigins(lookup func(ctx context.Context, host string) ([]netip.Addr, error)) *origins {
	return &origins{lookup: lookup, names: map[string]*resolved{}}
}

// fits reports whether a connection from ip can be of a member that is at one of addrs, each
// host:port. An unspecified address such as 0.0.0.0 is skipped; if no other is left, every ip fits.
func (o *origins) fits(ctx context.Context, ip netip.Addr, addrs []string) bool {
	if !ip.IsValid() {
		return true // not of a network of this kind: tests have such connections
	}
	compared := false
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		known, literal := netip.ParseAddr(host)
		switch {
		case host == "" || literal == nil && known.IsUnspecified():
			continue
		case literal == nil && sameHost(known, ip):
			return true
		case literal != nil && o.resolves(ctx, host, ip):
			return true
		}
		compared = true
	}
	return !compared
}

// sameHost reports whether a connection from ip can be of a host at addr. All of the loopback is
// one host: the system chooses which of its addresses a connection comes from.
func sameHost(addr, ip netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return addr == ip || addr.IsLoopback() && ip.IsLoopback()
}

// resolves reports whether ip is an address of a host name. If it is none of those that are known,
// the resolver is queried again, but once in lookupPause at most. When a query fails, the answer
// before it counts.
func (o *origins) resolves(ctx context.Context, host string, ip netip.Addr) bool {
	o.mu.Lock()
	name := o.names[host]
	if name == nil {
		name = &resolved{busy: make(chan struct{}, 1)}
		o.names[host] = name
	}
	o.mu.Unlock()
	select {
	case name.busy <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-name.busy }()
	fits := func() bool {
		return slices.ContainsFunc(name.addrs, func(a netip.Addr) bool { return sameHost(a, ip) })
	}
	if age := time.Since(name.at); age < lookupPause || age < resolvedFor && fits() {
		return fits()
	}
	if addrs, err := o.lookup(ctx, host); err == nil {
		name.addrs = addrs
	}
	name.at = time.Now()
	return fits()
}
