package workload

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// said is a question of the operator at a moment, in seconds, and the answer 100 ms later.
func said(t *testing.T, at float64, f string, s Statement) []jepsen.Op {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Duration(at * float64(time.Second))
	op := jepsen.Op{Time: from, Worker: Worker(Operator, 0), ID: int64(from), Kind: jepsen.Invoke, F: f, Member: "m1"}
	answer := op
	answer.Time, answer.Kind, answer.Value = from+100*time.Millisecond, jepsen.OK, string(text)
	return []jepsen.Op{op, answer}
}

// did is an operation of a client of the lock workload that takes no time.
func did(at float64, id int64, f, lock string, token int64) []jepsen.Op {
	from := time.Duration(at * float64(time.Second))
	op := jepsen.Op{Time: from, Worker: Worker(lockName, 0), ID: id, Kind: jepsen.Invoke, F: f, Lock: lock, Mode: jepsen.Exclusive}
	if f == jepsen.FRelease {
		op.Token = token
	}
	end := op
	end.Kind, end.Token = jepsen.OK, token
	return []jepsen.Op{op, end}
}

// Each kind of a lie is found and named; true statements are not.
func TestStatements(t *testing.T) {
	healthy := &StatusSays{State: "healthy", Voters: 3, Quorum: 2, MayFail: 1,
		Members: []MemberStatus{{ID: 1, Role: "leader"}, {ID: 2, Role: "follower"}, {ID: 3, Role: "follower"}}}
	degraded := &StatusSays{State: "degraded", Voters: 3, Quorum: 2,
		Members: []MemberStatus{{ID: 1, Role: "leader"}, {ID: 2, Role: "follower"}, {ID: 3, Error: "no answer"}}}
	calm := Truth{Members: 3, Calm: true, Clocks: true}
	oneDown := Truth{Members: 3, Down: []int{3}, Clocks: true}
	twoDown := Truth{Members: 3, Down: []int{2, 3}}
	cutOff := Truth{Members: 3, Blocked: [][2]int{{1, 2}, {1, 3}}}
	unknown := Truth{Members: 3, Clocks: true}
	locks := func(held time.Duration, tokens ...int64) (s Statement) {
		s.Truth = unknown
		for _, token := range tokens {
			s.Holders = append(s.Holders, HolderSays{Lock: "/a", Token: token, Held: held})
		}
		return s
	}
	// The first holds from 1 s to 4 s, the second from 4 s to 9 s.
	holders := append(append(append(did(1, 1, jepsen.FAcquire, "/a", 10), did(4, 2, jepsen.FRelease, "/a", 10)...),
		did(4, 3, jepsen.FAcquire, "/a", 11)...), did(9, 4, jepsen.FRelease, "/a", 11)...)
	update := jepsen.Op{Time: time.Second, Worker: Worker(durabilityName, 0), Kind: jepsen.OK, F: fCreate, Zxid: 20}
	restart := jepsen.Op{Time: 2 * time.Second, Kind: jepsen.Info, F: jepsen.FRestart, Member: "m1"}
	for name, tt := range map[string]struct {
		before []jepsen.Op
		f      string
		s      Statement
		want   string // of the violation; empty: none
	}{
		"healthy and calm":            {nil, FAskStatus, Statement{Truth: calm, Status: healthy}, ""},
		"healthy with one down":       {nil, FAskStatus, Statement{Truth: oneDown, Status: healthy}, "shows member 3 as follower"},
		"degraded with one down":      {nil, FAskStatus, Statement{Truth: oneDown, Status: degraded}, ""},
		"degraded with two down":      {nil, FAskStatus, Statement{Truth: twoDown, Status: degraded}, "0 may fail; the members that reach each other are 1 of 3"},
		"degraded and calm":           {nil, FAskStatus, Statement{Truth: calm, Status: degraded}, "of member 3: no answer; nothing was broken"},
		"healthy while one is cut":    {nil, FAskStatus, Statement{Truth: cutOff, Status: healthy}, "1 may fail; the members that reach each other are 2 of 3"},
		"ready":                       {nil, FAskReady, Statement{Truth: calm, Yes: true, About: 1}, ""},
		"not ready and calm":          {nil, FAskReady, Statement{Truth: calm, About: 1}, "is not ready"},
		"ready without a majority":    {nil, FAskReady, Statement{Truth: twoDown, Yes: true, About: 1}, "no majority could act"},
		"ready and behind":            {[]jepsen.Op{update, restart}, FAskReady, Statement{Truth: unknown, Yes: true, About: 1, Zxid: 19}, "0x14 was answered"},
		"ready and caught up":         {[]jepsen.Op{update, restart}, FAskReady, Statement{Truth: unknown, Yes: true, About: 1, Zxid: 20}, ""},
		"stoppable":                   {nil, FAskStoppable, Statement{Truth: calm, Yes: true, About: 1}, ""},
		"stoppable with one down":     {nil, FAskStoppable, Statement{Truth: oneDown, Yes: true, About: 1}, "the others that reach each other are 1 of 3"},
		"not stoppable with one down": {nil, FAskStoppable, Statement{Truth: oneDown, About: 1, Why: "member 3"}, ""},
		"not stoppable and calm":      {nil, FAskStoppable, Statement{Truth: calm, About: 1, Why: "?"}, "may not be stopped: ?"},
		"the holder":                  {holders, FAskLocks, locks(2*time.Second, 11), ""},
		"the holder of before":        {holders, FAskLocks, locks(0, 10), "gave it back before the question"},
		"no holder":                   {holders, FAskLocks, locks(0), "does not show the holder of /a with the token 11"},
		"since it queued":             {holders, FAskLocks, locks(4*time.Second, 11), "when another one held it until 4s"},
		"since too late":              {holders, FAskLocks, locks(time.Second, 11), "and its holder got it at 4s"},
	} {
		t.Run(name, func(t *testing.T) {
			ops := jepsen.Merge(tt.before, said(t, 6, tt.f, tt.s), said(t, 12, FAskStatus, Statement{Truth: calm, Status: healthy}))
			v := CheckStatements(ops)
			switch {
			case tt.want == "" && v.Valid != Yes:
				t.Errorf("%s: %+v", v.Valid, v.Violations)
			case tt.want != "" && (v.Valid != No || !slices.ContainsFunc(v.Violations, func(v Violation) bool { return strings.Contains(v.Text, tt.want) })):
				t.Errorf("%s: %+v, want %q", v.Valid, v.Violations, tt.want)
			}
		})
	}
	if v := CheckStatements(nil); v.Valid != Unknown {
		t.Errorf("nothing was said: %s", v.Valid)
	}
}
