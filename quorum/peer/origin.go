package peer

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// origins says whether a connection may come from a member, by the addresses at which this one would look for it. A name may have several
// addresses; any of them will do. What this can tell apart are machines: whoever runs on the machine of a member, or can send
// in its name and receive what it is sent, passes for it.
type origins struct {
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	names map[string]*resolved
}

// resolved is what a name stood for.
type resolved struct {
	addrs []netip.Addr
	at    time.Time     // when it was looked up
	done  chan struct{} // closed when that has ended
}

const (
	// lookupTime bounds a question to the resolver.
	lookupTime = 2 * time.Second
	// resolvedFor is how long its answer is believed, and lookupPause how long after it somebody who does not fit makes it be asked again.
	resolvedFor = time.Minute
	lookupPause = time.Second
)

func newOrigins(lookup func(ctx context.Context, host string) ([]netip.Addr, error)) *origins {
	return &origins{lookup: lookup, names: map[string]*resolved{}}
}

// fits says whether a connection from ip can be of a member that is at one of addrs, each host:port. An address that
// says nothing, such as 0.0.0.0, is passed over; if no other is left, every ip fits.
func (o *origins) fits(ctx context.Context, ip netip.Addr, addrs []string) bool {
	if !ip.IsValid() {
		return true // not of a network of this kind: tests have such connections
	}
	said := false
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
		said = true
	}
	return !said
}

// sameHost says whether a connection from ip can be of a host at addr. All of the loopback is one host: the system
// chooses which of its addresses a connection comes from.
func sameHost(addr, ip netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return addr == ip || addr.IsLoopback() && ip.IsLoopback()
}

// resolves says whether ip is an address of a name. If it is none of those that are known, the resolver is asked, but not all the time.
func (o *origins) resolves(ctx context.Context, host string, ip netip.Addr) bool {
	fits := func(addrs []netip.Addr) bool {
		return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return sameHost(a, ip) })
	}
	o.mu.Lock()
	now := o.names[host]
	if now == nil {
		now = &resolved{done: make(chan struct{})}
		close(now.done)
	}
	age, ok := time.Since(now.at), fits(now.addrs)
	underWay := false
	select {
	case <-now.done:
	default:
		underWay = true
	}
	if !underWay && (ok && age < resolvedFor || !ok && age < lookupPause) {
		o.mu.Unlock()
		return ok
	}
	if !underWay {
		next := &resolved{addrs: now.addrs, at: time.Now(), done: make(chan struct{})}
		o.names[host], now = next, next
	}
	o.mu.Unlock()
	if underWay {
		select {
		case <-now.done:
		case <-ctx.Done():
		}
	} else {
		o.look(ctx, host, now)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return fits(now.addrs)
}

// look asks the resolver. If it does not answer, what it said before counts.
func (o *origins) look(ctx context.Context, host string, to *resolved) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, err := o.lookup(ctx, host)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		to.addrs = addrs
	}
	close(to.done)
}
