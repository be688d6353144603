package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/connlimit"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// ErrNotServing says that this member has no leader, or has not caught up with it since it started;
// the client should try another one.
var ErrNotServing = errors.New("session: no leader, or not caught up with it")

// errAhead says that the client has seen later state than this member has.
var errAhead = errors.New("session: client is ahead of this member")

// errGuesses says that clients came with wrong passwords too often.
var errGuesses = errors.New("session: too many attaches with a wrong password")

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

// Connect answers a connect request from a client at addr. Three outcomes:
//
//   - a Session and the response to send before anything else;
//   - no Session and a response that says "expired" (timeout 0): send it, then close;
//   - an error: close without a byte, so that the client tries another member.
//
// The caller must Detach a Session that it was given. Connect waits for a commit; ctx ends that.
func (m *Manager) Connect(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr,
) (*Session, *wire.ConnectResponse, error) {
	began := time.Now()
	timeout := min(max(time.Duration(req.TimeoutMs)*time.Millisecond, m.cfg.MinTimeout), m.cfg.MaxTimeout)
	switch since, ok := m.replica.LeaderKnown(); {
	case ok && isLocalID(req.SessionID) && req.SessionID != 0:
		return nil, refusal(req), nil // it ended with read-only mode
	case !ok && m.ReadOnly():
		return m.connectReadOnly(req, addr.Unmap(), timeout)
	case !ok && time.Since(since) > m.cfg.Tick:
		return nil, nil, ErrNotServing
	}
	// A client that waits longer than this is served sooner by another member.
	ctx, cancel := context.WithTimeout(ctx, min(timeout/3, m.cfg.Tick))
	defer cancel()
	if err := m.awaitJoined(ctx); err != nil {
		return nil, nil, err
	}
	if err := m.catchUp(ctx, req.LastZxidSeen); err != nil {
		return nil, nil, err
	}
	if err := m.gate.AwaitQuota(ctx, addr.Unmap()); err != nil {
		return nil, nil, err
	}
	begin := m.attach
	if req.SessionID == 0 {
		begin = m.create
	}
	s, resp, err := begin(ctx, req, addr.Unmap(), timeout)
	if s != nil {
		m.stats.Updates.ObserveSince(began)
	}
	return s, resp, err
}

// joinWait is how long a member that has just started may take to catch up with the leader that it
// has learned of, before handshakes are refused: another member serves the client sooner.
const joinWait = 500 * time.Millisecond

// awaitJoined waits until this member has caught up with a leader since it started. Errors:
// ErrNotServing, those of ctx.
func (m *Manager) awaitJoined(ctx context.Context) error {
	for !m.joined() {
		if since, ok := m.replica.LeaderKnown(); ok && time.Since(since) > joinWait {
			return ErrNotServing
		}
		select {
		case <-m.replica.CaughtUp():
		case <-time.After(joinWait / 10):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// catchUp waits until this member has applied what the client has seen elsewhere. Most often that
// is a matter of milliseconds: the client was connected to a leader that has just failed.
func (m *Manager) catchUp(ctx context.Context, seen wire.Zxid) error {
	var applied wire.Zxid
	var reached chan struct{}
	m.replica.View(func(s *znode.Store) {
		if applied = s.Zxid(); seen > applied {
			reached = make(chan struct{})
			m.mu.Lock()
			m.behind[reached] = seen
			m.mu.Unlock()
		}
	})
	if reached == nil {
		return nil
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		delete(m.behind, reached)
		m.mu.Unlock()
		return fmt.Errorf("%w: it has seen %v, applied was %v", errAhead, seen, applied)
	}
}

// caughtUp resumes the handshakes that waited until this member had applied what their clients have
// seen.
func (m *Manager) caughtUp(applied wire.Zxid) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for reached, seen := range m.behind {
		if seen <= applied {
			close(reached)
			delete(m.behind, reached)
		}
	}
}

// newPassword is the password of a new session.
func (m *Manager) newPassword(id wire.SessionID) []byte {
	if m.cfg.ZooKeeperPasswords {
		return id.ZooKeeperPassword()
	}
	password := make([]byte, wire.PasswordLen)
	_, _ = rand.Read(password) // never fails
	return password
}

func (m *Manager) create(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	if err := m.gate.OpenSession(m.replica.View, addr); err != nil {
		return nil, nil, err
	}
	defer m.gate.SessionOpened(addr)
	for {
		id := m.newID()
		password := m.newPassword(id)
		res, err := m.propose(ctx, &znode.Command{
			Session: id,
			Seq:     m.nonce(),
			Body:    &znode.CreateSession{Connection: connection(timeout, password, addr)},
		}, addr, timeout)
		if err != nil {
			return nil, nil, err
		}
		if res.status == znode.Done {
			return res.session, response(req, res.session, password), nil
		}
		// The id is taken, as it can be after the wall clock was set back. The next one may be
		// free.
		m.log.Warn("session id in use", "session", id, "status", res.status)
	}
}

func connection(timeout time.Duration, password []byte, addr netip.Addr) znode.Connection {
	return znode.Connection{TimeoutMs: int32(timeout.Milliseconds()), Password: password, Addr: znode.AddrText(addr)}
}

func (m *Manager) attach(ctx context.Context, req *wire.ConnectRequest, addr netip.Addr, timeout time.Duration,
) (*Session, *wire.ConnectResponse, error) {
	// Session ids are public. So the present connection of the session ends when the attach is
	// committed (handshakeApplied), not before the client has proved that it may attach.
	var info znode.SessionInfo
	var known bool
	m.replica.View(func(s *znode.Store) { info, known = s.Sessions().Get(req.SessionID) })
	if known && subtle.ConstantTimeCompare(info.Password, req.Password) != 1 {
		return m.wrongPassword(req, addr)
	}
	if len(req.Password) != wire.PasswordLen {
		return nil, refusal(req), nil
	}
	if !known { // it may have been created elsewhere a moment ago
		mayExist, err := m.mayExist(ctx, claimOf(req), addr)
		if err != nil {
			return nil, nil, err
		}
		if !mayExist {
			m.log.Info("attach refused: no such session", "session", req.SessionID, "client", addr)
			return nil, refusal(req), nil
		}
	}
	for generation := info.Generation; ; {
		// The session may end before the command is applied, so the log decides.
		res, err := m.propose(ctx, &znode.Command{
			Session:    req.SessionID,
			Generation: generation,
			Seq:        m.nonce(),
			Body:       &znode.Attach{Connection: connection(timeout, req.Password, addr)},
		}, addr, timeout)
		if err != nil {
			return nil, nil, err
		}
		switch res.status {
		case znode.Done:
			return res.session, response(req, res.session, req.Password), nil
		case znode.Moved:
			generation = res.generation // another attach came first
		case znode.BadPassword:
			return m.wrongPassword(req, addr)
		default:
			m.log.Info("attach refused", "session", req.SessionID, "client", addr, "status", res.status)
			return nil, refusal(req), nil
		}
	}
}

// wrongPassword answers a client that attaches to a session with a wrong password, or returns
// errGuesses if there were many of them lately.
func (m *Manager) wrongPassword(req *wire.ConnectRequest, addr netip.Addr) (*Session, *wire.ConnectResponse, error) {
	m.stats.inc(&m.stats.WrongPasswords)
	m.refusals.Warn("wrong password "+connlimit.NetworkOf(addr).String(), "attach refused: wrong password",
		"session", req.SessionID, "client", addr)
	if !m.guesses.wrong(addr, req.SessionID, time.Now()) {
		return nil, nil, errGuesses
	}
	return nil, refusal(req), nil
}

// propose proposes the command of a handshake and waits for its result.
func (m *Manager) propose(ctx context.Context, c *znode.Command, addr netip.Addr, timeout time.Duration,
) (handshakeResult, error) {
	h := &handshake{addr: addr, timeout: timeout, since: m.since(), result: make(chan handshakeResult, 1)}
	m.mu.Lock()
	m.handshakes[c.Key()] = h
	m.mu.Unlock()
	err := m.replica.Propose(ctx, c)
	if err == nil {
		select {
		case res := <-h.result:
			return res, nil
		case <-ctx.Done():
			err = fmt.Errorf("session: handshake: %w", ctx.Err())
		}
	}
	m.mu.Lock()
	delete(m.handshakes, c.Key())
	m.mu.Unlock()
	select {
	case res := <-h.result: // it came in the same instant
		if res.session != nil {
			res.session.Detach()
		}
	default:
	}
	return handshakeResult{}, err
}

// handshakeApplied is the part of Applied for create and attach. From here on commands of the new
// generation find the new connection.
func (m *Manager) handshakeApplied(store *znode.Store, c *znode.Command, by *znode.Connection, res *znode.Result) {
	if res.Status == znode.Done {
		m.tracker.renew(c.Session, res.Generation, time.Duration(by.TimeoutMs)*time.Millisecond)
		if old := m.session(c.Session); old != nil {
			old.end("session moved")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.handshakes[c.Key()]
	if h == nil {
		return // another member's, or its client has gone
	}
	delete(m.handshakes, c.Key())
	r := handshakeResult{status: res.Status, generation: res.Generation}
	if res.Status == znode.Done {
		r.session = newSession(m, c.Session, res.Generation, h.addr, h.timeout, h.since)
		m.sessions[c.Session] = r.session
	}
	h.result <- r
}

func response(req *wire.ConnectRequest, s *Session, password []byte) *wire.ConnectResponse {
	return &wire.ConnectResponse{
		TimeoutMs:   int32(s.timeout.Milliseconds()),
		SessionID:   s.id,
		Password:    password,
		HasReadOnly: req.HasReadOnly,
	}
}

// refusal is what a client takes for "your session has expired". A wrong password gets the same.
func refusal(req *wire.ConnectRequest) *wire.ConnectResponse {
	return &wire.ConnectResponse{Password: make([]byte, wire.PasswordLen), HasReadOnly: req.HasReadOnly}
}

// claims asks the leader about the sessions that clients attach to and this member does not know:
// it may be behind. Only what the leader does not deny is proposed, so the log does not fill with
// the attaches of strangers. One question for all of them is under way at a time.
type claims struct {
	wake signal // a claim waits

	mu   sync.Mutex
	list []*claim // unanswered, the oldest first
	// joinable are those that are not asked yet. A handshake gets no answer to a question that was
	// asked before it began.
	joinable map[znode.Claim]*claim
	waiting  int                // handshakes
	byAddr   map[netip.Addr]int // those of each client address
}

// claim is a question to the leader, and the handshakes that wait for the answer.
type claim struct {
	znode.Claim
	waiting  int           // handshakes
	answered chan struct{} // closed when mayExist is set
	mayExist bool
}

// MaxClaims is how many claims Replica.MayExist is asked about at once.
const MaxClaims = 4096

const (
	// claimsMax is how many handshakes may wait for the leader's answer about their sessions, and
	// claimsPerAddr how many of one client address. One more is closed without an answer.
	claimsMax     = MaxClaims
	claimsPerAddr = 256
	// claimsPause is the time after a failed question. It fails when there is no leader.
	claimsPause = 50 * time.Millisecond
)

// errClaims says that too many handshakes wait for an answer of the leader.
var errClaims = errors.New("session: too many clients attach to sessions that this member does not know")

func (q *claims) init() {
	q.wake = newSignal()
	q.joinable, q.byAddr = map[znode.Claim]*claim{}, map[netip.Addr]int{}
}

// mayExist asks the leader whether the session of a claim that this member does not know may exist,
// with that password. False is certain. Errors: errClaims, that of ctx.
func (m *Manager) mayExist(ctx context.Context, of znode.Claim, addr netip.Addr) (bool, error) {
	c, err := m.claims.add(of, addr)
	if err != nil {
		m.stats.inc(&m.stats.AttachesRefused)
		m.refusals.Warn("claims "+addr.String(), "client refused: "+err.Error(), "client", addr)
		return false, err
	}
	defer m.claims.leave(c, addr)
	m.claims.wake.set()
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

// ask returns what is to be asked now. No handshake joins that any more.
func (q *claims) ask() (asked []*claim, of []znode.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.joinable)
	for _, c := range q.list {
		if c.waiting > 0 {
			asked, of = append(asked, c), append(of, c.Claim)
		}
	}
	q.list = asked
	return asked, of
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

// claimsLoop asks the leader while claims wait, again if it is not answered.
func (m *Manager) claimsLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.claims.wake:
		}
		for {
			asked, of := m.claims.ask()
			if len(asked) == 0 {
				break
			}
			if answers, err := m.replica.MayExist(ctx, of); err == nil {
				m.claims.answer(answers)
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(claimsPause):
			}
		}
	}
}

// claimOf is the claim of an attach.
func claimOf(req *wire.ConnectRequest) znode.Claim {
	return znode.Claim{Session: req.SessionID, Password: [wire.PasswordLen]byte(req.Password)}
}

const (
	// guessesPeriod is the time for which wrong passwords are remembered.
	guessesPeriod = time.Minute
	// guessesPerAddr is how many wrong passwords from one network are answered in a guessesPeriod,
	// guessesPerSession how many for one session.
	guessesPerAddr    = 60
	guessesPerSession = 60
	// guessesTracked bounds the networks that are remembered, and the sessions.
	guessesTracked = 4096
)

// guesses counts attaches with a wrong password. It never affects a client that has the right one:
// session ids are public, so a stranger could keep the holder of a session away otherwise.
type guesses struct {
	superLogins PerMinute // the records of refused logins as super user

	mu        sync.Mutex
	began     time.Time
	byAddr    map[netip.Prefix]int
	bySession map[wire.SessionID]int
}

// wrong counts a wrong password for a session. It reports whether the client is to be answered.
func (g *guesses) wrong(addr netip.Addr, id wire.SessionID, now time.Time) bool {
	network := connlimit.NetworkOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byAddr == nil || now.Sub(g.began) >= guessesPeriod {
		g.began, g.byAddr, g.bySession = now, map[netip.Prefix]int{}, map[wire.SessionID]int{}
	}
	return count(g.byAddr, network) <= guessesPerAddr && count(g.bySession, id) <= guessesPerSession
}

// count adds one for key, and returns the sum. A key for which there is no room counts as crowded.
func count[K comparable](m map[K]int, key K) int {
	n, ok := m[key]
	if !ok && len(m) >= guessesTracked {
		return max(guessesPerAddr, guessesPerSession) + 1
	}
	m[key] = n + 1
	return n + 1
}
