package session

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// errOtherEnsemble says that a client was meant for another cluster. ZooKeeper closes the
// connection.
var errOtherEnsemble = errors.New("session: the client expects another ensemble (ensembleAuthName)")

// authenticate adds the identities that an auth packet proves. Requests that were received before
// keep the identities they had. An error means that the connection must be closed.
func (s *Session) authenticate(p *wire.AuthPacket) (wire.Code, error) {
	cfg := &s.m.cfg
	switch {
	case p.Scheme == "ip":
		return wire.CodeOK, nil // every connection has its address from the start
	case p.Scheme == "digest" && p.Auth != nil && !cfg.Auth.NoDigest:
		// The ids in ACLs have been decoded in the same way.
		auth := wire.DecodeUTF8(p.Auth)
		if s.m.ClaimsSuper(auth) {
			s.m.SuperLoginRefused(s.id, s.addr.String(), "digest") // it logs in as somebody else
		}
		return s.identifyAll(s.m.cfg.Auth.digestIdentities(auth)), nil
	case p.Scheme == "ensemble" && cfg.Auth.Ensembles != nil:
		if len(p.Auth) > 0 && len(cfg.Auth.Ensembles) > 0 && !slices.Contains(cfg.Auth.Ensembles, wire.DecodeUTF8(p.Auth)) {
			s.m.stats.inc(&s.m.stats.OtherEnsemble)
			return 0, errOtherEnsemble
		}
		return wire.CodeOK, nil // it proves nothing
	case p.Scheme == "key" && cfg.Auth.KeyScheme && p.Auth != nil && s.opensKey(wire.DecodeUTF8(p.Auth)):
		return s.identifyAll([]znode.Identity{{Scheme: "key"}}), nil
	}
	s.refuseLogin("scheme", p.Scheme)
	return wire.CodeAuthFailed, nil
}

// refuseLogin counts and logs a login that is refused. A client that tries passwords does not fill
// the disk: the lines of an address are bounded.
func (s *Session) refuseLogin(why ...any) {
	s.m.stats.inc(&s.m.stats.LoginsRefused)
	s.m.refusals.Warn("login "+s.addr.String(), "authentication refused",
		append([]any{"session", s.id, "client", s.addr}, why...)...)
}

// opensKey reports whether a number is a multiple of the one that is the data of /key: the scheme
// that comes with ZooKeeper as an example. Without such data every login is accepted.
func (s *Session) opensKey(auth string) bool {
	var data []byte
	s.m.replica.View(func(store *znode.Store) { data, _, _ = store.Get("/key", []znode.Identity{superIdentity}) })
	if data == nil {
		return true
	}
	key, keyErr := strconv.ParseInt(wire.DecodeUTF8(data), 10, 32)
	n, err := strconv.ParseInt(auth, 10, 32)
	return err == nil && keyErr == nil && (key == 0 || n%key == 0)
}

// stepSASL takes a token of a client that logs in with SASL, and returns the body of the answer.
func (s *Session) stepSASL(token []byte) (answer *wire.SASLRequest, code wire.Code) {
	cfg := &s.m.cfg
	if cfg.Auth.SASLUsers == nil {
		return new(wire.SASLRequest), wire.CodeOK // a null token: this server does not do SASL
	}
	if s.sasl == nil {
		s.sasl = sasl.NewServer(cfg.Auth.SASLUsers)
	}
	reply, user, err := s.sasl.Step(token)
	required := slices.Contains(cfg.Auth.RequiredSchemes, "sasl")
	switch {
	case err == nil && user == "":
		return &wire.SASLRequest{Token: reply}, wire.CodeOK
	case err == nil:
		ids := []znode.Identity{{Scheme: "sasl", ID: user}}
		if slices.Contains(cfg.Auth.SuperUsers, user) {
			ids = append(ids, superIdentity)
		}
		if any := cfg.Auth.AnySASLUser; any != "" && any != user {
			ids = append(ids, znode.Identity{Scheme: "sasl", ID: any})
		}
		s.m.log.Debug("authenticated", "session", s.id, "client", s.addr, "scheme", "sasl", "user", user)
		return &wire.SASLRequest{Token: reply}, s.identifyAll(ids)
	case required:
		code = wire.CodeSessionClosedRequireSASLAuth
	case !cfg.Auth.SASLOptional:
		code = wire.CodeAuthFailed
	}
	if slices.Contains(cfg.Auth.SuperUsers, s.sasl.Mistaken()) {
		s.m.SuperLoginRefused(s.id, s.addr.String(), "sasl")
	}
	s.refuseLogin("scheme", "sasl", "err", err)
	return new(wire.SASLRequest), code
}

// nameCreator replaces the scheme auth in the ACLs of a request by the identities of its user. A
// member that applies the request would take the name for one of them that all users of SASL share.
func (s *Session) nameCreator(p *pending, record wire.Record) {
	own := s.m.cfg.Auth.ownIdentities(p.ids)
	if len(own) == len(p.ids) {
		return
	}
	named := false
	name := func(acl *[]wire.ACL) {
		if replaced, found := znode.ReplaceAuth(*acl, own, s.m.cfg.Auth.KeyScheme); found {
			*acl, named = replaced, true
		}
	}
	nameRecord := func(record wire.Record) {
		switch r := record.(type) {
		case *wire.CreateRequest:
			name(&r.ACL)
		case *wire.CreateTTLRequest:
			name(&r.ACL)
		case *wire.SetACLRequest:
			name(&r.ACL)
		}
	}
	if multi, ok := record.(*wire.MultiRequest); ok {
		for _, op := range multi.Ops {
			nameRecord(op.Record)
		}
	}
	if nameRecord(record); named {
		p.req.Body = record.Append(nil)
	}
}

// identifyAll adds identities to the connection.
func (s *Session) identifyAll(ids []znode.Identity) wire.Code {
	if !s.m.gate.Identify(&s.account, slices.Concat(*s.ids.Load(), ids)) {
		return wire.CodeAuthFailed
	}
	for _, id := range ids {
		if !s.identify(id) {
			s.m.stats.inc(&s.m.stats.IdentitiesRefused)
			s.m.log.Warn("authentication refused: the connection has authenticated with too many identities "+
				"(maxIdentities, maxIdentityBytes)",
				"session", s.id, "client", s.addr)
			return wire.CodeAuthFailed
		}
	}
	return wire.CodeOK
}

// Identify adds an identity that the connection has proved before its handshake, as the holder of a
// certificate has. It must be called before the first Submit. It returns false if the connection
// would have too many identities; it has to be closed then.
func (s *Session) Identify(id znode.Identity) bool {
	if !s.m.gate.Identify(&s.account, slices.Concat(*s.ids.Load(), []znode.Identity{id})) {
		return false
	}
	if s.identify(id) {
		return true
	}
	s.m.stats.inc(&s.m.stats.IdentitiesRefused)
	s.m.log.Warn("connection refused: the identities of its certificate are too long (maxIdentities, maxIdentityBytes)",
		"session", s.id, "client", s.addr)
	return false
}

// identify adds an identity to the connection; false if it would have too many. Only Submit's
// goroutine calls it.
func (s *Session) identify(id znode.Identity) bool {
	ids := *s.ids.Load()
	if slices.Contains(ids, id) {
		return true
	}
	bytes := len(id.Scheme) + len(id.ID)
	for _, other := range ids[1:] { // the address is not the client's choice
		bytes += len(other.Scheme) + len(other.ID)
	}
	if len(ids) > s.m.cfg.Limits.Identities || bytes > s.m.cfg.Limits.IdentityBytes {
		return false
	}
	ids = append(slices.Clone(ids), id)
	s.ids.Store(&ids)
	return true
}

// lacksRequired reports whether the connection has to authenticate before it may send op.
func (s *Session) lacksRequired(op wire.Op) bool {
	return op != wire.OpAuth && op != wire.OpSASL && !s.provedEnough()
}

// provedEnough reports whether the connection has authenticated as far as it has to.
func (s *Session) provedEnough() bool {
	required := s.m.cfg.Auth.RequiredSchemes
	return required == nil ||
		slices.ContainsFunc(*s.ids.Load(), func(id znode.Identity) bool { return slices.Contains(required, id.Scheme) })
}

// SuperLoginRefused counts, logs and records a login under the name of a super user without the
// proof. session is 0 over HTTP. The lines of the log and of the audit log are bounded: they must
// not make room for themselves.
func (m *Manager) SuperLoginRefused(session wire.SessionID, addr, scheme string) {
	m.stats.inc(&m.stats.SuperLoginsRefused)
	m.refusals.Warn("super login "+addr, "login as super user refused: wrong password", "client", addr, "scheme", scheme)
	if m.cfg.Audit != nil && m.guesses.superLogins.Take(time.Now()) {
		m.cfg.Audit.Audit(&AuditRecord{Session: session, Users: []string{addr}, Schemes: []string{"ip"}, Addr: addr,
			Operation: auditSuperLogin, Result: AuditFailure})
	}
}

// ClaimsSuper reports whether "user:password" has the name of the super user of scheme digest, and
// another password.
func (m *Manager) ClaimsSuper(auth string) bool {
	user, _, _ := strings.Cut(auth, ":")
	super, _, _ := strings.Cut(m.cfg.Auth.SuperDigest, ":")
	return super != "" && user == super && !m.cfg.Auth.NoDigest && !slices.Contains(m.cfg.Auth.digestIdentities(auth), superIdentity)
}

// DigestIdentities returns the identities that "user:password" proves with scheme digest.
func (m *Manager) DigestIdentities(auth string) []znode.Identity {
	return m.cfg.Auth.digestIdentities(auth)
}
