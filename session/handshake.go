package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// handshakes creates and attaches sessions for the clients that connect to this member.
type handshakes struct {
	m         *member
	connected *connected
	tracker   *tracker
	readOnly  *readOnly
	guesses   *guesses
	claims    claims

	mu      sync.Mutex
	pending map[znode.Key]*handshake
	// behind are the handshakes of clients that have seen more than this member has applied.
	behind map[chan struct{}]wire.Zxid
}

func (h *handshakes) init(m *member, connected *connected, t *tracker, r *readOnly, g *guesses) {
	h.m, h.connected, h.tracker, h.readOnly, h.guesses = m, connected, t, r, g
	h.claims.init(m)
	h.pending, h.behind = map[znode.Key]*handshake{}, map[chan struct{}]wire.Zxid{}
}

// handshake is a connection that waits for its session to be created or attached.
type handshake struct {
	addr    netip.Addr
	timeout time.Duration
	since   int64 // when it was proposed: the lease lasts at least from then
	result  chan handshakeResult
}

type handshakeResult struct {
	status     znode.Status
	generation uint64
	session    *Session // when Done
}

// connect is Manager.Connect.
func (h *handshakes) connect(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr,
) (*Session, *wire.ConnectResponse, error) {
	began := time.Now()
	timeout := min(max(time.Duration(req.TimeoutMs)*time.Millisecond, h.m.cfg.MinTimeout), h.m.cfg.MaxTimeout)
	switch since, ok := h.m.replica.LeaderKnown(); {
	case ok && isLocalID(req.SessionID) && req.SessionID != 0:
		return nil, refusal(req), nil // it ended with read-only mode
	case !ok && h.readOnly.on.Load():
		return h.readOnly.connect(req, addr, timeout)
	case !ok && time.Since(since) > h.m.cfg.Tick:
		return nil, nil, ErrNotServing
	}
	// A client that waits longer than this is served sooner by another member.
	ctx, cancel := context.WithTimeout(ctx, min(timeout/3, h.m.cfg.Tick))
	defer cancel()
	if err := h.awaitJoined(ctx); err != nil {
		return nil, nil, err
	}
	if err := h.catchUp(ctx, req.LastZxidSeen); err != nil {
		return nil, nil, err
	}
	if err := h.m.gate.AwaitQuota(ctx, addr); err != nil {
		return nil, nil, err
	}
	begin := h.attach
	if req.SessionID == 0 {
		begin = h.create
	}
	s, resp, err := begin(ctx, req, addr, timeout)
	if s != nil {
		h.m.stats.Updates.ObserveSince(began)
	}
	return s, resp, err
}

// joinWait is how long a member that has just started may take to catch up with the leader that it
// has learned of, before handshakes are refused: another member serves the client sooner.
const joinWait = 500 * time.Millisecond

// awaitJoined waits until this member has caught up with a leader since it started. Errors:
// ErrNotServing, or of ctx.
func (h *handshakes) awaitJoined(ctx context.Context) error {
	for !h.m.joined() {
		if since, ok := h.m.replica.LeaderKnown(); ok && time.Since(since) > joinWait {
			return ErrNotServing
		}
		select {
		case <-h.m.replica.CaughtUp():
		case <-time.After(joinWait / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// catchUp waits until this member has applied the zxid that the client has seen elsewhere. Most
// often that takes milliseconds: the client was connected to a leader that has just failed.
func (h *handshakes) catchUp(ctx context.Context, seen wire.Zxid) error {
	var applied wire.Zxid
	var reached chan struct{}
	h.m.replica.View(func(s *znode.Store) {
		if applied = s.Zxid(); seen > applied {
			reached = make(chan struct{})
			h.mu.Lock()
			h.behind[reached] = seen
			h.mu.Unlock()
		}
	})
	if reached == nil {
		return nil
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		delete(h.behind, reached)
		h.mu.Unlock()
		return fmt.Errorf("%w: it has seen %v, applied was %v", errAhead, seen, applied)
	}
}

// caughtUp resumes the handshakes of clients that have seen no later zxid than applied.
func (h *handshakes) caughtUp(applied wire.Zxid) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for reached, seen := range h.behind {
		if seen <= applied {
			close(reached)
			delete(h.behind, reached)
		}
	}
}

func (h *handshakes) create(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	if err := h.m.gate.OpenSession(h.m.replica.View, addr); err != nil {
		return nil, nil, err
	}
	defer h.m.gate.SessionOpened(addr)
	for {
		id := h.m.newID()
		password := newPassword()
		if h.m.cfg.ZooKeeperPasswords {
			password = id.ZooKeeperPassword()
		}
		res, err := h.propose(ctx, &znode.Command{
			Session: id,
			Seq:     h.m.nonce(),
			Body:    &znode.CreateSession{Connection: connectionOf(timeout, password, addr)},
		}, addr, timeout)
		if err != nil {
			return nil, nil, err
		}
		if res.status == znode.Done {
			return res.session, response(req, &res.session.connection, password[:]), nil
		}
		// The id is taken, as it can be after the wall clock was set back. The next one may be
		// free.
		h.m.log.Warn("session id in use", "session", id, "status", res.status)
	}
}

func connectionOf(timeout time.Duration, password wire.Password, addr netip.Addr) znode.Connection {
	return znode.Connection{TimeoutMs: int32(timeout.Milliseconds()), Password: password, Addr: znode.AddrText(addr)}
}

func (h *handshakes) attach(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	// Session ids are public. So the present connection of the session ends when the attach is
	// committed (applied), not before the client has proved that it may attach.
	var info znode.SessionInfo
	var known bool
	h.m.replica.View(func(s *znode.Store) { info, known = s.Sessions().Get(req.SessionID) })
	if known && !right(info.Password, req.Password) {
		return h.refuse(req, addr)
	}
	if len(req.Password) != wire.PasswordLen {
		return nil, refusal(req), nil
	}
	if !known { // it may have been created elsewhere a moment ago
		mayExist, err := h.claims.mayExist(ctx, claimOf(req), addr)
		if err != nil {
			return nil, nil, err
		}
		if !mayExist {
			h.m.log.Info("attach refused: no such session", "session", req.SessionID, "client", addr)
			return nil, refusal(req), nil
		}
	}
	for generation := info.Generation; ; {
		// The session may end before the command is applied, so the log decides.
		res, err := h.propose(ctx, &znode.Command{
			Session:    req.SessionID,
			Generation: generation,
			Seq:        h.m.nonce(),
			Body:       &znode.Attach{Connection: connectionOf(timeout, wire.Password(req.Password), addr)},
		}, addr, timeout)
		if err != nil {
			return nil, nil, err
		}
		switch res.status {
		case znode.Done:
			return res.session, response(req, &res.session.connection, req.Password), nil
		case znode.Moved:
			generation = res.generation // another attach came first
		case znode.BadPassword:
			return h.refuse(req, addr)
		default:
			h.m.log.Info("attach refused", "session", req.SessionID, "client", addr, "status", res.status)
			return nil, refusal(req), nil
		}
	}
}

// refuse answers a client with a wrong password.
func (h *handshakes) refuse(req *wire.ConnectRequest, addr netip.Addr) (*Session, *wire.ConnectResponse, error) {
	resp, err := h.guesses.refuse(req, addr)
	return nil, resp, err
}

// propose proposes the command of a handshake and waits for its result.
func (h *handshakes) propose(ctx context.Context, c *znode.Command, addr netip.Addr, timeout time.Duration,
) (handshakeResult, error) {
	waits := &handshake{addr: addr, timeout: timeout, since: h.m.since(), result: make(chan handshakeResult, 1)}
	h.mu.Lock()
	h.pending[c.Key()] = waits
	h.mu.Unlock()
	err := h.m.replica.Propose(ctx, c)
	if err == nil {
		select {
		case res := <-waits.result:
			return res, nil
		case <-ctx.Done():
			err = fmt.Errorf("session: handshake: %w", ctx.Err())
		}
	}
	h.mu.Lock()
	delete(h.pending, c.Key())
	h.mu.Unlock()
	select {
	case res := <-waits.result: // it came in the same instant
		if res.session != nil {
			res.session.Detach()
		}
	default:
	}
	return handshakeResult{}, err
}

// applied is the part of Applied for create and attach. From here on commands of the new
// generation find the new connection.
func (h *handshakes) applied(store *znode.Store, c *znode.Command, by *znode.Connection, res *znode.Result) {
	if res.Status == znode.Done {
		h.tracker.renew(c.Session, res.Generation, time.Duration(by.TimeoutMs)*time.Millisecond)
		if old := h.connected.get(c.Session); old != nil {
			old.end("session moved")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	waits := h.pending[c.Key()]
	if waits == nil {
		return // another member's, or its client has gone
	}
	delete(h.pending, c.Key())
	r := handshakeResult{status: res.Status, generation: res.Generation}
	if res.Status == znode.Done {
		r.session = newSession(h.m, h.connected, admission.Account{Session: c.Session, Addr: waits.addr},
			res.Generation, waits.timeout, waits.since, store.Sessions().AddrIdentity(c.Session))
		h.connected.put(r.session)
	}
	waits.result <- r
}

// claims asks the leader about the sessions that clients attach to and this member does not know:
// it may be behind. An attach that the leader denies is not proposed, so the log does not fill with
// the attaches of strangers. One question for all of them is under way at a time.
type claims struct {
	m    *member
	wake signal // a claim waits

	mu   sync.Mutex
	list []*claim // unanswered, the oldest first
	// joinable are those that are not asked yet. A handshake gets no answer to a question that was
	// asked before it began.
	joinable map[znode.Claim]*claim
	waiting  int                // handshakes
	byAddr   map[netip.Addr]int // handshakes of each client address
}

// claim is a question to the leader, and the handshakes that wait for the answer.
type claim struct {
	znode.Claim
	waiting  int           // handshakes
	answered chan struct{} // closed when mayExist is set
	mayExist bool
}

// MaxClaims bounds the claims of one call of Replica.MayExist.
const MaxClaims = 4096

const (
	// claimsMax bounds the handshakes that wait for the leader's answer about their sessions, and
	// claimsPerAddr those from one client address. One more is closed without an answer.
	claimsMax     = MaxClaims
	claimsPerAddr = 256
	// claimsPause is the time after a failed question. It fails when there is no leader.
	claimsPause = 50 * time.Millisecond
)

// errClaims says that too many handshakes wait for an answer of the leader.
var errClaims = errors.New("session: too many clients attach to sessions that this member does not know")

func (q *claims) init(m *member) {
	q.m, q.wake = m, newSignal()
	q.joinable, q.byAddr = map[znode.Claim]*claim{}, map[netip.Addr]int{}
}

// mayExist asks the leader whether the session of a claim that this member does not know may exist,
// with that password. False is certain. Errors: errClaims, or of ctx.
func (q *claims) mayExist(ctx context.Context, of znode.Claim, addr netip.Addr) (bool, error) {
	c, err := q.add(of, addr)
	if err != nil {
		q.m.stats.inc(&q.m.stats.AttachesRefused)
		q.m.refusals.Warn("claims "+addr.String(), "client refused: "+err.Error(), "client", addr)
		return false, err
	}
	defer q.leave(c, addr)
	q.wake.set()
	select {
	case <-c.answered:
		return c.mayExist, nil
	case <-ctx.Done():
		return false, fmt.Errorf("session: handshake: %w", ctx.Err())
	}
}

// add adds a handshake to those that wait. The caller calls leave when it has ended.
func (q *claims) add(of znode.Claim, addr netip.Addr) (*claim, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting >= claimsMax || q.byAddr[addr] >= claimsPerAddr {
		return nil, errClaims
	}
	q.waiting++
	q.byAddr[addr]++
	c := q.joinable[of]
	if c == nil {
		c = &claim{Claim: of, answered: make(chan struct{})}
		q.joinable[of] = c
		q.list = append(q.list, c)
	}
	c.waiting++
	return c, nil
}

func (q *claims) leave(c *claim, addr netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.waiting--
	q.waiting--
	if q.byAddr[addr]--; q.byAddr[addr] == 0 {
		delete(q.byAddr, addr)
	}
}

// ask returns the claims of the next question. No handshake joins them any more.
func (q *claims) ask() (of []znode.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.joinable)
	q.list = slices.DeleteFunc(q.list, func(c *claim) bool { return c.waiting == 0 })
	for _, c := range q.list {
		of = append(of, c.Claim)
	}
	return of
}

// answer answers the oldest claims of the list.
func (q *claims) answer(mayExist []bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, c := range q.list[:len(mayExist)] {
		c.mayExist = mayExist[i]
		close(c.answered)
	}
	q.list = q.list[len(mayExist):]
}

// run asks the leader while claims wait, again if it is not answered.
func (q *claims) run(ctx context.Context) {
	for received(ctx, q.wake) {
		for of := q.ask(); len(of) > 0; of = q.ask() {
			if answers, err := q.m.replica.MayExist(ctx, of); err == nil {
				q.answer(answers)
			} else if !pause(ctx, claimsPause) {
				return
			}
		}
	}
}

// claimOf is the claim of an attach.
func claimOf(req *wire.ConnectRequest) znode.Claim {
	return znode.Claim{Session: req.SessionID, Password: wire.Password(req.Password)}
}
