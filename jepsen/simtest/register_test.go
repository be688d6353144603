package simtest

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

const cellPath = "/cell"

// register is a node that is written and read by clients of all members. Its
// version counts the writes.
type register struct {
	c     *cluster
	acked atomic.Int32 // the largest version that a reply has told of
	reads atomic.Int64 // that were checked
}

// registerClient writes the register, reads it, or reads it behind a sync. The last
// must see every write that had been answered, to whomever, before the sync was
// sent (promise C4).
type registerClient struct {
	reg  *register
	name string
	rng  *rand.Rand
	conn *zk.Conn
	// The newest version that this client has seen, and in which session.
	seen        int32
	seenSession int64
}

func newRegisterClient(c *cluster, reg *register, host string, timeout time.Duration, rng *rand.Rand) *registerClient {
	name := "register@" + host
	return &registerClient{reg: reg, name: name, rng: rng, conn: c.connect(name, host, timeout, rng)}
}

func (r *registerClient) close() { r.reg.c.disconnect(r.conn) }

func (r *registerClient) work() bool {
	time.Sleep(time.Duration(r.rng.IntN(500)) * time.Millisecond)
	switch r.rng.IntN(4) {
	case 0:
		return r.write()
	case 1:
		return r.read()
	default:
		return r.syncAndRead()
	}
}

func (r *registerClient) write() bool {
	session := r.conn.SessionID()
	stat, err := r.conn.Set(cellPath, []byte(r.name), -1)
	switch err {
	case nil:
		r.acknowledged(stat.Version)
		r.saw(session, stat.Version)
		return true
	case zk.ErrNoNode:
		// The next write shows whether it is there.
		_, _ = r.conn.Create(cellPath, nil, 0, zk.WorldACL(zk.PermAll))
	}
	return false
}

// read reads the value, which may be old, but not older than the newest that this client has seen,
// wherever it was connected then (promise C2).
func (r *registerClient) read() bool {
	session := r.conn.SessionID()
	_, stat, err := r.conn.Get(cellPath)
	if err != nil {
		return false
	}
	r.saw(session, stat.Version)
	return true
}

// syncAndRead reads behind a sync.
func (r *registerClient) syncAndRead() bool {
	session, must := r.conn.SessionID(), r.reg.acked.Load()
	if _, err := r.conn.Sync("/"); err != nil {
		return false
	}
	_, stat, err := r.conn.Get(cellPath)
	if err != nil {
		return false
	}
	r.reg.reads.Add(1)
	if stat.Version < must {
		r.reg.c.t.Errorf("after %v: %s on %s read version %d behind a sync, but %d had been acknowledged before",
			r.reg.c.journal.age(), r.name, r.conn.Server(), stat.Version, must)
	}
	r.saw(session, stat.Version)
	return true
}

// saw checks that a session never sees an older version than before. It was session when the
// request was made; if the library has got another one since, nobody knows which of the two was
// answered.
func (r *registerClient) saw(session int64, version int32) {
	if r.conn.SessionID() != session {
		r.seenSession = 0
		return
	}
	if session == r.seenSession && version < r.seen {
		r.reg.c.t.Errorf("after %v: %s on %s read version %d, but had seen %d in the same session",
			r.reg.c.journal.age(), r.name, r.conn.Server(), version, r.seen)
	}
	r.seen, r.seenSession = version, session
}

func (r *registerClient) acknowledged(version int32) {
	for {
		old := r.reg.acked.Load()
		if version <= old || r.reg.acked.CompareAndSwap(old, version) {
			return
		}
	}
}
