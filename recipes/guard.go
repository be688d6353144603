package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/mutant"
	"lockkeeper/locknode"
)

// Guard does all of ops, or none, as *zk.Conn.Multi, but only if this grant still
// stands when the cluster gets to it: in the same transaction it checks that the
// lock's node is there. So nobody else can have been granted the lock by then,
// however long this process was stopped, and wherever the request was on its way
// meanwhile. It is what makes data that are in the cluster itself safe without
// a fencing token.
//
// The ops are *zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest and
// *zk.CheckVersionRequest; the results are those of the ops, in order.
//
// If the grant has ended, the error is the reason, and nothing was done. If it
// is ErrUnknown, the connection broke or ctx ended, and all or nothing may have
// been done, or may be done yet; but nothing after the grant's end, and so nothing
// after the return of an Unlock with nil. Other errors are those of the ops.
//
// The grants of a SimpleMutex have no guard: ErrNoGuard.
func (g *Grant) Guard(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return guard(ctx, []*Grant{g}, ops)
}

// guard is Guard for grants of one session.
func guard(ctx context.Context, grants []*Grant, ops []any) ([]zk.MultiResponse, error) {
	all := make([]any, 0, len(grants)+len(ops))
	for _, g := range grants {
		err := g.Err()
		if err == nil && g.p.single {
			err = ErrNoGuard
		}
		if err != nil {
			return nil, fmt.Errorf("recipes: guard %s: %w", g.path, err)
		}
		node := g.node
		if mutant.On(mutant.GuardUnchecked) {
			node = g.p.dir
		}
		all = append(all, &zk.CheckVersionRequest{Path: node, Version: -1})
	}
	s := grants[0].p.s
	type answer struct {
		results []zk.MultiResponse
		err     error
	}
	done := make(chan answer, 1)
	if !s.spawn(func() {
		results, err := s.conn.Multi(append(all, ops...)...)
		done <- answer{results, err}
	}) {
		return nil, fmt.Errorf("recipes: guard %s: %w", grants[0].path, s.closed())
	}
	select {
	case a := <-done:
		return guarded(grants, a.results, a.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("recipes: guard %s: %w: %w", grants[0].path, ErrUnknown, ctx.Err())
	}
}

// guarded returns the outcome of a guarded multi.
func guarded(grants []*Grant, results []zk.MultiResponse, err error) ([]zk.MultiResponse, error) {
	for i, g := range grants {
		if err != nil && i < len(results) && errors.Is(results[i].Error, zk.ErrNoNode) {
			g.lose(g.p.gone(zk.ErrNoNode))
			return nil, fmt.Errorf("recipes: guard %s: %w", g.path, g.Err())
		}
	}
	results = results[min(len(grants), len(results)):]
	switch {
	case err == nil:
		return results, nil
	case fateOf(err) == fateRefused:
		return results, fmt.Errorf("recipes: guard %s: %w", grants[0].path, err)
	}
	return nil, fmt.Errorf("recipes: guard %s: %w: %w", grants[0].path, ErrUnknown, err)
}

// Valid asks the cluster whether the grant stands, and returns nil if it does,
// else why it does not, as Err. Held knows as much, sooner and for less, unless
// something out of the ordinary has happened that its watch has not told yet:
// somebody has deleted the lock's node, or has put another in front of it
// (ErrOvertaken). A grant that is found to be gone is lost from then on.
//
// The question goes through the cluster's leader and a majority, so the answer is
// not older than the call. It is, as all such answers, about the past when it
// arrives. If ctx ends before it is known, the error is ctx's, and the grant is as
// it was.
func (g *Grant) Valid(ctx context.Context) error {
	if err := g.Err(); err != nil {
		return fmt.Errorf("recipes: valid %s: %w", g.path, err)
	}
	verdict, err := ask(ctx, g.p.s, g.examine)
	if err == nil && verdict != nil {
		g.lose(verdict)
	}
	if err == nil {
		err = g.Err()
	}
	if err != nil {
		return fmt.Errorf("recipes: valid %s: %w", g.path, err)
	}
	return nil
}

// examine looks at the lock's node and the queue. The verdict is why the grant is
// lost; the error is why that cannot be said.
func (g *Grant) examine() (verdict, err error) {
	p := g.p
	if err := p.s.writeNothing(); err != nil {
		return nil, err
	}
	_, stat, err := p.s.conn.Get(g.node)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return p.gone(err), nil
	case err != nil:
		return nil, err
	case stat.Czxid != g.token:
		return ErrDeleted, nil // and made again, by somebody who copies names
	}
	if p.single || p.turn != nil {
		return nil, nil // it has no order, or it counts when it is granted
	}
	return g.examineQueue()
}

func (g *Grant) examineQueue() (verdict, err error) {
	_, own := split(g.node)
	names, _, err := g.p.s.conn.Children(g.p.dir)
	if err != nil {
		return nil, err
	}
	reads := g.Kind() == KindRead
	passed := make(map[string]bool)
	for {
		front, found := predecessor(names, own, func(name string) bool {
			return passed[name] || reads && locknode.KindOf(name) == KindRead
		})
		switch {
		case !found:
			return g.p.gone(zk.ErrNoNode), nil
		case front == "":
			return nil, nil
		}
		data, stat, err := g.p.s.conn.Get(g.p.dir + "/" + front)
		switch {
		case err != nil && !errors.Is(err, zk.ErrNoNode):
			return nil, err
		case err == nil && ephemeral(stat.EphemeralOwner) && !twinBehind(front, own, stat.Czxid, g.token) &&
			!(reads && downgraded(data)):
			return ErrOvertaken, nil
		}
		passed[front] = true
	}
}
