package attack

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/wire"
)

// hostileTenants is the number of addresses with clients that ask for all they can get.
const hostileTenants = 10

// tenants are attacks by clients with ordinary rights, on clusters with quotas for them.
func tenants() []Attack {
	return []Attack{
		{
			Name: "tenants", Port: ClientPort,
			Sends: "writes of 10 KB, multis, listings of 1,000 nodes, watches and new sessions, each by ten tenants " +
				"as fast as they are answered, over 5 connections each",
			Settings: []string{"rateQuota.1=requests=200 writes=50 bytes=500000 watches=1000 sessions=10 for ip:*"},
			// A multi uses up four seconds' writes of its tenant, so a client may see one answer.
			May: []string{ok, refused, closed, wire.CodeBadArguments.Error()}, Least: 40, LeastBytes: 200_000,
			play: hostile,
		},
	}
}

// fill makes a directory of n nodes, of which each of some tenants makes as many as it may at once.
func (p *Play) fill(parent string, n int) error {
	const batch, first = 40, 100
	for from := 0; from < n; from += batch {
		c, err := p.connectFrom(p.host(first + from/batch))
		if err != nil {
			return err
		}
		err = c.make(parent, nil)
		path := func(i int) string { return fmt.Sprintf("%s/n%d", parent, from+i) }
		err = errors.Join(err, c.multi(creates(batch, path, wire.ModePersistent)))
		c.leave()
		if err != nil {
			return err
		}
	}
	return nil
}

func hostile(ctx context.Context, p *Play) error {
	parent := p.path("tenants")
	if err := p.fill(parent, 1000); err != nil {
		return err
	}
	multi := wire.MultiRequest{}
	for i := range 200 {
		multi.Ops = append(multi.Ops, wire.MultiOp{Op: wire.OpSetData,
			Record: &wire.SetDataRequest{Path: fmt.Sprintf("%s/n%d", parent, i), Version: -1}})
	}
	asks := []struct {
		op   wire.Op
		body func(n int) wire.Record
	}{
		{wire.OpSetData, func(int) wire.Record {
			return wire.SetDataRequest{Path: parent, Data: make([]byte, 10_000), Version: -1}
		}},
		{wire.OpMulti, func(int) wire.Record { return multi }},
		{wire.OpGetChildren2, func(int) wire.Record { return wire.PathWatchRequest{Path: parent, Watch: true} }},
		{wire.OpGetData, func(n int) wire.Record {
			return wire.PathWatchRequest{Path: fmt.Sprintf("%s/n%d", parent, n%1000), Watch: true}
		}},
	}
	kinds := len(asks) + 1
	return each(hostileTenants*kinds, func(i int) error {
		host, kind := p.host(1+i/kinds), i%kinds
		if kind == len(asks) {
			return rounds(ctx, func() error { return p.openOne(host) })
		}
		c, err := p.connectFrom(host)
		if err != nil { // the tenant's other clients have opened too many
			p.saw(refused)
			return nil
		}
		defer c.leave()
		n := 0
		return rounds(ctx, func() error {
			n++
			err := c.do(asks[kind].op, asks[kind].body(n))
			p.saw(outcome(err))
			if errors.Is(err, wire.CodeBadArguments) {
				return nil
			}
			return endOnly(err)
		})
	})
}

// openOne opens a session, and leaves it to itself.
func (p *Play) openOne(host string) error {
	c, err := p.connectFrom(host)
	if err != nil {
		p.saw(refused)
		return nil
	}
	p.saw(ok)
	return c.Close()
}
