package secure

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"lockkeeper/internal/loglimit"
)

// Expiry logs that a certificate is about to expire: when it is first seen, and once a day.
type Expiry struct {
	Whom   string // for whom the certificate is
	logged time.Time
}

const (
	// expiryNotice is the time before the end of a certificate in which the log says so.
	expiryNotice = 30 * 24 * time.Hour
	expiryPause  = 24 * time.Hour
)

// Look logs the expiry of a certificate if a line is due.
func (e *Expiry) Look(log *slog.Logger, expires time.Time) {
	now := time.Now()
	left := expires.Sub(now)
	if left > expiryNotice || !e.logged.IsZero() && now.Sub(e.logged) < expiryPause {
		return
	}
	e.logged = now
	text := "the certificate of this member expires soon: replace it ('lockkeeper certs renew')"
	if left <= 0 {
		text = "THE CERTIFICATE OF THIS MEMBER HAS EXPIRED: others refuse it; replace it ('lockkeeper certs renew')"
	}
	log.Warn(text, "for", e.Whom, "expires", expires.UTC().Format(time.RFC3339), "days", int(left.Hours()/24))
}

// PeerCerts are the certificates for connections between members. Their files are looked at when a
// connection is opened or accepted: earlier ones keep theirs.
type PeerCerts struct {
	Keeper *Keeper
	reload bool
	out    *slog.Logger
	log    *loglimit.Limiter

	mu     sync.Mutex
	looked time.Time
	end    Expiry
}

// NewPeerCerts returns a PeerCerts with these certificates; with reload, changed files are read
// again.
func NewPeerCerts(keeper *Keeper, reload bool, log *slog.Logger) *PeerCerts {
	c := &PeerCerts{Keeper: keeper, reload: reload, out: log, log: loglimit.New(log), looked: time.Now(),
		end: Expiry{Whom: "other members"}}
	c.end.Look(log, keeper.Expires())
	return c
}

// peerCertsLook is the least time between two looks at the files.
const peerCertsLook = time.Second

func (c *PeerCerts) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end.Look(c.out, c.Keeper.Expires())
	if !c.reload || time.Since(c.looked) < peerCertsLook {
		return
	}
	c.looked = time.Now()
	switch changed, err := c.Keeper.Reload(); {
	case err != nil:
		c.log.Error("reload", "the new certificates for other members cannot be used: those before stay in use", "err",
			err)
	case changed:
		c.log.Warn(c.Keeper.Expires().String(), "certificates for other members read again", "expires",
			c.Keeper.Expires())
	}
}

// Client is a configuration for a connection to a member at host.
func (c *PeerCerts) Client(host string) *tls.Config {
	c.refresh()
	return c.Keeper.Client(host)
}

// Server is a configuration for connections from members.
func (c *PeerCerts) Server() *tls.Config {
	c.refresh()
	return c.Keeper.Server()
}
