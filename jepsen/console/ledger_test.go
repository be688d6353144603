package console

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/recipes"
)

var ledgerTime = flag.Duration("ledger", 0, "TestHistoryAgainstLedger plays round after round for so long, but at least one")

const (
	// ledgerKills is for how long members are killed in a round.
	ledgerKills = 6 * time.Second
	// ledgerRing is console.historyBytes: some 800 holds, so that the ring is overwritten.
	ledgerRing = 600_000
	// breaksLast is how often the breaking of a lock is tried, while members are killed.
	breaksLast = 50
	// ledgerSlack is by how much a time in the history may be off: it is of whole milliseconds, by
	// the wall clock of a member on this machine.
	ledgerSlack = 2 * time.Millisecond
)

// span is an interval in which something happened. A zero to: it may have happened at any time
// since.
type span struct{ from, to time.Time }

func (s span) holds(at time.Time) bool {
	return !at.Before(s.from.Add(-ledgerSlack)) && (s.to.IsZero() || !at.After(s.to.Add(ledgerSlack)))
}

// held is an entry of the ledger: a client's knowledge of a lock that it held.
type held struct {
	lock, session string
	token         int64
	taken         span     // from the call until it returned
	ended         span     // likewise
	how           []string // the ends that are possible
	by            string   // session of the command that ended it; empty: any
}

// ledger is the knowledge of the clients.
type ledger struct {
	mu    sync.Mutex
	holds []*held
	// doubts are sessions that may have held a lock without knowing it, and since when: a call of
	// theirs has failed.
	doubts map[string]time.Time
}

func (l *ledger) add(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
}

func (l *ledger) doubt(session string, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.doubts[session]; !ok || since.Before(at) {
		l.doubts[session] = since
	}
}

// seen is a hold in the history of a member.
type seen struct {
	Session   string
	Token     int64
	FromAt    time.Time
	FromExact bool
	ToAt      *time.Time
	End       *string
	EndedBy   string
}

// memory is a member's history of a lock.
type memory struct {
	Path       string
	Enabled    bool
	BeginsAt   time.Time
	BeginsZxid string
	BeginsWhy  string
	Truncated  bool
	Holds      []seen
}

// compare returns the differences between the ledger and a member's history of a lock. matched is
// the number of equal holds, by their ends; unseen the number that the member says it did not see:
// they had ended before its history begins. doubtful are holds of sessions of which a call had
// failed.
func (l *ledger) compare(m *memory) (matched map[string]int, unseen, doubtful int, faults []string) {
	matched = map[string]int{}
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if !m.Enabled || m.BeginsAt.IsZero() || m.Truncated || !slices.Contains([]string{"start", "ring", "snapshot"}, m.BeginsWhy) {
		fault("the history begins at %v (%s), enabled %t, truncated %t", m.BeginsAt, m.BeginsWhy, m.Enabled, m.Truncated)
	}
	begins, err := strconv.ParseInt(m.BeginsZxid, 0, 64)
	if err != nil {
		fault("beginsZxid: %v", err)
	}
	history := map[int64]*seen{}
	for i := range m.Holds {
		h := &m.Holds[i]
		if history[h.Token] != nil {
			fault("token %d twice", h.Token)
		}
		history[h.Token] = h
	}
	for _, want := range l.holds {
		if want.lock != m.Path {
			continue
		}
		got := history[want.token]
		delete(history, want.token)
		switch {
		case got != nil:
			matched[strings.Join(want.how, "|")]++
			faults = append(faults, want.differ(got, m.BeginsAt)...)
		case want.token > begins:
			fault("token %d of %s, made after the history begins at %s, is missing", want.token, want.session, m.BeginsZxid)
		case want.ended.from.After(m.BeginsAt.Add(ledgerSlack)):
			fault("token %d of %s ended after %v, the history begins at %v, and it is missing", want.token, want.session,
				want.ended.from, m.BeginsAt)
		default:
			unseen++
		}
	}
	for _, got := range history {
		if since, ok := l.doubts[got.Session]; ok && (got.ToAt == nil || !got.ToAt.Before(since.Add(-ledgerSlack))) {
			doubtful++
		} else {
			fault("token %d of %s from %v is in no ledger", got.Token, got.Session, got.FromAt)
		}
	}
	slices.Sort(faults)
	return matched, unseen, doubtful, faults
}

// differ compares a hold with the one in the history of a member, which begins there.
func (h *held) differ(got *seen, begins time.Time) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("token %d of %s: ", h.token, h.session)+fmt.Sprintf(format, args...))
	}
	if got.Session != h.session {
		fault("the history has session %s", got.Session)
	}
	if got.FromExact && !h.taken.holds(got.FromAt) {
		fault("held from %v, taken between %v and %v", got.FromAt, h.taken.from, h.taken.to)
	}
	if !got.FromExact && (!got.FromAt.Equal(begins) || h.taken.from.After(begins.Add(ledgerSlack))) {
		fault("since when it is held is unknown, the history begins at %v, and it was taken after %v", begins, h.taken.from)
	}
	if got.ToAt == nil || got.End == nil {
		if !slices.Contains(h.how, "held") {
			fault("it goes on, and it ended (%v) after %v", h.how, h.ended.from)
		}
		return faults
	}
	if !h.ended.holds(*got.ToAt) {
		fault("held to %v, it ended between %v and %v", *got.ToAt, h.ended.from, h.ended.to)
	}
	if !slices.Contains(h.how, *got.End) {
		fault("it was %s, not %v", *got.End, h.how)
	}
	if h.by != "" && got.EndedBy != h.by {
		fault("it was ended by %s, not %s", got.EndedBy, h.by)
	}
	return faults
}

// TestLedgerComparison: it finds the faults.
func TestLedgerComparison(t *testing.T) {
	base := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	end, released := at(4), "released"
	l := &ledger{doubts: map[string]time.Time{"0xd": at(5)}}
	l.add(&held{lock: "/l", session: "0x1", token: 10, taken: span{at(1), at(3)}, ended: span{at(4), at(5)}, how: []string{"released"}, by: "0x1"})
	for name, tt := range map[string]struct {
		change   func(m *memory, s *seen)
		fault    string
		doubtful bool
	}{
		"equal":                {func(*memory, *seen) {}, "", false},
		"another session":      {func(_ *memory, s *seen) { s.Session = "0x2" }, "the history has session", false},
		"too early":            {func(_ *memory, s *seen) { s.FromAt = at(0) }, "held from", false},
		"too late":             {func(_ *memory, s *seen) { e := at(6); s.ToAt = &e }, "held to", false},
		"another end":          {func(_ *memory, s *seen) { e := "expired"; s.End = &e }, "it was expired", false},
		"by another":           {func(_ *memory, s *seen) { s.EndedBy = "0x2" }, "ended by", false},
		"it goes on":           {func(_ *memory, s *seen) { s.ToAt = nil }, "it goes on", false},
		"not exact":            {func(_ *memory, s *seen) { s.FromExact = false }, "since when", false},
		"another token":        {func(_ *memory, s *seen) { s.Token = 11 }, "is in no ledger", false},
		"missing":              {func(m *memory, _ *seen) { m.Holds = nil }, "is missing", false},
		"missing, made before": {func(m *memory, _ *seen) { m.Holds, m.BeginsZxid = nil, "0xb" }, "ended after", false},
		"not seen":             {func(m *memory, _ *seen) { m.Holds, m.BeginsZxid, m.BeginsAt = nil, "0xb", at(6) }, "", false},
		"truncated":            {func(m *memory, _ *seen) { m.Truncated = true }, "truncated", false},
		"in doubt": {func(m *memory, _ *seen) {
			m.Holds = append(m.Holds, seen{Session: "0xd", Token: 12, FromAt: at(6), FromExact: true})
		}, "", true},
	} {
		m := &memory{Path: "/l", Enabled: true, BeginsAt: at(0), BeginsZxid: "0x5", BeginsWhy: "start",
			Holds: []seen{{Session: "0x1", Token: 10, FromAt: at(2), FromExact: true, ToAt: &end, End: &released, EndedBy: "0x1"}}}
		tt.change(m, &m.Holds[0])
		_, _, doubtful, faults := l.compare(m)
		if tt.fault == "" && len(faults) > 0 || tt.fault != "" && !strings.Contains(strings.Join(faults, "\n"), tt.fault) || (doubtful == 1) != tt.doubtful {
			t.Errorf("%s: %q, %d in doubt", name, faults, doubtful)
		}
	}
}

// holder is a client with one contender.
type holder interface {
	take(ctx context.Context) (token int64, err error)
	give(ctx context.Context) error
	session() string
	// die ends the client while it holds, and says how the hold ends.
	die() (how string)
}

type foreignHolder struct {
	*process
	path   string
	opened bool
}

func (h *foreignHolder) do(ctx context.Context, words ...string) (int64, error) {
	reply, err := h.w.Do(ctx, "thread", words...)
	switch {
	case err != nil:
		return 0, err
	case reply.Kind != jepsen.OK:
		return 0, fmt.Errorf("%s: %s", strings.Join(words, " "), reply)
	case reply.Text == "":
		return 0, nil
	}
	return strconv.ParseInt(reply.Text, 10, 64)
}

func (h *foreignHolder) take(ctx context.Context) (int64, error) {
	if !h.opened {
		if _, err := h.do(ctx, "open", "lock", h.recipe, h.path); err != nil {
			return 0, err
		}
		h.opened = true
	}
	return h.do(ctx, "acquire", "lock", "20000")
}

func (h *foreignHolder) give(ctx context.Context) error {
	_, err := h.do(ctx, "release", "lock")
	return err
}

func (h *foreignHolder) die() string {
	_ = h.w.Kill() // says that it was killed
	return "expired"
}

type ownHolder struct {
	*program
	path  string
	grant *recipes.Grant
}

func (h *ownHolder) take(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	g, err := recipes.NewMutex(h.s, h.path, recipes.MutexOptions{}).Lock(ctx)
	if err != nil {
		return 0, err
	}
	h.grant = g
	return g.Token(), nil
}

func (h *ownHolder) give(ctx context.Context) error { return h.grant.Unlock(ctx) }

func (h *ownHolder) die() string {
	h.s.Close()
	return "closed"
}

// The last thing that a contender does with a lock.
const (
	goOn    int32 = iota
	beLost        // its node is deleted by another session
	dieHeld       // it ends while it holds
	stop
)

// contender takes and releases a lock, and writes it down.
type contender struct {
	l      *lab
	h      holder
	path   string
	book   *ledger
	breaks *zk.Conn // deletes nodes
	next   atomic.Int32
	took   atomic.Int64 // how often it has had the lock
	failed int
}

// run contends until it is told to stop, or has died.
func (c *contender) run() {
	for n := 0; ; n++ {
		next := c.next.Load()
		if next == stop || !c.once(n, next) {
			return
		}
	}
}

func (c *contender) once(n int, next int32) (goesOn bool) {
	before := c.h.session()
	e := &held{lock: c.path, taken: span{from: time.Now()}, how: []string{"released"}}
	token, err := c.h.take(c.l.ctx)
	e.taken.to, e.token, e.session = time.Now(), token, c.h.session()
	if err != nil || token == 0 || before != e.session {
		for _, s := range []string{before, e.session} { // it may have had the lock for a while
			c.book.doubt(s, e.taken.from)
		}
		c.failed++
		if err == nil {
			_ = c.h.give(c.l.ctx)
		}
		return c.l.ctx.Err() == nil
	}
	e.by = e.session
	c.took.Add(1)
	defer c.book.add(e)
	time.Sleep(time.Duration(n%5) * 10 * time.Millisecond) // its work
	e.ended.from = time.Now()
	switch next {
	case dieHeld:
		e.how = []string{c.h.die()}
		return false
	case beLost:
		e.by, e.how = asID(fmt.Sprintf("%x", uint64(c.breaks.SessionID()))), []string{"deleted"}
		if err := c.breakIt(token); err != nil {
			c.l.t.Errorf("%s: %v", c.path, err)
		}
		e.ended.to = time.Now()
		c.next.CompareAndSwap(beLost, goOn)
		_ = c.h.give(c.l.ctx) // most libraries say that it is gone
		return true
	}
	err = c.h.give(c.l.ctx)
	e.ended.to = time.Now()
	if err != nil || c.h.session() != e.session {
		// It was given up, now or later, or had been lost before.
		e.ended, e.by = span{from: e.taken.from}, ""
		e.how = []string{"released", "expired", "closed", "held"}
		c.book.doubt(e.session, e.taken.from)
		c.failed++
	}
	return true
}

// breakIt deletes the node with a token. Nobody else does.
func (c *contender) breakIt(token int64) error {
	tried := false
	for range breaksLast {
		node, err := c.nodeOf(token)
		switch {
		case err == nil && node == "" && tried: // the reply was lost
			return nil
		case err == nil && node == "":
			return fmt.Errorf("no node has token %d", token)
		case err == nil:
			tried = true
			if c.breaks.Delete(node, -1) == nil {
				return nil
			}
		}
		jepsen.Sleep(c.l.ctx, 100*time.Millisecond) // its member has been killed
	}
	return fmt.Errorf("the node with token %d was not deleted", token)
}

// nodeOf finds the node with a token; empty if it is gone.
func (c *contender) nodeOf(token int64) (string, error) {
	names, _, err := c.breaks.Children(c.path)
	for _, name := range names {
		_, st, e := c.breaks.Exists(c.path + "/" + name)
		if e == nil && st.Czxid == token {
			return c.path + "/" + name, nil
		}
		if e != nil && !errors.Is(e, zk.ErrNoNode) {
			err = e
		}
	}
	return "", err
}

// TestHistoryAgainstLedger: clients of three libraries take and release locks, end while they hold
// them, and have them broken, while members are killed and come back. Each member's history matches
// the clients' ledger; the member names the parts that it did not see.
func TestHistoryAgainstLedger(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster; not with -short")
	}
	l := startLab(t, *ledgerTime+3*time.Minute, nil, fmt.Sprintf("console.historyBytes=%d", ledgerRing), "snapCount=500")
	unseen, began := 0, time.Now()
	for round := 0; round == 0 || time.Since(began) < *ledgerTime && !t.Failed(); round++ {
		unseen += l.ledgerRound(fmt.Sprintf("-%d", round))
	}
	if unseen == 0 {
		t.Error("every member has seen everything: nothing was forgotten")
	}
}

// ledgerRound plays one round with locks and clients of its own, and returns the number of holds
// that members say they did not see.
func (l *lab) ledgerRound(suffix string) (unseen int) {
	t := l.t
	book := &ledger{doubts: map[string]time.Time{}}
	breaker := l.session()
	breaks := breaker.Conn().(*zk.Conn)
	kinds := map[string]func(name, path string) holder{
		"java": func(name, path string) holder {
			return &foreignHolder{process: l.process(name, "mutex", tools.Curator), path: path}
		},
		"python": func(name, path string) holder {
			return &foreignHolder{process: l.process(name, "lock", tools.Kazoo), path: path}
		},
		"go": func(_, path string) holder { return &ownHolder{program: l.program(""), path: path} },
	}
	var all []*contender
	for kind, start := range kinds {
		path := "/ledger-" + kind + suffix
		for i := range 2 {
			all = append(all, &contender{l: l, h: start(fmt.Sprintf("%s%d%s", kind, i, suffix), path), path: path, book: book, breaks: breaks})
		}
	}
	var running sync.WaitGroup
	for _, c := range all {
		running.Go(c.run)
	}
	kills := 0
	killed := later(func() (err error) {
		kills, err = l.killInTurn(time.Now().Add(ledgerKills))
		return err
	})
	// The second of each pair loses a lock, then the first dies with one, all of it while members
	// are killed, and again when they are back: those that are still there.
	trouble := func(dies func(holder) bool) {
		for i, c := range all {
			if i%2 == 1 {
				c.next.Store(beLost)
				l.until("a lock that is broken", func() bool { return c.next.Load() == goOn })
			}
		}
		for i, c := range all {
			if i%2 == 0 && dies(c.h) {
				c.next.Store(dieHeld)
			}
		}
	}
	time.Sleep(ledgerKills / 2) // locks are taken and released
	trouble(func(h holder) bool { _, own := h.(*ownHolder); return !own })
	l.must(<-killed)
	trouble(func(h holder) bool { _, own := h.(*ownHolder); return own })
	for i, c := range all {
		if i%2 == 1 {
			before := c.took.Load()
			l.until("the others to have the lock", func() bool { return c.took.Load() > before+5 })
		}
	}
	for i, c := range all {
		if i%2 == 1 {
			c.next.Store(stop)
		}
	}
	running.Wait()
	failed := 0
	for _, c := range all {
		failed += c.failed
	}
	ends := map[string]int{}
	for _, h := range book.holds {
		if len(h.how) == 1 {
			ends[h.how[0]]++
		}
	}
	t.Logf("figures: %d holds in the ledger (%v), %d calls failed, %d kills", len(book.holds), ends, failed, kills)
	if ends["deleted"] != 6 || ends["expired"] != 2 || ends["closed"] != 1 || ends["released"] < 100 || kills < 2 {
		t.Errorf("too little happened: %v", ends)
	}
	if _, err := l.cluster.AwaitAgreement(l.ctx); err != nil {
		t.Fatal(err)
	}
	clear(ends)
	for id := 1; id <= 3; id++ {
		for kind := range kinds {
			lock := "/ledger-" + kind + suffix
			m, err := l.historyOf(id, lock)
			l.must(err)
			matched, before, doubtful, faults := book.compare(m)
			t.Logf("figures: member %d saw %v holds of %s, did not see %d, and %d are in doubt; its history begins with %q", id, matched, lock, before, doubtful, m.BeginsWhy)
			for _, f := range faults {
				t.Errorf("member %d, %s: %s", id, lock, f)
			}
			for how, n := range matched {
				ends[how] += n
			}
			if len(matched) == 0 || doubtful > failed {
				t.Errorf("member %d, %s: %v holds are equal, %d in doubt after %d failures", id, lock, matched, doubtful, failed)
			}
			unseen += before
		}
	}
	for _, how := range []string{"released", "deleted", "expired", "closed"} {
		if ends[how] == 0 {
			t.Errorf("no member has a hold that was %s", how)
		}
	}
	for _, c := range all {
		if own, ok := c.h.(*ownHolder); ok {
			own.s.Close()
		} else if foreign, ok := c.h.(*foreignHolder); ok {
			_ = foreign.w.Kill() // those that were killed already say so
		}
	}
	breaker.Close()
	return unseen
}

// killInTurn kills one member after the other, and starts it again, until the end.
func (l *lab) killInTurn(end time.Time) (kills int, err error) {
	for time.Now().Before(end) {
		m := l.cluster.Members()[kills%3]
		if kills%2 == 1 { // each second time the leader
			if m, err = l.cluster.AwaitLeader(l.ctx); err != nil {
				return kills, err
			}
		}
		time.Sleep(1500 * time.Millisecond) // locks are taken
		if err := m.Kill(); err != nil {
			return kills, err
		}
		kills++
		time.Sleep(700 * time.Millisecond) // and go on with two members
		if err := m.Restart(l.ctx); err != nil {
			return kills, err
		}
	}
	return kills, nil
}

func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	for !cond() {
		if !jepsen.Sleep(l.ctx, 5*time.Millisecond) {
			l.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// historyOf asks a member for the history of a lock.
func (l *lab) historyOf(id int, path string) (*memory, error) {
	resp, err := http.Get(l.page(id) + "api/v1/history?limit=1000&path=" + url.QueryEscape(path))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := &memory{}
	if err := json.NewDecoder(resp.Body).Decode(m); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return m, nil
}
