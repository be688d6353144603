package recipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
	"lockkeeper/recipes/internal/sessionfile"
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
	dialer  *dialer  // nil after NewSession
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
// times out. Every grant is lost (ErrClosed), every waiting Lock returns. A session file is
// removed, unless no server has answered yet: then its session may live.
func (s *Session) Close() { s.end(true) }

// Detach ends the program's part in the session, and leaves the session to the next process that
// connects with the same [Config].SessionFile: locks and registrations stay until it comes, or the
// session expires. For the program Detach is a Close: every grant is lost here (ErrClosed), so the
// work under its locks has to be over. Without a session file the session is left to expire.
func (s *Session) Detach() {
	if s.dialer != nil {
		s.dialer.left.Store(true) // before the client writes that it closes the session
	}
	s.end(false)
}

func (s *Session) end(remove bool) {
	s.link.keeper.Stop()
	s.link.close()
	if err := s.link.keeper.Close(remove); err != nil {
		s.link.log.Error("recipes: the session file stays", "err", err)
	}
}

// Held is something that the previous process held, by its path, its node and its token.
type Held = sessionfile.Held

// Resumption is the fate of the session in a [Config].SessionFile.
type Resumption struct {
	// Session is the session that was taken up; 0 if there is a new one.
	Session int64

	// Held are the locks, leaderships and memberships of the previous process that the session
	// still has. They wait to be taken up, for a session timeout.
	Held []Held

	// Lost are the others: they went with the session, or somebody has deleted the node. With
	// ErrElsewhere another process may hold them.
	Lost []Held

	// Reason is why the session in the file was not taken up: ErrExpired, ErrElsewhere. It is nil
	// if it was, or there was none.
	Reason error
}

// Resumed waits until a server has answered for the session in [Config].SessionFile, and returns
// its fate. It returns a zero Resumption if there was none.
func (s *Session) Resumed(ctx context.Context) (Resumption, error) {
	k := s.link.keeper
	if k == nil {
		return Resumption{}, nil
	}
	select {
	case <-k.Known():
	case <-s.link.quit:
		return Resumption{}, fmt.Errorf("recipes: resume: %w", s.link.closed())
	case <-ctx.Done():
		return Resumption{}, fmt.Errorf("recipes: resume: %w", ctx.Err())
	}
	past := k.Past()
	r := Resumption{Session: past.Session, Held: past.Held, Lost: past.Lost}
	switch {
	case past.Refused:
		r.Reason = ErrExpired
	case past.Elsewhere:
		r.Reason = ErrElsewhere
	}
	return r, nil
}

// FileLock returns the open file that keeps other processes off the [Config].SessionFile, nil if
// there is none. A program that starts another one to work under its locks passes it on
// (exec.Cmd.ExtraFiles): then the next process cannot take up the session before the other one has
// ended, too.
func (s *Session) FileLock() *os.File {
	if s.link.keeper == nil {
		return nil
	}
	return s.link.keeper.Lock()
}

// GiveBack deletes all nodes that the previous process has left in the session and that nobody has
// taken up: locks are given back, places in queues are left. It is for a program that has taken up
// all that it wants; without it that happens after a session timeout.
func (s *Session) GiveBack(ctx context.Context) error {
	err := s.link.do(ctx, func(ctx context.Context) error {
		l, err := s.link.ready(ctx)
		if err != nil {
			return err
		}
		return s.giveBack(l, func(string) bool { return true })
	})
	if err != nil {
		return fmt.Errorf("recipes: give back: %w", err)
	}
	return nil
}

// giveBackLater is GiveBack, a session timeout after the session was taken up.
func (s *Session) giveBackLater() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.link.spawn(func() { <-s.link.quit; cancel() })
	r, err := s.Resumed(ctx)
	if err != nil || r.Session == 0 {
		return
	}
	select {
	case <-time.After(s.Timeout()):
		_ = s.GiveBack(ctx) // it goes on until it is certain, or the session is over
	case <-s.link.quit:
	}
}

// giveBack is GiveBack in the session of l, for the nodes for which fits returns true.
func (s *Session) giveBack(l *lease, fits func(node string) bool) error {
	k := s.link.keeper
	if k == nil {
		return nil
	}
	var errs []error
	for _, path := range k.Left(l.id) {
		// A path that others' nodes have too is ours as long as it is claimed.
		if !fits(path) || !s.claims.claim(path) {
			continue
		}
		if node, held := k.TakeUp(l.id, false, func(node string) bool { return node == path }); node != "" {
			if held {
				s.link.log.Warn("recipes: given back: the previous process held it, and this one has not taken it up",
					"node", path)
			}
			n := leftNode(s.link, l, path)
			if err := n.leave(n.remove); err != nil && !errors.Is(err, ErrDeleted) {
				errs = append(errs, err)
			}
			k.Release(path)
		}
		s.claims.free(path)
	}
	return errors.Join(errs...)
}

// leftNode is a node that the previous process has left in the session of l. It reads the mark of a
// SimpleMutex's, which this process may want to make again.
func leftNode(k *link, l *lease, path string) *node {
	dir, name := split(path)
	n := &node{link: k, lease: l, dir: dir, prefix: name, path: path, owned: true}
	if _, numbered := locknode.Sequence(name); !numbered || !strings.HasPrefix(name, protectPrefix) {
		n.fixed = &fixed{path: path}
		data, _, err := k.conn.Get(path)
		if i := locknode.ParseInfo(data); err == nil && i != nil {
			n.fixed.mark = i.ID
		}
	}
	return n
}

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
