package recipes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session is a connection to a cluster as the recipes need it: it knows the ZooKeeper session in
// force, the time of its newest confirmation by the cluster, and the grants that depend on it; and
// it owns every goroutine that this package starts. All methods may be called from any goroutine.
//
// A Session outlives ZooKeeper's sessions: when one expires, go-zookeeper opens the next by itself.
// Grants of the old one are lost, and say so.
type Session struct {
	link    *link
	watches *watches
	claims  claims
	warned  warned
	hosts   *hosts   // nil after NewSession
	acl     []zk.ACL // Config.ACL, or its default
}

// NewSession takes over conn and events, the channel that came with it, for programs that connect
// by themselves; others call [Connect]. Nobody else may receive from events. conn may be used for
// other things too; Close closes it.
//
// timeout is the session timeout that the cluster has granted, which go-zookeeper does not tell: if
// the server's limits may have shortened it, pass the smallest that they allow. With a value that
// is too large, the loss of a grant is noticed too late.
func NewSession(conn Conn, events <-chan zk.Event, timeout time.Duration) *Session {
	return newSession(conn, events, func() time.Duration { return timeout }, slog.New(slog.DiscardHandler))
}

func newSession(conn Conn, events <-chan zk.Event, timeout func() time.Duration, log *slog.Logger) *Session {
	k := newLink(conn, events, timeout, log)
	return &Session{link: k, watches: newWatches(k)}
}

// Conn returns the connection under the session.
func (s *Session) Conn() Conn { return s.link.conn }

// Timeout is the session timeout that the servers granted, in whole milliseconds. Grants are lost
// after two thirds of it without an answer. Before a server has answered it is the one that was
// asked for; after NewSession it is NewSession's. It differs from [Config].SessionTimeout where the
// servers' limits are narrower, and may change when the Session connects to another server.
func (s *Session) Timeout() time.Duration { return s.link.sessionTimeout() }

// Close ends the session and returns when all goroutines of this package have ended. The cluster
// deletes the session's nodes at once, if the connection still stands, or else when the session
// times out. Every grant is lost (ErrClosed), every waiting Lock returns.
func (s *Session) Close() { s.link.close() }

// Reach waits until a server answers for the session. If no connection can be opened to any of the
// addresses, it does not wait for ctx to end: it returns an ErrUnreachable that wraps the error of
// each. The Session goes on trying nevertheless, and so does a second call of Reach, up to the next
// attempt.
//
// A Session that was made by NewSession knows nothing of addresses; there Reach waits for ctx.
func (s *Session) Reach(ctx context.Context) error {
	for {
		var failed error
		var attempt <-chan struct{}
		if s.hosts != nil {
			attempt, failed = s.hosts.unreachable()
		}
		l, changed, err := s.link.answered()
		switch {
		case l != nil, err != nil:
			return err
		case failed != nil:
			return failed
		}
		select {
		case <-attempt:
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("recipes: reach the cluster: %w", ctx.Err())
		}
	}
}

// aclOr is acl, or the default for a nil ACL: Config.ACL.
func (s *Session) aclOr(acl []zk.ACL) []zk.ACL {
	switch {
	case acl != nil:
		return acl
	case s.acl != nil:
		return s.acl
	}
	return zk.WorldACL(zk.PermAll)
}

// Conn is the part of a ZooKeeper client that this package needs. *zk.Conn satisfies it.
//
// The methods block while the client has no connection, and may be carried out in a later session
// than the one in which they were called, like the methods of *zk.Conn. SessionID and State must
// not block: they are called with a mutex held. After Close every call returns soon, with an error.
type Conn interface {
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Delete(path string, version int32) error
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Exists(path string) (bool, *zk.Stat, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Children(path string) ([]string, *zk.Stat, error)
	ChildrenW(path string) ([]string, *zk.Stat, <-chan zk.Event, error)
	// Multi does all of ops (*zk.CreateRequest, *zk.SetDataRequest, *zk.DeleteRequest,
	// *zk.CheckVersionRequest) or, with an error, none. Without ops it is a write that changes
	// nothing.
	Multi(ops ...any) ([]zk.MultiResponse, error)
	// Sync returns the path of the answer, which may be another one; see confirm.
	Sync(path string) (string, error)

	SessionID() int64
	State() zk.State
	Close()
}

var _ Conn = (*zk.Conn)(nil)
