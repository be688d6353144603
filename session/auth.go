package session

import (
	"errors"
	"slices"
	"strconv"

	"lockkeeper/session/sasl"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// errOtherEnsemble says that a client was meant for another cluster. ZooKeeper closes the
// connection.
var errOtherEnsemble = errors.New("session: the client expects another ensemble (ensembleAuthName)")

// login authenticates one connection. It is made for a call. Only Submit's goroutine uses it, after
// the handshake.
type login struct {
	m *member
	c *connection
}

// authenticate adds the identities that an auth packet proves. Requests that were received before
// keep the identities they had. An error means that the connection must be closed.
func (l login) authenticate(p *wire.AuthPacket) (wire.Code, error) {
	auth := &l.m.cfg.Auth
	switch {
	case p.Scheme == "ip":
		return wire.CodeOK, nil // every connection has its address from the start
	case p.Scheme == "digest" && p.Auth != nil && !auth.NoDigest:
		// The ids in ACLs have been decoded in the same way.
		pair := wire.DecodeUTF8(p.Auth)
		if auth.claimsSuper(pair) {
			// The client goes on with the identity of a user with that password.
			l.m.superLoginRefused(l.c.id(), l.c.addr().String(), "digest")
		}
		return l.identifyAll(auth.digestIdentities(pair)), nil
	case p.Scheme == "ensemble" && auth.Ensembles != nil:
		if len(p.Auth) > 0 && len(auth.Ensembles) > 0 && !slices.Contains(auth.Ensembles, wire.DecodeUTF8(p.Auth)) {
			l.m.stats.inc(&l.m.stats.OtherEnsemble)
			return 0, errOtherEnsemble
		}
		return wire.CodeOK, nil // it proves nothing
	case p.Scheme == "key" && auth.KeyScheme && p.Auth != nil && l.opensKey(wire.DecodeUTF8(p.Auth)):
		return l.identifyAll([]znode.Identity{{Scheme: "key"}}), nil
	}
	l.refuse("scheme", p.Scheme)
	return wire.CodeAuthFailed, nil
}

// refuse counts and logs a login that is refused. A client that tries passwords does not fill
// the disk: the lines of an address are bounded.
func (l login) refuse(why ...any) {
	l.m.stats.inc(&l.m.stats.LoginsRefused)
	l.m.refusals.Warn("login "+l.c.addr().String(), "authentication refused",
		append([]any{"session", l.c.id(), "client", l.c.addr()}, why...)...)
}

// opensKey reports whether a number is a multiple of the number in /key: the scheme that comes with
// ZooKeeper as an example. Without such data every login is accepted.
func (l login) opensKey(auth string) bool {
	var data []byte
	l.m.replica.View(func(store *znode.Store) { data, _, _ = store.Get("/key", []znode.Identity{superIdentity}) })
	if data == nil {
		return true
	}
	key, keyErr := strconv.ParseInt(wire.DecodeUTF8(data), 10, 32)
	n, err := strconv.ParseInt(auth, 10, 32)
	return err == nil && keyErr == nil && (key == 0 || n%key == 0)
}

// stepSASL takes a token of a client that logs in with SASL, and returns the body of the answer.
func (l login) stepSASL(token []byte) (answer *wire.SASLRequest, code wire.Code) {
	auth := &l.m.cfg.Auth
	if auth.SASLUsers == nil {
		return new(wire.SASLRequest), wire.CodeOK // a null token: this server does not do SASL
	}
	if l.c.sasl == nil {
		l.c.sasl = sasl.NewServer(auth.SASLUsers)
	}
	reply, user, err := l.c.sasl.Step(token)
	required := slices.Contains(auth.RequiredSchemes, "sasl")
	switch {
	case err == nil && user == "":
		return &wire.SASLRequest{Token: reply}, wire.CodeOK
	case err == nil:
		ids := []znode.Identity{{Scheme: "sasl", ID: user}}
		if slices.Contains(auth.SuperUsers, user) {
			ids = append(ids, superIdentity)
		}
		if any := auth.AnySASLUser; any != "" && any != user {
			ids = append(ids, znode.Identity{Scheme: "sasl", ID: any})
		}
		l.m.log.Debug("authenticated", "session", l.c.id(), "client", l.c.addr(), "scheme", "sasl", "user", user)
		return &wire.SASLRequest{Token: reply}, l.identifyAll(ids)
	case required:
		code = wire.CodeSessionClosedRequireSASLAuth
	case !auth.SASLOptional:
		code = wire.CodeAuthFailed
	}
	if slices.Contains(auth.SuperUsers, l.c.sasl.Mistaken()) {
		l.m.superLoginRefused(l.c.id(), l.c.addr().String(), "sasl")
	}
	l.refuse("scheme", "sasl", "err", err)
	return new(wire.SASLRequest), code
}

// identifyAll adds identities to the connection.
func (l login) identifyAll(ids []znode.Identity) wire.Code {
	if !l.add(ids, "authentication refused: the connection has authenticated with too many identities") {
		return wire.CodeAuthFailed
	}
	return wire.CodeOK
}

// add adds identities to the connection, or logs why it would have too many.
func (l login) add(ids []znode.Identity, tooMany string) bool {
	if !l.m.gate.Identify(&l.c.account, slices.Concat(*l.c.ids.Load(), ids)) {
		return false
	}
	for _, id := range ids {
		if !l.identify(id) {
			l.m.stats.inc(&l.m.stats.IdentitiesRefused)
			l.m.log.Warn(tooMany+" (maxIdentities, maxIdentityBytes)", "session", l.c.id(), "client", l.c.addr())
			return false
		}
	}
	return true
}

// identify adds an identity to the connection; false if it would have too many. Only Submit's
// goroutine calls it.
func (l login) identify(id znode.Identity) bool {
	ids := *l.c.ids.Load()
	if slices.Contains(ids, id) {
		return true
	}
	bytes := len(id.Scheme) + len(id.ID)
	for _, other := range ids[1:] { // the address is not the client's choice
		bytes += len(other.Scheme) + len(other.ID)
	}
	if len(ids) > l.m.cfg.Limits.Identities || bytes > l.m.cfg.Limits.IdentityBytes {
		return false
	}
	ids = append(slices.Clone(ids), id)
	l.c.ids.Store(&ids)
	return true
}

// lacksRequired reports whether the connection has to authenticate before it may send op.
func (l login) lacksRequired(op wire.Op) bool {
	return op != wire.OpAuth && op != wire.OpSASL && !l.provedEnough()
}

// provedEnough reports whether the connection has authenticated as far as it has to.
func (l login) provedEnough() bool {
	required := l.m.cfg.Auth.RequiredSchemes
	return required == nil ||
		slices.ContainsFunc(*l.c.ids.Load(),
			func(id znode.Identity) bool { return slices.Contains(required, id.Scheme) })
}

// nameCreator replaces the scheme auth in the ACLs of a request by the identities of its user. A
// member that applies the request would take the name for one of them that all users of SASL share.
func (p *pending) nameCreator(auth *Auth, record wire.Record) {
	own := auth.ownIdentities(p.ids)
	if len(own) == len(p.ids) {
		return
	}
	named := false
	name := func(acl *[]wire.ACL) {
		if replaced, found := znode.ReplaceAuth(*acl, own, auth.KeyScheme); found {
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

// superLoginRefused counts, logs and records a login under the name of a super user without the
// proof. session is 0 over HTTP. The lines of the log and of the audit log are bounded: they must
// not make room for themselves.
func (m *member) superLoginRefused(session wire.SessionID, addr, scheme string) {
	m.stats.inc(&m.stats.SuperLoginsRefused)
	m.refusals.Warn("super login "+addr, "login as super user refused: wrong password", "client", addr, "scheme",
		scheme)
	m.audit.superLogin(session, addr)
}
