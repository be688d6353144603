package door

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/server/zoocfg"
	"lockkeeper/znode"
)

// TestAnswersTakeTurns: answers are made one after the other, with rests, and sent beside each
// other; probes, acts and the super user do not wait.
func TestAnswersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const makes, sends = 100 * time.Millisecond, 10 * time.Second
		d := New(Config{Settings: &zoocfg.Config{HTTP: zoocfg.HTTP{AdminBase: "/commands"}}})
		p := d.pace
		h := d.inTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(makes)
			w.WriteHeader(http.StatusOK)
			time.Sleep(sends)
		}))
		began := time.Now()
		ask := func(method, path string, ids ...znode.Identity) (status int, took time.Duration) {
			r := httptest.NewRequest(method, path, nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{Identities: ids})))
			return w.Code, time.Since(began)
		}
		var running sync.WaitGroup
		var mu sync.Mutex
		var last time.Duration
		for range 10 {
			running.Go(func() {
				status, took := ask("GET", "/api/v1/locks")
				mu.Lock()
				defer mu.Unlock()
				if last = max(last, took); status != http.StatusOK {
					t.Errorf("status %d after %v", status, took)
				}
			})
		}
		for _, free := range [][2]string{{"GET", "/live"}, {"GET", "/fence"}, {"POST", "/leader"}, {"GET", "/index.html"}} {
			running.Go(func() {
				if _, took := ask(free[0], free[1]); took != makes+sends {
					t.Errorf("%s %s took %v", free[0], free[1], took)
				}
			})
		}
		running.Go(func() {
			if _, took := ask("GET", "/commands/dump", znode.Identity{Scheme: "super"}); took != makes+sends {
				t.Errorf("the super user's request took %v", took)
			}
		})
		running.Wait()
		if want := 19*makes + sends; last != want {
			t.Errorf("ten answers took %v, want %v", last, want)
		}
		time.Sleep(time.Second)

		p.turns <- struct{}{} // somebody's answer takes for ever
		began = time.Now()
		if status, took := ask("HEAD", "/metrics"); status != http.StatusServiceUnavailable || took != turnWait || p.crowded.Load() != 1 {
			t.Errorf("without a turn: status %d after %v, %d counted", status, took, p.crowded.Load())
		}
	})
}
