package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// Records of Final about a tree.
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
		if !jepsen.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("workload: read %s at the end: %w", root, err)
		}
	}
}

func (w *worker) tellTreeOnce(ctx context.Context, root string) error {
	l, err := w.open(ctx, w.member(), session{})
	if err != nil {
		return err
	}
	// Behind the sync, reads see all that was written before it.
	err = l.each(ctx, []string{root}, wire.OpSync, syncs, nil)
	var found []jepsen.Op
	for parents := []string{root}; err == nil && len(parents) > 0; {
		var children []string
		err = l.each(ctx, parents, wire.OpGetChildren, reads, func(path string, answer wire.Record) {
			for _, name := range answer.(*wire.GetChildrenResponse).Children {
				children = append(children, path+"/"+name)
			}
		})
		parents = nil
		if err == nil {
			err = l.each(ctx, children, wire.OpGetData, reads, func(path string, answer wire.Record) {
				found = append(found, nodeFound(path, answer.(*wire.GetDataResponse)))
				if answer.(*wire.GetDataResponse).Stat.NumChildren > 0 {
					parents = append(parents, path)
				}
			})
		}
	}
	if err != nil {
		l.lost(err)
		return err
	}
	for _, op := range found {
		w.add(op)
	}
	w.add(jepsen.Op{Kind: jepsen.Info, F: fFinal, Path: root, Version: int32(len(found))})
	l.leave(ignore)
	return nil
}

// nodeFound is the entry about a node that is there.
func nodeFound(path string, a *wire.GetDataResponse) jepsen.Op {
	op := jepsen.Op{
		Kind: jepsen.Info, F: fFound, Path: path, Value: string(a.Data), Version: a.Stat.Version,
		Zxid: int64(a.Stat.Czxid),
		Note: fmt.Sprintf("%d children", a.Stat.NumChildren),
	}
	if owner := a.Stat.EphemeralOwner; owner != 0 {
		op.Session = sessionText(int64(owner))
	}
	return op
}

// Bodies of requests that differ by their path only.
func reads(path string) wire.Record { return wire.PathWatchRequest{Path: path} }
func syncs(path string) wire.Record { return wire.SyncRequest{Path: path} }
func makes(path string) wire.Record { return wire.CreateRequest{Path: path, ACL: wire.OpenACL} }

// each makes the same request about many nodes, some at a time, and gives the answers to see, which
// may be nil. That a node does not exist, or exists already, is no error, and gives no answer.
func (l *link) each(ctx context.Context, paths []string, code wire.Op, body func(path string) wire.Record,
	see func(string, wire.Record)) error {
	const atOnce = 500
	for some := range slices.Chunk(paths, atOnce) {
		var b []byte
		for _, path := range some {
			b = l.add(b, code, body(path), jepsen.Op{})
		}
		if err := l.send(b); err != nil {
			return err
		}
		var wrong error
		if err := l.drain(ctx, func(f frame) {
			if f.request == nil || f.request.code != code {
				return
			}
			path := some[0]
			some = some[1:]
			answer, err := wire.DecodeResponse(code, f.body)
			switch {
			case f.header.Err == wire.CodeNoNode, f.header.Err == wire.CodeNodeExists:
			case f.header.Err != wire.CodeOK:
				wrong = f.header.Err
			case err != nil:
				wrong = err
			case see != nil:
				see(path, answer)
			}
		}); err != nil || wrong != nil {
			return errors.Join(err, wrong)
		}
	}
	return nil
}
