package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

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
