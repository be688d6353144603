package peer

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxConns is how many connections a peer port takes. A member has some ten to each other one.
const DefaultMaxConns = 256

// guests are the connections that the peer port has accepted. They are bounded in total, for each address, for each member, and before
// they have said who they are. A full port closes the connection that has been silent for the longest rather than refuse a new one: members
// that are well are never silent for long where it matters, and open again what is closed.
type guests struct {
	max int // in total; the other bounds follow from it

	mu   sync.Mutex
	open map[*guest]struct{}
}

// guest is an accepted connection. It knows when it was last heard from.
type guest struct {
	net.Conn
	addr  netip.Addr   // zero if it has none that is known
	heard atomic.Int64 // when, in ns since the process began to count
	from  MemberID     // who it says it is
	named bool         // it has said so. Lock of both: guests.mu
}

// guestEpoch is when heard begins to count.
var guestEpoch = time.Now()

// quietGuest is for how long a connection must have been silent to be closed for the sake of another.
const quietGuest = time.Second

var errTooManyPeers = errors.New("peer: too many connections")

func newGuests(total int) *guests {
	return &guests{max: total, open: map[*guest]struct{}{}}
}

// newGuest wraps a connection that has just been accepted.
func newGuest(c net.Conn) *guest {
	g := &guest{Conn: c, addr: remoteIP(c)}
	g.hear()
	return g
}

func (g *guest) hear() { g.heard.Store(int64(time.Since(guestEpoch))) }

// Read implements net.Conn.
func (g *guest) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if n > 0 {
		g.hear()
	}
	return n, err
}

// remoteIP is where a connection comes from; the zero Addr if that is no IP address.
func remoteIP(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// perAddr bounds the connections of one address, unnamed those that have not said who they are, perMember those of one member.
func (gs *guests) perAddr() int   { return max(gs.max/2, 1) }
func (gs *guests) unnamed() int   { return max(gs.max/4, 1) }
func (gs *guests) perMember() int { return max(gs.max/8, 8) }

// admit takes in a connection, for which another one may be closed. Errors: errTooManyPeers.
func (gs *guests) admit(g *guest) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	silent := func(o *guest) bool { return !o.named }
	neighbour := func(o *guest) bool { return o.addr == g.addr }
	// Who has not even said who it is gives way at once: members say so with their first packet.
	if !gs.makeRoomLocked(silent, gs.unnamed(), 0) ||
		!gs.makeRoomLocked(func(o *guest) bool { return silent(o) && neighbour(o) }, gs.unnamed()/2, 0) ||
		!gs.makeRoomLocked(neighbour, gs.perAddr(), quietGuest) ||
		!gs.makeRoomLocked(func(*guest) bool { return true }, gs.max, quietGuest) {
		return errTooManyPeers
	}
	gs.open[g] = struct{}{}
	return nil
}

// name takes note of the member that a connection says it is of. Errors: errTooManyPeers, net.ErrClosed.
func (gs *guests) name(g *guest, from MemberID) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if _, ok := gs.open[g]; !ok {
		return net.ErrClosed
	}
	if !gs.makeRoomLocked(func(o *guest) bool { return o.named && o.from == from }, gs.perMember(), quietGuest) {
		return errTooManyPeers
	}
	g.from, g.named = from, true
	return nil
}

// makeRoomLocked sees to it that there are less than limit of some connections, by closing the one that has been silent for the longest, if
// that is at least quiet. It reports whether there is room.
func (gs *guests) makeRoomLocked(among func(*guest) bool, limit int, quiet time.Duration) bool {
	n := 0
	var oldest *guest
	for o := range gs.open {
		if !among(o) {
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
	if time.Since(guestEpoch)-time.Duration(oldest.heard.Load()) < quiet {
		return false
	}
	delete(gs.open, oldest)
	_ = oldest.Conn.Close()
	return true
}

func (gs *guests) forget(g *guest) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.open, g)
}

func (gs *guests) count() int {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return len(gs.open)
}
