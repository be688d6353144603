package simtest

import (
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/wire"
)

// The faults of this file aim at who holds a lock: at the moment until which its library believes
// that it is connected, which must come before the majority can give the lock to somebody else
// (C6).

// silence is longer than the longest that a library bears.
const silence = 30 * time.Second

// siegePause is how often a holder asks for something under siege.
const siegePause = 40 * time.Millisecond

// awaitHolder is the present holder, if there is one soon, and its member. It is told to hold on,
// until relieve is called.
func (n *nemesis) awaitHolder() (h *holder, m *member) {
	n.reg.besieged.Store(true)
	for range 500 { // clients rest up to 12 s
		if h := n.reg.present(); h != nil {
			if server := h.conn.Server(); server != "" {
				return h, n.memberAt(server)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, n.any()
}

func (n *nemesis) relieve() { n.reg.besieged.Store(false) }

// anyTimeout is one of those that sessions have.
func (n *nemesis) anyTimeout() time.Duration {
	timeouts := n.c.shape.timeouts()
	return timeouts[n.rng.IntN(len(timeouts))]
}

// isolateHolder has the holder cut off together with its member, and the majority gives the lock to
// somebody else.
func (n *nemesis) isolateHolder() func() {
	_, m := n.awaitHolder()
	undo := n.isolate(m)
	if n.rng.IntN(4) > 0 {
		// The clients of m cannot go elsewhere in time: the last confirmation counts. Bytes may be
		// sent for a third of the session timeout, and at its end the session is over.
		time.Sleep(time.Duration((0.3 + 0.7*n.rng.Float64()) * float64(n.anyTimeout())))
		undo = n.silence(m)
	}
	time.Sleep(time.Duration(n.rng.IntN(30)) * time.Second)
	return func() {
		undo()
		n.relieve()
	}
}

// silence cuts a member off from its clients too, for longer than their libraries bear: bytes on
// their way must not arrive late, for C6 does not cover that.
func (n *nemesis) silence(m *member) (undo func()) {
	n.note("isolate m%d from its clients", m.id)
	n.c.net.Isolate(m.name)
	time.Sleep(silence)
	return func() { n.c.net.Reconnect(m.name) }
}

// besiege gives a member late news, the last before it is cut off: the confirmation of its leases,
// or, if it leads, that others follow it. Its clients are cut off after a third of their timeout,
// when it should have fallen silent, and before two thirds, when it would let them go. Mostly it is
// the holder's member; a client that does nothing but read is there in any case, for a client that
// waits for a write hears nothing.
func (n *nemesis) besiege() func() {
	some := func(least, most time.Duration) time.Duration {
		return least + time.Duration(n.rng.Float64()*float64(most-least))
	}
	h, m := n.awaitHolder()
	timeout := n.anyTimeout()
	if h != nil {
		timeout = h.timeout
	}
	l := n.leader()
	leave := n.c.believer(believerHost, m, timeout).close
	quieten := n.c.busy(l)
	time.Sleep(some(500*time.Millisecond, 1500*time.Millisecond)) // they have connected just now
	// Late by more than the leader's addition to a lease, and by less than the limit of an
	// exchange.
	least, most := n.c.shape.tick/2, 2*n.c.electionTimeout()
	late := some(min(least, most/2), most)
	n.note("what m%d learns is late by %v", m.id, late)
	if l == m {
		n.c.followedLate(m, late, some(0, late))
	} else {
		n.c.confirmedLate(m, l, late, some(0, late))
	}
	quieten()
	time.Sleep(some(timeout*34/100, timeout*64/100))
	reconnect := n.silence(m)
	leave()
	time.Sleep(time.Duration(n.rng.IntN(10)) * time.Second)
	return func() {
		reconnect()
		n.c.usualLatency()
		n.relieve()
	}
}

const (
	busyHost     = "10.0.5.2"
	busyPause    = 150 * time.Millisecond
	believerHost = "10.0.5.3"
)

// believer is a client of one member that reads all the time, until close is called.
type believer struct {
	conn  *zk.Conn
	close func()
}

func (c *cluster) believer(host string, m *member, timeout time.Duration) believer {
	c.net.Host(host)
	conn, events, err := zk.Connect([]string{m.clientAddr()}, timeout, zk.WithDialer(c.dialer(host)),
		zk.WithHostProvider(onlyAt(m.clientAddr())), zk.WithLogger(zkLogger{c.journal, "believer"}))
	if err != nil {
		c.t.Fatalf("connect to m%d: %v", m.id, err)
	}
	go func() {
		for range events { // or the library drops them with a warning
		}
	}()
	c.witness.watchStrictly(conn)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(siegePause):
				_, _, _ = conn.Exists("/") // only that it is asked counts
			}
		}
	}()
	return believer{conn, func() {
		close(over)
		c.disconnect(conn)
	}}
}

// onlyServer is a zk.HostProvider for clients that stay with one member.
type onlyServer struct{ addr atomic.Value } // string

func onlyAt(addr string) *onlyServer {
	o := new(onlyServer)
	o.addr.Store(addr)
	return o
}

// Init implements zk.HostProvider.
func (o *onlyServer) Init([]string) error { return nil }

// Len implements zk.HostProvider.
func (o *onlyServer) Len() int { return 1 }

// Next implements zk.HostProvider.
func (o *onlyServer) Next() (server string, retryStart bool) { return o.addr.Load().(string), true }

// Connected implements zk.HostProvider.
func (o *onlyServer) Connected() {}

// electionTimeout is after how long without a leader members want another; quorum.Config has it
// from the tick.
func (c *cluster) electionTimeout() time.Duration {
	return min(max(c.shape.tick/4, 500*time.Millisecond), time.Second)
}

// busy has a client of the leader make new entries all the time, until quieten is called. An idle
// cluster asks one thing after the other, so that who hears late takes the other for dead.
func (c *cluster) busy(leader *member) (quieten func()) {
	c.net.Host(busyHost)
	conn, err := c.dialRaw(busyHost, leader.clientAddr(), c.shape.timeouts()[3])
	if err != nil {
		c.journal.printf("the cluster stays idle: %v", err)
		return func() {}
	}
	go func() {
		for {
			if _, _, err := conn.next(); err != nil {
				return
			}
		}
	}()
	go func() {
		for {
			b, _ := conn.append(nil, wire.OpSync, wire.SyncRequest{Path: "/"})
			if _, err := conn.Write(b); err != nil {
				return
			}
			time.Sleep(busyPause)
		}
	}()
	return func() { conn.Close() }
}

// slowDown makes the ways from some members to one slow, little by little: nobody hears nothing for
// long.
func (c *cluster) slowDown(from []*member, to *member, late time.Duration) {
	const step = 100 * time.Millisecond
	for d := time.Duration(0); d < late; {
		d = min(d+step, late)
		for _, m := range from {
			c.net.SetLatency(m.name, to.name, d, 0)
		}
		time.Sleep(step)
	}
}

// confirmedLate cuts m off from the other members such that the last that it hears is an answer of
// the leader to a report of leases, late by so much. The way from the leader is slow for that long
// before.
func (c *cluster) confirmedLate(m, leader *member, late, before time.Duration) {
	c.slowDown([]*member{leader}, m, late)
	time.Sleep(before)
	c.mute(m)
	time.Sleep(late)
	c.deafen(m)
}

// followedLate has the others hear no more of the leader, while it goes on to hear, late by so
// much, that they followed it; until it has noticed.
func (c *cluster) followedLate(leader *member, late, before time.Duration) {
	c.slowDown(c.others(leader), leader, late)
	time.Sleep(before)
	c.mute(leader)
	time.Sleep(late + c.electionTimeout())
	c.deafen(leader)
}

func (c *cluster) others(m *member) (list []*member) {
	for _, o := range c.members {
		if o != m {
			list = append(list, o)
		}
	}
	return list
}

// mute has no other member hear of m.
func (c *cluster) mute(m *member) {
	for _, o := range c.others(m) {
		c.net.Cut(m.name, o.name)
	}
}

// deafen has m hear of no other member.
func (c *cluster) deafen(m *member) {
	for _, o := range c.others(m) {
		c.net.Cut(o.name, m.name)
	}
}
