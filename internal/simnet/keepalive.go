package simnet

import (
	"syscall"
	"time"
)

// keepAliveLocked starts the probes of a connection that has been established. They end with it.
func (c *Conn) keepAliveLocked() {
	every := c.net.cfg.KeepAlive
	if every <= 0 {
		return
	}
	c.heardAt = time.Now()
	c.prober = time.AfterFunc(every, func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		if c.prober != nil {
			c.probeLocked(every)
		}
	})
}

// probeLocked asks the peer whether it is there. The probe and its answer take no time.
func (c *Conn) probeLocked(every time.Duration) {
	silence := time.Since(c.heardAt)
	switch {
	case silence < every:
		c.probes = 0
		c.prober.Reset(every - silence)
		return
	case len(c.out.queue) > 0:
		// The segment in transit is the probe.
	case c.out.link.down || c.in.link.down:
		if c.probes++; c.probes > maxProbes {
			c.failLocked(syscall.ETIMEDOUT)
			return
		}
	case c.peer.gone:
		c.failLocked(syscall.ECONNRESET)
		return
	default:
		c.probes = 0
		c.heardAt = time.Now()
	}
	c.prober.Reset(every)
}

func (c *Conn) stopProbesLocked() {
	if c.prober != nil {
		c.prober.Stop()
		c.prober = nil
	}
}
