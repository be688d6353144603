package simnet

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// segmentKind is the effect of a segment that arrives.
type segmentKind uint8

const (
	segSYN    segmentKind = iota + 1 // asks for a connection
	segSYNACK                        // grants it; the dialer has its connection
	segACK                           // the listener has its connection
	segData
	segFIN // no data after this
	segRST // the sender has no such connection (any more)
)

type segment struct {
	kind segmentKind
	data []byte
	at   time.Time // of arrival, when nothing is cut
}

// pipe is one direction of a connection: the segments that src has sent and dst has not read. All
// of it is guarded by the network's mutex.
//
// Invariant: queue[i].at <= queue[i+1].at; a timer is armed for queue[0].at exactly while the link
// is up and the queue is not empty. Invariant: outstanding = data bytes in queue + in received +
// heldAcks, as long as neither end has gone.
type pipe struct {
	id       uint64 // the connection's
	net      *Network
	link     *link
	ackLink  *link // the opposite direction
	src, dst *Conn
	rng      *rand.Rand

	queue   []segment
	lastAt  time.Time // the latest arrival promised
	timer   *time.Timer
	pumping bool // pumpLocked is on the stack

	stalledAt time.Time   // since when nothing has got across a cut; zero: progress
	giveUp    *time.Timer // breaks the connection when that lasts too long

	received    [][]byte // at dst, not yet read
	unread      int      // bytes in received
	finArrived  bool
	outstanding int // bytes that take up the buffer
	heldAcks    int // of these, read, but dst's acknowledgement is cut off
}

// roomLocked returns the number of bytes that Write may send now.
func (p *pipe) roomLocked() int { return p.net.cfg.BufferBytes - p.outstanding }

// sendLocked puts a segment on its way. It takes ownership of the data.
func (p *pipe) sendLocked(s segment) {
	delay := p.link.latency
	if p.link.jitter > 0 {
		delay += time.Duration(p.rng.Int64N(int64(p.link.jitter)))
	}
	s.at = time.Now().Add(delay)
	if s.at.Before(p.lastAt) {
		s.at = p.lastAt
	}
	p.lastAt = s.at
	p.outstanding += len(s.data)
	p.queue = append(p.queue, s)
	p.link.pipes[p] = struct{}{}
	if p.link.down {
		p.stallLocked()
		return
	}
	if len(p.queue) == 1 { // else the timer is armed for the head
		p.pumpLocked()
	}
}

// pumpLocked delivers the due segments and arms the timer for the rest.
func (p *pipe) pumpLocked() {
	if p.pumping {
		return // the caller further up goes on with the queue
	}
	p.pumping = true
	now := time.Now()
	for len(p.queue) > 0 && !p.link.down && !p.queue[0].at.After(now) {
		s := p.queue[0]
		p.queue[0] = segment{}
		p.queue = p.queue[1:]
		p.progressLocked()
		if !p.dst.arriveLocked(p, s) {
			s.at = now.Add(synRetry)
			p.queue = append([]segment{s}, p.queue...)
		}
	}
	p.pumping = false
	if len(p.queue) > 0 && !p.link.down {
		p.armLocked(p.queue[0].at.Sub(now))
	}
	p.settleLocked()
}

func (p *pipe) armLocked(d time.Duration) {
	if p.timer != nil {
		p.timer.Reset(d)
		return
	}
	p.timer = time.AfterFunc(d, func() {
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		p.pumpLocked()
	})
}

// settleLocked forgets a pipe that no fault needs to know about.
func (p *pipe) settleLocked() {
	if len(p.queue) == 0 && p.heldAcks == 0 {
		delete(p.link.pipes, p)
	}
}

// stallLocked is called when the link is cut while something is in transit, or
// something is sent over a cut link.
func (p *pipe) stallLocked() {
	if len(p.queue) == 0 || !p.stalledAt.IsZero() {
		p.stopTimer()
		return
	}
	p.stopTimer()
	p.stalledAt = time.Now()
	if p.net.cfg.GiveUp < 0 {
		return
	}
	since := p.stalledAt
	p.giveUp = time.AfterFunc(p.net.cfg.GiveUp, func() {
		p.net.mu.Lock()
		defer p.net.mu.Unlock()
		if p.stalledAt.Equal(since) {
			p.src.failLocked(syscall.ETIMEDOUT)
			p.dropLocked() // also when src had been closed or reset before
		}
	})
}

// resumeLocked is called when the link is mended: segments that were held back are sent again when
// the retransmission timer, which knows nothing of that, fires.
func (p *pipe) resumeLocked() {
	if len(p.queue) == 0 {
		return
	}
	now := time.Now()
	at := p.net.cfg.retransmission(p.stalledAt, now).Add(p.link.latency)
	for i := range p.queue {
		if p.queue[i].at.Before(at) {
			p.queue[i].at = at
		}
	}
	p.lastAt = p.queue[len(p.queue)-1].at
	p.pumpLocked()
}

// progressLocked notes that something got across.
func (p *pipe) progressLocked() {
	p.net.stats.Segments++
	p.stalledAt = time.Time{}
	if p.giveUp != nil {
		p.giveUp.Stop()
		p.giveUp = nil
	}
}

// dropLocked forgets the segments in transit.
func (p *pipe) dropLocked() {
	for _, s := range p.queue {
		p.outstanding -= len(s.data)
	}
	p.queue = nil
	p.stalledAt = time.Time{}
	p.stopTimer()
	if p.giveUp != nil {
		p.giveUp.Stop()
		p.giveUp = nil
	}
	p.settleLocked()
}

func (p *pipe) stopTimer() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// takeLocked moves received bytes into b and gives the writer its room back.
func (p *pipe) takeLocked(b []byte) int {
	n := 0
	for n < len(b) && len(p.received) > 0 {
		k := copy(b[n:], p.received[0])
		n += k
		if k < len(p.received[0]) {
			p.received[0] = p.received[0][k:]
			break
		}
		p.received[0] = nil
		p.received = p.received[1:]
	}
	p.unread -= n
	if p.ackLink.down {
		p.heldAcks += n
		p.link.pipes[p] = struct{}{}
		return n
	}
	p.outstanding -= n
	p.src.writable.Broadcast()
	return n
}

// releaseAcksLocked is called when the opposite direction is mended.
func (p *pipe) releaseAcksLocked() {
	p.outstanding -= p.heldAcks
	p.heldAcks = 0
	p.settleLocked()
	p.src.writable.Broadcast()
}
