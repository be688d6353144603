package session

import (
	"slices"
	"sync"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// An Auditor takes the records of the audit log. Audit is called inside the critical section in
// which a command is applied, so it must not block. It does not keep the record.
type Auditor interface{ Audit(*AuditRecord) }

// AuditRecord says who wanted to change what, and whether it was done. Which requests have one, and
// how many, is as in ZooKeeper (docs/audit.md). An empty field is not there.
type AuditRecord struct {
	Session wire.SessionID
	// Users are who the client has proved to be, its address among them; nil means the member.
	Users     []string
	Schemes   []string // which scheme has named each of the Users: see AuditUsers
	Addr      string   // of the client
	Operation string
	Path      string
	Mode      string // of a node that is to be created
	ACL       []wire.ACL
	Result    AuditResult
}

// AuditResult is the outcome in an AuditRecord.
type AuditResult string

// The outcomes. AuditInvoked is that of a stop, which has only begun.
const (
	AuditSuccess AuditResult = "success"
	AuditFailure AuditResult = "failure"
	AuditInvoked AuditResult = "invoked"
)

// auditNames are the operations that have a record, by the name that it has there.
var auditNames = map[wire.Op]string{
	wire.OpCreate: "create", wire.OpCreate2: "create", wire.OpCreateContainer: "create", wire.OpCreateTTL: "create",
	wire.OpDelete: "delete", wire.OpSetData: "setData", wire.OpSetACL: "setAcl",
	wire.OpMulti: "multiOperation", wire.OpReconfig: "reconfig",
}

// auditExpiry is the operation of a node that is deleted because its session has ended.
const auditExpiry = "ephemeralZNodeDeletionOnSessionCloseOrExpire"

var auditModes = map[wire.CreateMode]string{
	wire.ModePersistent: "persistent", wire.ModePersistentSequential: "persistent_sequential",
	wire.ModeEphemeral: "ephemeral", wire.ModeEphemeralSequential: "ephemeral_sequential",
	wire.ModeContainer: "container", wire.ModePersistentTTL: "persistent_with_ttl",
	wire.ModePersistentSequentialTTL: "persistent_sequential_with_ttl",
}

// unanswered are the writes of a connection that ended before they were applied. They are audited
// like all others.
type unanswered struct {
	generation uint64
	last       uint64 // the seq of the last one
}

// auditApplied is the audit log's part of Applied. It does not ask whether there is still a
// connection to answer: a client that sends a request and goes is audited too.
func (m *Manager) auditApplied(store *znode.Store, c *znode.Command, res *znode.Result) {
	if res.Status != znode.Done {
		return
	}
	request, _ := c.Body.(*znode.Request)
	switch kind := c.Kind(); {
	case kind == znode.KindExpire, c.Closes():
		m.forgetUnanswered(c.Session)
		for i := range res.Events {
			if e := &res.Events[i]; e.Type == wire.EventNodeDeleted {
				m.cfg.Audit.Audit(&AuditRecord{
					Session: c.Session, Operation: auditExpiry, Path: e.Path, Result: AuditSuccess})
			}
		}
	case kind == znode.KindAttach:
		m.forgetUnanswered(c.Session)
	case kind == znode.KindReconfigured:
		if m.sentHere(c) {
			m.auditRequest(m.auditOf(store, c), wire.OpReconfig, nil, res)
		}
	case request != nil && !res.Deferred && m.sentHere(c) && auditNames[request.Op] != "":
		body, err := wire.DecodeBody(request.Op, request.Body)
		if err == nil { // it was decoded when it was received
			m.auditRequest(m.auditOf(store, c), request.Op, body, res)
		}
	}
}

// auditOf returns a record with what the state knows of the session that a command is of.
func (m *Manager) auditOf(store *znode.Store, c *znode.Command) AuditRecord {
	info, _ := store.Sessions().Get(c.Session)
	users, schemes := AuditUsers(append(slices.Clip(m.cfg.ownIdentities(info.Identities)), znode.Identity{Scheme: "ip", ID: info.Addr}))
	return AuditRecord{Session: c.Session, Users: users, Schemes: schemes, Addr: info.Addr}
}

// auditRefused records a request that is refused before it becomes a command.
func (s *Session) auditRefused(p *pending) {
	if s.m.cfg.Audit == nil || p.code == wire.CodeOK || auditNames[p.req.Op] == "" {
		return
	}
	body, _ := wire.DecodeBody(p.req.Op, p.req.Body) // nil if that is why
	r := AuditRecord{Session: s.id, Addr: p.ids[0].ID}
	r.Users, r.Schemes = AuditUsers(append(slices.Clip(s.m.cfg.ownIdentities(p.ids[1:])), p.ids[0]))
	s.m.auditRequest(r, p.req.Op, body, &znode.Result{Code: p.code})
}

// auditRequest records a request: one record, or one for each part of a multi that succeeded. r has
// who sent it.
func (m *Manager) auditRequest(r AuditRecord, op wire.Op, body wire.Record, res *znode.Result) {
	r.Operation, r.Result = auditNames[op], AuditSuccess
	if res.Code != wire.CodeOK {
		r.Result = AuditFailure
	}
	switch body := body.(type) {
	case *wire.MultiRequest:
		if res.Code == wire.CodeOK && (len(res.Multi) == 0 || res.Multi[0].Op != wire.OpError) {
			m.auditParts(r, body, res.Multi)
			return
		}
		r.Result = AuditFailure
	case *wire.CreateRequest:
		r.Path, r.Mode = body.Path, auditModes[body.Mode]
	case *wire.CreateTTLRequest:
		r.Path, r.Mode = body.Path, auditModes[body.Mode]
	case *wire.DeleteRequest:
		r.Path = body.Path
	case *wire.SetDataRequest:
		r.Path = body.Path
	case *wire.SetACLRequest:
		r.Path, r.ACL = body.Path, body.ACL
	}
	if op == wire.OpReconfig && res.Code == wire.CodeOK {
		r.Path = configPath
	}
	if res.Path != "" {
		r.Path = res.Path // with the number of a sequential node
	}
	m.cfg.Audit.Audit(&r)
}

// auditParts records the parts of a multi that succeeded; those that change nothing have no record.
func (m *Manager) auditParts(r AuditRecord, multi *wire.MultiRequest, results []znode.OpResult) {
	for i := range results {
		part := &multi.Ops[i]
		if auditNames[part.Op] != "" {
			m.auditRequest(r, part.Op, part.Record, &znode.Result{Path: results[i].Path})
		}
	}
}

// sentHere reports whether a command is of a client that is, or was when it sent it, connected to
// this member.
func (m *Manager) sentHere(c *znode.Command) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[c.Session]; s != nil && s.generation == c.Generation {
		return true
	}
	u, ok := m.unanswered[c.Session]
	if !ok || u.generation != c.Generation {
		return false
	}
	if c.Seq >= u.last {
		delete(m.unanswered, c.Session)
	}
	return true
}

func (m *Manager) forgetUnanswered(id wire.SessionID) {
	m.mu.Lock()
	delete(m.unanswered, id)
	m.mu.Unlock()
}

// AuditUsers returns the names of identities, without their secrets, and for each the scheme that
// has named it. Everybody may log in as "super" with scheme digest: an identity that has proved to
// be the super user is marked.
func AuditUsers(ids []znode.Identity) (users, schemes []string) {
	users, schemes = make([]string, 0, len(ids)), make([]string, 0, len(ids))
	for i, id := range ids {
		// The super user has logged in by another scheme, whose name is there: the one before.
		name, scheme := userName(id), id.Scheme
		if name == "" || scheme == superIdentity.Scheme {
			continue
		}
		if i+1 < len(ids) && ids[i+1] == superIdentity {
			scheme += superMark
		}
		users, schemes = append(users, name), append(schemes, scheme)
	}
	return users, schemes
}

// superMark follows the scheme by which a super user has logged in.
const superMark = "+super"

// auditSuperLogin is the operation of a login as super user that is refused.
const auditSuperLogin = "superLogin"

// A PerMinute lets AuditFailures things a minute through. The zero value is ready. It may be used
// by several goroutines.
type PerMinute struct {
	mu    sync.Mutex
	began time.Time
	taken int
}

// AuditFailures is how many refusals that anybody can cause have lines in the audit log in a
// minute.
const AuditFailures = 60

// Take reports whether one more is let through.
func (p *PerMinute) Take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.began) >= time.Minute {
		p.began, p.taken = now, 0
	}
	p.taken++
	return p.taken <= AuditFailures
}
