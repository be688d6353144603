package httplock

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"lockkeeper/server/ops/door"
)

// base is the address below which the locks are.
const base = "/v1/locks/{path...}"

// Register adds the addresses of the locks to a mux.
func (l *Locks) Register(mux door.Mux) {
	mux.HandleFunc("PUT "+base, l.serve((*Locks).servePut))
	mux.HandleFunc("POST "+base, l.serve((*Locks).servePost))
	mux.HandleFunc("DELETE "+base, l.serve((*Locks).serveDelete))
	mux.HandleFunc(base, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "DELETE, POST, PUT")
		door.WriteError(w, http.StatusMethodNotAllowed, "PUT takes a lock, POST renews it, DELETE releases it; "+
			"GET api/v1/lock?path=PATH shows it")
	})
}

// serve decodes a request for serve.
func (l *Locks) serve(serve func(*Locks, http.ResponseWriter, *http.Request, *ask)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			door.WriteError(w, badRequest, "a request for a lock has no body")
			return
		}
		a, err := decodeAsk(r.Method, r.PathValue("path"), r.URL.RawQuery, r.Header)
		if err != nil {
			door.WriteError(w, badRequest, err.Error())
			return
		}
		serve(l, w, r, a)
	}
}

// answer is an answer, and a line of a stream.
type answer struct {
	Event string `json:"event"`
	Lock  string `json:"lock,omitempty"`
	Mode  mode   `json:"mode,omitempty"`
	// Token is the fencing token, Node and Session are the contender's.
	Token   int64  `json:"token,omitempty"`
	Node    string `json:"node,omitempty"`
	Session string `json:"session,omitempty"`
	Secret  string `json:"secret,omitempty"`
	// TimeoutMs is the session's timeout. ValidMs is for how long the user may rely on the lock.
	TimeoutMs int64  `json:"timeoutMs,omitempty"`
	ValidMs   int64  `json:"validMs,omitempty"`
	WaitedMs  *int64 `json:"waitedMs,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Status and Error are of a request that is refused after lines about its wait.
	Status int    `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
	*situation
}

// granted is the answer that grants a lock.
func (h *held) granted(began time.Time) answer {
	waited := time.Since(began).Milliseconds()
	return answer{Event: eventGranted, Lock: h.path, Mode: h.mode, Token: h.token, Node: h.node,
		Session: h.k.id.String(), Secret: h.secret.String(), TimeoutMs: h.k.timeout.Milliseconds(),
		ValidMs: h.valid().Milliseconds(), WaitedMs: &waited}
}

// asRefusal is the refusal that an error stands for.
func asRefusal(err error) *refusal {
	r := &refusal{status: unavailable, text: err.Error()}
	switch {
	case errors.As(err, &r):
	case errors.Is(err, errWaited), errors.Is(err, errDeleted):
		r = &refusal{status: locked, text: err.Error()}
	}
	return r
}

// refuse answers with the reason why a request is refused.
func refuse(w http.ResponseWriter, err error) {
	r := asRefusal(err)
	body := struct {
		Error  string `json:"error"`
		Behind string `json:"behind,omitempty"`
		*situation
	}{r.text, r.behind, r.situation}
	if r.status == unavailable || r.status == tooMany {
		w.Header().Set("Retry-After", "1")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(door.Timeout))
	door.WriteJSON(w, r.status, body)
}

// servePut takes a lock.
func (l *Locks) servePut(w http.ResponseWriter, r *http.Request, a *ask) {
	began := time.Now()
	caller := door.CallerOf(r)
	p, err := l.enter(caller, a.stream || a.wait > 0)
	if err != nil {
		refuse(w, err)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	door.KeepAlive(r, l.patience(a.timeout))
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(l.stopping, func() { cancel(errStops) })()
	if a.wait > 0 {
		var over context.CancelFunc
		ctx, over = context.WithTimeoutCause(ctx, a.wait, errWaited)
		defer over()
	}
	s := &stream{w: w, control: control, ask: a, began: began}
	h, err := l.acquire(ctx, caller, a, p, s.tell())
	switch {
	case err != nil && s.begun:
		s.refuse(err)
		return
	case err != nil:
		refuse(w, err)
		return
	}
	w.Header().Set(TokenHeader, strconv.FormatInt(h.token, 10))
	w.Header().Set(SecretHeader, h.secret.String())
	if a.stream {
		l.stream(s, r, h)
		return
	}
	sent := false
	if sendable := <-h.beats; a.explain {
		s.begin()
		sent = s.send(h.granted(began), sendable)
	} else {
		_ = control.SetWriteDeadline(sendable)
		door.WriteJSON(w, http.StatusOK, h.granted(began))
		sent = control.Flush() == nil
	}
	if !sent {
		h.leave(ending{event: eventLost, reason: "the answer could not be sent"})
	}
}

// patience is how long a client of HTTP may receive nothing before its connection ends.
func (l *Locks) patience(timeout time.Duration) time.Duration {
	s := &l.cfg.Settings.Sessions
	return min(max(timeout, s.MinTimeout), s.MaxTimeout) * 2 / 3
}

// servePost renews a lock.
func (l *Locks) servePost(w http.ResponseWriter, r *http.Request, a *ask) {
	h, err := l.own(r, a)
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(h.k.timeout/3, door.Timeout))
	defer cancel()
	sendable, err := h.renew(ctx)
	if err != nil {
		refuse(w, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(sendable)
	w.Header().Set(TokenHeader, strconv.FormatInt(h.token, 10))
	door.WriteJSON(w, http.StatusOK, answer{Event: eventHeld, Lock: h.path, Token: h.token,
		TimeoutMs: h.k.timeout.Milliseconds(), ValidMs: h.valid().Milliseconds()})
}

// own returns the lock of a secret, from another member if need be.
func (l *Locks) own(r *http.Request, a *ask) (*held, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), door.Timeout, errNotInTime)
	defer cancel()
	for {
		h, moving, err := l.find(a)
		switch {
		case err != nil, h != nil:
			return h, err
		case moving == nil:
			return l.adopt(ctx, door.CallerOf(r), a)
		}
		select {
		case <-moving:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// serveDelete releases a lock.
func (l *Locks) serveDelete(w http.ResponseWriter, r *http.Request, a *ask) {
	h, err := l.own(r, a)
	if err != nil {
		refuse(w, err)
		return
	}
	if err := h.finish(r.Context(), ending{event: eventReleased, close: true}); err != nil {
		refuse(w, err)
		return
	}
	door.WriteJSON(w, http.StatusOK, answer{Event: eventReleased, Lock: h.path, Token: h.token})
}

// stream answers with a line for each proof that the lock is held, until it ends. An answer whose
// lock was lost breaks off: to HTTP it is not complete.
func (l *Locks) stream(s *stream, r *http.Request, h *held) {
	defer h.place.hangUp()
	s.begin()
	e := s.follow(r, h)
	if e.event == eventLost {
		panic(http.ErrAbortHandler)
	}
}

// stream writes lines.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ask     *ask
	began   time.Time // when the request came
	begun   bool      // there are lines about the wait
}

// begin says that lines follow.
func (s *stream) begin() {
	s.w.Header().Set("Content-Type", "application/x-ndjson")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("X-Accel-Buffering", "no")
}

// tell returns the function that tells the client about its wait; nil if it is not to be told.
func (s *stream) tell() func(node string, now *situation) error {
	if !s.ask.explain {
		return nil
	}
	return func(node string, now *situation) error {
		s.begin()
		s.begun = true
		waited := time.Since(s.began).Milliseconds()
		line := answer{Event: eventWaits, Lock: s.ask.path, Mode: s.ask.mode, Node: node, WaitedMs: &waited,
			situation: now}
		if !s.send(line, time.Now().Add(lastPatience)) {
			return errStuck
		}
		return nil
	}
}

// errStuck ends the wait of a client that does not read.
var errStuck = errors.New("the client does not read")

// refuse sends the reason why a request is refused as the last line.
func (s *stream) refuse(err error) {
	r := asRefusal(err)
	s.send(answer{Event: eventRefused, Status: r.status, Error: r.text, situation: r.situation},
		time.Now().Add(lastPatience))
}

// send sends a line, until a deadline; false if the client does not take it.
func (s *stream) send(a answer, until time.Time) bool {
	_ = s.control.SetWriteDeadline(until)
	_, err := s.w.Write(append(door.Encode(a), '\n'))
	return err == nil && s.control.Flush() == nil
}

// follow sends the lines of a lock until it has ended.
func (s *stream) follow(r *http.Request, h *held) ending {
	third := h.k.timeout / 3
	line := h.granted(s.began)
	unproved := time.NewTimer(2 * third)
	defer unproved.Stop()
	for {
		select {
		case sendable := <-h.beats:
			if h.isOver() {
				return s.last(h, h.end)
			}
			if !time.Now().Before(sendable) {
				continue // this goroutine has been late; the next proof may come in time
			}
			if !s.send(line, sendable) {
				return s.stuck(r, h)
			}
			line = answer{Event: eventHeld, ValidMs: h.valid().Milliseconds()}
			// Two thirds of the timeout after the proof. Nobody else gets the lock within the
			// whole.
			unproved.Reset(time.Until(sendable) + third)
		case <-unproved.C:
			return s.last(h, ending{event: eventLost, reason: "this member cannot prove that the session lives"})
		case <-h.over:
			return s.last(h, h.end)
		case <-r.Context().Done():
			return s.left(h)
		}
	}
}

// last sends the last line.
func (s *stream) last(h *held, e ending) ending {
	defer close(h.streamed)
	s.send(answer{Event: e.event, Reason: e.reason}, time.Now().Add(lastPatience))
	h.leave(e)
	return e
}

// lastPatience bounds the time for sending a last line.
const lastPatience = time.Second

// stuck ends the connection to a client that does not read. It drops the lines that the client has
// not received: they would be read too late. The client's next read fails, before anybody else gets
// the lock: the session is left to its lease.
func (s *stream) stuck(r *http.Request, h *held) ending {
	defer close(h.streamed)
	door.HangUp(r)
	e := ending{event: eventLost, reason: "the client does not read"}
	h.leave(e)
	return e
}

// leftPause is the time between two writes to a client that has left.
const leftPause = 10 * time.Millisecond

// left ends the lock of a client that has ended its direction of the connection. Most often its
// process has ended. Then its machine refuses the bytes that are sent to it, and the session is
// closed. It may also have said only that it has sent its request: such a client gets the end of
// the stream, and the session is left to its lease.
func (s *stream) left(h *held) ending {
	defer close(h.streamed)
	e := ending{event: eventLost, reason: "the client has closed the connection"}
	until := time.Now().Add(h.k.timeout / 3)
	if s.send(answer{Event: e.event, Reason: e.reason}, until) {
		e.close = s.refused(until)
	}
	h.leave(e)
	return e
}

// refused reports whether the client's machine refuses bytes, within a time.
func (s *stream) refused(until time.Time) bool {
	_ = s.control.SetWriteDeadline(until)
	for time.Now().Before(until) {
		time.Sleep(leftPause)
		_, err := s.w.Write([]byte("\n"))
		if err == nil {
			err = s.control.Flush()
		}
		if err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	return false
}
