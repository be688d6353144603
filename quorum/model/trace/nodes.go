package trace

import "lockkeeper/wire"

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

// between is the changes of a node behind a zxid, up to another one, without one type of event.
func (n nodes) between(path string, behind, upTo wire.Zxid, without wire.EventType) (list []change) {
	for _, x := range n[path] {
		if x.zxid > behind && x.zxid <= upTo && x.kind != without {
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
	const data, children, deleted = wire.EventNodeDataChanged, wire.EventNodeChildrenChanged, wire.EventNodeDeleted
	for _, path := range w.Data {
		if len(n.between(path, w.RelativeZxid, shown, children)) > 0 && !told[Change{data, path}] &&
			!told[Change{deleted, path}] {
			return path
		}
	}
	for _, path := range w.Child {
		if len(n.between(path, w.RelativeZxid, shown, data)) > 0 && !told[Change{children, path}] &&
			!told[Change{deleted, path}] {
			return path
		}
	}
	for _, path := range w.Exist {
		list := n.between(path, w.RelativeZxid, shown, children)
		if last := len(list) - 1; last >= 0 && list[last].kind != deleted &&
			!told[Change{wire.EventNodeCreated, path}] {
			return path
		}
	}
	return ""
}
