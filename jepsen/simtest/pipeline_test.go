package simtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// pipeliner sends requests without waiting for the answers, on one connection after the other, and
// checks the answers:
//
//   - answers come in the order of the requests (C2);
//   - a read sees what the same connection has written before (C2);
//   - an event comes before anything that shows a later state (C3);
//   - every request is answered while the connection lives, with success (C5);
//   - afterwards, the creates of a connection that took effect are the first so
//     many, in order, each once, and among them all that were answered (C2, C5).
type pipeliner struct {
	c       *cluster
	name    string
	host    string
	timeout time.Duration
	rng     *rand.Rand
	server  func() string // to connect to next
	eager   atomic.Bool   // sends the next burst at once

	conn   *rawConn
	pings  sync.WaitGroup
	sendMu sync.Mutex // the connection's writing half: pings come from elsewhere
	sent   []request  // not answered; guarded by sendMu

	dir   string // where this connection creates its nodes
	count int    // of directories made

	// Of the present connection.
	created, answered int
	lastValue         []byte // that the connection has set
	lastPath          string // created last
	seen              wire.Zxid
	watching          wire.Zxid // mzxid of the register when the watch was set; 0: none
	watchAsked        bool
	ownAsked          bool // a watch on the directory was asked for, and its event has not come
	events            int

	mu      sync.Mutex
	history []pipelined // connections to be verified
	garbage []pipelined // verified, with as many nodes as were created
	restart bool        // the present connection has been verified and is garbage, too
	broken  int         // connections that ended by themselves
	replies int
}

// pipelined has the operations of a connection in its directory.
type pipelined struct {
	dir               string
	created, answered int
}

func newPipeliner(c *cluster, host string, timeout time.Duration, rng *rand.Rand, server func() string) *pipeliner {
	return &pipeliner{c: c, name: "pipe@" + host, host: host, timeout: timeout, rng: rng, server: server}
}

// close ends the connection as a program does that exits.
func (p *pipeliner) close() {
	if p.conn != nil {
		p.conn.Close()
		p.pings.Wait()
		p.conn = nil
	}
}

func (p *pipeliner) fail(format string, args ...any) {
	p.c.t.Errorf("after %v: %s: %s", p.c.journal.age(), p.name, fmt.Sprintf(format, args...))
}

// work sends a burst of requests and reads the answers.
func (p *pipeliner) work() bool {
	if !p.eager.Load() {
		time.Sleep(time.Duration(p.rng.IntN(2000*p.c.shape.rest)) * time.Millisecond)
	}
	p.mu.Lock()
	restart := p.restart
	p.restart = false
	p.mu.Unlock()
	if restart {
		p.close()
	}
	if p.conn == nil && !p.connect() {
		return false
	}
	if !p.sweep() {
		return false
	}
	if p.rng.IntN(3) > 0 {
		return p.trickle(10 + p.rng.IntN(100))
	}
	return p.exchange(func(b []byte) []byte {
		for range 1 + p.rng.IntN(20) {
			b = p.request(b)
		}
		return b
	})
}

// trickle sends some requests, one every few milliseconds, whether those before have been answered
// or not, and reads until all are answered.
func (p *pipeliner) trickle(n int) bool {
	pauses := make([]time.Duration, n) // drawn here: rng is not for two goroutines
	for i := range pauses {
		pauses[i] = time.Duration(p.rng.IntN(30)) * time.Millisecond
	}
	conn := p.conn
	var sending sync.WaitGroup
	var last atomic.Bool // all have been sent
	sending.Go(func() {
		defer last.Store(true)
		for _, pause := range pauses {
			time.Sleep(pause)
			p.sendMu.Lock()
			_, err := conn.Write(p.request(nil))
			p.sendMu.Unlock()
			if err != nil {
				return
			}
		}
	})
	var err error
	for err == nil {
		sent := last.Load() // Order: before waiting, which then is about all of them
		if !p.waiting() {
			if sent {
				break
			}
			time.Sleep(time.Millisecond)
			continue
		}
		err = p.answer()
	}
	if err != nil {
		conn.Close()
		sending.Wait()
		p.lost(err)
		return false
	}
	return true
}

// exchange sends some requests at once and reads until all are answered.
func (p *pipeliner) exchange(fill func([]byte) []byte) bool {
	p.sendMu.Lock()
	_, err := p.conn.Write(fill(nil))
	p.sendMu.Unlock()
	for err == nil && p.waiting() {
		err = p.answer()
	}
	if err != nil {
		p.lost(err)
	}
	return err == nil
}

// sweep deletes the nodes of earlier connections, lest the tree grow for ever.
func (p *pipeliner) sweep() bool {
	p.mu.Lock()
	garbage := p.garbage
	p.mu.Unlock()
	for _, g := range garbage {
		if !p.exchange(func(b []byte) []byte {
			for i := range g.created {
				b = p.add(b, wire.OpDelete, wire.DeleteRequest{Path: node(g.dir, i), Version: -1})
			}
			return p.add(b, wire.OpDelete, wire.DeleteRequest{Path: g.dir, Version: -1})
		}) {
			return false
		}
		p.mu.Lock()
		p.garbage = p.garbage[1:]
		p.mu.Unlock()
	}
	return true
}

// node is the path of the i-th node in a directory.
func node(dir string, i int) string { return fmt.Sprintf("%s/n-%010d", dir, i) }

func (p *pipeliner) waiting() bool {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	return len(p.sent) > 0
}

// connect opens a connection with a directory of its own.
func (p *pipeliner) connect() bool {
	conn, err := p.c.dialRaw(p.host, p.server(), p.timeout)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return false
	}
	p.conn, p.sent = conn, nil
	p.count++
	p.dir = fmt.Sprintf("/pipe-%s-%d", strings.ReplaceAll(p.host, ".", "-"), p.count)
	p.created, p.answered, p.lastValue, p.lastPath, p.seen = 0, 0, nil, "", 0
	p.watching, p.watchAsked, p.ownAsked = 0, false, false
	p.pings.Go(func() { p.ping(conn) })
	p.c.journal.printf("%s connected, session %v, %s", p.name, conn.session, p.dir)
	p.sendMu.Lock()
	b := p.add(nil, wire.OpCreate, wire.CreateRequest{Path: p.dir, Data: []byte{}, ACL: wire.OpenACL})
	_, err = conn.Write(b)
	p.sendMu.Unlock()
	if err != nil {
		p.lost(err)
		return false
	}
	return true
}

// ping keeps the session alive between bursts, as a library does.
func (p *pipeliner) ping(conn *rawConn) {
	for {
		time.Sleep(conn.timeout / 3)
		p.sendMu.Lock()
		b, q := conn.append(nil, wire.OpPing, nil)
		p.sent = append(p.sent, q)
		_, err := conn.Write(b)
		p.sendMu.Unlock()
		if err != nil {
			return
		}
	}
}

// add encodes a request and expects its answer.
func (p *pipeliner) add(b []byte, op wire.Op, body wire.Record) []byte {
	b, q := p.conn.append(b, op, body)
	p.sent = append(p.sent, q)
	return b
}

// request adds a request of a random kind.
func (p *pipeliner) request(b []byte) []byte {
	switch p.rng.IntN(7) {
	case 0, 1, 2:
		p.created++
		return p.add(b, wire.OpCreate, wire.CreateRequest{
			Path: p.dir + "/n-", Data: fmt.Append(nil, p.created), ACL: wire.OpenACL, Mode: wire.ModePersistentSequential,
		})
	case 3:
		return p.add(b, wire.OpSetData, wire.SetDataRequest{Path: p.dir, Data: fmt.Append(nil, p.conn.xid), Version: -1})
	case 4:
		watch := !p.ownAsked
		p.ownAsked = true
		return p.add(b, wire.OpGetData, wire.PathWatchRequest{Path: p.dir, Watch: watch})
	case 5:
		return p.add(b, wire.OpSync, wire.SyncRequest{Path: "/"})
	}
	watch := !p.watchAsked
	p.watchAsked = true
	return p.add(b, wire.OpGetData, wire.PathWatchRequest{Path: cellPath, Watch: watch})
}

// answer reads one frame and checks it.
func (p *pipeliner) answer() error {
	h, body, err := p.conn.next()
	if err != nil {
		return err
	}
	if h.Xid == wire.XidNotification {
		if h.Zxid != wire.ZxidNone && h.Zxid <= p.seen {
			p.fail("an event of zxid %v came after state of zxid %v", h.Zxid, p.seen)
		}
		var e wire.WatcherEvent
		if err := wire.Decode(body, &e); err != nil {
			return err
		}
		p.sendMu.Lock()
		if e.Path == p.dir {
			p.ownAsked = false
		} else {
			p.watching, p.watchAsked = 0, false
		}
		p.sendMu.Unlock()
		p.seen = h.Zxid
		p.events++
		return nil
	}
	p.sendMu.Lock()
	q := p.sent[0]
	p.sent = p.sent[1:]
	p.sendMu.Unlock()
	if h.Xid != q.xid {
		p.fail("answer to %d where one to %d (%v) was due", h.Xid, q.xid, q.op)
		return fmt.Errorf("out of order")
	}
	if h.Zxid < p.seen {
		p.fail("zxid %v in an answer after %v", h.Zxid, p.seen)
	}
	p.seen = h.Zxid
	p.mu.Lock()
	p.replies++
	p.mu.Unlock()
	p.check(q, h, body)
	return nil
}

func (p *pipeliner) check(q request, h wire.ReplyHeader, body []byte) {
	read, _ := q.body.(wire.PathWatchRequest)
	if h.Err == wire.CodeNoNode && read.Path == cellPath {
		p.sendMu.Lock()
		p.watchAsked = p.watchAsked && !read.Watch // nobody has written it yet
		p.sendMu.Unlock()
		return
	}
	if q.op == wire.OpDelete && h.Err == wire.CodeNoNode {
		return // an earlier sweep was interrupted
	}
	if h.Err != wire.CodeOK {
		p.fail("%v %+v was answered with %v", q.op, q.body, h.Err)
		return
	}
	rec, err := wire.DecodeResponse(q.op, body)
	if err != nil {
		p.fail("%v: %v", q.op, err)
		return
	}
	switch r := rec.(type) {
	case *wire.CreateResponse:
		if r.Path == p.dir {
			return
		}
		p.answered++
		if r.Path <= p.lastPath {
			p.fail("created %s after %s", r.Path, p.lastPath)
		}
		p.lastPath = r.Path
	case *wire.StatResponse:
		p.lastValue = q.body.(wire.SetDataRequest).Data
	case *wire.GetDataResponse:
		p.checkRead(read, r)
	}
}

func (p *pipeliner) checkRead(q wire.PathWatchRequest, r *wire.GetDataResponse) {
	if q.Path == p.dir {
		if !bytes.Equal(r.Data, p.lastValue) {
			p.fail("read %q, but this connection had set %q", r.Data, p.lastValue)
		}
		return
	}
	if p.watching != 0 && r.Stat.Mzxid > p.watching {
		p.fail("read state of zxid %v without the event for it; the watch was set at %v", r.Stat.Mzxid, p.watching)
	}
	if q.Watch {
		p.watching = r.Stat.Mzxid
	}
}

// lost takes note that the connection has ended. Unanswered requests may have taken effect or not.
func (p *pipeliner) lost(err error) {
	p.c.journal.printf("%s lost its connection, %d of %d creates answered: %v", p.name, p.answered, p.created, err)
	p.mu.Lock()
	p.broken++ // before close, which takes a while
	p.mu.Unlock()
	p.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history = append(p.history, pipelined{p.dir, p.created, p.answered})
}

// verify compares the connections' operations with the tree. Nobody may be working. A connection
// that lives has everything answered.
func (p *pipeliner) verify(s *znode.Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.history
	p.history = nil
	if p.conn != nil {
		if p.created != p.answered {
			p.fail("%d creates, %d answered, on a connection that lives", p.created, p.answered)
		}
		all = append(all, pipelined{p.dir, p.created, p.answered})
		p.restart = true
	}
	super := []znode.Identity{{Scheme: "super"}}
	for _, h := range all {
		names, _, code := s.Children(h.dir, super)
		if code != wire.CodeOK && h.answered > 0 {
			p.fail("%s is gone: %v", h.dir, code)
		}
		if len(names) < h.answered || len(names) > h.created {
			p.fail("%s has %d nodes; %d creates were sent and %d answered", h.dir, len(names), h.created, h.answered)
		}
		for i := range len(names) {
			path := node(h.dir, i)
			if data, _, code := s.Get(path, super); code != wire.CodeOK || string(data) != fmt.Sprint(i+1) {
				p.fail("%s holds %q (%v), want that of create %d", path, data, code, i+1)
			}
		}
		p.garbage = append(p.garbage, pipelined{dir: h.dir, created: len(names)})
	}
}
