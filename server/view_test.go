package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/cputime"
	"lockkeeper/wire"
)

// views measures how long readers hold the state: writes wait for that. It is CPU time, which other
// programs on a busy machine do not change.
type views struct {
	mu   sync.Mutex
	what string
	most map[string]time.Duration
}

// observe is Machine.ObserveView.
func (v *views) observe(view func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cputime.Thread()
	view()
	took := cputime.Thread() - began
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most[v.what] = max(v.most[v.what], took)
}

// during returns the longest View while f runs. The garbage collector may have its share in one
// that took too long, so f runs up to three times.
func (v *views) during(what string, f func()) time.Duration {
	least := time.Hour
	for try := 0; try < 3 && least > viewMost; try++ {
		v.mu.Lock()
		v.what, v.most = what, map[string]time.Duration{}
		v.mu.Unlock()
		f()
		v.mu.Lock()
		least = min(least, v.most[what])
		v.mu.Unlock()
	}
	return least
}

// viewMost is how long a reader may hold the state.
const viewMost = raceTimes * 5 * time.Millisecond

// TestReadersHoldTheStateBriefly: no endpoint, word, metric or request holds the state for long,
// however much is in it.
func TestReadersHoldTheStateBriefly(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 100,000 nodes; not with -short")
	}
	if cputime.Thread() == 0 {
		t.Skip("the CPU time of a thread is not known on this system")
	}
	v := &views{most: map[string]time.Duration{}}
	s := startReal(t, func(c *Config) {
		superSettings(c)
		c.Machine.ObserveView = v.observe
		c.Metrics.Addr = "127.0.0.1:0"
		c.Client.FourLetterWords = []string{"*"}
		c.Quotas.Keep = true
		c.Console.HistoryBytes = 8 << 20
	})
	fillState(t, s)
	var late []string
	longest, at := time.Duration(0), ""
	play := func(what string, f func()) {
		took := v.during(what, f)
		if took > viewMost {
			late = append(late, fmt.Sprintf("%s: %v", what, took))
		}
		if took > longest {
			longest, at = took, what
		}
	}
	for _, auth := range []string{"", asSuper} {
		for _, path := range viewPaths(t, s) {
			play(path+" "+auth, func() { get(t, "http://"+s.HTTPAddr().String()+path, auth) })
		}
	}
	play("/metrics", func() { get(t, "http://"+s.MetricsAddr().String()+"/metrics", "") })
	for _, word := range slices.Sorted(maps.Keys(wordList)) {
		play(word, func() {
			nc, err := net.Dial("tcp", s.ClientAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(nc, word)
			if err == nil {
				_, err = io.Copy(io.Discard, nc)
			}
			if err != nil {
				t.Errorf("%s: %v", word, err)
			}
		})
	}
	c := dialReal(t, s)
	c.connect(time.Minute) // it sends no pings
	for op, body := range map[wire.Op]wire.Record{
		wire.OpGetChildren: wire.PathWatchRequest{Path: "/wide"}, wire.OpGetChildren2: wire.PathWatchRequest{Path: "/wide"},
		wire.OpGetAllChildrenNumber: wire.PathRequest{Path: "/"}, wire.OpGetEphemerals: wire.PathRequest{Path: "/"},
		wire.OpGetData: wire.PathWatchRequest{Path: "/zookeeper/quota/wide/zookeeper_stats"}, wire.OpWhoAmI: nil,
	} {
		play(op.String(), func() {
			c.put(c.request(op, body)...)
			c.reply()
		})
	}
	for _, report := range []string{"queues", "queues?under=/queue&limit=1000", "queues?from=/queue&offset=20000", "locks", "lock?path=/queue",
		"history?path=/queue"} {
		play("report "+report, func() {
			c.put(c.request(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/api/v1/" + report})...)
			c.reply()
		})
	}
	t.Logf("the longest is %v, of %s", longest, at)
	slices.Sort(late)
	if len(late) > 0 {
		t.Errorf("readers that hold the state for more than %v:\n%s", viewMost, strings.Join(late, "\n"))
	}
}

// wordList are the four-letter words that read.
var wordList = map[string]bool{"ruok": true, "isro": true, "srvr": true, "stat": true, "cons": true, "conf": true, "mntr": true,
	"mbrs": true, "mays": true, "dirs": true, "wchs": true, "wchc": true, "wchp": true, "dump": true, "hash": true, "envi": true}

// fillState makes 50,000 nodes below one, 35,000 ephemeral ones in locks with many and with few
// waiters, a quota, and 10,000 watches.
func fillState(t *testing.T, s *Server) {
	t.Helper()
	const perMulti = 1000
	many := func(c *rawClient, n int, mode wire.CreateMode, path func(i int) string) {
		for from := 0; from < n; from += perMulti {
			var m wire.MultiRequest
			for i := from; i < min(n, from+perMulti); i++ {
				m.Ops = append(m.Ops, wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{
					Path: path(i), Data: []byte("x"), ACL: wire.OpenACL, Mode: mode}})
			}
			c.call(wire.OpMulti, m)
		}
	}
	dial := func() *rawClient {
		c := dialReal(t, s)
		c.connect(40 * time.Second)
		return c
	}
	first := dial()
	for _, path := range []string{"/wide", "/queue", "/locks"} {
		first.call(wire.OpCreate, create(path, nil, 0))
	}
	first.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
	for _, path := range []string{"/zookeeper/quota/wide", "/zookeeper/quota/wide/zookeeper_limits", "/zookeeper/quota/wide/zookeeper_stats"} {
		first.call(wire.OpCreate, create(path, []byte("count=1,bytes=-1"), 0))
	}
	many(first, 50_000, wire.ModePersistent, func(i int) string { return fmt.Sprintf("/wide/n%d", i) })
	many(first, 10_000, wire.ModePersistent, func(i int) string { return fmt.Sprintf("/locks/l%d", i) })
	for k := range 5 {
		c := dial()
		many(c, 5_000, wire.ModeEphemeral, func(i int) string { return fmt.Sprintf("/queue/x-lock-%010d", 5_000*k+i) })
		many(c, 2_000, wire.ModeEphemeral, func(i int) string { return fmt.Sprintf("/locks/l%d/x-lock-%010d", 2_000*k+i, i) })
		for i := range 2_000 {
			c.call(wire.OpAddWatch, wire.AddWatchRequest{Path: fmt.Sprintf("/locks/l%d", i), Mode: wire.AddWatchPersistentRecursive})
		}
	}
	// A path that is watched can be any text.
	for _, path := range []string{"eve", "//", "/" + strings.Repeat("n", 1_000_000), strings.Repeat("/d", 500_000), strings.Repeat("/", 1_000_000)} {
		first.call(wire.OpAddWatch, wire.AddWatchRequest{Path: path, Mode: wire.AddWatchPersistent})
	}
}

// viewPaths are the paths of all that is read over HTTP.
func viewPaths(t *testing.T, s *Server) (paths []string) {
	t.Helper()
	page := get(t, "http://"+s.HTTPAddr().String()+"/commands", asSuper)
	for line := range strings.Lines(page) {
		if _, rest, ok := strings.Cut(line, `href="/commands/`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			if !slices.Contains([]string{"snapshot", "restore"}, name) {
				paths = append(paths, "/commands/"+name)
			}
		}
	}
	if len(paths) < 20 {
		t.Fatalf("the page of commands has %d: %s", len(paths), page)
	}
	for _, view := range []string{"cluster", "locks", "locks?search=l1", "locks?search=nothing", "locks?sort=waiting&offset=8000", "lock?path=/queue",
		"lock?path=/queue&offset=20000", "history?path=/queue", "history?path=/locks/l7", "trouble", "queues",
		"queues?from=/queue&offset=20000", "sessions", "sessions?search=127",
		"sessions?offset=3", "node?path=/wide", "node?path=/queue/x-lock-0000000001", "children?path=/wide", "children?path=/wide&offset=40000",
		"whoami"} {
		paths = append(paths, "/api/v1/"+view)
	}
	for _, view := range []string{"cluster", "locks", "lock&path=/queue", "history&path=/queue", "trouble", "sessions"} {
		paths = append(paths, "/api/v1/events?view="+view)
	}
	return append(paths, "/members", "/ready", "/live", "/fence?lock=/queue&token=1", "/fence?lock=/locks/l7&token=1")
}

// get returns the answer to a request, of a stream of events its first ones.
func get(t *testing.T, address, auth string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", auth)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.Contains(address, "/events?") {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 16<<20)
		for events := 0; events < 3 && lines.Scan(); {
			if lines.Text() == "" {
				events++
			}
		}
		return ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	if resp.StatusCode >= 500 {
		t.Errorf("%s: %s: %s", address, resp.Status, text)
	}
	return string(text)
}
