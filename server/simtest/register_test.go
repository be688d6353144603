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

// registerClient writes the register, or reads it behind a sync. Such a read
// must see every write that had been answered, to whomever, before the sync was
// sent (promise C4).
type registerClient struct {
	reg  *register
	name string
	rng  *rand.Rand
	conn *zk.Conn
}

func newRegisterClient(c *cluster, reg *register, host string, timeout time.Duration, rng *rand.Rand) *registerClient {
	name := "register@" + host
	return &registerClient{reg: reg, name: name, rng: rng, conn: c.connect(name, host, timeout, rng)}
}

func (r *registerClient) close() { r.reg.c.disconnect(r.conn) }

func (r *registerClient) work() bool {
	time.Sleep(time.Duration(r.rng.IntN(500)) * time.Millisecond)
	if r.rng.IntN(3) == 0 {
		stat, err := r.conn.Set(cellPath, []byte(r.name), -1)
		switch err {
		case nil:
			r.acknowledged(stat.Version)
			return true
		case zk.ErrNoNode:
			r.conn.Create(cellPath, nil, 0, zk.WorldACL(zk.PermAll))
		}
		return false
	}
	must := r.reg.acked.Load()
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
	return true
}

func (r *registerClient) acknowledged(version int32) {
	for {
		old := r.reg.acked.Load()
		if version <= old || r.reg.acked.CompareAndSwap(old, version) {
			return
		}
	}
}
