package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"lockkeeper/quorum"
)

const (
	// stopAnswerKept is for how long an answer of the leader is given to others that ask the same.
	stopAnswerKept = 250 * time.Millisecond
	// stopPause is between two questions of those who wait.
	stopPause = 500 * time.Millisecond
	// stopWaitMost bounds how long a request may wait.
	stopWaitMost = 10 * time.Minute
)

// Stoppable says whether this member may be stopped now: GET /stoppable, the four-letter word mays.
type Stoppable struct {
	Member    uint8 `json:"member"`
	Stoppable bool  `json:"stoppable"`
	// Reason is why it may not be stopped. Hopeless says that waiting does not help.
	Reason   string `json:"reason,omitempty"`
	Hopeless bool   `json:"hopeless,omitempty"`
	// HoldsMs is for how long the member now counts as stopped, so that no other one is told the
	// same that the cluster cannot do without as well; 0 if that was not asked for.
	HoldsMs int64 `json:"holdsMs"`
	// Sessions are those whose clients are connected to the member: they move.
	Sessions int `json:"sessions"`
}

// stopAnswers keeps the last answer of the leader.
type stopAnswers struct {
	turn   chan struct{} // capacity 1: full while the fields below are used
	at     time.Time
	wish   quorum.StopWish
	answer quorum.StopAnswer
}

// Stoppable asks the leader whether this member may be stopped now. With reserve a yes counts: see
// Stoppable.HoldsMs.
func (s *Server) Stoppable(ctx context.Context, reserve bool) Stoppable {
	wish := quorum.StopLook
	if reserve {
		wish = quorum.StopAsk
	}
	answer := Stoppable{Member: s.cfg.ID, Sessions: s.sessions.Stats().Connections}
	kept := &s.stopAnswers
	select {
	case kept.turn <- struct{}{}:
		defer func() { <-kept.turn }()
	case <-ctx.Done():
		answer.Reason = "too many others ask"
		return answer
	}
	age := time.Since(kept.at)
	if kept.wish != wish || age >= stopAnswerKept {
		a, err := s.replica.MayStop(ctx, wish)
		if err != nil {
			answer.Reason = "the leader does not say: " + err.Error()
			return answer
		}
		kept.at, kept.wish, kept.answer, age = time.Now(), wish, a, 0
	}
	a := kept.answer
	answer.Stoppable, answer.Reason, answer.Hopeless = a.May, a.Why, a.Hopeless
	answer.HoldsMs = max(0, a.For-age).Milliseconds()
	return answer
}

// awaitStoppable asks until the member may be stopped, waiting is over, or does not help.
func (s *Server) awaitStoppable(ctx context.Context, reserve bool, wait time.Duration) Stoppable {
	ctx, cancel := context.WithTimeout(ctx, wait+httpTimeout)
	defer cancel()
	for until := time.Now().Add(wait); ; {
		a := s.Stoppable(ctx, reserve)
		left := time.Until(until)
		if a.Stoppable || a.Hopeless || left <= 0 {
			return a
		}
		select {
		case <-time.After(min(stopPause, left)):
		case <-ctx.Done():
			return a
		case <-s.stopping:
			return a
		}
	}
}

// serveStoppable answers GET /stoppable: 200 if this member may be stopped now, else 503. With
// wait=30s it waits for so long until it may, with reserve=false a yes is not reserved.
func (s *Server) serveStoppable(w http.ResponseWriter, r *http.Request) {
	q, wait, reserve := r.URL.Query(), time.Duration(0), true
	var err error
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > stopWaitMost {
			writeError(w, http.StatusBadRequest, "wait must be a duration as 30s, of at most "+stopWaitMost.String())
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + 2*httpTimeout))
	}
	if text := q.Get("reserve"); text != "" {
		if reserve, err = strconv.ParseBool(text); err != nil {
			writeError(w, http.StatusBadRequest, "reserve must be true or false")
			return
		}
	}
	a := s.awaitStoppable(r.Context(), reserve && r.Method == http.MethodGet, wait)
	status := http.StatusOK
	if !a.Stoppable {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, a)
}

// stoppableText is the four-letter word mays: Stoppable as JSON, in one line.
func (s *Server) stoppableText() string {
	ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
	defer cancel()
	b, _ := json.Marshal(s.Stoppable(ctx, true)) // it has nothing that cannot be encoded
	return string(b) + "\n"
}
