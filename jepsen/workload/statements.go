package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"lockkeeper/jepsen"
)

const (
	// Operator is the Worker that asks an operator's questions.
	Operator = "operator"
	// statementsName is the checker of the answers.
	statementsName = "statements"
)

// The operator's questions (Op.F). The Value of the end of such an operation is a Statement.
const (
	FAskStatus    = "ask-status"    // lockkeeper status
	FAskReady     = "ask-ready"     // GET /ready of Op.Member
	FAskStoppable = "ask-stoppable" // GET /stoppable of Op.Member
	FAskLocks     = "ask-locks"     // lockkeeper locks
)

// A Statement has the answer about the cluster, and the facts that held all the time from the
// question to the answer.
type Statement struct {
	Truth Truth `json:"truth"`
	// Status is the output of lockkeeper status; nil for other questions.
	Status *StatusSays `json:"status,omitempty"`
	// Yes is the answer to /ready and /stoppable, Why the reason of a no, About the member's
	// number.
	Yes   bool   `json:"yes,omitempty"`
	Why   string `json:"why,omitempty"`
	About int    `json:"about,omitempty"`
	// Zxid is the newest update that the member had applied right after a yes to /ready.
	Zxid int64 `json:"zxid,omitempty"`
	// Holders are those that lockkeeper locks shows.
	Holders []HolderSays `json:"holders,omitempty"`
}

// Truth has the test's own acts on the cluster.
type Truth struct {
	Members int `json:"members"`
	// Down are the members that were killed or stopped all the time, and for at least
	// StatementGrace before; Blocked are the directions of the network in which nothing came
	// through, likewise.
	Down    []int    `json:"down,omitempty"`
	Blocked [][2]int `json:"blocked,omitempty"`
	// Calm: nothing was broken for StatementSettle, nor in all the time.
	Calm bool `json:"calm,omitempty"`
	// Clocks are right, and have always been.
	Clocks bool `json:"clocks,omitempty"`
}

const (
	// StatementGrace is how long the cluster may take to notice a fault.
	StatementGrace = 6 * time.Second
	// StatementSettle is how long it may take to be whole again after one.
	StatementSettle = 5 * time.Second
)

// StatusSays is the output of lockkeeper status -json, as far as it is compared.
type StatusSays struct {
	State   string         `json:"state"`
	Voters  int            `json:"voters"`
	Quorum  int            `json:"quorum"`
	MayFail int            `json:"mayFail"`
	Term    uint64         `json:"term"`
	Members []MemberStatus `json:"members"`
}

// MemberStatus is one line of it.
type MemberStatus struct {
	ID    int    `json:"id"`
	Role  string `json:"role,omitempty"`
	Error string `json:"error,omitempty"`
}

// HolderSays is one holder that lockkeeper locks shows. Held is for how long, at the answer; 0 if
// that is not known exactly.
type HolderSays struct {
	Lock  string        `json:"lock"`
	Token int64         `json:"token"`
	Held  time.Duration `json:"heldNs,omitempty"`
}

// reach is the greatest number of members that one member which is not down can talk with in both
// directions, itself included, without the members of leave.
func (t Truth) reach(leave ...int) (most int) {
	gone := func(m int) bool { return slices.Contains(t.Down, m) || slices.Contains(leave, m) }
	blocked := func(a, b int) bool {
		return slices.Contains(t.Blocked, [2]int{a, b}) || slices.Contains(t.Blocked, [2]int{b, a})
	}
	for leader := 1; leader <= t.Members; leader++ {
		n := 0
		for m := 1; m <= t.Members && !gone(leader); m++ {
			if !gone(m) && !blocked(leader, m) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func (t Truth) majority() int { return t.Members/2 + 1 }

// CheckStatements compares each sentence with the truth.
//
//   - A member that is down serves nobody, and more members may fail only as far as those that
//     reach each other are more than a majority.
//   - When nothing is broken, the cluster is healthy, and every member is ready and may be stopped.
//   - A member that is ready has what was answered to clients before it was started.
//   - A member may be stopped only if the others are a majority without it.
//   - The holder of a lock that is shown has not given it back before the question, and one that
//     held it all the time is shown; since when it holds is when it got the lock, not when it came.
func CheckStatements(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: statementsName, Valid: Yes}
	c := &statementsChecker{v: &v, ops: ops}
	c.readHolds()
	counts := make(map[string]int)
	calm := 0
	for _, call := range pair(ops, Operator) {
		if call.end.Kind != jepsen.OK {
			continue
		}
		var s Statement
		if err := json.Unmarshal([]byte(call.end.Value), &s); err != nil {
			v.violate(call.entries(), "cannot be read: %v", err)
			continue
		}
		counts[call.invoke.F]++
		if s.Truth.Calm {
			calm++
		}
		switch call.invoke.F {
		case FAskStatus:
			c.status(call, s)
		case FAskReady:
			c.ready(call, s)
		case FAskStoppable:
			c.stoppable(call, s)
		case FAskLocks:
			c.locks(call, s)
		}
	}
	v.judged(counts[FAskStatus]+counts[FAskReady]+counts[FAskStoppable]+counts[FAskLocks], "answers to an operator")
	v.Text = fmt.Sprintf("compared with the truth: %d times status, %d ready, %d stoppable, %d locks with %d holders; %d when nothing was broken",
		counts[FAskStatus], counts[FAskReady], counts[FAskStoppable], counts[FAskLocks], c.shown, calm)
	if counts[FAskStatus] == 0 {
		v.doubt(tooLittle)
	}
	return v.concluded()
}

type statementsChecker struct {
	v     *Verdict
	ops   []jepsen.Op
	holds map[string]map[int64]*held // by lock and token
	shown int
}

// held is a time in which a contender had a lock.
type held struct {
	invoke, got jepsen.Op
	// asked and gone are when it began to give the lock back, and when that was answered or its
	// grant was lost; zero if never.
	asked, gone time.Duration
	lost        bool
}

// readHolds collects who held which lock when.
func (c *statementsChecker) readHolds() {
	c.holds = make(map[string]map[int64]*held)
	for _, call := range pair(c.ops, lockName) {
		op := call.end
		switch {
		case call.invoke.F == jepsen.FAcquire && op.Kind == jepsen.OK:
			if c.holds[op.Lock] == nil {
				c.holds[op.Lock] = make(map[int64]*held)
			}
			c.holds[op.Lock][op.Token] = &held{invoke: call.invoke, got: op}
		case call.invoke.F == jepsen.FRelease:
			if h := c.holds[op.Lock][op.Token]; h != nil {
				h.asked = call.invoke.Time
				if op.Kind == jepsen.OK {
					h.gone = op.Time
				}
			}
		}
	}
	for _, op := range c.ops {
		if h := c.holds[op.Lock][op.Token]; op.F == jepsen.FLost && h != nil {
			h.lost = true
		}
	}
}

func (c *statementsChecker) status(call *call, s Statement) {
	says, truth := s.Status, s.Truth
	lie := func(format string, args ...any) { c.v.violate(call.entries(), "status "+format, args...) }
	for _, m := range says.Members {
		if m.Role != "" && slices.Contains(truth.Down, m.ID) {
			lie("shows member %d as %s, and it was down", m.ID, m.Role)
		}
		if truth.Calm && m.Role == "" {
			lie("says of member %d: %s; nothing was broken", m.ID, m.Error)
		}
	}
	if spare := truth.reach() - truth.majority(); says.MayFail > spare {
		lie("says that %d may fail; the members that reach each other are %d of %d", says.MayFail, truth.reach(), truth.Members)
	}
	if says.State == "healthy" && len(truth.Down) > 0 {
		lie("says healthy, and members %v were down", truth.Down)
	}
	if says.State != "no quorum" && truth.reach() < truth.majority() {
		lie("says %s, and no majority could act", says.State)
	}
	if truth.Calm && (says.State != "healthy" || says.MayFail != truth.Members-truth.majority()) {
		lie("says %s, %d may fail; nothing was broken, and %d may", says.State, says.MayFail, truth.Members-truth.majority())
	}
}

func (c *statementsChecker) ready(call *call, s Statement) {
	if !s.Yes {
		if s.Truth.Calm {
			c.v.violate(call.entries(), "member %d says that it is not ready: %s; nothing was broken", s.About, s.Why)
		}
		return
	}
	if s.Truth.reach() < s.Truth.majority() {
		c.v.violate(call.entries(), "member %d says that it is ready, and no majority could act", s.About)
	}
	var started time.Duration // when it was last started
	for _, op := range c.ops {
		if op.Member == call.invoke.Member && (op.F == jepsen.FRestart || op.F == jepsen.FKill) && op.Time < call.invoke.Time {
			started = op.Time
		}
	}
	for _, op := range c.ops {
		if op.Kind == jepsen.OK && op.Time < started && op.Zxid > s.Zxid && belongs(op, durabilityName) {
			c.v.violate(append(call.entries(), op), "member %d says that it is ready at zxid %#x, and %#x was answered before it was started",
				s.About, s.Zxid, op.Zxid)
			return
		}
	}
}

func (c *statementsChecker) stoppable(call *call, s Statement) {
	if s.Yes && s.Truth.reach(s.About) < s.Truth.majority() {
		c.v.violate(call.entries(), "member %d says that it may be stopped, and the others that reach each other are %d of %d",
			s.About, s.Truth.reach(s.About), s.Truth.Members)
	}
	if !s.Yes && s.Truth.Calm && s.Truth.Members > 2 {
		c.v.violate(call.entries(), "member %d says that it may not be stopped: %s; nothing was broken", s.About, s.Why)
	}
}

// sinceSlack allows for the rounding of times to milliseconds and the way of a reply.
const sinceSlack = 50 * time.Millisecond

func (c *statementsChecker) locks(call *call, s Statement) {
	shown := make(map[string]bool)
	key := func(lock string, token int64) string { return fmt.Sprint(lock, " ", token) }
	for _, says := range s.Holders {
		shown[key(says.Lock, says.Token)] = true
		h := c.holds[says.Lock][says.Token]
		if h == nil {
			continue // its client does not know it yet, or has never learnt it
		}
		c.shown++
		if h.gone > 0 && h.gone < call.invoke.Time {
			c.v.violate(append(call.entries(), h.got), "locks shows a holder of %s that gave it back before the question", says.Lock)
		}
		if s.Truth.Clocks && says.Held > 0 {
			c.since(call, says, h)
		}
	}
	for lock, holds := range c.holds {
		for token, h := range holds {
			all := h.got.Time < call.invoke.Time && (h.asked > call.end.Time || h.asked == 0) && !h.lost
			if all && h.asked > 0 && !shown[key(lock, token)] {
				c.v.violate(append(call.entries(), h.got), "locks does not show the holder of %s with the token %d", lock, token)
			}
		}
	}
}

// since compares the moment since when a contender holds with the one at which the lock was free
// for it: when the contender in front began to give it back, at the earliest; and when its client
// was told, at the latest. Others see that a lease is held when its place in the queue is gone,
// which its holder gives back afterwards: it is not compared.
func (c *statementsChecker) since(call *call, says HolderSays, h *held) {
	if h.got.Mode == jepsen.Lease {
		return
	}
	latest := call.end.Time - says.Held // it was measured before the end
	earliest := call.invoke.Time - says.Held
	if earliest > h.got.Time+sinceSlack {
		c.v.violate(append(call.entries(), h.got), "locks says that %s is held since %v, and its holder got it at %v",
			says.Lock, earliest, h.got.Time)
	}
	if h.got.Mode != jepsen.Exclusive {
		return
	}
	for token, before := range c.holds[says.Lock] {
		if token < says.Token && before.asked > 0 && before.gone > 0 && before.gone <= h.got.Time && !before.lost &&
			latest < before.asked-sinceSlack {
			c.v.violate(append(call.entries(), before.got, h.got), "locks says that %s is held since %v, when another one held it until %v",
				says.Lock, latest, before.asked)
			return
		}
	}
}
