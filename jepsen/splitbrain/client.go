package splitbrain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

// anyone may do anything.
var anyone = zk.WorldACL(zk.PermAll)

// A client is one program with a session. It believes its library.
type client struct{ *jepsen.GoClient }

// dial starts a client that knows some members only. hears, which may be nil, is called when the
// library says that it is connected, or that it is not any more.
func dial(servers []string, session time.Duration, hears func(connected bool)) (*client, error) {
	cfg := jepsen.GoClientConfig{Servers: servers, SessionTimeout: session}
	if hears != nil {
		cfg.Said = func(_ *jepsen.GoClient, f, _ string) { hears(f == jepsen.FConnected) }
	}
	c, _, err := jepsen.OpenGoClient(cfg)
	return &client{c}, err
}

// A client repeats a request that failed after this time.
const retryPause = 20 * time.Millisecond

// lock takes a lock, the simplest there is: an ephemeral node, which exists once. It waits for as
// long as somebody else has it, through disconnects, until ctx ends. waits, if not nil, is called
// when somebody has it and the watch is set.
func (c *client) lock(ctx context.Context, path string, waits func()) error {
	for ctx.Err() == nil {
		_, err := c.Create(path, nil, zk.FlagEphemeral, anyone)
		if err == nil {
			return nil
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			jepsen.Sleep(ctx, retryPause)
			continue
		}
		exists, stat, gone, err := c.ExistsW(path)
		switch {
		case err != nil:
			jepsen.Sleep(ctx, retryPause)
		case exists && stat.EphemeralOwner == c.SessionID():
			return nil // made by a request with a lost reply
		case exists:
			if waits != nil {
				waits()
			}
			select {
			case <-gone:
			case <-ctx.Done():
			}
		}
	}
	return fmt.Errorf("splitbrain: lock %s: %w", path, context.Cause(ctx))
}
