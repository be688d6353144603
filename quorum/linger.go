package quorum

import "time"

const (
	// lingerMin is the smallest batch after which commands linger.
	lingerMin = 2
	// lingerMax is how long they do at most.
	lingerMax = 4 * time.Millisecond
	// lingerRest is how many batches are not waited for after too few commands have arrived in
	// time.
	lingerRest = 8
)

// linger says how long commands wait after a batch of commands has completed: in the leader's
// batcher, where a batch is an entry, and in a follower's outbox, where it is the commands of its
// own clients that were applied together. docs/decisions/005-batching.md has the reasons.
//
// Closed-loop clients send their next request when they have been answered. If the commands that
// wait already went without theirs, the clients would form two groups that take turns, and each
// would wait for the other's entry. So the commands linger until as many have arrived, since the
// batch could first be answered, as it had, but no longer than the batch took, and no longer than
// lingerMax. If that many do not arrive in time, as with open-loop clients, which send at moments
// of their own, commands do not linger after the next lingerRest batches.
//
// The zero value is ready. Its owner's lock guards it.
type linger struct {
	answering bool      // clients may be answered already by the batch that is to complete next
	arrived   int       // commands that have arrived since
	want      int       // as many are waited for,
	until     time.Time // until then; zero: commands do not linger
	rest      int       // so many batches are not waited for
}

// answerable is called when clients may be answered by the next batch to complete. Repeated calls
// for one batch have no effect.
func (l *linger) answerable() {
	if !l.answering {
		l.answering, l.arrived = true, 0
	}
}

// arrive is called when n commands have arrived.
func (l *linger) arrive(n int) { l.arrived += n }

// completed is called when a batch of n commands has completed that was sent at sentAt.
func (l *linger) completed(now, sentAt time.Time, n int) {
	l.answering, l.until = false, time.Time{}
	switch {
	case l.rest > 0:
		l.rest--
	case n >= lingerMin:
		l.want, l.until = n, now.Add(min(now.Sub(sentAt), lingerMax))
	}
}

// left returns how long the commands that wait are to linger; 0: they are due.
func (l *linger) left(now time.Time) time.Duration {
	left := l.until.Sub(now)
	switch {
	case l.until.IsZero():
		return 0
	case l.arrived < l.want && left > 0:
		return left
	case l.arrived < l.want:
		l.rest = lingerRest
	}
	l.until = time.Time{}
	return 0
}
