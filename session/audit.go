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

// AuditRecord says who wanted to make which change, and the outcome. The same requests as in
// ZooKeeper have one or several (docs/audit.md). An empty field is not there.
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

// The outcomes. A stop, which has only begun, has AuditInvoked.
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
	last       uint64 // the seq of the last of them
}

// auditTrail makes the records of the requests of this member's clients. Without an Auditor it
// makes none.
type auditTrail struct {
	to   Auditor // nil: there is no audit log
	auth *Auth

	superLogins PerMinute // the records of refused logins as super user

	mu sync.Mutex
	// unanswered has the newest connection of each session that ended with writes that were not
	// applied yet. An entry goes with the last of them, or with the session.
	unanswered map[wire.SessionID]unanswered
}

func (a *auditTrail) init(to Auditor, auth *Auth) {
	a.to, a.auth, a.unanswered = to, auth, map[wire.SessionID]unanswered{}
}

// applied records a command that has just been applied. here says that its client is connected to
// this member; a client that sent a request and went is audited too.
func (a *auditTrail) applied(store *znode.Store, c *znode.Command, res *znode.Result, here bool) {
	if a.to == nil || res.Status != znode.Done {
		return
	}
	request, _ := c.Body.(*znode.Request)
	switch kind := c.Kind(); {
	case kind == znode.KindExpire, c.Closes():
		a.forget(c.Session)
		for i := range res.Events {
			if e := &res.Events[i]; e.Type == wire.EventNodeDeleted {
				a.to.Audit(&AuditRecord{Session: c.Session, Operation: auditExpiry, Path: e.Path, Result: AuditSuccess})
			}
		}
	case kind == znode.KindAttach:
		a.forget(c.Session)
	case kind == znode.KindReconfigured:
		if a.sentHere(c, here) {
			a.request(a.sender(store, c), wire.OpReconfig, nil, res)
		}
	case request != nil && !res.Deferred && a.sentHere(c, here) && auditNames[request.Op] != "":
		body, err := wire.DecodeBody(request.Op, request.Body)
		if err == nil { // it was decoded when it was received
			a.request(a.sender(store, c), request.Op, body, res)
		}
	}
}

// sender returns a record with the state's knowledge of the session of a command.
func (a *auditTrail) sender(store *znode.Store, c *znode.Command) AuditRecord {
	info, _ := store.Sessions().Get(c.Session)
	users, schemes := AuditUsers(append(slices.Clip(a.auth.ownIdentities(info.Identities)),
		znode.Identity{Scheme: "ip", ID: info.Addr}))
	return AuditRecord{Session: c.Session, Users: users, Schemes: schemes, Addr: info.Addr}
}

// refused records a request that is refused before it becomes a command. ids are the client's
// identities, its address first.
func (a *auditTrail) refused(id wire.SessionID, ids []znode.Identity, req *wire.Request, code wire.Code) {
	if a.to == nil || code == wire.CodeOK || auditNames[req.Op] == "" {
		return
	}
	body, _ := wire.DecodeBody(req.Op, req.Body) // nil if that is the reason
	r := AuditRecord{Session: id, Addr: ids[0].ID}
	r.Users, r.Schemes = AuditUsers(append(slices.Clip(a.auth.ownIdentities(ids[1:])), ids[0]))
	a.request(r, req.Op, body, &znode.Result{Code: code})
}

// request records a request: one record, or one for each part of a multi that succeeded. r has the
// sender.
func (a *auditTrail) request(r AuditRecord, op wire.Op, body wire.Record, res *znode.Result) {
	r.Operation, r.Result = auditNames[op], AuditSuccess
	if res.Code != wire.CodeOK {
		r.Result = AuditFailure
	}
	switch body := body.(type) {
	case *wire.MultiRequest:
		if res.Code == wire.CodeOK && (len(res.Multi) == 0 || res.Multi[0].Op != wire.OpError) {
			a.parts(r, body, res.Multi)
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
	a.to.Audit(&r)
}

// parts records the parts of a multi that succeeded; a part that changes nothing has no record.
func (a *auditTrail) parts(r AuditRecord, multi *wire.MultiRequest, results []znode.OpResult) {
	for i := range results {
		part := &multi.Ops[i]
		if auditNames[part.Op] != "" {
			a.request(r, part.Op, part.Record, &znode.Result{Path: results[i].Path})
		}
	}
}

// superLogin records a refused login as super user from an address, unless there were many.
func (a *auditTrail) superLogin(session wire.SessionID, addr string) {
	if a.to != nil && a.superLogins.Take(time.Now()) {
		a.to.Audit(&AuditRecord{Session: session, Users: []string{addr}, Schemes: []string{"ip"}, Addr: addr,
			Operation: auditSuperLogin, Result: AuditFailure})
	}
}

// left records that the connection of a session has ended. last is the seq of the last of its
// writes that are not applied, 0 if there is none. Order: before the session is removed from
// connected.
func (a *auditTrail) left(id wire.SessionID, generation, last uint64) {
	if a.to == nil || last == 0 {
		return
	}
	a.mu.Lock()
	a.unanswered[id] = unanswered{generation: generation, last: last}
	a.mu.Unlock()
}

// sentHere reports whether the client of a command is connected to this member, or was when it sent
// it.
func (a *auditTrail) sentHere(c *znode.Command, connected bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, ok := a.unanswered[c.Session]
	if !ok || u.generation != c.Generation {
		return connected
	}
	if c.Seq >= u.last {
		delete(a.unanswered, c.Session)
	}
	return true
}

// forget is called when a session has ended, or has a new generation.
func (a *auditTrail) forget(id wire.SessionID) {
	a.mu.Lock()
	delete(a.unanswered, id)
	a.mu.Unlock()
}

// stateReplaced is called when a snapshot has replaced the state: the results of the commands
// before are missing.
func (a *auditTrail) stateReplaced() {
	a.mu.Lock()
	clear(a.unanswered)
	a.mu.Unlock()
}

// AuditUsers returns the names of identities, without their secrets, and the scheme of each.
// Everybody may log in as "super" with scheme digest: an identity that has proved to be the super
// user is marked.
func AuditUsers(ids []znode.Identity) (users, schemes []string) {
	users, schemes = make([]string, 0, len(ids)), make([]string, 0, len(ids))
	for i, id := range ids {
		// The super user has logged in by another scheme: its name is there, one before.
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

// AuditFailures bounds the lines of the audit log in a minute for refusals that anybody can cause.
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
