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
func (s *Store) request(c *Command, q *Request, r *Result) wire.Code {
	switch q.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpSync, wire.OpMulti:
	case wire.OpReconfig:
		return s.reconfig(c, q.Body, r)
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
		return s.multiRequest(req.Ops, r)
	}
	return s.op(q.Op, record, &r.Path, &r.Stat)
}

// op applies a request, or a part of a multi, that is about one node. It sets path and stat to the
// values in the answer to op.
func (s *Store) op(op wire.Op, record wire.Record, path *string, stat *wire.Stat) wire.Code {
	switch req := record.(type) {
	case *wire.CreateRequest:
		return s.create(op, req, noTTL, path, stat)
	case *wire.CreateTTLRequest:
		create := wire.CreateRequest{Path: req.Path, Data: req.Data, ACL: req.ACL, Mode: req.Mode}
		return s.create(op, &create, req.TTL, path, stat)
	case *wire.DeleteRequest:
		return s.delete(req)
	case *wire.SetDataRequest:
		return s.setData(req, stat)
	case *wire.SetACLRequest:
		return s.setACL(req, stat)
	case *wire.CheckVersionRequest:
		return s.check(req)
	}
	// Neither request nor the decoder of multis lets another op pass, so this is a program error,
	// and members might differ in it.
	panic(fmt.Sprintf("znode: %v is applied to a node", op))
}

// multiRequest applies the ops of a multi one after the other, each seeing the effects of the ones
// before it. If one fails, all are undone and nothing remains of them: not an event, not a number
// in a parent's sequence.
func (s *Store) multiRequest(ops []wire.MultiOp, r *Result) wire.Code {
	s.tx.undoing = true
	for i := range ops {
		s.multi = append(s.multi, OpResult{Op: ops[i].Op})
		res := &s.multi[i]
		switch res.Op {
		case wire.OpCreateContainer, wire.OpCreateTTL:
			res.Op = wire.OpCreate2
		}
		code := s.op(ops[i].Op, ops[i].Record, &res.Path, &res.Stat)
		if code == wire.CodeOK {
			continue
		}
		s.rollback()
		if code == wire.CodeMarshallingError {
			// ZooKeeper does not refuse the op, but fails at it, and so the whole request fails.
			return code
		}
		s.failMulti(i, len(ops), code)
		break
	}
	r.Multi = s.multi
	return wire.CodeOK
}

// failMulti sets the results of a multi of n ops after op number at has failed with code.
func (s *Store) failMulti(at, n int, code wire.Code) {
	s.multi = s.multi[:0]
	for i := range n {
		res := OpResult{Op: wire.OpError}
		switch {
		case i == at:
			res.Code = code
		case i > at:
			res.Code = wire.CodeRuntimeInconsistency
		}
		s.multi = append(s.multi, res)
	}
}

// noTTL is the time to live for requests that have no such field.
const noTTL = -1

// create makes a node. ttl is in milliseconds.
func (s *Store) create(op wire.Op, req *wire.CreateRequest, ttl int64, path *string, stat *wire.Stat) wire.Code {
	kind := kindPersistent
	switch {
	case !req.Mode.Valid():
		return wire.CodeBadArguments
	case op == wire.OpCreateTTL && !req.Mode.TTL():
		return wire.CodeBadArguments // ZooKeeper crashes on some of these
	case req.Mode.TTL():
		kind = kindTTL
		if s.tx.flags&ExtendedTypes == 0 {
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
	acl, code := fixACL(req.ACL, s.tx.ids, s.tx.flags)
	if code != wire.CodeOK {
		return code
	}
	parent, p, code := s.permitted(parentPath, wire.PermCreate)
	if code != wire.CodeOK {
		return code
	}
	full := req.Path
	if req.Mode.Sequential() {
		full = fmt.Sprintf("%s%0*d", full, sequenceDigits, p.creates)
	}
	if !ValidPath(full) {
		return wire.CodeBadArguments
	}
	if _, ok := s.paths[full]; ok {
		return wire.CodeNodeExists
	}
	if p.kind == kindEphemeral {
		return wire.CodeNoChildrenForEphemerals
	}
	if code := s.checkQuota(s.quotaFor(full, parent), 1, int64(len(req.Data))); code != wire.CodeOK {
		return code
	}
	n := node{
		path: full, data: keep(req.Data), acl: s.acls.intern(acl),
		czxid: s.tx.zxid, mzxid: s.tx.zxid, pzxid: s.tx.zxid,
		ctimeMs: s.timeMs, mtimeMs: s.timeMs, kind: kind,
	}
	if n.mayPerish() {
		n.usedMs = s.clock.nowMs()
	}
	switch kind {
	case kindEphemeral:
		n.owner = int64(s.tx.session)
	case kindTTL:
		n.owner = ttl
	}
	*path, *stat = full, s.stat(s.createNode(n, parent))
	return wire.CodeOK
}

// delete deletes a node.
func (s *Store) delete(req *wire.DeleteRequest) wire.Code {
	parentPath, _, ok := split(req.Path)
	if !ok || builtIn(req.Path) {
		return wire.CodeBadArguments
	}
	if _, _, code := s.permitted(parentPath, wire.PermDelete); code != wire.CodeOK {
		return code
	}
	i, ok := s.find(req.Path)
	if !ok {
		return wire.CodeNoNode
	}
	if req.Version != anyVersion && req.Version != s.nodes.row(i).version {
		return wire.CodeBadVersion
	}
	if s.link(i).children > 0 {
		return wire.CodeNotEmpty
	}
	s.deleteNode(i)
	return wire.CodeOK
}

// setData replaces the data of a node.
func (s *Store) setData(req *wire.SetDataRequest, stat *wire.Stat) wire.Code {
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	i, n, code := s.permitted(req.Path, wire.PermWrite)
	if code != wire.CodeOK {
		return code
	}
	if code := s.checkQuota(s.quotaAt(i), 0, int64(len(req.Data)-len(n.data))); code != wire.CodeOK {
		return code
	}
	if req.Version != anyVersion && req.Version != n.version {
		return wire.CodeBadVersion
	}
	n = s.edit(i)
	n.version++ // wraps, as in ZooKeeper
	n.mzxid, n.mtimeMs = s.tx.zxid, s.timeMs
	if n.mayPerish() {
		n.usedMs = s.clock.nowMs()
	}
	s.replaceData(i, n, keep(req.Data))
	s.event(wire.EventNodeDataChanged, n, s.link(i).parent)
	*stat = s.stat(i)
	return wire.CodeOK
}

// setACL replaces the ACL of a node.
func (s *Store) setACL(req *wire.SetACLRequest, stat *wire.Stat) wire.Code {
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	acl, code := fixACL(req.ACL, s.tx.ids, s.tx.flags)
	if code != wire.CodeOK {
		return code
	}
	i, n, code := s.permitted(req.Path, wire.PermAdmin)
	if code != wire.CodeOK {
		return code
	}
	if req.Version != anyVersion && req.Version != n.aversion {
		return wire.CodeBadVersion
	}
	n = s.edit(i)
	n.aversion++
	old := n.acl
	n.acl = s.acls.intern(acl)
	s.acls.release(old)
	*stat = s.stat(i)
	return wire.CodeOK
}

// check tests that a node exists and has a version. It is part of a multi.
func (s *Store) check(req *wire.CheckVersionRequest) wire.Code {
	if !ValidPath(req.Path) {
		return wire.CodeBadArguments
	}
	_, n, code := s.permitted(req.Path, wire.PermRead)
	if code != wire.CodeOK {
		return code
	}
	if req.Version != anyVersion && req.Version != n.version {
		return wire.CodeBadVersion
	}
	return wire.CodeOK
}

// permitted finds the node at path, on which the command's connection must have the permission.
func (s *Store) permitted(path string, want wire.Perm) (slot, *node, wire.Code) {
	i, ok := s.find(path)
	if !ok {
		return noSlot, nil, wire.CodeNoNode
	}
	n := s.nodes.row(i)
	if !s.allowed(n, want) {
		return noSlot, nil, wire.CodeNoAuth
	}
	return i, n, wire.CodeOK
}

// allowed reports whether the command's connection has the permission on n. The permissions that an
// ACL grants it are computed once for each command, because a multi may check the same ACL many
// times.
func (s *Store) allowed(n *node, want wire.Perm) bool {
	if s.tx.flags&SkipACL != 0 || n.acl.anyone&want != 0 {
		return true
	}
	perms, known := s.tx.granted[n.acl]
	if !known {
		if perms = n.acl.granted(s.tx.ids); s.tx.granted == nil {
			s.tx.granted = map[*aclList]wire.Perm{}
		}
		s.tx.granted[n.acl] = perms
	}
	return perms&want != 0
}

// keep returns a copy of data that came with a command: the command's memory is not the state's.
func keep(data []byte) []byte {
	if data == nil {
		return nil
	}
	return append(make([]byte, 0, len(data)), data...)
}
