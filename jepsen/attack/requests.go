package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// requests are attacks by the content of single requests.
func requests() []Attack {
	return []Attack{
		{
			Name: "acl-entries", Port: ClientPort, Disk: true,
			Sends: "creates of 960 kB with 80,000 distinct ACL entries, none of them valid",
			May:   []string{"InvalidACL", "BadArguments", closed}, Least: 1, LeastBytes: 960_000,
			play: func(ctx context.Context, p *Play) error { return p.createWith(ctx, invalidACL(80_000)) },
		},
		{
			Name: "acl-valid-entries", Port: ClientPort, Disk: true,
			Sends: "creates of 1 MB with 35,000 distinct and valid ACL entries",
			May:   []string{"InvalidACL", "BadArguments", closed}, Least: 1, LeastBytes: 800_000,
			play: func(ctx context.Context, p *Play) error { return p.createWith(ctx, addresses(35_000)) },
		},
		{
			Name: "acl-checks", Port: ClientPort,
			Sends: "multis of 8,000 checks of a node with 5,000 ip entries, or as many as it may have",
			May:   []string{ok, "BadArguments", "NoAuth", closed}, Least: 1, LeastBytes: 200_000,
			play: checks,
		},
		{
			Name: "acl-multis", Port: ClientPort, Disk: true,
			Sends: "multis of 35 creates with 1,000 ACL entries each, or as many as are taken, and of their deletion",
			May:   []string{ok, "BadArguments", "InvalidACL", closed}, Least: 4, LeastBytes: 900_000,
			play: aclMultis,
		},
		{
			Name: "small-requests", Port: ClientPort,
			Sends: "whoAmI, exists, checkWatches, removeWatches, getEphemerals of 1,000, 50 each in flight, over ten connections",
			May:   []string{ok, "NoNode", "NoWatcher", closed}, Least: 2500, LeastBytes: 50_000,
			play: smallRequests,
		},
		identities("identities-follower", false),
		identities("identities-leader", true),
		{
			Name: "multiread", Port: ClientPort,
			Sends: "multiReads that ask 2,000 times for a node of 1 MB, over four connections",
			May:   []string{"BadArguments", "MarshallingError", "RuntimeInconsistency", closed}, Least: 4,
			LeastBytes: 4 * 32_000,
			play:       multiReads,
		},
		{
			Name: "setwatches", Port: ClientPort,
			Sends: "setWatches of 1 MB with 100,000 paths, other ones each time, over four connections",
			May:   []string{ok, closed, "BadArguments"}, Least: 4, LeastBytes: 4_000_000,
			play: setWatches,
		},
		{
			Name: "deep-paths", Port: ClientPort,
			Sends: "nodes 1,500 deep with quotas and recursive watches above them, and paths of 500,000 components",
			May:   []string{ok, "NoNode", "BadArguments", "NodeExists", closed}, Least: 1000, LeastBytes: 4_000_000,
			play: deepPaths,
		},
		{
			Name: "worst-requests", Port: ClientPort, Disk: true,
			Sends: "each type of request with huge counts, negative lengths, 250,000 empty strings, 1 MB of noise",
			May:   worstAnswers, Least: len(ops) * contents, LeastBytes: int64(len(ops)) * 3_000_000,
			play: worstRequests,
		},
	}
}

// createWith creates a node with an ACL again and again.
func (p *Play) createWith(ctx context.Context, acl []wire.ACL) error {
	request := wire.CreateRequest{Path: p.path("acl"), ACL: acl}
	return p.fresh(ctx, 1, func(c *client) error {
		p.saw(outcome(c.do(wire.OpCreate, request)))
		return nil
	})
}

// invalidACL are entries of the least size, each with other rights, of a scheme that there is not.
func invalidACL(n int) []wire.ACL {
	acl := make([]wire.ACL, n)
	for i := range acl {
		acl[i].Perms = wire.Perm(i)
	}
	return acl
}

// addresses are entries that let distinct addresses read, none of them the attacker's.
func addresses(n int) []wire.ACL {
	acl := make([]wire.ACL, n)
	for i := range acl {
		acl[i] = wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: "ip",
			ID: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}}
	}
	return acl
}

// checks has a node with as many ip entries as it may have, and checks it 8,000 times in each
// multi.
func checks(ctx context.Context, p *Play) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer func() { c.leave() }()
	own := wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: "ip", ID: p.host(0)}}
	for n := 5000; ; n /= 2 {
		err := c.do(wire.OpCreate, wire.CreateRequest{Path: p.path("checks"), ACL: append(addresses(n), own)})
		if err == nil || errors.Is(err, wire.CodeNodeExists) {
			break
		}
		if outcome(err) == closed || n < 10 {
			return fmt.Errorf("a node with %d ACL entries: %w", n, err)
		}
	}
	ops := make([]wire.MultiOp, 8000)
	for i := range ops {
		ops[i] = wire.MultiOp{Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: p.path("checks"), Version: -1}}
	}
	return rounds(ctx, func() error {
		err := c.multi(ops)
		p.saw(outcome(err))
		if outcome(err) == closed {
			_ = c.Close()
			c, err = p.connect()
			return err
		}
		return nil
	})
}

// aclMultis creates nodes with distinct ACLs, as many as fit into a request and are taken, and
// deletes them, again and again.
func aclMultis(ctx context.Context, p *Play) error {
	const entries = 1000
	nodes, round := 35, 0
	acls := addresses(nodes * entries)
	path := func(i int) string { return p.path(fmt.Sprint("multi", i)) }
	return p.fresh(ctx, 1, func(c *client) error {
		var creates, deletes []wire.MultiOp
		for i := range nodes {
			acl := acls[i*entries : (i+1)*entries]
			acl[0].ID.ID = fmt.Sprintf("11.%d.%d.%d", round>>16&255, round>>8&255, round&255)
			creates = append(creates, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: path(i), ACL: acl}})
			deletes = append(deletes, wire.MultiOp{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: path(i), Version: -1}})
		}
		round++
		err := c.multi(creates)
		if p.saw(outcome(err)); err != nil {
			nodes = max(1, nodes/2)
			return nil
		}
		p.saw(outcome(c.multi(deletes)))
		return nil
	})
}

// smallRequests sends cheap requests, as fast as the member answers.
func smallRequests(ctx context.Context, p *Play) error {
	const ephemerals, inFlight = 1000, 50
	return p.clients(10, func(i int, c *client) error {
		path := p.path(fmt.Sprint("small", i))
		child := func(n int) string { return fmt.Sprint(path, "-", n) }
		if err := c.multi(creates(ephemerals, child, wire.ModeEphemeral)); err != nil {
			return fmt.Errorf("%d ephemeral nodes: %w", ephemerals, err)
		}
		requests := []struct {
			op   wire.Op
			body wire.Record
		}{
			{wire.OpWhoAmI, nil},
			{wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true}},
			{wire.OpCheckWatches, wire.WatchesRequest{Path: path, Type: wire.WatchTypeAny}},
			{wire.OpRemoveWatches, wire.WatchesRequest{Path: path, Type: wire.WatchTypeAny}},
			{wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: path}},
		}
		return rounds(ctx, func() error {
			for range inFlight {
				for _, r := range requests {
					if err := c.post(r.op, r.body); err != nil {
						return nil // what was seen tells
					}
				}
			}
			for range inFlight * len(requests) {
				_, err := c.answer()
				if p.saw(outcome(err)); endOnly(err) != nil {
					return nil
				}
			}
			return nil
		})
	})
}

// identities shows 75 identities of 950 kB, and then writes once. Where the member takes fewer, the
// write comes with as many as it takes, of the largest size that it takes, too.
func identities(name string, leader bool) Attack {
	return Attack{
		Name: name, Port: ClientPort, Leader: leader, Disk: true,
		Sends: "75 auth packets of 950 kB, or as many and as large ones as are taken, then one delete",
		May:   []string{"AuthFailed", "NoNode", closed}, Least: 1, LeastBytes: 950_000,
		play: func(ctx context.Context, p *Play) error {
			for size := 950_000; ; size /= 2 {
				taken, err := p.identify(75, size)
				if err != nil || taken == 75 {
					return err
				}
				if taken > 0 {
					return rounds(ctx, func() error {
						_, err := p.identify(taken, size)
						return err
					})
				}
			}
		},
	}
}

// identify shows up to n identities of a size, and if all are taken, writes once.
func (p *Play) identify(n, sizeBytes int) (taken int, err error) {
	c, err := p.connect()
	if err != nil {
		return 0, err
	}
	defer c.leave()
	// The member keeps the user's name, and a hash instead of the secret.
	id := append(bytes.Repeat([]byte("x"), sizeBytes), ":secret"...)
	for ; taken < n; taken++ {
		copy(id, fmt.Sprintf("user%d", taken))
		if err := c.do(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: id}); err != nil {
			p.saw(outcome(err))
			return taken, nil
		}
	}
	p.saw(outcome(c.do(wire.OpDelete, wire.DeleteRequest{Path: p.path("none"), Version: -1})))
	return taken, nil
}

// bigNode is a node of nearly 1 MB. It is made from another address than the attack comes from, so
// that its connection does not count among the attack's.
func (p *Play) bigNode() (path string, err error) {
	c, err := p.connectFrom(p.host(1))
	if err != nil {
		return "", err
	}
	defer c.leave()
	path = p.path("big")
	return path, c.make(path, make([]byte, 1_000_000))
}

func multiReads(ctx context.Context, p *Play) error {
	path, err := p.bigNode()
	if err != nil {
		return err
	}
	var request wire.MultiRequest
	for range 2000 {
		request.Ops = append(request.Ops, wire.MultiOp{Op: wire.OpGetData, Record: &wire.PathWatchRequest{Path: path}})
	}
	return p.fresh(ctx, 4, func(c *client) error {
		p.saw(outcome(c.do(wire.OpMultiRead, request)))
		return nil
	})
}

func setWatches(ctx context.Context, p *Play) error {
	return p.clients(4, func(i int, c *client) error {
		round := 0
		return rounds(ctx, func() error {
			request := wire.SetWatchesRequest{Data: []string{}, Exist: []string{}, Child: []string{}}
			for n := range 100_000 {
				request.Exist = append(request.Exist, fmt.Sprintf("/%x%x", i+4*round, n))
			}
			round++
			return p.asks(c, wire.OpSetWatches, request)
		})
	})
}

// deepPaths makes a chain of nodes with a quota and a recursive watch each 100 levels, and writes
// to its end; and it asks for paths of half a million components.
func deepPaths(ctx context.Context, p *Play) error {
	const depth = 1500
	c, err := p.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	path := func(n int) string { return p.path("deep") + strings.Repeat("/d", n) }
	see := func(op wire.Op, body wire.Record) error {
		err := c.do(op, body)
		p.saw(outcome(err))
		return endOnly(err)
	}
	for i := range depth {
		err := see(wire.OpCreate, wire.CreateRequest{Path: path(i), ACL: wire.OpenACL})
		_ = c.make("/zookeeper/quota"+path(i), nil)
		if err == nil && i%100 == 0 {
			_ = c.make("/zookeeper/quota"+path(i)+"/zookeeper_stats", []byte("count=0,bytes=0"))
			limits := wire.CreateRequest{Path: "/zookeeper/quota" + path(i) + "/zookeeper_limits",
				Data: []byte("count=1000000,bytes=1000000000"), ACL: wire.OpenACL}
			err = errors.Join(see(wire.OpCreate, limits),
				see(wire.OpAddWatch, wire.AddWatchRequest{Path: path(i), Mode: wire.AddWatchPersistentRecursive}))
		}
		if err != nil {
			return nil // what was seen tells
		}
	}
	endless := wire.PathWatchRequest{Path: strings.Repeat("/d", 500_000), Watch: true}
	return rounds(ctx, func() error {
		for range 20 {
			set := wire.SetDataRequest{Path: path(depth - 1), Data: []byte("x"), Version: -1}
			if err := see(wire.OpSetData, set); err != nil {
				return nil
			}
		}
		for _, op := range []wire.Op{wire.OpExists, wire.OpGetData} {
			if err := see(op, endless); err != nil {
				return nil
			}
		}
		return nil
	})
}

// endOnly is err if it is the end of the connection.
func endOnly(err error) error {
	var code wire.Code
	if errors.As(err, &code) {
		return nil
	}
	return err
}

// ops are all types of request that a client may send, apart from the one that closes its session.
var ops = []wire.Op{
	wire.OpCreate, wire.OpDelete, wire.OpExists, wire.OpGetData, wire.OpSetData, wire.OpGetACL, wire.OpSetACL,
	wire.OpGetChildren, wire.OpSync, wire.OpPing, wire.OpGetChildren2, wire.OpCheck, wire.OpMulti, wire.OpCreate2,
	wire.OpReconfig, wire.OpCheckWatches, wire.OpRemoveWatches, wire.OpCreateContainer, wire.OpDeleteContainer,
	wire.OpCreateTTL, wire.OpMultiRead, wire.OpAuth, wire.OpSetWatches, wire.OpSASL, wire.OpGetEphemerals,
	wire.OpGetAllChildrenNumber, wire.OpSetWatches2, wire.OpAddWatch, wire.OpWhoAmI,
}

// worstAnswers are the permitted answers to a request without sense.
var worstAnswers = []string{
	ok, closed, "MarshallingError", "Unimplemented", "BadArguments", "NoNode", "NoAuth", "InvalidACL", "AuthFailed",
	"ReconfigDisabled", "NoWatcher", "NotEmpty", "BadVersion", "NodeExists", "NoChildrenForEphemerals",
	"RuntimeInconsistency",
}

// contents is the number of bodies of worst.
const contents = 8

// worst is a body without sense, the n-th of contents. Most bodies begin with a path, or a count.
func worst(n int, random []byte) raw {
	number := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	text := func(s string) []byte { return append(number(int32(len(s))), s...) }
	switch n {
	case 0:
		return nil
	case 1: // a huge count, and nothing behind it
		return number(1<<31 - 1)
	case 2: // a negative length
		return bytes.Repeat(number(-2), 1000)
	case 3: // as many empty strings as there is room for
		return append(number(250_000), make([]byte, 1_000_000)...)
	case 4: // a long path that is valid
		return append(text(strings.Repeat("/w", 400_000)), make([]byte, 200_000)...)
	case 5: // one component of 1 MB, then lengths that go beyond the frame
		return append(text("/"+strings.Repeat("w", 900_000)), bytes.Repeat(number(1<<30), 1000)...)
	case 6: // a valid path, then a vector that announces more than there is
		return append(append(text("/attack-worst"), number(80_000)...), make([]byte, 900_000)...)
	}
	return random
}

// worstRequests sends each type of request with each content.
func worstRequests(ctx context.Context, p *Play) error {
	rng := p.rng(0)
	return p.clients(1, func(_ int, c *client) error {
		return rounds(ctx, func() error {
			random := noise(rng, 1_000_000)
			for _, op := range ops {
				for n := range contents {
					if err := p.asks(c, op, worst(n, random)); err != nil {
						return fmt.Errorf("after %v with content %d: %w", op, n, err)
					}
				}
			}
			return nil
		})
	})
}
