package locknode

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWho: a contender is named by its program, process and host, as far as it says them.
func TestWho(t *testing.T) {
	for want, info := range map[string]Info{
		"": {Host: "web-3", PID: 4711}, "nightly[4711]@web-3": {Program: "nightly", PID: 4711, Host: "web-3"},
		"nightly[4711]@?": {Program: "nightly", PID: 4711}, "billing@10.0.0.7": {Program: "billing", Host: "10.0.0.7"},
	} {
		if got := info.Who(); got != want {
			t.Errorf("%+v is %q, want %q", info, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	const uuid = "b7bfcd3227404d3880a0eccd4e5100cf"
	semaphore := func(path string) bool { return path == "/s" }
	for _, tt := range []struct {
		path, lock string
		plain      bool
	}{
		{"/a/b/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000003", "/a/b", false},
		{"/a/" + uuid, "/a", false},
		{"/a-__lock__/" + uuid + "__lock__0000000001", "/a", false},
		{"/s/leases/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-0000000003", "/s", false},
		{"/s/locks/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000003", "/s", false},
		{"/t/locks/_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000003", "/t/locks", false},
		{"/locks/x-1234-0000000003", "/locks", false},
		{"/leases/x-lease-0000000003", "/leases", false},
		{"/n_0000000003", "/", false},
		{"/services/web-1", "/services/web-1", true},
		{"/a", "/a", true},
	} {
		lock, plain := Place(tt.path, semaphore)
		if lock != tt.lock || plain != tt.plain {
			t.Errorf("Place(%s) = %s, %v, want %s, %v", tt.path, lock, plain, tt.lock, tt.plain)
		}
	}
}

// TestKinds has a name of each library.
func TestKinds(t *testing.T) {
	const uuid = "b7bfcd3227404d3880a0eccd4e5100cf"
	for name, want := range map[string]struct {
		kind            Kind
		layout, library string
	}{
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000000":    {KindWrite, LayoutLock, LibraryCurator},
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-latch-0000000000":   {KindLead, LayoutLatch, LibraryCurator},
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__READ__0000000005": {KindRead, LayoutRead, LibraryCurator},
		"_c_" + uuid + "-lock-0000000012":                            {KindWrite, LayoutLock, LibraryGo},
		uuid + "__lock__0000000003":                                  {KindWrite, LayoutKazooLock, LibraryKazoo},
		uuid + "__rlock__0000000004":                                 {KindRead, LayoutKazooRead, LibraryKazoo},
		uuid:                                                         {KindLease, LayoutKazooLease, LibraryKazoo},
		"x-72057594037927937-0000000004":                             {KindWrite, LayoutSession, LibraryZooKeeper},
		"n_0000000004":                                               {KindLead, LayoutOffer, LibraryZooKeeper},
		"qn-0000000004":                                              {KindUnknown, "", ""},
		"member_0000000004x":                                         {KindUnknown, "", ""},
		"lock-":                                                      {KindUnknown, "", ""},
		"person_0000000004":                                          {KindUnknown, "", ""},
		"_c_" + uuid + "-lock--2147483648":                           {KindWrite, LayoutLock, LibraryGo},
		uuid + "__rlock__-2147483646":                                {KindRead, LayoutKazooRead, LibraryKazoo},
		"x-12--000000005":                                            {KindWrite, LayoutSession, LibraryZooKeeper},
	} {
		layout, kind := layoutOf(name)
		if library := Library(name, false); kind != want.kind || layout != want.layout || library != want.library {
			t.Errorf("%s: %v, %q, %q, want %v", name, kind, layout, library, want)
		}
	}
}

// TestSequence: a sign behind a known layout is that of a counter that has overflowed.
func TestSequence(t *testing.T) {
	for name, want := range map[string]int64{
		"a-lock-0000000007": 7, "0000000007": 7, "lock-2147483646": MaxSequence - 1, "lock-2147483647": MaxSequence,
		"lock--2147483648": MaxSequence, "lock--2147483646": MaxSequence, "lock--1000000000": MaxSequence,
		"lock--999999999": MaxSequence, "lock--000000001": MaxSequence, "__WRIT__-2147483640": MaxSequence,
		"latch--2147483640": MaxSequence, "lease--2147483640": MaxSequence, "x-1f--2147483640": MaxSequence,
		"n_-2147483640": MaxSequence, "x-12-1500000000": 1500000000, "n_1500000000": 1500000000,
		// of nothing that is known, or no number that a server writes
		"job-1500000000": 1500000000, "user--1500000000": 1500000000, "lock--0000000005": 5,
		"lock--2147483649": 2147483649,
		"lock--00000005":   -1, "job-000000005": -1, "lock-": -1, "": -1, "-": -1, "-2147483648": 2147483648,
		"lock--000000000": -1,
		// a lease of kazoo's, and a node that has a number behind as many digits
		"b7bfcd3227404d3880a0ec0000000001": -1, "b7bfcd3227404d3880a0eccd4e5100cf0000000001": 1,
	} {
		n, ok := Sequence(name)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%s: %d, want %d", name, n, want)
		}
	}
}

// TestExhaustedComesLast: a contender of package recipes with a number from behind the end of the
// counter does not hold the lock beside one with an earlier number. Other libraries take a negative
// number for a small one.
func TestExhaustedComesLast(t *testing.T) {
	for _, data := range []string{"", `{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z"}`} {
		var queue []Contender
		for token, number := range []int64{2147483645, 2147483646, 2147483647, -2147483648, -2147483647, -5} {
			name := fmt.Sprintf("lock-%010d", number)
			queue = append(queue, New("/a", name, int64(token), time.Time{}, int64(token), []byte(data)))
		}
		rand.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
		q := Sorted("/a", queue)
		for i, c := range q.Lock {
			if c.Token != int64(i) {
				t.Errorf("contender %d is %s", i, c.Node)
			}
		}
		for _, c := range Resolve(q) {
			if may := c.Token > 2 && data == ""; c.Held != (c.Token == 0) || c.MayHold != may {
				t.Errorf("%s with data %q: held %v, may hold %v", c.Node, data, c.Held, c.MayHold)
			}
		}
	}
}

// FuzzName: the functions that read a name agree with each other.
func FuzzName(f *testing.F) {
	for _, p := range append(slices.Clone(queuePrograms), curatorLease, kazooLease) {
		f.Add(p.prefix + "0000000007")
		f.Add(p.prefix + "-2147483648")
	}
	f.Add("b7bfcd3227404d3880a0ec0000000001")
	f.Fuzz(func(t *testing.T, name string) {
		n, numbered := Sequence(name)
		layout, kind := layoutOf(name)
		switch {
		case n < 0 || n > 9_999_999_999 || !numbered && n != 0:
			t.Errorf("%q has the number %d", name, n)
		case numbered && IsKazooLease(name):
			t.Errorf("%q is a lease and has a number", name)
		case layout != "" && !Contends(name), (layout == "") != (kind == KindUnknown):
			t.Errorf("%q has the layout %q and the kind %v, contends: %v", name, layout, kind, Contends(name))
		case layout != Layout(name) || kind != KindOf(name):
			t.Errorf("%q: Layout and KindOf disagree with layoutOf", name)
		}
		if WaitsForAll(name, nil) && Library(name, false) != LibraryGo {
			t.Errorf("%q of %s waits for all", name, Library(name, false))
		}
		path := "/a/" + name
		dir, base := Split(path)
		if dir+"/"+base != path {
			t.Errorf("%q is split into %q and %q", path, dir, base)
		}
		lock, plain := Place(path, func(string) bool { return false })
		if plain == Contends(base) || plain && lock != path {
			t.Errorf("Place(%q) = %q, %v", path, lock, plain)
		}
	})
}

// randomQueue makes a queue of nodes of some libraries.
func randomQueue(r *rand.Rand, n, sessions int, dir string, token *int64) []Contender {
	const uuid, dashes = "b7bfcd3227404d3880a0eccd4e5100cf", "34c73d33-a364-4285-8dd6-8b05f149fed9"
	forms := []string{
		"_c_" + dashes + "-lock-", "_c_" + uuid + "-lock-", uuid + "__lock__", uuid + "__rlock__",
		"_c_" + dashes + "-__WRIT__", "_c_" + dashes + "-__READ__", "x-12-", "some-",
	}
	forms = forms[:1+r.IntN(len(forms))]
	var q []Contender
	for i := range n {
		*token++
		var data []byte
		if r.IntN(4) == 0 {
			data = []byte(`{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z"}`)
			if r.IntN(3) == 0 {
				data = []byte(`{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z","downgraded":true}`)
			}
		}
		name := fmt.Sprintf("%s%010d", forms[r.IntN(len(forms))], i)
		q = append(q, New(dir, name, int64(1+r.IntN(sessions)), time.UnixMilli(*token), *token, data))
	}
	return q
}

// TestJudge compares with the rule as it is said: all pairs.
func TestJudge(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		var token int64
		q := randomQueue(r, r.IntN(9), 5, "/a", &token)
		var leases []Contender
		for range r.IntN(4) {
			l := New("/a", "b7bfcd3227404d3880a0eccd4e5100cf", int64(1+r.IntN(5)), time.Time{}, 1+r.Int64N(10), nil)
			l.Held = r.IntN(2) == 0
			leases = append(leases, l)
		}
		got := judge(slices.Clone(leases), slices.Clone(q))
		want := judgeByPairs(slices.Clone(leases), slices.Clone(q))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n%+v\nwant\n%+v", seed, got, want)
		}
	}
}

func judgeByPairs(leases, q []Contender) []Contender {
	all := append(leases, q...)
	for n := len(leases); n < len(all); n++ {
		c := &all[n]
		c.Held, c.MayHold = true, true
		for m := range all[:n] {
			other := &all[m]
			inFront := m >= len(leases) || other.Held && other.Token < c.Token
			if !inFront || shares(c, other.Class()) {
				continue
			}
			c.Held = false
			c.MayHold = c.MayHold && (mayIgnore(c, other.Class()) || mayShare(c, other.Class()))
		}
		c.MayHold = c.MayHold && !c.Held
	}
	for i := range all {
		c := &all[i]
		for j := range all {
			other := &all[j]
			if c.Kind == other.Kind && (c.Kind == KindLease || c.Kind == KindRead) {
				continue
			}
			if Family(c.Layout) != Family(other.Layout) && mayIgnore(c, other.Class()) &&
				!slices.Contains(c.MayIgnore, other.Layout) {
				c.MayIgnore = append(c.MayIgnore, other.Layout)
			}
		}
		slices.Sort(c.MayIgnore)
	}
	slices.SortStableFunc(all, func(a, b Contender) int { return b.rank() - a.rank() })
	return all
}

// TestDeadlocksAgreeWithPairs compares with a search over all pairs of contenders.
func TestDeadlocksAgreeWithPairs(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for round := range 3000 {
		var token int64
		var locks []Lock
		for n := range 1 + r.IntN(4) {
			path := fmt.Sprintf("/l%d", n)
			q := Resolve(Sorted(path, randomQueue(r, r.IntN(6), 2+r.IntN(7), path, &token)))
			for i := range q {
				if r.IntN(8) == 0 {
					q[i].Info = &Info{Within: []string{fmt.Sprintf("0x%x", 1+r.IntN(8))}}
				}
			}
			locks = append(locks, Lock{Path: path, Contenders: q})
		}
		got := map[Ref]bool{}
		for _, d := range Deadlocks(locks) {
			found++
			for _, ref := range d.Waiting {
				got[ref] = true
			}
			for _, e := range d.Edges {
				if !slices.Contains(d.Sessions, e.Waiter) || !slices.Contains(d.Sessions, e.Holder) || e.Waiter == e.Holder {
					t.Fatalf("seed %d, round %d: edge %+v of %v", seed, round, e, d.Sessions)
				}
			}
			if len(d.Edges) < len(d.Sessions) {
				t.Fatalf("seed %d, round %d: %d sessions, edges %v", seed, round, len(d.Sessions), d.Edges)
			}
		}
		if want := deadlocksByPairs(locks); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, round %d: %v, want %v\n%+v", seed, round, got, want, locks)
		}
	}
	if found == 0 {
		t.Error("there was no deadlock")
	}
}

func deadlocksByPairs(locks []Lock) map[Ref]bool {
	waits := map[int64][]int64{}
	waitsFor := func(c, other *Contender) bool {
		return other.Session != c.Session && (c.Kind != KindRead || other.Kind != KindRead)
	}
	each := func(f func(ref Ref, c, other *Contender)) {
		for n := range locks {
			cs := locks[n].Contenders
			for i := range cs {
				for k := range cs[:i] {
					if !cs[i].Held && !cs[i].MayHold && waitsFor(&cs[i], &cs[k]) {
						f(Ref{n, i}, &cs[i], &cs[k])
					}
				}
			}
		}
	}
	for n := range locks {
		for i := range locks[n].Contenders {
			if c := &locks[n].Contenders[i]; !c.Held && !c.MayHold {
				for _, s := range c.Info.WithinSessions() {
					waits[s] = append(waits[s], c.Session)
				}
			}
		}
	}
	each(func(_ Ref, c, other *Contender) { waits[c.Session] = append(waits[c.Session], other.Session) })
	marked := map[Ref]bool{}
	each(func(ref Ref, c, other *Contender) {
		seen, todo := map[int64]bool{}, []int64{other.Session}
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			if at == c.Session {
				marked[ref] = true
				return
			}
			if !seen[at] {
				seen[at] = true
				todo = append(todo, waits[at]...)
			}
		}
	})
	return marked
}

// Notes nest as deep as whoever makes a node likes. None takes long to read, nor a deep stack.
func TestNestedNotes(t *testing.T) {
	begin := string(infoPrefix) + `,"x":`
	for _, tt := range []struct {
		note  string
		taken bool
	}{
		{begin + strings.Repeat("[", 1_000_000), false},
		{begin + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + "}", false},
		{begin + strings.Repeat(`{"a":`, 200_000), false},
		{begin + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}", true},
	} {
		began := time.Now()
		if i := ParseInfo([]byte(tt.note)); (i != nil) != tt.taken || time.Since(began) > time.Second {
			t.Errorf("%.60s (%d bytes): %v after %v", tt.note, len(tt.note), i, time.Since(began))
		}
	}
}

func TestIdentifier(t *testing.T) {
	const kazoo, curator = "b7bfcd3227404d3880a0eccd4e5100c1__lock__0000000001", "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000001"
	for _, tt := range []struct{ node, data, want string }{
		{kazoo, "worker-7", "worker-7"}, {kazoo, "b'worker-7'", "worker-7"}, {kazoo, "", ""}, {kazoo, "\xff\xfe", ""},
		{curator, "10.0.0.7", ""}, {curator, "fe80::1", ""}, {curator, "b'x'", "b'x'"}, {curator, `{"a":1}`, ""},
		{curator, "two\nlines", ""}, {curator, strings.Repeat("x", identifierMost+1), ""},
		{curator, `{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z","program":"nightly"}`, ""},
	} {
		c := New("/l", tt.node, 1, time.Time{}, 1, []byte(tt.data))
		if got := c.Identifier(); got != tt.want {
			t.Errorf("%s with %q is %q, want %q", tt.node, tt.data, got, tt.want)
		}
	}
}

func TestLockFamily(t *testing.T) {
	for name, want := range map[string]string{
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000000":    "lock-",
		"_c_34c73d33a36442858dd68b05f149fed9-lock-0000000012":        "lock-",
		"b7bfcd3227404d3880a0eccd4e5100cf-lock-0000000012":           "lock-",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__WRIT__0000000005": "__WRIT__",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__READ__0000000005": "__WRIT__",
		"b7bfcd3227404d3880a0eccd4e5100cf__lock__0000000003":         "__lock__",
		"b7bfcd3227404d3880a0eccd4e5100cf__rlock__0000000004":        "__lock__",
		"x-72057594037927937-0000000004":                             "x-",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-0000000005":   "",
		"lock-": "", "lock-00000000x0": "", "n_0000000001": "", "0000000001": "", "": "",
	} {
		if got := LockFamily(name); got != want {
			t.Errorf("LockFamily(%q) = %q, want %q", name, got, want)
		}
	}
}
