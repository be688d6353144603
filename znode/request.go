package znode

import (
	"fmt"

	"lockkeeper/wire"
)

// anyVersion as the expected version of a request matches every version.
const anyVersion = -1

// request applies a client's request that is not closeSession. The order of the tests in everything
// below it is the precedence of the errors (docs/protocol/wire.md section 8.2): the first that
// fails is the answer.
func (t *tx) request(c *Command, q *Request, r *Result) wire.Code {
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpSync, wire.OpMulti:
	case wire.OpReconfig:
		return t.reconfig(c, q.Body, r)
	default:
		return wire.CodeUnimplemented
	}
	record, err := wire.DecodeBody(q.Op, q.Body)
	if err != nil {
		return wire.CodeMarshallingError
	}
	switch req := record.(type) {
	case *wire.SyncRequest:
		r.Path = req.Path // it changes nothing
		return wire.CodeOK
	case *wire.MultiRequest:
		return t.multiRequest(req.Ops, r)
	}
	return t.op(q.Op, record, &r.Path, &r.Stat)
}

// op applies a request, or a part of a multi, that is about one node. It sets path and stat to the
// values in the answer to op.
func (t *tx) op(op wire.Op, record wire.Record, path *string, stat *wire.Stat) wire.Code {
	switch req := record.(type) {
	case *wire.CreateRequest:
		return t.create(op, req, noTTL, path, stat)
	case *wire.CreateTTLRequest:
		create := wire.CreateRequest{Path: req.Path, Data: req.Data, ACL: req.ACL, Mode: req.Mode}
		return t.create(op, &create, req.TTL, path, stat)
	case *wire.DeleteRequest:
		return t.delete(req)
	case *wire.SetDataRequest:
		return t.setData(req, stat)
	case *wire.SetACLRequest:
		return t.setACL(req, stat)
	case *wire.CheckVersionRequest:
		return t.check(req)
	}
	// Neither request nor the decoder of multis lets another op pass, so this is a program error,
	// and members might differ in it.
	panic(fmt.Sprintf("znode: %v is applied to a node", op))
}

// multiRequest applies the ops of a multi one after the other, each seeing the effects of the ones
// before it. If one fails, all are undone and nothing remains of them: not an event, not a number
// in a parent's sequence.
func (t *tx) multiRequest(ops []wire.MultiOp, r *Result) wire.Code {
	t.effects.undoing = true
	for i := range ops {
		t.multi = append(t.multi, OpResult{Op: ops[i].Op})
		res := &t.multi[i]
		switch res.Op {
		case wire.OpCreateContainer, wire.OpCreateTTL:
			res.Op = wire.OpCreate2
		}
		code := t.op(ops[i].Op, ops[i].Record, &res.Path, &res.Stat)
		if code == wire.CodeOK {
			continue
		}
		t.effects.rollback()
		if code == wire.CodeMarshallingError {
			// ZooKeeper does not refuse the op, but fails at it, and so the whole request fails.
			return code
		}
		t.failMulti(i, len(ops), code)
		break
	}
	r.Multi = t.multi
	return wire.CodeOK
}

// failMulti sets the results of a multi of n ops after op number at has failed with code.
func (t *tx) failMulti(at, n int, code wire.Code) {
	t.multi = t.multi[:0]
	for i := range n {
		res := OpResult{Op: wire.OpError}
		switch {
		case i == at:
			res.Code = code
		case i > at:
			res.Code = wire.CodeRuntimeInconsistency
		}
		t.multi = append(t.multi, res)
	}
}

// noTTL is the time to live for requests that have no such field.
const noTTL = -1

// create makes a node. ttl is in milliseconds.
func (t *tx) create(op wire.Op, req *wire.CreateRequest, ttl int64, path *string, stat *wire.Stat) wire.Code {
	tree := t.state.tree
	kind := kindPersistent
	switch {
	case !req.Mode.Valid():
		return wire.CodeBadArguments
	case op == wire.OpCreateTTL && !req.Mode.TTL():
		return wire.CodeBadArguments // ZooKeeper crashes on some of these
	case req.Mode.TTL():
		kind = kindTTL
		if t.flags&ExtendedTypes == 0 {
			return wire.CodeUnimplemented
		}
		if ttl <= 0 || ttl > wire.MaxTTLMs {
			return wire.CodeBadArguments
		}
	case op == wire.OpCreateContainer:
		// The op makes a container, and not the mode: the decoder gives that op to each create of a
		// multi that has the mode.
		kind = kindContainer
	case req.Mode.Ephemeral():
		kind = kindEphemeral
	}
	parentPath, _, ok := split(req.Path)
	if !ok {
		return wire.CodeBadArguments
	}
	acl, code := fixACL(req.ACL, t.ids, t.flags)
	if code != wire.CodeOK {
		return code
	}
	parent, p, code := t.permitted(parentPath, wire.PermCreate)
	if code != wire.CodeOK {
		return code
	}
	full := req.Path
	if req.Mode.Sequential() {
		full = fmt.Sprintf("%s%0*d", full, sequenceDigits, tree.details(p).creates)
	}
	if !ValidPath(full) {
		return wire.CodeBadArguments
	}
	if _, ok := tree.find(full); ok {
		return wire.CodeNodeExists
	}
	if tree.kind(p) == kindEphemeral {
		return wire.CodeNoChildrenForEphemerals
	}
	if t.flags&EnforceQuota != 0 {
		if code := tree.checkQuota(tree.quotaFor(full, parent), 1, int64(len(req.Data))); code != wire.CodeOK {
			return code
		}
	}
	dir, name := splitPath(full)
	n := record{
		dir: dir,
		node: node{body: newBody(name, req.Data), acl: tree.acls.intern(acl),
			czxid: t.effects.zxid, ctimeMs: t.state.timeMs},
		details: plain(t.effects.zxid, t.state.timeMs),
	}
	n.kind = kind
	if n.mayPerish() {
		n.usedMs = t.state.clock.nowMs()
	}
	switch kind {
	case kindEphemeral:
		n.owner = int64(t.session)
	case kindTTL:
		n.owner = ttl
	}
	*path, *stat = full, tree.stat(t.effects.createNode(&n, full, parent))
	return wire.CodeOK
}

// delete deletes a node.
func (t *tx) delete(req *wire.DeleteRequest) wire.Code {
	tree := t.state.tree
	parentPath, _, ok := split(req.Path)
	if !ok || builtIn(req.Path) {
		return wire.CodeBadArguments
	}
	if _, _, code := t.permitted(parentPath, wire.PermDelete); code != wire.CodeOK {
		return code
	}
	i, ok := tree.find(req.Path)
	if !ok {
		return wire.CodeNoNode
	}
	n := tree.nodes.row(i)
	if req.Version != anyVersion && req.Version != tree.details(n).version {
		return wire.CodeBadVersion
	}
	if tree.childCount(n) > 0 {
		return wire.CodeNotEmpty
	}
	t.effects.deleteNode(i, req.Path)
	return wire.CodeOK
}

// setData replaces the data of a node.
func (t *tx) setData(req *wire.SetDataRequest, stat *wire.Stat) wire.Code {
	tree := t.state.tree
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	i, n, code := t.permitted(req.Path, wire.PermWrite)
	if code != wire.CodeOK {
		return code
	}
	if t.flags&EnforceQuota != 0 {
		if code := tree.checkQuota(tree.quotaAt(i), 0, int64(len(req.Data)-len(n.data()))); code != wire.CodeOK {
			return code
		}
	}
	if req.Version != anyVersion && req.Version != tree.details(n).version {
		return wire.CodeBadVersion
	}
	d := t.effects.edit(i, req.Path)
	d.version++ // wraps, as in ZooKeeper
	d.mzxid, d.mtimeMs = t.effects.zxid, t.state.timeMs
	if d.mayPerish() {
		d.usedMs = t.state.clock.nowMs()
	}
	tree.replaceData(i, req.Path, req.Data)
	t.effects.event(wire.EventNodeDataChanged, i, req.Path)
	*stat = tree.stat(i)
	return wire.CodeOK
}

// setACL replaces the ACL of a node.
func (t *tx) setACL(req *wire.SetACLRequest, stat *wire.Stat) wire.Code {
	tree := t.state.tree
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	acl, code := fixACL(req.ACL, t.ids, t.flags)
	if code != wire.CodeOK {
		return code
	}
	i, n, code := t.permitted(req.Path, wire.PermAdmin)
	if code != wire.CodeOK {
		return code
	}
	if req.Version != anyVersion && req.Version != tree.details(n).aversion {
		return wire.CodeBadVersion
	}
	t.effects.edit(i, req.Path).aversion++
	n = tree.nodes.mut(i)
	old := n.acl
	n.acl = tree.acls.intern(acl)
	tree.acls.release(old)
	*stat = tree.stat(i)
	return wire.CodeOK
}

// check tests that a node exists and has a version. It is part of a multi.
func (t *tx) check(req *wire.CheckVersionRequest) wire.Code {
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	_, n, code := t.permitted(req.Path, wire.PermRead)
	if code != wire.CodeOK {
		return code
	}
	if req.Version != anyVersion && req.Version != t.state.tree.details(n).version {
		return wire.CodeBadVersion
	}
	return wire.CodeOK
}

// permitted finds the node at path, on which the command's connection must have the permission.
func (t *tx) permitted(path string, want wire.Perm) (slot, *node, wire.Code) {
	tree := t.state.tree
	i, ok := tree.find(path)
	if !ok {
		return noSlot, nil, wire.CodeNoNode
	}
	n := tree.nodes.row(i)
	if !t.allowed(n, want) {
		return noSlot, nil, wire.CodeNoAuth
	}
	return i, n, wire.CodeOK
}

// allowed reports whether the command's connection has the permission on n. The permissions that an
// ACL grants it are computed once for each command, because a multi may check the same ACL many
// times.
func (t *tx) allowed(n *node, want wire.Perm) bool {
	if t.flags&SkipACL != 0 || n.acl.anyone&want != 0 {
		return true
	}
	perms, known := t.granted[n.acl]
	if !known {
		if perms = n.acl.granted(t.ids); t.granted == nil {
			t.granted = map[*aclList]wire.Perm{}
		}
		t.granted[n.acl] = perms
	}
	return perms&want != 0
}
