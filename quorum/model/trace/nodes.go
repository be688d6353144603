package trace

import (
	"slices"

	"lockkeeper/wire"
)

// nodes are the changes of each node that everybody may read, by its path, in their order.
type nodes map[string][]change

type change struct {
	zxid wire.Zxid
	kind wire.EventType
}

func (n nodes) add(c Command) {
	for _, x := range c.Changes {
		n[x.Path] = append(n[x.Path], change{c.Zxid, x.Type})
	}
}

// between is the changes of a node behind a zxid, up to another one.
func (n nodes) between(path string, behind, upTo wire.Zxid) (list []change) {
	for _, x := range n[path] {
		if x.zxid > behind && x.zxid <= upTo {
			list = append(list, x)
		}
	}
	return list
}

// untold is a path with a change that the client of a setWatches has missed and was not told of,
// when the reply shows a zxid; empty: there is none. A client that has a watch of data or children
// is told that the node has changed or is deleted, one that waits for a node that it exists
// (ZooKeeper 3.8, DataTree.setWatches).
func (n nodes) untold(w *wire.SetWatchesRequest, shown wire.Zxid, told map[Change]bool) string {
	const created, deleted = wire.EventNodeCreated, wire.EventNodeDeleted
	changed := func(path string, except wire.EventType) bool {
		for _, x := range n.between(path, w.RelativeZxid, shown) {
			if x.kind != except {
				return true
			}
		}
		return false
	}
	for _, path := range w.Data {
		if changed(path, wire.EventNodeChildrenChanged) && !told[Change{wire.EventNodeDataChanged, path}] &&
			!told[Change{deleted, path}] {
			return path
		}
	}
	for _, path := range w.Child {
		if changed(path, wire.EventNodeDataChanged) && !told[Change{wire.EventNodeChildrenChanged, path}] &&
			!told[Change{deleted, path}] {
			return path
		}
	}
	for _, path := range w.Exist {
		list := slices.DeleteFunc(n.between(path, w.RelativeZxid, shown), func(x change) bool {
			return x.kind == wire.EventNodeChildrenChanged
		})
		if m := len(list); m > 0 && list[m-1].kind != deleted && !told[Change{created, path}] {
			return path
		}
	}
	return ""
}
