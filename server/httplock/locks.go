package httplock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// Config are the parts of a member that Locks uses.
type Config struct {
	Settings *zoocfg.Config
	Sessions *session.Manager
	View     func(func(*znode.Store))
	// Handshake takes one of the handshakes that clients of this member share; false if there is
	// none.
	Handshake func() bool
	Log       *slog.Logger
}

// Locks serves locks over HTTP. It is safe for concurrent use.
type Locks struct {
	cfg Config

	stop     context.CancelCauseFunc
	stopping context.Context // ends when the member stops, or its clients go to others
	places   sync.WaitGroup  // that are taken; Order: none is added after stopping, under mu

	turn chan struct{} // has an element while the children of a lock are listed

	mu   sync.Mutex
	held map[wire.SessionID]*held
	// moving are the locks of other members that requests are adopting, each with a channel that is
	// closed when that has ended.
	moving map[secret]chan struct{}
	users  map[any]int // locks of an address (netip.Prefix), or of an identity (znode.Identity)
	all    int
	conns  int // connections of HTTP that serve a waiting request, or a stream

	granted, lost, refused atomic.Int64 // see Counts
}

// New returns Locks without a lock. Close ends it.
func New(cfg Config) *Locks {
	l := &Locks{cfg: cfg, held: map[wire.SessionID]*held{}, moving: map[secret]chan struct{}{}, users: map[any]int{},
		turn: make(chan struct{}, 1)}
	l.stopping, l.stop = context.WithCancelCause(context.Background())
	return l
}

// Counts returns the counts.
func (l *Locks) Counts() ops.LockCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ops.LockCounts{Waiting: l.all - len(l.held), Held: len(l.held), Granted: l.granted.Load(),
		Lost: l.lost.Load(), Refused: l.refused.Load()}
}

// Drain ends all streams and waits, with a reason for their users, and refuses new locks. The
// sessions of held locks live on until they expire, and can be renewed at another member.
func (l *Locks) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop(errStops)
}

// Close is Drain, and waits until all locks have been left.
func (l *Locks) Close() {
	l.Drain()
	l.places.Wait()
}

// place is a place among the locks of a member.
type place struct {
	l       *Locks
	users   []any
	conn    bool // it occupies a connection; guarded by Locks.mu
	leaving sync.Once
}

// enter takes a place for a lock of a caller. conn says that it occupies a connection for longer
// than a moment.
func (l *Locks) enter(caller door.Caller, conn bool) (*place, error) {
	users := []any{connlimit.NetworkOf(caller.Addr)}
	for _, id := range caller.Identities {
		if id.Scheme != "ip" {
			users = append(users, id)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.cfg.Settings.HTTP
	switch {
	case l.stopping.Err() != nil:
		return nil, errStops
	case l.all >= s.Locks:
		return nil, l.tooMany("this member serves as many locks as it may (admin.maxLocks)")
	case conn && l.conns >= max(1, s.Conns/2):
		return nil, l.tooMany("half of the connections to this member wait for locks, or hold some (admin.maxCnxns); " +
			"hold=renew without wait needs none")
	}
	for i, u := range users {
		most, key := s.LocksPerUser, "identity (admin.maxLocksPerUser)"
		if i == 0 {
			most, key = s.LocksPerAddr, "address (admin.maxLocksPerAddress)"
		}
		if l.users[u] >= most {
			return nil, l.tooMany("too many locks of one " + key)
		}
	}
	l.places.Add(1)
	l.all++
	if conn {
		l.conns++
	}
	for _, u := range users {
		l.users[u]++
	}
	return &place{l: l, users: users, conn: conn}, nil
}

func (l *Locks) tooMany(why string) error {
	l.refused.Add(1)
	return &refusal{status: tooMany, text: why}
}

// leave gives the place back.
func (p *place) leave() {
	p.leaving.Do(func() {
		l := p.l
		defer l.places.Done()
		p.hangUp()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		for _, u := range p.users {
			if l.users[u]--; l.users[u] == 0 {
				delete(l.users, u)
			}
		}
	})
}

// hangUp says that the place occupies no connection any more.
func (p *place) hangUp() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.conn {
		p.conn = false
		p.l.conns--
	}
}

// timeoutOf is the timeout of a session that there is, else the default.
func (l *Locks) timeoutOf(id wire.SessionID) time.Duration {
	timeout := timeoutDefault
	l.cfg.View(func(store *znode.Store) {
		if info, ok := store.Sessions().Get(id); ok {
			timeout = time.Duration(info.TimeoutMs) * time.Millisecond
		}
	})
	return timeout
}

// open opens a session for a caller, or attaches to the session of a secret.
func (l *Locks) open(ctx context.Context, caller door.Caller, timeout time.Duration, of secret) (*client, error) {
	if !l.cfg.Handshake() {
		return nil, &refusal{status: tooMany, text: "too many sessions begin at this member " +
			"(connection_throttle_tokens)"}
	}
	req := &wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds())}
	if of != (secret{}) {
		req.SessionID, req.Password = of.session, of.password[:]
	}
	return connect(ctx, l.cfg.Sessions, req, caller.Addr, caller.Identities)
}
