package znode

import (
	"fmt"

	"lockkeeper/wire"
)

// tx applies one command: it decides, by the command's kind and the state, which effects the
// command has. The buffers are used again for the next command.
type tx struct {
	state   *state
	effects effects
	flags   Flags
	session wire.SessionID
	ids     []Identity             // of the command's connection
	granted map[*aclList]wire.Perm // to ids, by the ACLs that the command has checked
	result  Result
	multi   []OpResult
}

// apply applies c. The result is valid until the next call.
func (t *tx) apply(term uint64, flags Flags, c *Command) *Result {
	t.begin(term, flags, c)
	r := &t.result
	*r = Result{}
	t.dispatch(c, r)
	t.effects.end()
	r.Zxid = t.state.zxid
	r.Events = t.effects.events
	return r
}

// begin prepares for c.
func (t *tx) begin(term uint64, flags Flags, c *Command) {
	t.effects.begin(term)
	t.flags = flags
	t.session = c.Session
	t.ids = t.ids[:0]
	if len(t.granted) > 1024 {
		t.granted = nil
	}
	clear(t.granted)
	t.multi = recycle(t.multi)
}

// dispatch applies c.
func (t *tx) dispatch(c *Command, r *Result) {
	switch b := c.Body.(type) {
	case *Request:
		t.applyRequest(c, b, r)
	case *CreateSession:
		if t.state.sessions.create(c.Session, &b.Connection, r) {
			t.effects.changed = true
		}
	case *Attach:
		t.state.sessions.attach(c, &b.Connection, r)
	case *Expire:
		if i, ok := t.state.sessions.current(c, r); ok {
			t.closeSession(i, r)
		}
	case *Reap:
		t.reap(b, r)
	case *NameCluster:
		if t.state.cluster == 0 {
			t.state.cluster = b.ID
		}
	case *SetMembers:
		t.setMembers(b.Text)
	case *ChangeMembers:
		t.changeMembers(c, b.Text, r)
	case *Reconfigure:
		t.ids = append(t.ids, Identity{Scheme: schemeSuper}) // a member may do everything
		r.Code = t.reconfig(c, b.Request, r)
	case *Reconfigured:
		t.reconfigured(c, b.Code, r)
	case *RestoreStep:
		t.restoreStep(c, b, r)
	case *Sync:
		// Its place in the log is all that there is to it.
	}
}

// applyRequest applies a client's request if it is the next one of its session's current
// connection.
func (t *tx) applyRequest(c *Command, q *Request, r *Result) {
	i, ok := t.state.sessions.next(c, r)
	if !ok {
		return
	}
	row := t.state.sessions.rows.mut(i)
	if len(q.Identities) > 0 {
		row.setIdentities(q.Identities)
	}
	if q.Op == wire.OpCloseSession {
		t.closeSession(i, r)
		return
	}
	t.ids = append(append(t.ids, Identity{Scheme: schemeIP, ID: row.addr.text}), row.listIdentities()...)
	r.Code = t.request(c, q, r)
}

// closeSession ends the session at i: it deletes its ephemerals, in the order of their paths, under
// one zxid.
func (t *tx) closeSession(i slot, r *Result) {
	st := t.state
	id := st.sessions.rows.row(i).id
	for _, path := range st.ephemerals(id) {
		t.effects.deleteNode(st.tree.slotOf(path), path)
	}
	if st.replacement != nil && st.replacement.session == id {
		st.replacement = nil
	}
	st.sessions.remove(i)
	t.effects.changed = true
	r.Generation = 0
}

// reap deletes a node if it still has to go.
func (t *tx) reap(b *Reap, r *Result) {
	tree := t.state.tree
	i, ok := tree.find(b.Path)
	switch {
	case !ok || b.Path == "":
		r.Code = wire.CodeNoNode
	case !tree.perished(i, t.state.clock.nowMs(), b.NeverUsedMs):
		r.Code = wire.CodeNotEmpty
	default:
		t.effects.deleteNode(i, b.Path)
	}
}

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
