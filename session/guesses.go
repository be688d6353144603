package session

import (
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/wire"
)

const (
	// guessesPeriod is the time for which wrong passwords are remembered.
	guessesPeriod = time.Minute
	// guessesPerAddr is how many wrong passwords from one network are answered in a guessesPeriod,
	// guessesPerSession how many for one session.
	guessesPerAddr    = 60
	guessesPerSession = 60
	// guessesTracked bounds the networks that are remembered, and the sessions.
	guessesTracked = 4096
)

// guesses counts attaches with a wrong password. It never affects a client that has the right one:
// session ids are public, so a stranger could keep the holder of a session away otherwise.
type guesses struct {
	mu        sync.Mutex
	began     time.Time
	byAddr    map[netip.Prefix]int
	bySession map[wire.SessionID]int
}

// wrong counts a wrong password for a session. It reports whether the client is to be answered.
func (g *guesses) wrong(addr netip.Addr, id wire.SessionID, now time.Time) bool {
	network := connlimit.NetworkOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byAddr == nil || now.Sub(g.began) >= guessesPeriod {
		g.began, g.byAddr, g.bySession = now, map[netip.Prefix]int{}, map[wire.SessionID]int{}
	}
	return count(g.byAddr, network) <= guessesPerAddr && count(g.bySession, id) <= guessesPerSession
}

// count adds one for key, and returns the sum. A key for which there is no room counts as crowded.
func count[K comparable](m map[K]int, key K) int {
	n, ok := m[key]
	if !ok && len(m) >= guessesTracked {
		return max(guessesPerAddr, guessesPerSession) + 1
	}
	m[key] = n + 1
	return n + 1
}
