package console

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/server/ops/console/web"
)

// answer is a JSON object.
type answer = map[string]any

// A player serves the page, below a prefix, and plays answers to it: it stands for a member, as
// docs/api.md describes it.
type player struct {
	*httptest.Server
	began time.Time

	mu      sync.Mutex
	changed chan struct{} // closed at each change of the fields below
	silent  bool          // no more events, and no answers
	cutFor  time.Duration // the member has known no leader for so long
	views   map[string]func(q url.Values) answer
	acts    []answer // that were requested
}

// prefix is where a reverse proxy would put the console.
const prefix = "/ops/locks/"

// operator are the credentials of the player's super user.
const operator = "super:correct horse"

func newPlayer(t *testing.T) *player {
	p := &player{began: time.Now(), changed: make(chan struct{})}
	p.views = map[string]func(url.Values) answer{
		"cluster": func(url.Values) answer { return clusterOfThree(time.Now()) }, "locks": playLocks, "lock": playLock, "history": playHistory,
		"trouble": playTrouble, "sessions": playSessions, "session": playSession, "node": playNode, "children": playChildren,
	}
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler())
	mux.HandleFunc("GET /api/v1/events", p.events)
	mux.HandleFunc("GET /api/v1/{view}", p.get)
	mux.HandleFunc("POST /api/v1/act", p.act)
	p.Server = httptest.NewServer(http.StripPrefix(strings.TrimSuffix(prefix, "/"), mux))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// address is where the page is.
func (p *player) address() string { return p.URL + prefix }

// change changes the played answers; views are sent anew.
func (p *player) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// head has the common fields of answers.
func (p *player) head() answer {
	return answer{"member": 2, "at": instant(time.Now()), "zxid": "0x500000012", "serving": p.cutFor == 0, "staleMs": p.cutFor.Milliseconds()}
}

// view is the answer to a GET, nil if there is no such view. The lock is held.
func (p *player) viewLocked(name string, q url.Values) answer {
	f := p.views[name]
	if f == nil {
		return nil
	}
	a := f(q)
	maps.Copy(a, p.head())
	return a
}

func (p *player) get(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.viewLocked(r.PathValue("view"), r.URL.Query())
	if r.PathValue("view") == "whoami" {
		a = p.head()
		super := r.Header.Get("Authorization") == "digest "+operator
		maps.Copy(a, answer{"version": "0.1.0", "identities": []string{"ip:127.0.0.1"}, "super": super, "acts": super, "actsRefused": ""})
		if !super {
			a["actsRefused"] = "only a super user may act"
		}
	}
	if a == nil || p.silent {
		w.WriteHeader(http.StatusServiceUnavailable)
		a = answer{"error": "not now"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a)
}

func (p *player) act(w http.ResponseWriter, r *http.Request) {
	var body answer
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("Authorization") != "digest "+operator {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(answer{"error": "only a super user may act"})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts = append(p.acts, body)
	_ = json.NewEncoder(w).Encode(answer{"done": true, "act": body["act"], "zxid": "0x500000013", "says": "The node is gone, and the next in the queue holds the lock."})
}

// events is the stream, with a beat each 200 ms.
func (p *player) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, data answer) error {
		text, err := json.Marshal(data)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	}
	const beat = 200 * time.Millisecond
	if send("hello", answer{"member": 2, "version": "0.1.0", "beatMs": beat.Milliseconds(), "everyMs": 1000, "bytesPerSecond": 262144}) != nil {
		return
	}
	due := true
	for {
		p.mu.Lock()
		silent, changed := p.silent, p.changed
		view := p.viewLocked(r.URL.Query().Get("view"), r.URL.Query())
		now := p.head()
		p.mu.Unlock()
		maps.Copy(now, answer{"leader": 1, "locks": 10000, "waiting": 50000, "trouble": playTrouble(nil)["counts"]})
		if !silent && due && view != nil && send("view", view) != nil {
			return
		}
		if !silent && send("beat", now) != nil {
			return
		}
		due = false
		select {
		case <-r.Context().Done():
			return
		case <-changed:
			due = true
		case <-time.After(beat):
		}
	}
}

// --- The played answers

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// ago is an instant that long ago.
func ago(d time.Duration) string { return instant(time.Now().Add(-d)) }

func sessionID(i int) string { return fmt.Sprintf("0x100004a2b3c%04x", i) }

// hostile is a text that a client might use as a node's name, or write into one. TestPictures
// changes it.
var hostile = `<img src=x onerror="window.hacked=1">`

// reversed has a mark that shows the rest from right to left.
const reversed = "report\u202etxt.exe"

func member(id int, state string) answer {
	up := state != "no answer"
	m := answer{"id": id, "self": id == 2, "role": "participant", "state": state, "up": up,
		"peers": fmt.Sprintf("10.0.0.%d:2888", id), "clients": fmt.Sprintf("10.0.0.%d:2181", id), "http": fmt.Sprintf("10.0.0.%d:8080", id)}
	if state == "observer" {
		m["role"] = "observer"
	}
	if up {
		maps.Copy(m, answer{"term": "5", "appliedIndex": 120141, "commitIndex": 120141, "lastIndex": 120141, "lagEntries": 0,
			"pausedPart": 0.0004, "pauseMaxMs": 12, "logBytes": 41943040, "snapshotBytes": 1048576, "fsyncMs": 0.6, "fsyncMaxMs": 4.1, "connections": 40 * id, "leases": nil, "uptimeMs": 7_260_000, "build": "0.1.0"})
	}
	if state == "leader" {
		m["leases"] = 431
	}
	if state == "follower" {
		m["leaderHeardMs"] = 40
	}
	return m
}

// cluster is the answer to cluster of these members.
func cluster(now time.Time, members ...answer) answer {
	voters, up := 0, 0
	leader := 0
	for _, m := range members {
		if m["role"] == "participant" {
			voters++
			if m["up"] == true {
				up++
			}
		}
		if m["state"] == "leader" {
			leader = m["id"].(int)
		}
	}
	majority := voters/2 + 1
	return answer{"standalone": false, "leader": leader, "term": "5", "version": "0x500000001", "voters": voters, "majority": majority,
		"votersUp": up, "mayFail": up - majority, "members": members,
		"state": answer{"nodes": 40211, "ephemerals": 903, "sessions": 431, "dataBytes": 1048576},
		"changes": []answer{
			{"at": instant(now.Add(-5 * time.Minute)), "term": "5", "leader": 1, "before": 3, "cause": "process ended", "detail": "", "gapMs": 180},
			{"at": instant(now.Add(-50 * time.Minute)), "term": "4", "leader": 3, "before": 1, "cause": "transfer", "detail": "", "gapMs": 12},
			{"at": instant(now.Add(-121 * time.Minute)), "term": "3", "leader": 1, "before": 0, "cause": "start", "detail": "", "gapMs": 0}}}
}

func clusterOfThree(now time.Time) answer {
	third := member(3, "follower")
	third["lagEntries"] = 12
	return cluster(now, member(1, "leader"), member(2, "follower"), third)
}

// clusterInTrouble has a member that is down, one without a leader, and an observer.
func clusterInTrouble(now time.Time) answer {
	return cluster(now, member(1, "leader"), member(2, "follower"), member(3, "no answer"), member(4, "follower"), member(5, "looking"), member(6, "observer"))
}

var lockPaths = []string{"/reports/monthly", "/shop/orders/lock", "/config/lock", "/import/slots", "/services/scheduler/leader", "/members/web-3",
	"/locks/" + hostile, "/locks/" + reversed}

func lockAnswer(i int) answer {
	path := fmt.Sprintf("/tenants/t%04d/ledger", i)
	if i < len(lockPaths) {
		path = lockPaths[i]
	}
	kind := []string{"mutex", "mutex", "readwrite", "semaphore", "election", "ephemeral"}[i%6]
	held := map[int]int{2: 3, 3: 3}[i]
	if held == 0 {
		held = 1
	}
	holders := []answer{}
	for j := range held {
		h := answer{"node": fmt.Sprintf("_c_0f3c-lock-%010d", 17+j), "session": sessionID(8*i + j), "address": fmt.Sprintf("10.0.1.%d", 7+j), "mode": "write",
			"token": 21474836498 + i + j, "sinceAt": ago(time.Duration(30+20*i) * time.Second), "sinceExact": i != 1, "note": "", "who": ""}
		if kind == "readwrite" {
			h["mode"] = "read"
		}
		switch i {
		case 0:
			h["note"], h["who"] = "monthly report", "reports[4711]@web-3"
		case 6:
			h["note"], h["who"] = hostile, hostile
		}
		holders = append(holders, h)
	}
	waiting := max(0, 41-3*i)
	a := answer{"path": path, "kind": kind, "libraries": []string{"curator"}, "held": held, "leases": nil, "waiting": waiting, "holders": holders,
		"sinceAt": holders[0]["sinceAt"], "heldMs": 0, "longestWaitMs": 1300 * waiting, "token": 21474836498 + i, "trouble": []string{}}
	if kind == "semaphore" {
		a["leases"] = 5
	}
	if i == 1 || i == 4 {
		a["trouble"] = []string{map[int]string{1: "deadlock", 4: "hot"}[i]}
	}
	return a
}

func playLocks(q url.Values) answer {
	const total = 10000
	locks := []answer{}
	matched := total
	if s := q.Get("search"); s != "" {
		matched = 0
		for i := range 200 {
			if l := lockAnswer(i); strings.Contains(l["path"].(string), s) {
				locks = append(locks, l)
				matched++
			}
		}
	} else {
		offset := 0
		_, _ = fmt.Sscan(q.Get("offset"), &offset)
		for i := offset; i < min(offset+50, total); i++ {
			locks = append(locks, lockAnswer(i))
		}
	}
	return answer{"total": total, "matched": matched, "offset": 0, "limit": 50, "waiting": 50000, "locks": locks,
		"kinds": answer{"mutex": 9000, "readwrite": 500, "semaphore": 100, "election": 300, "ephemeral": 100, "unknown": 0}}
}

func playLock(q url.Values) answer {
	l := lockAnswer(0)
	l["path"], l["waiting"], l["longestWaitMs"] = q.Get("path"), 5, 45000
	libraries := []string{"lockkeeper", "kazoo", "curator", "go-zookeeper"}
	queue := []answer{}
	for i := range 6 {
		c := answer{"path": q.Get("path"), "node": fmt.Sprintf("_c_0f3c9a2b-7d1e-4b6f-lock-%010d", 17+i), "session": sessionID(3 * i), "address": fmt.Sprintf("10.0.1.%d", 7+i),
			"timeoutMs": 10000, "connected": i%2 == 0, "held": i == 0, "mayHold": false, "mode": "write", "token": 21474836498 + i, "layout": "lock-", "library": libraries[i%4],
			"createdAt": ago(time.Duration(50-6*i) * time.Second), "sinceAt": ago(20 * time.Second), "sinceExact": true, "waitMs": (50 - 6*i) * 1000,
			"orphan": i == 4, "deadlock": i == 1, "mayIgnore": []string{}, "within": []string{}, "note": "", "who": fmt.Sprintf("reports[%d]@web-%d", 4711+i, i)}
		switch i {
		case 0:
			c["note"] = "monthly report"
		case 2:
			c["within"], c["note"] = []string{sessionID(9)}, hostile
		case 3:
			c["mayIgnore"], c["who"], c["data"] = []string{"__lock__"}, "", data(hostile)
		}
		queue = append(queue, c)
	}
	return answer{"lock": l, "watches": 4, "offset": 0, "limit": 100, "queue": queue, "warnings": []string{"lock- of curator may not wait for __lock__: there may be two holders"}}
}

// playHistory is four minutes of a lock that a few sessions share.
func playHistory(q url.Values) answer {
	held := []int{9, 30, 4, 14, 2, 22, 9, 4, 17, 9, 30, 6, 14, 3, 9, 25}
	holds := []answer{{"node": "n", "session": sessionID(0), "mode": "write", "token": 21474836498, "queuedAt": ago(50 * time.Second), "fromAt": ago(20 * time.Second),
		"fromExact": true, "toAt": nil, "end": nil, "endedBy": nil, "waitedMs": 30000, "heldMs": 0, "note": "monthly report", "who": "reports[4711]@web-3", "address": "10.0.1.7"}}
	to := 20
	for i, seconds := range held {
		from := to + seconds
		end := map[int]string{2: "deleted", 7: "expired", 11: "closed", 13: "ended"}[i]
		if end == "" {
			end = "released"
		}
		waited := 3 + (i*7)%40
		holds = append([]answer{{"node": fmt.Sprintf("n%d", i), "session": sessionID(3 * ((i*5 + 2) % 7)), "mode": "write", "token": 21474836497 - i,
			"queuedAt": ago(time.Duration(from+waited) * time.Second), "fromAt": ago(time.Duration(from) * time.Second), "fromExact": i < len(held)-1,
			"toAt": ago(time.Duration(to)*time.Second + 40*time.Millisecond), "end": end, "endedBy": sessionID(3), "waitedMs": waited * 1000, "heldMs": seconds * 1000,
			"note": "", "who": fmt.Sprintf("reports[%d]@web-%d", 4700-i, (i*5+2)%7), "address": "10.0.1.9"}}, holds...)
		to = from
	}
	waiters := [][2]int64{}
	for i := range 30 {
		waiters = append(waiters, [2]int64{time.Now().Add(-time.Duration(to-7*i) * time.Second).UnixMilli(), int64([]int{3, 4, 5, 2, 7, 6, 5}[i%7])})
	}
	return answer{"path": q.Get("path"), "kind": "mutex", "enabled": true, "beginsAt": ago(time.Duration(to) * time.Second), "beginsZxid": "0x500000001", "beginsWhy": "start",
		"truncated": false, "holds": holds, "waiters": waiters,
		"quit": []answer{{"node": "x", "session": sessionID(12), "queuedAt": ago(100 * time.Second), "toAt": ago(60 * time.Second), "end": "deleted", "endedBy": sessionID(12)}}}
}

func edge(waiter, holder int, path string, cycle bool, why string) answer {
	return answer{"waiter": sessionID(waiter), "holder": sessionID(holder), "path": path, "cycle": cycle, "why": why}
}

func named(who, address string) answer { return answer{"who": who, "address": address, "note": ""} }

func playTrouble(url.Values) answer {
	return answer{
		"counts":        answer{"deadlock": 2, "orphan": 1, "long": 1, "herd": 1, "hot": 2, "expiring": 0, "reconnecting": 1, "twoHolders": 1},
		"limits":        answer{"longMs": 300000, "herdWatches": 100, "hotWaiters": 10, "expiringPart": 0.33, "reconnects": 5, "reconnectsWithinMs": 300000},
		"expiringKnown": false,
		"deadlocks": []answer{
			{"sessions": []string{sessionID(11), sessionID(12), sessionID(13)}, "edges": []answer{
				edge(11, 12, "/shop/orders/lock", true, "queue"), edge(12, 13, "/shop/stock/lock", true, "within"), edge(13, 11, "/shop/prices/lock", true, "queue"),
				edge(14, 11, "/shop/prices/lock", false, "queue"), edge(15, 11, "/shop/prices/lock", false, "queue")},
				"names": answer{sessionID(11): named("billing[4711]@web-3", "10.0.1.2:51234"), sessionID(12): named("stock-1", "10.0.1.3"), sessionID(13): named("", "10.0.1.4")}},
			{"sessions": []string{sessionID(1), sessionID(2)}, "edges": []answer{edge(1, 2, "/locks/"+hostile, true, "queue"), edge(2, 1, "/locks/a", true, "queue")}}},
		"orphans":  []answer{{"path": "/locks/a", "nodes": []string{"x-lock-0000000001", hostile}, "session": sessionID(1), "address": "10.0.1.7", "oldestAt": ago(time.Hour)}},
		"long":     []answer{{"path": "/reports/yearly", "node": "n", "session": sessionID(4), "sinceAt": ago(15 * time.Minute), "sinceExact": true, "heldMs": 900000, "waiting": 3, "note": "year 2025", "who": ""}},
		"herds":    []answer{{"path": "/config/flags", "watches": 5000}},
		"hot":      []answer{{"path": "/shop/orders/lock", "waiting": 812, "longestWaitMs": 60000, "holder": sessionID(12), "who": "stock-1", "address": "10.0.1.3"}, {"path": "/import/slots", "waiting": 96, "longestWaitMs": 4000, "holder": sessionID(25)}},
		"expiring": []answer{}, "reconnecting": []answer{{"session": sessionID(5), "address": "10.0.1.5", "reconnects": 12, "sinceAt": ago(time.Minute)}},
		"twoHolders": []answer{{"path": "/locks/c", "warning": "lock- of curator may not wait for __lock__: there may be two holders"}}}
}

func sessionAnswer(i int) answer {
	s := answer{"session": sessionID(i), "address": fmt.Sprintf("10.0.1.%d", i%9), "timeoutMs": 10000, "generation": 1 + i%3, "ephemerals": 60 - i, "here": i%3 == 0, "connectedAt": nil,
		"lastHeardMs": nil, "leftMs": nil, "received": nil, "sent": nil, "queued": nil, "unsentBytes": nil, "watches": nil, "avgLatencyMs": nil, "maxLatencyMs": nil, "lastOp": nil}
	if i%3 == 0 {
		maps.Copy(s, answer{"connectedAt": ago(time.Duration(i) * time.Minute), "lastHeardMs": 310, "leftMs": 9690, "received": 812 + i, "sent": 815 + i, "queued": 0, "unsentBytes": 0,
			"watches": 4, "avgLatencyMs": 0.4, "maxLatencyMs": 12, "lastOp": "getChildren2"})
	}
	return s
}

func playSessions(url.Values) answer {
	list := []answer{}
	for i := range 50 {
		list = append(list, sessionAnswer(i))
	}
	return answer{"total": 431, "matched": 431, "here": 144, "offset": 0, "limit": 50, "sessions": list}
}

func playSession(q url.Values) answer {
	s := sessionAnswer(3)
	s["session"] = q.Get("id")
	paths := func(all ...string) answer { return answer{"total": len(all), "paths": all} }
	return answer{"session": s, "identities": []string{}, "ephemerals": paths("/reports/monthly/_c_0f3c-lock-0000000017", "/members/web-3", "/"+hostile),
		"watches": paths("/config"), "holds": []string{"/reports/monthly"}, "waits": []string{"/shop/orders/lock"}}
}

// data is a node's data as the API has it.
func data(text string) answer {
	is := "text"
	switch {
	case text == "":
		is = "empty"
	case strings.HasPrefix(text, "{"):
		is = "json"
	case strings.ContainsRune(text, 0):
		is = "binary"
	}
	return answer{"bytes": len(text), "is": is, "base64": base64.StdEncoding.EncodeToString([]byte(text)), "truncated": false}
}

func playNode(q url.Values) answer {
	path := q.Get("path")
	content := map[string]string{"/": "", "/config": `{"retries": [1, 2, 5], "banner": "<script>window.hacked=1</script>"}`, "/binary": "\x00\x01\xfe binary \x7f"}[path]
	if content == "" && path != "/" {
		content = hostile
	}
	return answer{"path": path, "type": "persistent", "acl": []answer{{"perms": "cdrwa", "scheme": "world", "id": "anyone"}}, "data": data(content), "dataRefused": false, "watches": 2, "lock": nil,
		"stat": answer{"czxid": "0x100000002", "mzxid": "0x300000001", "pzxid": "0x100000002", "createdAt": ago(time.Hour), "modifiedAt": ago(time.Minute), "version": 3, "cversion": 0, "aversion": 0,
			"ephemeralOwner": "0x0", "dataLength": len(content), "numChildren": 0}}
}

func playChildren(q url.Values) answer {
	child := func(name string, children int) answer {
		return answer{"name": name, "children": children, "bytes": 12, "ephemeral": false}
	}
	switch q.Get("path") {
	case "/":
		return answer{"path": "/", "total": 6, "next": nil, "children": []answer{child("binary", 0), child("config", 0), child("locks", 300), child("members", 2), child(hostile, 0), child(reversed, 0)}}
	case "/locks":
		after, list := q.Get("after"), []answer{}
		for i := range 300 {
			if name := fmt.Sprintf("lock-%04d", i); name > after && len(list) < 100 {
				list = append(list, child(name, 0))
			}
		}
		var next any
		if last := list[len(list)-1]["name"]; last != "lock-0299" {
			next = last
		}
		return answer{"path": "/locks", "total": 300, "next": next, "children": list}
	}
	return answer{"path": q.Get("path"), "total": 2, "next": nil, "children": []answer{child("web-1", 0), child("web-2", 0)}}
}
