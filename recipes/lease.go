package recipes

import (
	"context"
	"time"
)

// lease is our knowledge of one ZooKeeper session: the cluster keeps it for at least two thirds of
// the session timeout after proof.
//
// proof is the time at which we *sent* the newest request of the session that the cluster has
// answered. A ZooKeeper server counts the timeout from when it *received* that request, which is
// later, so that the session cannot end before proof + timeout, however long the reply was under
// way and whenever this process got to see it. A lockkeeper member answers only while the session
// is certain to live for another two thirds of the timeout. All client libraries go by two thirds,
// and grants rely on it. With ZooKeeper the last third is for clocks that do not run at the same
// speed, and for the time in which a follower tells its leader of the sessions that it has heard
// from.
//
// Only requests that a majority has answered count: confirm's, and the creates that this package
// makes itself. A ZooKeeper follower that is cut off goes on answering pings and reads, and
// go-zookeeper takes any bytes that arrive as a sign of life, for seconds after the majority has
// given the lock to somebody else. (Three ZooKeepers 3.8.0, a session of 4 s, the follower cut from
// its leader: the grant is lost after 2.6 s, the next one has the lock after 5.6 s. Judged by
// pings, the first believes that it holds the lock for some 5 s beside the other.)
type lease struct {
	link  *link
	id    int64
	ended chan struct{} // closed when the session is over
	kick  chan struct{} // asks keep for a proof now; holds one request

	// Guarded by link.mu.
	endErr  error // why it ended; nil while it lives
	timeout time.Duration
	proof   time.Time // zero: none yet
	proved  chan struct{}
	grants  map[*Grant]struct{}
	waiting int         // acquirers that need a fresh proof
	alarm   *time.Timer // fires when the grants have to be given up
}

func newLease(k *link, id int64) *lease {
	return &lease{
		link:    k,
		id:      id,
		ended:   make(chan struct{}),
		kick:    make(chan struct{}, 1),
		timeout: k.timeout(),
		proved:  make(chan struct{}),
		grants:  make(map[*Grant]struct{}),
	}
}

// shortenLocked takes note of a timeout that was negotiated anew. It never grows: a new leader
// counts with the timeout of the session's creation until it has heard from us.
func (l *lease) shortenLocked(timeout time.Duration) {
	if timeout < l.timeout {
		l.timeout = timeout
		l.armLocked()
	}
}

// safeUntilLocked is the time from which on no grant of the session may be relied on, unless there
// is a new proof before it.
func (l *lease) safeUntilLocked() time.Time { return l.proof.Add(l.timeout * 2 / 3) }

// freshLocked reports whether the newest proof is young enough to hand out a grant on: a third of
// the timeout is left then to use it.
func (l *lease) freshLocked() bool {
	return !l.proof.IsZero() && time.Since(l.proof) < l.timeout/3
}

// interval is the time between two proofs while somebody needs them. ZooKeeper's followers pass on
// their sessions twice per tick; with a timeout of three ticks or more, that and the interval still
// fit into the spare third.
func (l *lease) intervalLocked() time.Duration { return l.timeout / 6 }

// prove takes note that a request that was sent at the given time was answered. It reports
// whether that proves anything of this session: go-zookeeper may have carried the request over into
// the next one.
func (l *lease) prove(sent time.Time) bool {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	l.link.observeLocked()
	// Order: first the check. Grants that had to be given up before this answer came stay lost,
	// though the session turns out to live.
	l.checkLocked()
	if l.endErr != nil {
		return false
	}
	if sent.After(l.proof) {
		l.proof = sent
		close(l.proved)
		l.proved = make(chan struct{})
		l.armLocked()
	}
	return true
}

// checkLocked gives up all grants when the cluster has been silent for too long.
func (l *lease) checkLocked() {
	if l.endErr == nil && len(l.grants) > 0 && !time.Now().Before(l.safeUntilLocked()) {
		l.dropLocked(ErrSilent)
	}
}

// armLocked sets the alarm for the moment at which checkLocked will act.
func (l *lease) armLocked() {
	if l.endErr != nil || len(l.grants) == 0 {
		return
	}
	d := time.Until(l.safeUntilLocked())
	if l.alarm == nil {
		l.alarm = time.AfterFunc(d, func() {
			l.link.mu.Lock()
			defer l.link.mu.Unlock()
			l.checkLocked()
			l.armLocked()
		})
		return
	}
	l.alarm.Reset(d)
}

func (l *lease) dropLocked(err error) {
	for g := range l.grants {
		g.loseLocked(err)
	}
}

// endLocked marks the session as over.
func (l *lease) endLocked(err error) {
	if l.endErr != nil {
		return
	}
	// A grant that was silent for too long before the end is told so: that happened first.
	l.checkLocked()
	l.endErr = err
	l.dropLocked(err)
	if l.alarm != nil {
		l.alarm.Stop()
	}
	close(l.ended)
}

// want registers one who needs the lease to be proved, or takes that back.
func (l *lease) want(on bool) {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	if !on {
		l.waiting--
		return
	}
	l.waiting++
	l.kickLocked()
}

// kickLocked makes keep look again whether there is something to do.
func (l *lease) kickLocked() {
	select {
	case l.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// admit makes g one of the session's grants as soon as the lease is fresh.
func (l *lease) admit(ctx context.Context, g *Grant) error {
	l.want(true)
	defer l.want(false)
	for {
		l.link.mu.Lock()
		l.link.observeLocked()
		if l.endErr != nil {
			defer l.link.mu.Unlock()
			return l.endErr
		}
		if l.freshLocked() {
			defer l.link.mu.Unlock()
			l.grants[g] = struct{}{}
			l.armLocked()
			return nil
		}
		proved := l.proved
		l.link.mu.Unlock()
		select {
		case <-proved:
		case <-l.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keep fetches proofs (see confirm) for as long as a grant or an acquirer needs them. It is a
// goroutine of its own, one per session, for a request blocks for as long as there is no
// connection.
func (l *lease) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failed := 0; ; {
		var tick <-chan time.Time
		if wait, needed := l.nextProof(failed); needed {
			timer.Reset(wait)
			tick = timer.C
		}
		select {
		case <-tick:
			sent := time.Now()
			if l.link.confirm() == nil && l.prove(sent) {
				failed = 0
			} else {
				failed++
			}
		case <-l.kick: // look again
		case <-l.ended:
			return
		}
	}
}

// nextProof tells whether a proof is needed, and how long that can wait, given the number of
// attempts that have failed in a row.
func (l *lease) nextProof(failed int) (wait time.Duration, needed bool) {
	l.link.mu.Lock()
	defer l.link.mu.Unlock()
	needed = len(l.grants) > 0 || l.waiting > 0
	if failed > 0 {
		return min(minPause<<min(failed-1, 10), l.intervalLocked()/4), needed
	}
	return time.Until(l.proof.Add(l.intervalLocked())), needed
}

// A majority is asked in one of two ways.
//
// On lockkeeper sync is a command of the log, so its answer proves a majority. On ZooKeeper it is
// not: the leader answers it from its own state. A leader of 3.8.0 with both followers stopped
// answered every sync until it gave up, after syncLimit, and with it a lock was held while the
// followers, cut off from that leader, gave it to somebody else. There a write is the proof: the
// leader answers it when a majority has it on disk. It is a multi without operations, which needs
// no node and no right. (The deletion of a node that cannot exist is no proof with
// enableEagerACLCheck: a server refuses that by itself, with NoAuth.)
//
// Which of the two it is the server says, in the answer that counts: lockkeeper answers a sync of
// the path syncQuestion with the path syncLinearizable. Every other server echoes the path. So the
// answer belongs to the member that has executed the sync, also after the client has moved; no node
// has to exist that somebody could make, hide or copy to another cluster; and it costs no request
// more than the sync.
const (
	syncQuestion     = "/zookeeper/sync"
	syncLinearizable = "/zookeeper/sync/linearizable"
)

// confirm returns nil when a majority has confirmed, after the call began, that the session lives.
// The server that answers has caught up with all that was acknowledged to anybody before the call.
func (k *link) confirm() error {
	k.mu.Lock()
	k.observeLocked()
	silent := k.silent == k.changed
	k.mu.Unlock()
	if silent {
		return k.writeNothing()
	}
	answer, err := k.conn.Sync(syncQuestion)
	if err != nil || answer == syncLinearizable {
		return err
	}
	k.mu.Lock()
	k.observeLocked()
	k.silent = k.changed // should the client have moved since, a write is right there too
	k.mu.Unlock()
	return k.writeNothing()
}

// writeNothing makes a write that changes nothing. When it returns nil, no earlier request of ours
// is under way any more: the cluster orders it behind everything that it will ever accept of the
// session's older connections. Later reads are at least as new as the moment of the call: a new
// connection, should there be one by then, goes to a server that has seen at least the write, for
// the client has told it the zxid of the answer.
func (k *link) writeNothing() error {
	_, err := k.conn.Multi()
	return err
}
