package door

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Pace has the answers of a member made one after the other, on both ports together, with a rest
// after each as long as it took to make. So however much is asked, half of one processor makes
// answers, and clients have the rest. Sending an answer needs no turn.
//
// The reports that clients read on their own port have turns of their own, so that they keep nobody
// from the console, and a quarter of a processor.
type Pace struct {
	turns   chan struct{} // holds an element while it is somebody's turn
	rests   int           // the length of the rest after a turn, in turns
	crowded atomic.Int64  // requests that waited in vain
}

// Turn waits for a turn, and returns the function that ends it; false if it has not come within
// wait.
func (p *Pace) Turn(ctx context.Context, wait time.Duration) (over func(), ok bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	case <-timer.C:
		p.crowded.Add(1)
		return nil, false
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		rest := time.Duration(p.rests) * time.Since(began)
		time.AfterFunc(min(rest, restMost), func() { <-p.turns })
	}), true
}

const (
	// turnWait is how long a request waits for its turn.
	turnWait = 5 * time.Second
	// restMost bounds the rest, since a handler may have waited for something else.
	restMost = 250 * time.Millisecond
)

// NewPace returns a Pace with a rest after each turn of the length of that many turns.
func NewPace(rests int) *Pace { return &Pace{turns: make(chan struct{}, 1), rests: rests} }

// inTurn returns a handler that calls next when it is the request's turn. Requests that do not read
// the state, and the super user's, need no turn.
func (d *Door) inTurn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !reads || rightTo(r, d.cfg.Settings.HTTP.AdminBase) != rightOfReaders || CallerOf(r).IsSuper() {
			next.ServeHTTP(w, r)
			return
		}
		over, ok := d.pace.Turn(r.Context(), turnWait)
		switch {
		case r.Context().Err() != nil:
			if ok {
				over()
			}
			return
		case !ok:
			w.Header().Set("Retry-After", "1")
			WriteError(w, http.StatusServiceUnavailable, "too many others ask this member; try again")
			return
		}
		defer over()
		next.ServeHTTP(&pacedWriter{w, over}, r)
	})
}

// pacedWriter calls made when the answer has been made, and is about to be sent.
type pacedWriter struct {
	http.ResponseWriter
	made func()
}

// WriteHeader implements http.ResponseWriter.
func (w *pacedWriter) WriteHeader(status int) {
	w.made()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(b []byte) (int, error) {
	w.made()
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
