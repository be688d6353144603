package door

import (
	"net/http"

	"lockkeeper/session"
)

// Audit writes the operation of a request to the audit log, if there is one, and whether it was
// done.
func (d *Door) Audit(r *http.Request, operation, target string, done bool) {
	caller, result := CallerOf(r), session.AuditFailure
	if done {
		result = session.AuditSuccess
	}
	users, schemes := session.AuditUsers(caller.Identities)
	d.AuditRecord(&session.AuditRecord{Users: users, Schemes: schemes, Addr: caller.Addr.String(), Operation: operation,
		Path: target, Result: result})
}

// AuditAct is Audit for an act of an operator, of which the member's own log has a line as well.
// why says why it failed.
func (d *Door) AuditAct(r *http.Request, operation, target, why string, done bool) {
	// Refused acts are another message, so that they cannot suppress the lines of others.
	result, msg := session.AuditFailure, "act of an operator failed"
	if done {
		result, msg = session.AuditSuccess, "act of an operator"
	}
	d.cfg.Log.Info(msg, "operation", operation, "target", target, "remote", r.RemoteAddr, "result", result, "why", why)
	d.Audit(r, operation, target, done)
}

// AuditRecord writes a record to the audit log. The lines of failures are limited, because
// everybody can cause them.
func (d *Door) AuditRecord(record *session.AuditRecord) {
	if d.cfg.Audit == nil || record.Result == session.AuditFailure && !d.auditFailures.Take(d.cfg.Now()) {
		return
	}
	d.cfg.Audit.Audit(record)
}
