package simnet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Host is one incarnation of a machine on the network. A program gets its Listen and Dial in place
// of package net's.
type Host struct {
	net  *Network
	name string
	addr netip.Addr

	// Guarded by net.mu.
	dead      bool // a newer incarnation has taken over
	listeners map[netip.AddrPort]*Listener
	conns     map[*Conn]struct{}
	usedPorts map[uint16]struct{} // ephemeral ports of open connections
	lastPort  uint16
}

func newHost(n *Network, name string, addr netip.Addr) *Host {
	return &Host{
		net: n, name: name, addr: addr,
		listeners: make(map[netip.AddrPort]*Listener),
		conns:     make(map[*Conn]struct{}),
		usedPorts: make(map[uint16]struct{}),
		lastPort:  lastPort,
	}
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Addr returns the host's address.
func (h *Host) Addr() netip.Addr { return h.addr }

// Listen opens a listener. network is "tcp" or "tcp4"; the host part of addr is empty (any
// address), the host's own name or address, or a loopback address, which only the host itself can
// reach; port 0 picks a free one. Errors are the ones of package net: EADDRINUSE, EADDRNOTAVAIL, an
// unknown network.
func (h *Host) Listen(network, addr string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: unresolved(addr), Err: err}
	}
	if !knownNetwork(network) {
		return fail(net.UnknownNetworkError(network))
	}
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return fail(errno("bind", syscall.ENETDOWN))
	}
	at, err := h.resolveLocked(addr, true)
	if err != nil {
		return fail(err)
	}
	if ip := at.Addr(); !ip.IsUnspecified() && !ip.IsLoopback() && ip != h.addr {
		return fail(errno("bind", syscall.EADDRNOTAVAIL))
	}
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), h.freePortLocked())
	}
	for other := range h.listeners {
		if other.Port() == at.Port() && (other.Addr() == at.Addr() || other.Addr().IsUnspecified() ||
			at.Addr().IsUnspecified()) {
			return fail(errno("bind", syscall.EADDRINUSE))
		}
	}
	l := newListener(h, at)
	h.listeners[at] = l
	return l, nil
}

// Dial opens a connection, with the errors of a net.Dialer: ECONNREFUSED when nobody listens, an
// i/o timeout or "operation was canceled" when ctx ends first. Over a cut it hangs until ctx ends,
// Config.DialTimeout has passed, or the cut is healed.
func (h *Host) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: unresolved(addr), Err: err}
	}
	if !knownNetwork(network) {
		return fail(net.UnknownNetworkError(network))
	}
	if err := ctx.Err(); err != nil {
		return fail(fromContext(err))
	}
	c, err := h.startDial(addr)
	if err != nil {
		return fail(err)
	}
	giveUp := time.NewTimer(h.net.cfg.DialTimeout)
	defer giveUp.Stop()
	select {
	case <-c.opened:
	case <-giveUp.C:
		c.abandon(errno("connect", syscall.ETIMEDOUT))
	case <-ctx.Done():
		c.abandon(fromContext(ctx.Err()))
	}
	if err := c.dialResult(); err != nil {
		return fail(err)
	}
	return c, nil
}

// DialTimeout is Dial with a timeout in place of a context, the form that
// raft's StreamLayer and the ZooKeeper client want. A timeout of 0 is none.
func (h *Host) DialTimeout(network, addr string, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return h.Dial(ctx, network, addr)
}

// startDial makes both ends of a connection and sends the SYN. Which program
// answers it, if any, is settled when it arrives.
func (h *Host) startDial(addr string) (*Conn, error) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return nil, errno("connect", syscall.ENETDOWN)
	}
	to, err := h.resolveLocked(addr, false)
	if err != nil {
		return nil, err
	}
	target, from := n.byAddr[to.Addr()], h.addr
	if to.Addr().IsLoopback() {
		target, from = h, to.Addr()
	}
	if target == nil {
		return nil, errno("connect", syscall.EHOSTUNREACH)
	}
	n.stats.Dials++
	port := h.freePortLocked()
	h.usedPorts[port] = struct{}{}
	c := n.connectLocked(h, target.name, netip.AddrPortFrom(from, port), to)
	h.conns[c] = struct{}{}
	c.out.sendLocked(segment{kind: segSYN})
	return c, nil
}

// listenerLocked finds who listens at an address of this host, or nil.
func (h *Host) listenerLocked(at netip.AddrPort) *Listener {
	if l := h.listeners[at]; l != nil {
		return l
	}
	return h.listeners[netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())]
}

// resolveLocked turns host:port into an address: names are the network's hosts and localhost.
func (h *Host) resolveLocked(hostport string, listen bool) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return netip.AddrPort{}, &net.AddrError{Err: "invalid port", Addr: hostport}
	}
	var addr netip.Addr
	switch ip, err := netip.ParseAddr(host); {
	case err == nil:
		addr = ip.Unmap()
		if addr == netip.IPv6Unspecified() {
			addr = netip.IPv4Unspecified()
		}
		if !listen && addr.IsUnspecified() {
			addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	case host == "" && listen:
		addr = netip.IPv4Unspecified()
	case host == "" || host == "localhost":
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		other := h.net.hosts[host]
		if other == nil {
			return netip.AddrPort{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		addr = other.addr
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// freePortLocked returns the next ephemeral port that neither a connection nor
// a listener of this host has.
func (h *Host) freePortLocked() uint16 {
	listening := make(map[uint16]bool, len(h.listeners))
	for at := range h.listeners {
		listening[at.Port()] = true
	}
	for range lastPort - firstPort + 1 {
		h.lastPort++
		if h.lastPort > lastPort {
			h.lastPort = firstPort
		}
		if _, used := h.usedPorts[h.lastPort]; !used && !listening[h.lastPort] {
			return h.lastPort
		}
	}
	panic(fmt.Sprintf("simnet: host %s has used up its ports; a leak of connections?", h.name))
}

func (h *Host) sortedConns() []*Conn {
	return slices.SortedFunc(maps.Keys(h.conns), func(a, b *Conn) int { return cmp.Compare(a.out.id, b.out.id) })
}

func knownNetwork(network string) bool { return network == "tcp" || network == "tcp4" }

// unresolved is an address in an error, before it is known to be one.
type unresolved string

func (unresolved) Network() string  { return "tcp" }
func (a unresolved) String() string { return string(a) }
