package httplock_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/locktest"
	"lockkeeper/server"
)

// cluster is a cluster with an HTTP port on each member.
type cluster struct {
	*locktest.Cluster
	t    *testing.T
	http []string // addresses
}

func start(t *testing.T, members int) *cluster {
	t.Helper()
	c := &cluster{t: t}
	ports, err := freeport.Take(members)
	if err != nil {
		t.Fatal(err)
	}
	c.Cluster = locktest.Start(t, members, func(cfg *server.Config) {
		cfg.HTTP.Addr = fmt.Sprintf("127.0.0.1:%d", ports[len(c.http)])
		c.http = append(c.http, cfg.HTTP.Addr)
	})
	return c
}

// line is a line of an answer.
type line struct {
	Event, Secret, Reason, Error string
	Token, TimeoutMs, ValidMs    int64
}

// lock is a request for a lock, and its answer.
type lock struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	first  line
	answer time.Time // when the first line came
}

// ask sends a request to a member.
func (c *cluster) ask(member int, method, path, secret string) (*lock, error) {
	r, err := http.NewRequest(method, "http://"+c.http[member]+"/v1/locks"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Lock-Secret", secret)
	l := &lock{t: c.t}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if l.resp, err = client.Do(r); err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { _ = l.resp.Body.Close() })
	l.lines = bufio.NewScanner(l.resp.Body)
	if l.lines.Scan() {
		err = json.Unmarshal(l.lines.Bytes(), &l.first)
	}
	l.answer = time.Now()
	return l, err
}

// mustAsk is ask with an answer of status 200.
func (c *cluster) mustAsk(member int, method, path, secret string) *lock {
	c.t.Helper()
	l, err := c.ask(member, method, path, secret)
	if err != nil || l.resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s %s at member %d: %+v, %v", method, path, member, l, err)
	}
	return l
}

// end is the end of a stream.
type end struct {
	at   time.Time
	last line
	err  error // nil if the answer is complete
}

// follow reads the stream to its end.
func (l *lock) follow() <-chan end {
	ended := make(chan end, 1)
	go func() {
		var e end
		for l.lines.Scan() {
			e.last = line{}
			if e.err = json.Unmarshal(l.lines.Bytes(), &e.last); e.err != nil {
				break
			}
		}
		if e.err == nil {
			e.err = l.lines.Err()
		}
		e.at = time.Now()
		ended <- e
	}()
	return ended
}

// another is a member other than these.
func (c *cluster) another(than ...int) int {
	for i := range c.http {
		found := false
		for _, n := range than {
			found = found || n == i
		}
		if !found {
			return i
		}
	}
	return -1
}

// TestStreamEndsBeforeTheNextHolder: the member that serves a stream is cut off from the others.
// The stream ends before another member grants the lock to the next one in the queue.
//
// Defends: C6.
func TestStreamEndsBeforeTheNextHolder(t *testing.T) {
	for _, victim := range []string{"follower", "leader"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3)
			leader := c.Leader()
			member := leader
			if victim == "follower" {
				member = c.another(leader)
			}
			a := c.mustAsk(member, "PUT", "/c6?timeout=2s", "")
			ended := a.follow()
			next := make(chan *lock, 1)
			go func() {
				for {
					b, err := c.ask(c.another(member, leader), "PUT", "/c6?timeout=2s&wait=1m", "")
					if err == nil && b.resp.StatusCode == http.StatusServiceUnavailable {
						continue // its member was without a leader for too long
					}
					if err != nil {
						t.Error(err)
					}
					next <- b
					return
				}
			}()
			time.Sleep(3 * time.Second) // for longer than a timeout: pings keep the session
			select {
			case e := <-ended:
				t.Fatalf("the stream ended by itself: %+v", e)
			case b := <-next:
				t.Fatalf("the lock has another holder: %+v", b)
			default:
			}
			cut := time.Now()
			c.Isolate(member)
			var e end
			select {
			case e = <-ended:
			case b := <-next:
				t.Fatalf("the stream goes on, and another holder has the lock: %+v", b)
			}
			b := <-next
			if b == nil || b.resp.StatusCode != http.StatusOK {
				t.Fatalf("%+v", b)
			}
			t.Logf("the stream ended %v after the cut, and %v before the next one had the lock: %s",
				e.at.Sub(cut).Round(time.Millisecond), b.answer.Sub(e.at).Round(time.Millisecond), e.last.Reason)
			if e.last.Event != "lost" || e.err == nil {
				t.Errorf("the last line is %+v, and the end of the answer %v", e.last, e.err)
			}
			if !e.at.Before(b.answer) || b.first.Token <= a.first.Token {
				t.Errorf("two holders: %+v, %+v", e, b.first)
			}
		})
	}
}

// TestLockMoves: when a member is killed, its streams end, and a POST with the secret to another
// member keeps the lock, with its token.
func TestLockMoves(t *testing.T) {
	c := start(t, 3)
	member := c.another(c.Leader())
	a := c.mustAsk(member, "PUT", "/moved?timeout=10s&mode=write", "")
	ended := a.follow()
	c.Kill(member)
	if e := <-ended; e.err == nil {
		t.Errorf("the answer of a killed member is complete: %+v", e)
	}
	other := c.another(member)
	var both [2]*lock
	var asking sync.WaitGroup
	for i := range both { // at the same time
		asking.Go(func() { both[i], _ = c.ask(other, "POST", "/moved", a.first.Secret) })
	}
	asking.Wait()
	for _, l := range both {
		if l == nil || l.resp.StatusCode != http.StatusOK {
			t.Fatalf("%+v", l)
		}
	}
	moved := both[0]
	if moved.first.Token != a.first.Token || moved.first.Event != "held" || moved.first.TimeoutMs != 10_000 {
		t.Errorf("%+v", moved.first)
	}
	third := c.another(member, other)
	if l, err := c.ask(third, "PUT", "/moved?mode=read", ""); err != nil || l.resp.StatusCode != http.StatusConflict {
		t.Errorf("%+v, %v", l, err)
	}
	c.mustAsk(third, "DELETE", "/moved", a.first.Secret)
	c.mustAsk(third, "PUT", "/moved?mode=read&wait=10s", "")
	if l, err := c.ask(other, "POST", "/moved", a.first.Secret); err != nil || l.resp.StatusCode != http.StatusGone {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestStreamSurvivesChangeOfLeader: a stream at a member that survives goes on.
//
// Defends: C5.
func TestStreamSurvivesChangeOfLeader(t *testing.T) {
	c := start(t, 3)
	leader := c.Leader()
	member := c.another(leader)
	a := c.mustAsk(member, "PUT", "/kept?timeout=6s", "")
	ended := a.follow()
	c.Kill(leader)
	c.Leader()
	select {
	case e := <-ended:
		t.Errorf("the stream has ended: %+v", e)
	case <-time.After(6 * time.Second):
	}
	c.mustAsk(c.another(leader, member), "DELETE", "/kept", a.first.Secret)
	if e := <-ended; e.last.Event != "lost" { // the session has moved to where it was released
		t.Errorf("%+v", e)
	}
}
