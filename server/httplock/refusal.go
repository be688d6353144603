package httplock

import (
	"fmt"
	"net/http"

	"lockkeeper/wire"
)

// refusal is the reason why a request is refused, with the status of the answer.
type refusal struct {
	status     int
	text       string
	behind     string // the node in front of the contender, if that is the reason
	*situation        // of the contender, if that is the reason
}

func (r *refusal) Error() string { return r.text }

const (
	badRequest  = http.StatusBadRequest
	forbidden   = http.StatusForbidden
	locked      = http.StatusConflict
	lost        = http.StatusGone
	tooMany     = http.StatusTooManyRequests
	unavailable = http.StatusServiceUnavailable
)

// errNoLock is the one answer to a wrong secret, to the secret of a lock that has been lost or
// released, and to one of another path: nobody learns which sessions there are.
var errNoLock = &refusal{status: lost, text: "this secret holds no lock at this path: it has been released or lost, " +
	"or the secret is wrong"}

// errStops says that the member is about to stop.
var errStops = &refusal{status: unavailable, text: "this member is about to stop; another one of the cluster serves " +
	"the request"}

// codeRefusal is the refusal of a request of the session.
func codeRefusal(action string, code wire.Code) *refusal {
	r := &refusal{status: http.StatusInternalServerError, text: fmt.Sprintf("%s: %v", action, code)}
	switch code {
	case wire.CodeNoAuth:
		r.status, r.text = forbidden, action+" is not permitted (ACL)"
	case wire.CodeSessionClosedRequireSASLAuth, wire.CodeAuthFailed:
		r.status, r.text = forbidden, "this cluster wants a login that the request does not have"
	case wire.CodeThrottledOp:
		r.status, r.text = unavailable, "this member has too much to do; try again"
	case wire.CodeBadArguments:
		r.status, r.text = forbidden, action+" would exceed a limit or a quota of the cluster, or the path is not valid"
	case wire.CodeQuotaExceeded:
		r.status, r.text = forbidden, action+" would exceed a quota"
	case wire.CodeNoChildrenForEphemerals:
		r.status, r.text = locked, action+": the path is below an ephemeral node"
	}
	return r
}
