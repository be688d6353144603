package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// limitSettings are lower limits than the defaults, which a short attack reaches, and quotas for
// the super user alone.
var limitSettings = []string{"admin.rateLimiterIntervalInMS=1", "maxSessionsPerAddress=50", "maxWatchMemory=16000000",
	"keepQuotas=true", "enforceQuota=true"}

// limits are attacks that go on at a limit, or that settings refuse.
func limits() []Attack {
	return []Attack{
		{
			Name: "session-limit", Port: ClientPort, Settings: limitSettings, Ours: true,
			Sends: "sessions of four addresses that may have 50 each, and 50 more of each, while somebody else connects",
			May:   []string{ok, refused, closed}, Least: 400,
			play: sessionLimit,
		},
		{
			Name: "watch-limit", Port: ClientPort, Settings: limitSettings, Ours: true,
			Sends: "watches of paths of 10 kB over eight connections, until none is taken (here 16 MB), and 50 more of each",
			May:   []string{ok, "NoNode", closed, "BadArguments"}, Least: 400, LeastBytes: 4_000_000,
			play: watchLimit,
		},
		{
			Name: "foreign-quotas", Port: ClientPort, Ours: true, Settings: limitSettings,
			Sends: "quotas of nothing on the nodes of the lock users, where quotas are kept for the super user",
			May:   []string{"NoAuth", "NoNode"}, Least: 100, LeastBytes: 8000,
			play: foreignQuotas,
		},
	}
}

// sessionLimit opens sessions until there may be no more, and goes on. They are closed in the end.
func sessionLimit(ctx context.Context, p *Play) error {
	const allowed, addresses = 50, 4
	return rounds(ctx, func() error {
		return each(addresses, func(i int) (err error) {
			var clients []*client
			defer func() {
				for _, c := range clients {
					c.leave()
				}
			}()
			for range 2 * allowed {
				c, err := p.connectFrom(p.host(i))
				if err != nil {
					p.saw(refused)
					continue
				}
				p.saw(ok)
				clients = append(clients, c)
			}
			if len(clients) > allowed {
				return &harm{fmt.Sprintf("an address has %d sessions, and may have %d", len(clients), allowed), nil}
			}
			other, err := p.connectFrom(p.host(addresses + i))
			if err != nil {
				return &harm{"nobody else gets a session", err}
			}
			other.leave()
			return nil
		})
	})
}

// watchLimit sets watches until there may be no more, and goes on. When its connections have ended,
// others can set some.
func watchLimit(ctx context.Context, p *Play) error {
	long := strings.Repeat("w", 10_000)
	watch := func(c *client, i, n int) error {
		err := c.do(wire.OpExists, wire.PathWatchRequest{Path: fmt.Sprintf("/%d-%d%s", i, n, long), Watch: true})
		p.saw(outcome(err))
		return err
	}
	err := p.clients(8, func(i int, c *client) error {
		refusals := 0
		for n := 0; refusals < 50; n++ {
			switch err := watch(c, i, n); {
			case errors.Is(err, wire.CodeBadArguments):
				refusals++
			case endOnly(err) != nil:
				return nil // the outcomes tell
			case n > 5000:
				return &harm{fmt.Sprintf("a connection has %d watches of 10 kB", n), nil}
			}
		}
		<-ctx.Done()
		return nil
	})
	if err != nil {
		return err
	}
	return p.clients(1, func(_ int, c *client) error {
		if err := watch(c, 8, 0); !errors.Is(err, wire.CodeNoNode) {
			return &harm{"no watch is taken when the others have ended", err}
		}
		return nil
	})
}

// foreignQuotas sets quotas on nodes of others, in all forms.
func foreignQuotas(ctx context.Context, p *Play) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.leave()
	const quota = "/zookeeper/quota"
	return rounds(ctx, func() error {
		for n := range 50 {
			at := fmt.Sprintf("%s/user%d", quota, n%members+1)
			limits := wire.CreateRequest{Path: at + "/zookeeper_limits", Data: []byte("count=1,bytes=1;byteHardLimit=1;countHardLimit=1"), ACL: wire.OpenACL}
			p.saw(outcome(c.do(wire.OpCreate, wire.CreateRequest{Path: at, ACL: wire.OpenACL})))
			p.saw(outcome(c.multi([]wire.MultiOp{{Op: wire.OpCreate, Record: &limits}})))
			p.saw(outcome(c.do(wire.OpSetACL, wire.SetACLRequest{Path: quota, ACL: wire.OpenACL, Version: -1})))
		}
		return nil
	})
}
