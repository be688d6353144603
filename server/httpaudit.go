package server

import (
	"net/http"

	"lockkeeper/session"
)

// auditTransfer is the operation of POST /leader in the audit log.
const auditTransfer = "transferLeadership"

// auditWords are the operations of four-letter words that change something: the names of the same
// commands of the AdminServer.
var auditWords = map[string]string{"srst": "stat_reset", "crst": "connection_stat_reset", "stmk": "set_trace_mask"}

// auditHTTP writes to the audit log, if there is one, what a request over HTTP wants to do. The
// lines of failures are bounded, because everybody can cause them.
func (s *Server) auditHTTP(r *http.Request, operation, target string, result session.AuditResult) {
	users, schemes := session.AuditUsers(s.httpIdentities(r))
	s.auditRemote(&session.AuditRecord{Users: users, Schemes: schemes, Addr: clientAddr(r).String(), Operation: operation,
		Path: target, Result: result})
}

// auditRemote is auditHTTP for a record that is complete.
func (s *Server) auditRemote(record *session.AuditRecord) {
	if s.audit == nil || record.Result == session.AuditFailure && !s.auditFailures.Take(s.clocks.now()) {
		return
	}
	s.audit.Audit(record)
}

// auditWord writes to the audit log what a four-letter word does, if it changes something.
func (s *Server) auditWord(c *conn, word string) {
	operation := auditWords[word]
	if operation == "" {
		return
	}
	addr := c.remote.Addr().String()
	s.auditRemote(&session.AuditRecord{Users: []string{addr}, Schemes: []string{"ip"}, Addr: addr, Operation: operation,
		Result: session.AuditSuccess})
}
