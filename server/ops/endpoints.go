package ops

import (
	"context"
	_ "embed" // of openapi.json
	"net/http"
	"strconv"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/server/ops/door"
)

// Endpoints are the plain addresses of the HTTP port: probes, and the members and their leader.
type Endpoints struct {
	*Shared
	stopping <-chan struct{} // closed when the member begins to stop
	fences   chan struct{}   // holds an element for the fence that looks at many contenders
}

// NewEndpoints returns the endpoints of a member. Requests that wait give up when stopping is
// closed.
func NewEndpoints(shared *Shared, stopping <-chan struct{}) *Endpoints {
	return &Endpoints{Shared: shared, stopping: stopping, fences: make(chan struct{}, 1)}
}

// Register adds the endpoints to a mux.
func (e *Endpoints) Register(mux door.Mux) {
	mux.HandleFunc("GET /live", serveLive)
	mux.HandleFunc("GET /ready", e.serveReady)
	mux.HandleFunc("GET /stoppable", e.serveStoppable)
	mux.HandleFunc("GET /fence", e.serveFence)
	mux.HandleFunc("GET /members", e.serveMembers)
	mux.HandleFunc("POST /leader", e.serveLeader)
	mux.HandleFunc("GET /api/v1/openapi.json", serveOpenAPI)
}

// openAPI describes all addresses of the HTTP port, also those of other packages, as OpenAPI.
//
//go:embed openapi.json
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) { door.SendJSON(w, http.StatusOK, openAPI) }

// serveLive answers as long as the process does. A restart does not cure other faults.
func serveLive(w http.ResponseWriter, _ *http.Request) {
	door.WriteJSON(w, http.StatusOK, map[string]bool{"live": true})
}

// readyAnswer is the answer to GET /ready.
type readyAnswer struct {
	Ready bool `json:"ready"`
	// Reason is why the member is not ready.
	Reason string `json:"reason,omitempty"`
}

// serveReady says whether this member counts: it serves clients, and another one may be stopped.
func (e *Endpoints) serveReady(w http.ResponseWriter, _ *http.Request) {
	m, status := e.Standing(), http.StatusOK
	if !m.Ready {
		status = http.StatusServiceUnavailable
	}
	door.WriteJSON(w, status, readyAnswer{m.Ready, m.NotReady})
}

// serveMembers lists the members of the cluster; none on a member that stands alone.
func (e *Endpoints) serveMembers(w http.ResponseWriter, _ *http.Request) {
	door.WriteJSON(w, http.StatusOK, e.Cluster().Listed())
}

type leaderAnswer struct {
	Leader int `json:"leader"` // the new leader
}

// auditTransfer is the operation of POST /leader in the audit log.
const auditTransfer = "transferLeadership"

// serveLeader answers POST /leader?to=N: it transfers the leadership to member N, or without it to
// any other voter. It needs the permission that reconfig needs, WRITE on /zookeeper/config. It
// answers 200 when that has happened, 409 and the reason when it has not, 403 without the
// permission, 400 if N is no number, and 503 if there is no leader.
func (e *Endpoints) serveLeader(w http.ResponseWriter, r *http.Request) {
	if e.Config().Standalone() {
		door.WriteError(w, http.StatusConflict, ErrAlone.Error())
		return
	}
	to := quorum.NoMember
	if text := r.URL.Query().Get("to"); text != "" {
		n, err := strconv.ParseUint(text, 10, 8)
		if to = quorum.MemberID(n); err != nil {
			door.WriteError(w, http.StatusBadRequest, strconv.Quote(text)+" is not the number of a member")
			return
		}
	}
	caller := door.CallerOf(r)
	if err := MayTransfer(e, caller.Identities); err != nil {
		e.Door.Audit(r, auditTransfer, "", false)
		door.WriteError(w, http.StatusForbidden, err.Error())
		return
	}
	if !e.Standing().Serving {
		door.WriteError(w, http.StatusServiceUnavailable, "this member has no leader")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), door.Timeout)
	defer cancel()
	leader, err := Transfer(ctx, e, caller.Identities, to)
	e.Door.Audit(r, auditTransfer, "", err == nil)
	if err != nil {
		door.WriteError(w, http.StatusConflict, err.Error())
		return
	}
	e.Config().Logger.Info("leadership transferred, as asked over HTTP", "client", r.RemoteAddr, "leader", leader)
	door.WriteJSON(w, http.StatusOK, leaderAnswer{Leader: leader})
}

// stopWaitMost bounds how long GET /stoppable may wait.
const stopWaitMost = 10 * time.Minute

// awaitStoppable asks until the member may be stopped, waiting is over, or does not help.
func (e *Endpoints) awaitStoppable(ctx context.Context, reserve bool, wait time.Duration) Stoppable {
	ctx, cancel := context.WithTimeout(ctx, wait+door.Timeout)
	defer cancel()
	for until := time.Now().Add(wait); ; {
		a := e.Stoppable(ctx, reserve)
		left := time.Until(until)
		if a.Stoppable || a.Hopeless || left <= 0 {
			return a
		}
		select {
		case <-time.After(min(StopPause, left)):
		case <-ctx.Done():
			return a
		case <-e.stopping:
			return a
		}
	}
}

// serveStoppable answers GET /stoppable: 200 if this member may be stopped now, else 503. With
// wait=30s it waits for so long until it may, with reserve=false a yes is not reserved.
func (e *Endpoints) serveStoppable(w http.ResponseWriter, r *http.Request) {
	q, wait, reserve := r.URL.Query(), time.Duration(0), true
	var err error
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > stopWaitMost {
			door.WriteError(w, http.StatusBadRequest,
				"wait must be a duration as 30s, of at most "+stopWaitMost.String())
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + 2*door.Timeout))
	}
	if text := q.Get("reserve"); text != "" {
		if reserve, err = strconv.ParseBool(text); err != nil {
			door.WriteError(w, http.StatusBadRequest, "reserve must be true or false")
			return
		}
	}
	a := e.awaitStoppable(r.Context(), reserve && r.Method == http.MethodGet, wait)
	status := http.StatusOK
	if !a.Stoppable {
		status = http.StatusServiceUnavailable
	}
	door.WriteJSON(w, status, a)
}
