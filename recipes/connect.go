package recipes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes/internal/sessionfile"
)

// DefaultSessionTimeout is the session timeout that Connect asks for by default.
const DefaultSessionTimeout = 10 * time.Second

// Config says how to connect. Only Servers is needed.
type Config struct {
	// Servers are the members of the cluster, as host:port; the port is 2181 if it is left out. Any
	// one that answers will do. Name all of them: while one hangs, the session goes on at another.
	// Names are resolved once, here; one that cannot be resolved is left out, and logged, as long
	// as another can be.
	Servers []string

	// SessionTimeout is how long the cluster keeps the locks of a program that it hears nothing
	// from; 0 stands for DefaultSessionTimeout. The servers shorten or lengthen it to their limits,
	// which the Session takes note of. Grants are given up after two thirds of it.
	SessionTimeout time.Duration

	// Auth are the identities that every connection shows to its server before its first request.
	// If a server refuses one of them, the Session ends, and its requests fail with an error that
	// wraps zk.ErrAuthFailed.
	Auth []Auth

	// ACL is for the nodes that recipes make without an ACL of their own. Nil stands for
	// [CreatorACL] if Auth proves an identity, and else for everything to everyone. Programs that
	// share a path under different identities have to set the rights of each: without CREATE and
	// DELETE on the path nobody can lock.
	ACL []zk.ACL

	// TLS, if it is not nil, has every connection encrypted, by a server port that is for TLS
	// (secureClientPort in ZooKeeper). Where ServerName is empty the certificate has to be for the
	// name that is in Servers.
	TLS *tls.Config

	// Dial opens connections, below TLS; nil stands for net.DialTimeout.
	Dial zk.Dialer

	// HostProvider picks the servers; nil stands for go-zookeeper's, which resolves the names once.
	// Servers that hung are passed over once in any case.
	HostProvider zk.HostProvider

	// Tree, if it is not nil, is a watch that stands as long as the Session.
	Tree *TreeWatch

	// SessionFile, if it is not empty, is a file that keeps the id and the password of the session
	// (mode 0600), and a list of all that is held, for a process that is restarted in place. When
	// the next process connects with the same file before the session has expired, its Lock,
	// Campaign or Join takes up the node that the previous process has made, with the same place in
	// the queue and the same token. Connect fails while another process has the file (ErrInUse).
	// See the package comment, "A process that is restarted".
	SessionFile string

	// Logger gets the failures that are not returned to anybody; at level debug, the log of
	// go-zookeeper. Nil discards.
	Logger *slog.Logger
}

// CreatorACL gives everything to the identities that make a node, and READ to everyone.
func CreatorACL() []zk.ACL {
	return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
}

// Proves reports whether the identity is one that a node can belong to. The scheme "ensemble" says
// which cluster is meant, and every connection has an address.
func (a Auth) Proves() bool { return a.Scheme != "ensemble" && a.Scheme != "ip" }

// Auth is an identity, for the ACLs of the nodes.
type Auth struct {
	// Scheme is the authentication scheme, for example "digest".
	Scheme string
	// Secret is the scheme's credential: for digest, and for SASL, which does not send it,
	// "user:password".
	Secret []byte
}

// LogValue keeps the secret out of logs.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.Scheme) }

// Connect starts a session. It does not wait for it: recipes do, as long as their ctx lets them,
// and [Session.Reach] does. Close ends it.
//
// A server that hangs does not hold the session. A handshake may take at most a third of the
// session timeout, or less if there are many servers, so that another one can still save the
// session, and so may the answer to a request. Where all servers are slower than that, answers to
// requests get two thirds.
func Connect(c Config) (_ *Session, err error) {
	if len(c.Servers) == 0 {
		return nil, errors.New("recipes: connect: no servers given")
	}
	if c.SessionTimeout < 0 {
		return nil, fmt.Errorf("recipes: connect: session timeout %v is negative", c.SessionTimeout)
	}
	if slices.ContainsFunc(c.Auth, func(a Auth) bool { return a.Scheme == "" }) {
		return nil, errors.New("recipes: connect: an identity has no scheme")
	}
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	d := &dialer{
		granted: newGranted(cmp.Or(c.SessionTimeout, DefaultSessionTimeout)),
		asked:   cmp.Or(c.SessionTimeout, DefaultSessionTimeout),
		hosts:   newHosts(c.HostProvider),
		auth:    c.Auth,
		tls:     c.TLS,
		open:    c.Dial,
		tree:    c.Tree,
		refused: make(chan error, 1),
	}
	if c.SessionFile != "" {
		if d.keeper, err = sessionfile.Open(c.SessionFile, log); err != nil {
			return nil, fmt.Errorf("recipes: connect: session file %w", err)
		}
		defer func() {
			if err != nil {
				_ = d.keeper.Close(false)
			}
		}()
	}
	if d.open == nil {
		d.open = net.DialTimeout
	}
	notify := func(zk.Event) {}
	if c.Tree != nil {
		notify = c.Tree.Notify
	}
	conn, events, err := zk.Connect(c.Servers, d.granted.timeout(), zk.WithEventCallback(notify),
		zk.WithDialer(d.dial), zk.WithHostProvider(d.hosts), zk.WithLogger(zkLogger{log}))
	if err != nil {
		return nil, fmt.Errorf("recipes: connect: %w", err)
	}
	for _, err := range d.hosts.unresolved {
		log.Warn("recipes: a server is left out, as its name cannot be resolved", "error", err)
	}
	s := newSession(conn, events, d.granted.timeout, log)
	s.hosts, s.dialer, s.link.keeper = d.hosts, d, d.keeper
	if s.acl = c.ACL; s.acl == nil && slices.ContainsFunc(c.Auth, Auth.Proves) {
		s.acl = CreatorACL()
	}
	s.link.spawn(func() { s.endIfRefused(d.refused) })
	if d.keeper != nil {
		s.link.spawn(s.giveBackLater)
	}
	return s, nil
}

// endIfRefused ends the Session when a server has refused its identity: the others, and the next
// attempt, would do the same.
func (s *Session) endIfRefused(refused <-chan error) {
	select {
	case err := <-refused:
		s.link.log.Error("recipes: the session ends", "error", err)
		s.link.end(fmt.Errorf("%w: %w", ErrClosed, err))
		s.link.conn.Close()
	case <-s.link.quit:
	}
}

// granted is the session timeout in force: the one that was asked for, until a server has answered.
type granted struct{ ms atomic.Int32 }

func newGranted(asked time.Duration) *granted {
	g := new(granted)
	// The protocol counts in whole milliseconds, and 0 is not a timeout.
	g.ms.Store(int32(max(1, asked.Milliseconds())))
	return g
}

func (g *granted) timeout() time.Duration { return time.Duration(g.ms.Load()) * time.Millisecond }

// dialer opens the connections of one Session.
type dialer struct {
	granted *granted
	hosts   *hosts
	auth    []Auth
	tls     *tls.Config // nil: none
	open    zk.Dialer
	tree    *TreeWatch          // nil: none
	refused chan error          // gets the first refusal of an identity
	keeper  *sessionfile.Keeper // of Config.SessionFile; nil: none
	asked   time.Duration       // the session timeout of a new session
	listed  bool                // the nodes of the session were listed; dialing goroutine
	left    atomic.Bool         // nothing is sent any more: see Session.Detach
}

// dial opens a connection. Its handshake has to be over within the patience of the hosts, counted
// from now.
func (d *dialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	patience := d.hosts.patience(d.granted.timeout())
	deadline := time.Now().Add(patience)
	conn, err := d.open(network, address, min(timeout, patience))
	if err == nil {
		conn, err = d.secure(conn, address, deadline)
	}
	d.hosts.dialed(address, err)
	if err != nil {
		return nil, err
	}
	return newServerConn(conn, d, address, deadline)
}

// secure has a connection encrypted, if TLS is wanted.
func (d *dialer) secure(conn net.Conn, address string, deadline time.Time) (net.Conn, error) {
	if d.tls == nil {
		return conn, nil
	}
	config := d.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = d.hosts.name(address)
	}
	secured := tls.Client(conn, config)
	err := conn.SetDeadline(deadline)
	if err == nil {
		err = secured.Handshake()
	}
	if err != nil {
		conn.Close()
		return nil, d.tlsFailure(address, err)
	}
	return secured, nil
}

// zkLogger is go-zookeeper's log. It is at level debug: the recipes report the important events
// themselves.
type zkLogger struct{ log *slog.Logger }

func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("recipes: go-zookeeper: " + fmt.Sprintf(format, args...))
}

// probeTime bounds the time in which a port shows its protocol.
const probeTime = time.Second

// Mismatch connects to a port that has served no session, and finds out whether it speaks TLS. The
// error wraps ErrTLSNeeded if it does and config is nil, ErrNoTLS if it does not and config is set,
// or ErrHTTP; it is nil if none of these was found. It connects twice, and each time waits for the
// port for at most so long.
func Mismatch(ctx context.Context, address string, config *tls.Config, patience time.Duration) error {
	return mismatch(address, config, func() (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(patience))
		}
		return conn, err
	})
}

// mismatch is Mismatch, with connections that have a deadline.
func mismatch(address string, config *tls.Config, open func() (net.Conn, error)) error {
	speaksTLS, err := probeTLS(open)
	switch {
	case err != nil:
		return plainAnswer(address, err, nil)
	case config != nil && speaksTLS:
		return nil
	}
	answer := probePlain(open)
	switch {
	case bytes.HasPrefix(answer, []byte("HTTP")):
		return fmt.Errorf("%s: %w", address, ErrHTTP)
	case speaksTLS && len(answer) == 0:
		return fmt.Errorf("%s: %w", address, ErrTLSNeeded)
	case config != nil && len(answer) > 0:
		return fmt.Errorf("%s: %w", address, ErrNoTLS)
	}
	return nil
}

// probeTLS reports whether a port speaks TLS. The error is a tls.RecordHeaderError if it answers
// something else.
func probeTLS(open func() (net.Conn, error)) (bool, error) {
	conn, err := open()
	if err != nil {
		return false, nil
	}
	defer conn.Close()
	// The certificate does not matter: nothing is sent.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return false, err
	}
	return err == nil || isRemoteAlert(err), nil
}

// probePlain returns the beginning of a port's answer to a four-letter word without TLS: every
// server for clients answers it, or says that it does not. A port for TLS gives none.
func probePlain(open func() (net.Conn, error)) []byte {
	conn, err := open()
	if err != nil {
		return nil
	}
	defer conn.Close()
	// With the newline a port for TLS has a record's header, and need not wait for the rest of it.
	if _, err := io.WriteString(conn, "srvr\n"); err != nil {
		return nil
	}
	var answer [5]byte
	n, _ := io.ReadFull(conn, answer[:])
	if isTLSRecord(answer[:n]) {
		return nil
	}
	return answer[:n]
}

// plainAnswer is the error of a port that has answered a handshake, of TLS or of a client, in text,
// by the beginning of the answer. otherwise is the error for another one.
func plainAnswer(address string, err, otherwise error) error {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok &&
		bytes.HasPrefix(record.RecordHeader[:], []byte("HTTP")) {
		return fmt.Errorf("%s: %w", address, ErrHTTP)
	}
	return otherwise
}

// isRemoteAlert reports whether the other side has ended TLS with an alert.
func isRemoteAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// isTLSRecord reports whether a port answers with a record of TLS, such as an alert.
func isTLSRecord(b []byte) bool {
	const alert, handshake, major = 21, 22, 3
	return len(b) > 1 && (b[0] == alert || b[0] == handshake) && b[1] == major
}

// misfit returns why a server that was connected to does not do the handshake, if that is known,
// and takes note of it for Reach.
func (c *serverConn) misfit(err error) error {
	if isTimeout(err) {
		return err // another server is next, at once
	}
	d := c.d
	cause := d.hosts.misfit(c.address, func() error {
		switch {
		case d.tls == nil:
			return mismatch(c.address, nil, d.probe(c.address))
		case isRemoteAlert(err):
			return d.refusedTLS(c.address, err)
		}
		return nil
	})
	if cause == nil {
		return err
	}
	d.hosts.dialed(c.address, cause)
	return cause
}

// probe opens connections to find out the protocol of a port.
func (d *dialer) probe(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		conn, err := d.open("tcp", address, probeTime)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(probeTime))
		}
		return conn, err
	}
}

// refusedTLS is the error of a server that ends TLS with an alert.
func (d *dialer) refusedTLS(address string, err error) error {
	if len(d.tls.Certificates) == 0 && d.tls.GetClientCertificate == nil {
		return fmt.Errorf("%s: %w: %w", address, ErrCertificateNeeded, err)
	}
	return fmt.Errorf("recipes: %s refuses the certificate of this program: %w", address, err)
}

// tlsFailure is the error of a handshake of TLS that failed with err.
func (d *dialer) tlsFailure(address string, err error) error {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case plain:
		return plainAnswer(address, err, fmt.Errorf("%s: %w", address, ErrNoTLS))
	case isRemoteAlert(err):
		return d.refusedTLS(address, err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok && !isTimeout(err) {
		if cause := d.hosts.misfit(address, func() error {
			return mismatch(address, d.tls, d.probe(address))
		}); cause != nil {
			return cause
		}
	}
	return fmt.Errorf("recipes: TLS with %s: %w", address, err)
}
