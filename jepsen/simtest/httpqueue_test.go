package simtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestUrgentOverHTTP has urgent contenders for a lock over HTTP come at any member, again and
// again, while an ordinary one waits that lets two of them go first. One holds at a time, tokens
// rise from holder to holder, and the ordinary one gets its turn.
func TestUrgentOverHTTP(t *testing.T) {
	plant(t)
	seedRuntime(t, scenarioSeed())
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(&recorder{T: t}, shape{voters: 3, tick: 500 * time.Millisecond, snapCount: 300,
			trailing: 10_000, rest: 1, http: true}, 1, newJournal(t, ""))
		c.net.Host(httpHost)
		c.awaitLeader()
		rng := rand.New(rand.NewPCG(scenarioSeed(), 0))
		come := func(query string) *httpContender { return c.contend(t, c.members[rng.IntN(3)], query) }
		all := []*httpContender{come("name=first"), come("yields=2"), come("")}
		token := int64(0)
		const rounds, turn = 7, 5 // first, the one behind, two urgent ones, the ordinary one
		for round := 1; round <= rounds; round++ {
			all = append(all, come("priority=9"))
			holder := (*httpContender)(nil)
			for i, k := range all {
				switch now := k.token(); {
				case now == 0:
				case holder != nil:
					t.Fatalf("round %d: two holders, with tokens %d and %d", round, holder.token(), now)
				case now <= token:
					t.Errorf("round %d: token %d after %d", round, now, token)
					fallthrough
				default:
					holder, token = k, now
					if i == 1 && round > turn {
						t.Errorf("the ordinary contender has its turn in round %d", round)
					}
				}
			}
			if holder == nil {
				t.Fatalf("round %d: nobody holds the lock", round)
			}
			holder.leave()
			time.Sleep(time.Second)
		}
		if !all[1].left {
			t.Errorf("the ordinary contender has not had the lock in %d rounds", rounds)
		}
		for _, k := range all {
			k.leave()
		}
		c.shutdown()
	})
}

// httpContender is a user of HTTP that waits for a lock, and holds it.
type httpContender struct {
	granted chan int64 // has the token
	held    int64
	leave   func()
	left    bool
}

// contend has a contender come to a member, and returns when it has its place in the queue.
func (c *cluster) contend(t *testing.T, m *member, query string) *httpContender {
	transport := &http.Transport{DialContext: c.net.Host(httpHost).Dial, DisableKeepAlives: true}
	url := fmt.Sprintf("http://%s:%d/v1/locks/urgent?wait=10m&explain=true&timeout=6s&%s", m.name, httpPort, query)
	r, err := http.NewRequest(http.MethodPut, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	k := &httpContender{granted: make(chan int64, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var line struct {
				Event string
				Token int64
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "granted" {
				k.granted <- line.Token
			}
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	k.leave = func() {
		if !k.left {
			k.left, k.held = true, 0
			_ = resp.Body.Close()
			<-done
			transport.CloseIdleConnections()
		}
	}
	time.Sleep(time.Second)
	return k
}

// token is the token of a contender that holds the lock, 0 of one that does not.
func (k *httpContender) token() int64 {
	select {
	case k.held = <-k.granted:
	default:
	}
	return k.held
}
