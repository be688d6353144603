package session

import (
	"sync/atomic"
	"time"

	"lockkeeper/internal/clock"
)

// A member's part in the leases (promise C6 of the contract).
//
// The member reports the sessions that it heard from to the leader, which extends their leases and
// confirms it. The confirmation counts from the moment before the report was sent, or from the last
// proof of leadership, whichever is earlier: no leader expires the session before that moment plus
// its timeout T.
//
// A client that receives nothing for 2/3 T considers itself disconnected. So a member sends a
// client nothing at all while the newest confirmation is older than T/3: then the client considers
// itself disconnected before its session can expire. When it is older than 2/3 T although the
// client was heard from, the member closes the connection, so that the client tries another one.
//
//	confirmed          +T/3                 +2/3 T                +T
//	   |  may answer     |  holds back         |  disconnects       |  may expire
//	   |------------------------------------------------------------|-> time
//	        last byte ---|---- client's 2/3 T of silence ----|
//
// All instants are of the clock that counts suspends (clock.Clock.Now); wall clocks may jump. A
// member that was suspended holds no lease when it wakes: a confirmation that counts from before
// the wake-up does not count any more. docs/decisions/002-leases-that-silence-a-member.md has the
// argument.

// lease is the member's knowledge of one session's lease.
type lease struct {
	at        *instants
	timeout   int64        // nanoseconds
	confirmed atomic.Int64 // the lease runs until this instant plus timeout at least
	openSince atomic.Int64 // since when it was heard from without a confirmation, 0 if not
	waiting   atomic.Bool  // heard from since the last report: the session is in leaseReports
	// local is set in read-only mode, in which there is no leader: confirmed is then when the
	// client was last heard from.
	local bool
}

func (l *lease) init(at *instants, timeout time.Duration, since int64) {
	l.at, l.timeout = at, int64(timeout)
	l.confirmed.Store(since)
}

func (l *lease) age(now int64) int64 { return now - l.confirmed.Load() }

// sendable is for how long, from the instant now, bytes may be sent to the client; 0 or less: they
// may not.
func (l *lease) sendable(now int64) int64 {
	if l.local {
		return l.timeout
	}
	confirmed := l.confirmed.Load()
	if woke := l.at.clock.Woke(); !woke.IsZero() && confirmed < l.at.instant(woke) {
		return 0
	}
	return confirmed + l.timeout/3 - now
}

// mayAnswer reports whether bytes may be sent to the client, as far as is known without a look
// whether the machine was suspended just now: sendUntil has it.
func (l *lease) mayAnswer() bool { return l.sendable(l.at.recent()) > 0 }

// sendUntil is the instant until which bytes may be sent to the client, for the deadline of the
// write that follows.
func (l *lease) sendUntil() time.Time {
	now := time.Now() // before the clock is read: this process may be stopped in between
	return now.Add(time.Duration(l.sendable(l.at.since())))
}

// overdue reports whether the client was heard from, and may not be answered because the leader has
// not confirmed that.
func (l *lease) overdue(now int64) bool {
	open := l.openSince.Load()
	return !l.local && open != 0 && now-open > l.timeout/6 && l.sendable(now) <= 0
}

// mustClose reports whether the connection must be closed.
func (l *lease) mustClose(now int64) bool {
	age, open := l.age(now), l.openSince.Load()
	if l.local {
		return age > l.timeout
	}
	if age > l.timeout*4/3 {
		// its session has expired on the majority, even if this member has not applied that yet
		return true
	}
	// A client that was silent for long has sent something: the leader may still confirm that.
	return age > l.timeout*2/3 && open != 0 && now-open > l.timeout/6
}

// instants are times in nanoseconds since base, by the clock of leases.
type instants struct {
	clock *clock.Clock
	base  time.Time
}

// since is the present instant in nanoseconds on the clock that counts suspends; never 0.
func (i *instants) since() int64 {
	return i.instant(i.clock.Now())
}

// recent is like since, costs less, and may overlook a suspend that nobody has noticed yet.
func (i *instants) recent() int64 {
	return i.instant(i.clock.Recent())
}

func (i *instants) instant(t time.Time) int64 { return int64(t.Sub(i.base)) + 1 }
