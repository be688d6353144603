package session

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/internal/loglimit"
	"lockkeeper/wire"
)

// Session ids. Every id carries the number of the member that made it, so that no two members make
// the same, and begins to count at the wall clock's milliseconds since 1970, so that a restarted
// member does not begin where it began before. After the clock was set back ids may come again, but
// no generation of one (znode.Store), so nothing of the session before is taken for the new one's:
//
//	members 1 to 254   | member (8) | ms (40)           | count (16) |   as ZooKeeper builds them
//	member 0           | 0 (8) | 1 | 0 | ms (38)        | count (16) |
//	member 255         | 0 (8) | 1 | 1 | ms (38)        | count (16) |
//	read-only mode     | 0 (8) | 0 | member (8) | ms (31)| count (16) |
//
// Numbers in parentheses are widths in bits. The milliseconds lose their upper bits.
// ZooKeeper puts the numbers 0 and 255 into the top byte, too. Here 0 in the top byte means
// read-only mode, and 0xFF marks the owners of TTL nodes: for this reason ZooKeeper does not start
// a member 255 with TTL nodes enabled. No client looks into an id.
const (
	countBits   = 16
	globalBit   = 1 << 55 // below a top byte of 0: a session of the cluster, of member 0 or 255
	lastBit     = 1 << 54 // of member 255
	localBits   = 55      // all of the ids of read-only mode are below 1 << localBits
	localMember = 47      // where the number of the member begins in them
)

// firstID is the number before the first id of the sessions that a member creates after its start.
func firstID(member uint8, now time.Time) uint64 {
	count := uint64(now.UnixMilli()) << countBits
	switch member {
	case 0:
		return globalBit | count&(lastBit-1)
	case math.MaxUint8:
		return globalBit | lastBit | count&(lastBit-1)
	}
	return uint64(member)<<56 | count&(1<<56-1)
}

// firstLocalID is the same for the sessions of read-only mode.
func firstLocalID(member uint8, now time.Time) uint64 {
	return uint64(member)<<localMember | uint64(now.UnixMilli())<<countBits&(1<<localMember-1)
}

// isLocalID reports whether an id is of a session of read-only mode, on this member or another.
func isLocalID(id wire.SessionID) bool { return uint64(id)>>localBits == 0 }

// numbers are the ids of new sessions, and the nonces of commands.
type numbers struct{ nextID, nextNonce atomic.Uint64 }

func (n *numbers) init(member uint8, now time.Time) {
	n.nextID.Store(firstID(member, now))
	n.nextNonce.Store(uint64(now.UnixNano()))
}

func (n *numbers) newID() wire.SessionID { return wire.SessionID(n.nextID.Add(1)) }

// nonce numbers the commands that have no place in a session's order.
func (n *numbers) nonce() uint64 { return n.nextNonce.Add(1) | 1<<63 }

// newPassword returns a random password of a session.
func newPassword() (password wire.Password) {
	_, _ = rand.Read(password[:]) // never fails
	return password
}

// right reports whether a client has the password of a session.
func right(password wire.Password, given []byte) bool {
	return subtle.ConstantTimeCompare(password[:], given) == 1
}

// response is the answer to a client that gets its session.
func response(req *wire.ConnectRequest, c *connection, password []byte) *wire.ConnectResponse {
	return &wire.ConnectResponse{
		TimeoutMs:   int32(c.timeout().Milliseconds()),
		SessionID:   c.id(),
		Password:    password,
		HasReadOnly: req.HasReadOnly,
	}
}

// refusal tells a client that its session has expired. A client with a wrong password gets the
// same.
func refusal(req *wire.ConnectRequest) *wire.ConnectResponse {
	return &wire.ConnectResponse{Password: make([]byte, wire.PasswordLen), HasReadOnly: req.HasReadOnly}
}

// errGuesses says that clients came with wrong passwords too often.
var errGuesses = errors.New("session: too many attaches with a wrong password")

const (
	// guessesPeriod is the time for which wrong passwords are remembered.
	guessesPeriod = time.Minute
	// guessesPerAddr bounds the wrong passwords from one network that are answered in a
	// guessesPeriod; guessesPerSession those for one session.
	guessesPerAddr    = 60
	guessesPerSession = 60
	// guessesTracked bounds the networks that are remembered, and the sessions.
	guessesTracked = 4096
)

// guesses counts attaches with a wrong password. It never affects a client that has the right one:
// session ids are public, so a stranger could keep the holder of a session away otherwise.
type guesses struct {
	stats    *stats
	refusals *loglimit.Limiter

	mu        sync.Mutex
	began     time.Time
	byAddr    map[netip.Prefix]int
	bySession map[wire.SessionID]int
}

// refuse counts and logs a wrong password for the session of an attach. The error is errGuesses, if
// there were many lately: then the client gets no answer.
func (g *guesses) refuse(req *wire.ConnectRequest, addr netip.Addr) (*wire.ConnectResponse, error) {
	g.stats.inc(&g.stats.WrongPasswords)
	g.refusals.Warn("wrong password "+connlimit.NetworkOf(addr).String(), "attach refused: wrong password",
		"session", req.SessionID, "client", addr)
	if !g.wrong(addr, req.SessionID, time.Now()) {
		return nil, errGuesses
	}
	return refusal(req), nil
}

// wrong counts a wrong password for a session. It reports whether the client gets an answer.
func (g *guesses) wrong(addr netip.Addr, id wire.SessionID, now time.Time) bool {
	network := connlimit.NetworkOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byAddr == nil || now.Sub(g.began) >= guessesPeriod {
		g.began, g.byAddr, g.bySession = now, map[netip.Prefix]int{}, map[wire.SessionID]int{}
	}
	return count(g.byAddr, network) <= guessesPerAddr && count(g.bySession, id) <= guessesPerSession
}

// count adds one for key, and returns the sum. Without room for the key it returns more than any
// limit.
func count[K comparable](m map[K]int, key K) int {
	n, ok := m[key]
	if !ok && len(m) >= guessesTracked {
		return max(guessesPerAddr, guessesPerSession) + 1
	}
	m[key] = n + 1
	return n + 1
}
