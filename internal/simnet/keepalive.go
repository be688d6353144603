package simnet

import (
	"syscall"
	"time"
)

// keepAlive is the state of a connection's keep-alive probes.
type keepAlive struct {
	heardAt time.Time   // when something last arrived
	probes  int         // unanswered
	prober  *time.Timer // nil: no keep-alive
}

// keepAliveLocked starts the probes of a connection that has been established. They end with it.
func (c *Conn) keepAliveLocked() {
	every := c.net.cfg.KeepAlive
	if every <= 0 {
		return
	}
	c.keepAlive.heardAt = time.Now()
	c.keepAlive.prober = time.AfterFunc(every, func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		if c.keepAlive.prober != nil {
			c.probeLocked(every)
		}
	})
}

// probeLocked asks the peer whether it is there. The probe and its answer take no time.
func (c *Conn) probeLocked(every time.Duration) {
	silence := time.Since(c.keepAlive.heardAt)
	switch {
	case silence < every:
		c.keepAlive.probes = 0
		c.keepAlive.prober.Reset(every - silence)
		return
	case len(c.out.queue) > 0:
		// The segment in transit is the probe.
	case c.out.link.down || c.in.link.down:
		if c.keepAlive.probes++; c.keepAlive.probes > maxProbes {
			c.failLocked(syscall.ETIMEDOUT)
			return
		}
	case c.peer.gone:
		c.failLocked(syscall.ECONNRESET)
		return
	default:
		c.keepAlive.probes = 0
		c.keepAlive.heardAt = time.Now()
	}
	c.keepAlive.prober.Reset(every)
}

func (c *Conn) stopProbesLocked() {
	if c.keepAlive.prober != nil {
		c.keepAlive.prober.Stop()
		c.keepAlive.prober = nil
	}
}
