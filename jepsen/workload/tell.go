package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// What Final tells of a tree.
const (
	fFound = "found" // a node that is there, with its Value, Version, czxid and owner
	fFinal = "final" // all below Path has been told
)

// tellTree tells the history of every node below root, behind a sync, and then
// that this was all. It begins anew when the connection breaks.
func (w *worker) tellTree(ctx context.Context, root string) error {
	for {
		err := w.tellTreeOnce(ctx, root)
		if err == nil {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("workload: read %s at the end: %w", root, err)
		}
	}
}

func (w *worker) tellTreeOnce(ctx context.Context, root string) error {
	l, err := w.open(ctx, w.member(), session{})
	if err != nil {
		return err
	}
	t := &teller{l: l, ctx: ctx}
	err = t.ask(wire.OpSync, wire.SyncRequest{Path: root})
	if err == nil {
		err = t.below([]string{root})
	}
	if err != nil {
		l.lost(err)
		return err
	}
	for _, op := range t.found {
		w.add(op)
	}
	w.add(jepsen.Op{Kind: jepsen.Info, F: fFinal, Path: root, Version: int32(len(t.found))})
	l.leave(func(frame) {})
	return nil
}

// teller reads a tree.
type teller struct {
	l     *link
	ctx   context.Context
	found []jepsen.Op
}

// below reads what is below some nodes.
func (t *teller) below(parents []string) error {
	for len(parents) > 0 {
		var children []string
		if err := t.each(parents, wire.OpGetChildren, func(path string, answer wire.Record) {
			for _, name := range answer.(*wire.GetChildrenResponse).Children {
				children = append(children, path+"/"+name)
			}
		}); err != nil {
			return err
		}
		parents = nil
		if err := t.each(children, wire.OpGetData, func(path string, answer wire.Record) {
			a := answer.(*wire.GetDataResponse)
			t.found = append(t.found, jepsen.Op{
				Kind: jepsen.Info, F: fFound, Path: path, Value: string(a.Data), Version: a.Stat.Version, Zxid: int64(a.Stat.Czxid),
				Session: ownerText(a.Stat.EphemeralOwner), Note: fmt.Sprintf("%d children", a.Stat.NumChildren),
			})
			if a.Stat.NumChildren > 0 {
				parents = append(parents, path)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// ownerText is the session of an ephemeral node, "" for others.
func ownerText(id wire.SessionID) string {
	if id == 0 {
		return ""
	}
	return sessionText(int64(id))
}

// each asks the same of many nodes, some at a time. What has gone meanwhile is
// passed over.
func (t *teller) each(paths []string, code wire.Op, see func(string, wire.Record)) error {
	const some = 500
	for len(paths) > 0 {
		n := min(some, len(paths))
		var b []byte
		for _, path := range paths[:n] {
			b = t.l.add(b, code, wire.PathWatchRequest{Path: path}, jepsen.Op{})
		}
		if err := t.l.send(b); err != nil {
			return err
		}
		var wrong error
		if err := t.l.drain(t.ctx, func(f frame) {
			if f.request == nil || f.header.Err == wire.CodeNoNode {
				return
			}
			answer, err := wire.DecodeResponse(code, f.body)
			if f.header.Err != wire.CodeOK {
				err = f.header.Err
			}
			if err != nil {
				wrong = err
				return
			}
			see(f.request.body.(wire.PathWatchRequest).Path, answer)
		}); err != nil {
			return err
		}
		if wrong != nil {
			return wrong
		}
		paths = paths[n:]
	}
	return nil
}

// ask makes one request and waits for its answer.
func (t *teller) ask(code wire.Op, body wire.Record) error {
	if err := t.l.send(t.l.add(nil, code, body, jepsen.Op{})); err != nil {
		return err
	}
	var refused error
	err := t.l.drain(t.ctx, func(f frame) { refused = f.header.Err.Err() })
	return errors.Join(err, refused)
}
