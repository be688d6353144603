package recipes

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Session is a connection to a cluster as the recipes need it: it knows which
// ZooKeeper session is in force, since when the cluster has confirmed it, and
// which grants hang on it; and it owns every goroutine that this package
// starts. All methods may be called from any goroutine.
//
// A Session outlives ZooKeeper's sessions: when one expires, go-zookeeper opens
// the next by itself. What was acquired under the old one is lost, and says so.
type Session struct {
	conn    Conn
	timeout func() time.Duration // of the session in force, as negotiated
	log     *slog.Logger
	quit    chan struct{}         // closed when the Session ends
	hosts   *hosts                // nil after NewSession
	acl     []zk.ACL              // Config.ACL, or its default
	endErr  atomic.Pointer[error] // why it has ended; nil while it lives
	wg      sync.WaitGroup

	// mu guards what follows, and the fields of lease and Grant that say so.
	// It is the only mutex of the package; nothing blocks while it is held.
	mu        sync.Mutex
	ended     bool
	lease     *lease        // nil: no session yet, or not yet a new one
	connected bool          // a server answers for the session right now
	changed   chan struct{} // closed and replaced when one of the above changes
	silent    chan struct{} // changed, as of a sync that was said to prove nothing
	watches   map[watchKey]*watch
	watchings uint64          // the number of watches that were set
	claims    map[string]bool // names that somebody of this Session has or may get
	warned    map[string]bool // paths of which it has been logged that others may not wait for us
}

// NewSession takes over conn and events, the channel that came with it, for
// programs that connect by themselves; others call [Connect]. Nobody else may
// receive from events. conn may be used for other things too; Close closes it.
//
// timeout is the session timeout that the cluster has granted, which
// go-zookeeper does not tell: if the server's limits may have shortened what
// was asked for, pass what they leave. A value that is too large makes grants
// that are found lost too late.
func NewSession(conn Conn, events <-chan zk.Event, timeout time.Duration) *Session {
	return newSession(conn, events, func() time.Duration { return timeout }, slog.New(slog.DiscardHandler))
}

func newSession(conn Conn, events <-chan zk.Event, timeout func() time.Duration, log *slog.Logger) *Session {
	s := &Session{
		conn:    conn,
		timeout: timeout,
		log:     log,
		quit:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	s.observe()
	s.wg.Go(func() { s.follow(events) })
	return s
}

// Conn returns the connection under the session.
func (s *Session) Conn() Conn { return s.conn }

// Timeout is the session timeout that the servers granted, in whole milliseconds: the one that
// grants are counted on, which are lost after two thirds of it without an answer. Before a server
// has answered it is what was asked for; after NewSession it is what NewSession was given. It
// differs from [Config].SessionTimeout where the servers' limits are narrower, and may change when
// the Session connects to another server.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observeLocked()
	if s.lease != nil {
		return s.lease.timeout
	}
	return s.timeout()
}

// Close ends the session and returns when all that this package had started has
// ended. The cluster deletes the session's nodes at once, if the connection
// still stands, or else when the session times out. Every grant is lost
// (ErrClosed), every waiting Lock returns.
func (s *Session) Close() {
	s.end()
	s.conn.Close()
	s.wg.Wait()
}

// end marks the Session as over.
func (s *Session) end() { s.endWith(ErrClosed) }

// closed is why the Session has ended, an ErrClosed.
func (s *Session) closed() error { return *s.endErr.Load() }

// endWith marks the Session as over because of err, which is an ErrClosed.
func (s *Session) endWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.endErr.Store(&err)
	if s.lease != nil {
		s.lease.endLocked(err)
		s.lease = nil
	}
	close(s.quit)
	s.changedLocked()
}

// follow keeps up with the connection's events until there are no more.
//
// go-zookeeper drops an event when nobody has made room for it, and stores the
// state that the event is about before it sends. So an event is only a reason
// to read the state again, and its content is not used: the last one that fits into the channel is
// followed by a look that sees everything the dropped ones were about.
func (s *Session) follow(events <-chan zk.Event) {
	for {
		select {
		case _, ok := <-events:
			if !ok { // somebody closed the connection
				s.end()
				return
			}
			s.observe()
		case <-s.quit:
			return
		}
	}
}

func (s *Session) observe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observeLocked()
}

// observeLocked compares what the connection says of itself with what we knew.
//
// A session is over for us as soon as the connection has another id than the
// session's, which is 0 between two sessions. Ids do not come back.
func (s *Session) observeLocked() {
	if s.ended {
		return
	}
	id := s.conn.SessionID()
	connected := s.conn.State() == zk.StateHasSession && id != 0
	moved := connected != s.connected
	s.connected = connected
	if s.lease != nil && s.lease.id != id {
		s.lease.endLocked(ErrExpired)
		s.lease, moved = nil, true
	}
	if s.lease == nil && id != 0 {
		s.lease, moved = newLease(s, id), true
		s.wg.Go(s.lease.keep)
	}
	if s.lease != nil {
		s.lease.shortenLocked(s.timeout())
	}
	if moved {
		s.changedLocked()
	}
}

func (s *Session) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// news returns a channel that is closed at the next change.
func (s *Session) news() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// ready waits until a server answers for the session, and returns its lease.
func (s *Session) ready(ctx context.Context) (*lease, error) {
	for {
		s.mu.Lock()
		s.observeLocked()
		l, connected, ended, changed := s.lease, s.connected, s.ended, s.changed
		s.mu.Unlock()
		switch {
		case ended:
			return nil, s.closed()
		case connected:
			return l, nil
		}
		select {
		case <-changed:
		case <-s.quit:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// spawn runs f in a goroutine that Close waits for. It reports false, and runs
// nothing, when the Session has ended.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.wg.Go(f)
	return true
}

// Bounds of the pause before a request whose outcome is unknown, or that was
// answered with an error that this package does not know, is made again.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// pause waits before the attempt'th repetition of something, counted from 1,
// and then for the connection. It returns early when ctx or the Session ends.
func (s *Session) pause(ctx context.Context, attempt int) error {
	d := min(minPause<<min(attempt-1, 10), maxPause)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.quit:
		return s.closed()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := s.ready(ctx)
	return err
}

// Conn is what this package needs of a ZooKeeper client. *zk.Conn satisfies it.
//
// The methods block for as long as the client has no connection, and may be
// carried out in a later session than the one in which they were called, as
// those of *zk.Conn do and are. SessionID and State must not block: they are
// called with a mutex held. After Close every call returns soon, with an error.
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
	// Multi does all of ops (*zk.CreateRequest, *zk.SetDataRequest,
	// *zk.DeleteRequest, *zk.CheckVersionRequest) or, with an error, none. Without ops
	// it is a write that changes nothing.
	Multi(ops ...any) ([]zk.MultiResponse, error)
	// Sync returns the path of the answer, which may be another one; see confirm.
	Sync(path string) (string, error)

	SessionID() int64
	State() zk.State
	Close()
}

var _ Conn = (*zk.Conn)(nil)
