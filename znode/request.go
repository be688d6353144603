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
func (s *Store) request(c *Command, r *Result) wire.Code {
	d := wire.NewDecoder(c.Body)
	switch c.Op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		var req wire.CreateRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		return s.createAlone(c.Op, wire.CreateTTLRequest{Path: req.Path, Data: req.Data, ACL: req.ACL, Mode: req.Mode, TTL: noTTL}, r)
	case wire.OpCreateTTL:
		var req wire.CreateTTLRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		return s.createAlone(c.Op, req, r)
	case wire.OpDelete:
		var req wire.DeleteRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		return s.delete(&req)
	case wire.OpSetData:
		var req wire.SetDataRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		return s.setData(&req, &r.Stat)
	case wire.OpSetACL:
		var req wire.SetACLRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		return s.setACL(&req, &r.Stat)
	case wire.OpSync:
		// It changes nothing: that it was applied is all that the client waits for.
		var req wire.SyncRequest
		if req.Decode(d) != nil {
			return wire.CodeMarshallingError
		}
		r.Path = req.Path
		return wire.CodeOK
	case wire.OpMulti:
		return s.applyMulti(c.Body, r)
	case wire.OpReconfig:
		return s.reconfig(c, r)
	}
	return wire.CodeUnimplemented
}

// noTTL stands for the time to live of a request that has no such field.
const noTTL = -1

// createAlone is a create that is not in a multi.
func (s *Store) createAlone(op wire.Op, req wire.CreateTTLRequest, r *Result) wire.Code {
	// A container flag does not make a container of create and create2, unlike in a multi.
	kind := kindPersistent
	switch {
	case !req.Mode.Valid():
		return wire.CodeBadArguments
	case op == wire.OpCreateTTL && !req.Mode.TTL():
		return wire.CodeBadArguments // ZooKeeper crashes on some of these
	case req.Mode.TTL():
		kind = kindTTL
	case op == wire.OpCreateContainer:
		kind = kindContainer
	case req.Mode.Ephemeral():
		kind = kindEphemeral
	}
	return s.create(kind, &req, &r.Path, &r.Stat)
}

// create makes a node of the given kind, whose mode is valid.
func (s *Store) create(kind nodeKind, req *wire.CreateTTLRequest, path *string, stat *wire.Stat) wire.Code {
	if req.Mode.TTL() {
		if s.tx.flags&ExtendedTypes == 0 {
			return wire.CodeUnimplemented
		}
		if req.TTL <= 0 || req.TTL > wire.MaxTTLMs {
			return wire.CodeBadArguments
		}
	}
	parentPath, _, ok := split(req.Path)
	if !ok {
		return wire.CodeBadArguments
	}
	acl, code := fixACL(req.ACL, s.tx.ids, s.tx.flags)
	if code != wire.CodeOK {
		return code
	}
	parent, ok := s.find(parentPath)
	if !ok {
		return wire.CodeNoNode
	}
	p := s.nodes.row(parent)
	if !s.allowed(p, wire.PermCreate) {
		return wire.CodeNoAuth
	}
	full := req.Path
	if req.Mode.Sequential() {
		full = fmt.Sprintf("%s%010d", full, p.creates)
	}
	if !validPath(full) {
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
	switch kind {
	case kindEphemeral:
		n.owner = int64(s.tx.session)
	case kindTTL:
		n.owner = req.TTL
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
	parent, ok := s.find(parentPath)
	if !ok {
		return wire.CodeNoNode
	}
	if !s.allowed(s.nodes.row(parent), wire.PermDelete) {
		return wire.CodeNoAuth
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
	if !validPath(req.Path) {
		return wire.CodeBadArguments
	}
	i, ok := s.find(req.Path)
	if !ok {
		return wire.CodeNoNode
	}
	n := s.nodes.row(i)
	if !s.allowed(n, wire.PermWrite) {
		return wire.CodeNoAuth
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
	s.replaceData(i, n, keep(req.Data))
	s.event(wire.EventNodeDataChanged, n)
	*stat = s.stat(i)
	return wire.CodeOK
}

// setACL replaces the ACL of a node.
func (s *Store) setACL(req *wire.SetACLRequest, stat *wire.Stat) wire.Code {
	if !validPath(req.Path) {
		return wire.CodeBadArguments
	}
	acl, code := fixACL(req.ACL, s.tx.ids, s.tx.flags)
	if code != wire.CodeOK {
		return code
	}
	i, ok := s.find(req.Path)
	if !ok {
		return wire.CodeNoNode
	}
	n := s.nodes.row(i)
	if !s.allowed(n, wire.PermAdmin) {
		return wire.CodeNoAuth
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
	if !validPath(req.Path) {
		return wire.CodeBadArguments
	}
	i, ok := s.find(req.Path)
	if !ok {
		return wire.CodeNoNode
	}
	n := s.nodes.row(i)
	if !s.allowed(n, wire.PermRead) {
		return wire.CodeNoAuth
	}
	if req.Version != anyVersion && req.Version != n.version {
		return wire.CodeBadVersion
	}
	return wire.CodeOK
}

// allowed reports whether the command's connection has the permission on n. What an ACL grants it
// is worked out once for each command: a multi may ask many times.
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

// keep returns a copy of data that came with a command, whose memory belongs to somebody else.
func keep(data []byte) []byte {
	if data == nil {
		return nil
	}
	return append(make([]byte, 0, len(data)), data...)
}
