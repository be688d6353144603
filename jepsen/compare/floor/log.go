package floor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
)

// answering is a connection with answers that are sent when the writes before them are durable.
type answering struct {
	conn net.Conn
	out  []byte // of the batch that waits; lock: the leader's or the forwarder's
}

// writes makes writes durable. submit takes writes of a connection, with their answers; the
// connection's goroutine goes on reading.
type writes interface {
	submit(c *answering, payload, answer []byte)
}

// leader makes batches of writes durable, one at a time.
type leader struct {
	disk      *logFile
	followers []net.Conn
	acked     chan int // the number of a round that a follower has synced

	mu       sync.Mutex
	running  bool         // a round is under way
	payload  []byte       // of the batch that waits
	waiting  []*answering // connections with answers in that batch
	round    int
	ackedMax int
	scratch  []byte
}

func (l *leader) submit(c *answering, payload, answer []byte) {
	l.mu.Lock()
	l.payload = append(l.payload, payload...)
	if len(c.out) == 0 {
		l.waiting = append(l.waiting, c)
	}
	c.out = append(c.out, answer...)
	idle := !l.running
	l.running = true
	l.mu.Unlock()
	if idle && !l.runRound() {
		go func() {
			for !l.runRound() {
			}
		}()
	}
}

// runRound makes the batch that waits durable and sends its answers. It reports whether no other
// batch waits then; only one goroutine runs rounds.
func (l *leader) runRound() (last bool) {
	l.mu.Lock()
	l.round++
	payload, waiting := l.payload, l.waiting
	answers := make([][]byte, len(waiting))
	for i, c := range waiting {
		answers[i], c.out = c.out, nil
	}
	l.payload, l.waiting = nil, nil
	l.mu.Unlock()

	l.scratch = appendFrame(l.scratch[:0], payload)
	for _, f := range l.followers {
		if _, err := f.Write(l.scratch); err != nil {
			panic(err) // a member that ends ends the others
		}
	}
	if err := l.disk.append(payload); err != nil {
		panic(err)
	}
	for l.ackedMax < l.round {
		l.ackedMax = max(l.ackedMax, <-l.acked)
	}
	for i, c := range waiting {
		_, _ = c.conn.Write(answers[i]) // the client may be gone
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.waiting) > 0
	return !l.running
}

// countAcks tells runRound of a round when the first of the followers has synced it.
func (l *leader) countAcks(follower int, conn net.Conn) error {
	acks := make([]byte, 64)
	for round := 0; ; {
		n, err := conn.Read(acks)
		if err != nil {
			return fmt.Errorf("floor: follower %d: %w", follower, err)
		}
		round += n
		l.acked <- round
	}
}

// serveForwards takes the writes of a follower's clients.
func (l *leader) serveForwards(conn net.Conn) error {
	c, r := &answering{conn: conn}, bufio.NewReaderSize(conn, 64<<10)
	var one, payload []byte
	for {
		n := 0
		payload = payload[:0]
		for more := true; more; more = holdsFrame(r) {
			var err error
			if one, err = readFrame(r, one); err != nil {
				return fmt.Errorf("floor: a follower: %w", err)
			}
			payload, n = append(payload, one...), n+1
		}
		l.submit(c, payload, make([]byte, n))
	}
}

// followLog writes the leader's entries, and acknowledges each.
func followLog(conn net.Conn, disk *logFile) error {
	r := bufio.NewReaderSize(conn, 64<<10)
	var entry []byte
	for {
		var err error
		if entry, err = readFrame(r, entry); err == nil {
			if err = disk.append(entry); err == nil {
				_, err = conn.Write([]byte{1})
			}
		}
		if err != nil {
			return fmt.Errorf("floor: the leader: %w", err)
		}
	}
}

// forwarder passes the writes of a follower's clients on to the leader.
type forwarder struct {
	leader net.Conn

	mu      sync.Mutex
	pending []pendingAnswer // in the order in which the leader has the writes
}

type pendingAnswer struct {
	to     net.Conn
	answer []byte
}

func (f *forwarder) submit(c *answering, payload, answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = append(f.pending, pendingAnswer{c.conn, append([]byte(nil), answer...)})
	if _, err := f.leader.Write(appendFrame(nil, payload)); err != nil {
		panic(err) // a member that ends ends the others
	}
}

// answer sends the answers of the writes that the leader acknowledges.
func (f *forwarder) answer() error {
	acks := make([]byte, 1024)
	for {
		n, err := f.leader.Read(acks)
		if err != nil {
			return fmt.Errorf("floor: the leader: %w", err)
		}
		f.mu.Lock()
		if n > len(f.pending) {
			f.mu.Unlock()
			return fmt.Errorf("floor: the leader acknowledges more than it was sent: %w", io.ErrUnexpectedEOF)
		}
		done := f.pending[:n:n]
		f.pending = f.pending[n:]
		f.mu.Unlock()
		for i := 0; i < n; {
			out := done[i].answer
			to := done[i].to
			for i++; i < n && done[i].to == to; i++ {
				out = append(out, done[i].answer...)
			}
			_, _ = to.Write(out) // the client may be gone
		}
	}
}
