package znode

import (
	"fmt"

	"lockkeeper/wire"
)

// Status says whether a command was applied at all.
type Status uint8

const (
	// Done: the command was applied. Code says whether it succeeded.
	Done Status = iota
	// Duplicate: it had been applied before; this time nothing happened. The sender has had its
	// result.
	Duplicate
	// Gap: an earlier command of the generation is missing, so this one was refused. The sender
	// sends all that are open again, in order.
	Gap
	// Moved: the session has a newer connection (Result.Generation); commands of the older one that
	// are in flight are refused.
	Moved
	// NoSession: the session does not exist: it was closed, or has expired, or never was.
	NoSession
	// BadPassword: the session exists with another password; or the id of a new session is one that
	// no session may have.
	BadPassword
)

// String returns the name of s, for tests and logs.
func (s Status) String() string {
	names := [...]string{"Done", "Duplicate", "Gap", "Moved", "NoSession", "BadPassword"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Status%d", uint8(s))
}

// Event is a trigger: a change that watches may be set on. The events of a command are in the
// order of docs/protocol/watches.md 3.1: NodeCreated(P), NodeChildrenChanged(parent);
// NodeDeleted(P), NodeChildrenChanged(parent); NodeDataChanged(P). NodeDeleted comes once and is
// for both watch tables.
type Event struct {
	Type wire.EventType
	Path string
	// of Path's node at that moment; for NodeDeleted the last it had. Never modified
	ACL  []wire.ACL
	Zxid wire.Zxid
	// Owner is the session of an ephemeral node, 0 for others. With it come the node's czxid, its
	// ctime, and its data at that moment, which are never modified.
	Owner   wire.SessionID
	Czxid   wire.Zxid
	CtimeMs int64
	Data    []byte

	list *aclList // of which ACL is the entries
	kept bool     // for the super user, see KeepQuotas
	// above are the nodes above Path that not everybody may read, the deepest first, one for each
	// ACL. buried is that there are more than maxGuards.
	above  []guard
	buried bool
}

// ReadableBy reports whether a connection with the identities ids, its "ip" among them, may read
// Path's node.
func (e *Event) ReadableBy(ids []Identity) bool {
	if e.kept && !IsSuper(ids) {
		return false
	}
	return e.list == nil || e.list.allows(ids, wire.PermRead)
}

// A guard is a node, by the length of its path, with an ACL that does not let everybody read it.
type guard struct {
	length int
	list   *aclList
}

// maxGuards is the number of guards of an Event. It is more than anybody nests.
const maxGuards = 8

// Guarded reports whether there are nodes above Path that not everybody may read.
func (e *Event) Guarded() bool { return len(e.above) > 0 }

// NamedTo reports whether a connection with the identities ids that watches recursively, from a
// node with a path of length bytes, may learn of Path: a client that may not list a node's children
// is not told their names.
func (e *Event) NamedTo(ids []Identity, length int) bool {
	if e.buried && !IsSuper(ids) {
		return false
	}
	for _, g := range e.above {
		if g.length >= length && !g.list.allows(ids, wire.PermRead) {
			return false
		}
	}
	return true
}

// Lookups returns the number of lookups that ReadableBy makes, each about 30 ns.
func (e *Event) Lookups(ids []Identity) int {
	if e.list == nil {
		return 0
	}
	return e.list.lookups(ids, wire.PermRead)
}

// Access returns the permissions on Path's node.
func (e *Event) Access() *Access { return (*Access)(e.list) }

// OpResult is the result of one op of a multi.
type OpResult struct {
	// Op is the type that the response carries for the op: OpCreate, OpCreate2 (for every create
	// that answers with a Stat), OpDelete, OpSetData or OpCheck. When the multi failed it is
	// OpError for all ops.
	Op wire.Op
	// Code of a multi that failed: CodeOK before the failing op, CodeRuntimeInconsistency after it.
	Code wire.Code
	Path string    // creates: the path with its suffix
	Stat wire.Stat // OpCreate, OpCreate2 and OpSetData
}

// Result is the outcome of one command.
type Result struct {
	Status Status
	// Code is the code in the header of the reply; it counts when Status is Done. Note that a multi
	// of which an op failed has CodeOK here, and the failure in Multi.
	Code wire.Code
	// Deferred says that the result follows later, with the KindReconfigured of this command.
	Deferred bool
	// Restored says that a snapshot has replaced the state, and that all sessions have ended.
	Restored bool
	Reason   string    // KindRestore: why Code is not CodeOK
	Zxid     wire.Zxid // the store's after the command
	// the session's current generation after the command; 0 when there is no session any more
	Generation uint64
	Path       string    // create family: the path with its suffix
	Stat       wire.Stat // create family, setData, setACL
	Multi      []OpResult
	Events     []Event
}
