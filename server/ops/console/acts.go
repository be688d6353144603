package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"lockkeeper/locknode"
	"lockkeeper/quorum"
	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// act is an operator's request.
type act struct {
	Act     string `json:"act"`
	Path    string `json:"path"`
	Node    string `json:"node"`
	Token   int64  `json:"token"`
	Session string `json:"session"`
	To      *int   `json:"to"`
	Confirm string `json:"confirm"`
}

type acted struct {
	Done       bool    `json:"done"`
	Act        string  `json:"act"`
	Says       string  `json:"says"`
	Zxid       string  `json:"zxid,omitempty"`
	Session    string  `json:"session,omitempty"`
	Ephemerals *int    `json:"ephemerals,omitempty"`
	Leader     *int    `json:"leader,omitempty"`
	Bytes      *int64  `json:"bytes,omitempty"`
	Index      *uint64 `json:"index,omitempty"`
}

const (
	actTimeout = 5 * time.Second
	actBytes   = 4 << 10 // of the request
)

// actsRefused says why a request may not act, "" if it may.
func (c *Console) actsRefused(r *http.Request, v *viewer) string {
	switch {
	case !door.CallerOf(r).Secure:
		return "acts are permitted over TLS or from this machine only"
	case !v.super:
		return "acts are permitted to the super user only: Authorization: digest user:password"
	}
	return ""
}

// serveAct answers POST api/v1/act.
func (c *Console) serveAct(w http.ResponseWriter, r *http.Request) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		writeFailure(w, failf(http.StatusUnsupportedMediaType, "the request's Content-Type must be application/json"))
		return
	}
	v := c.viewer(r)
	if why := c.actsRefused(r, v); why != "" {
		c.Door.AuditAct(r, "console", "", why, false)
		writeFailure(w, failf(http.StatusForbidden, "%s", why))
		return
	}
	var a act
	body, err := io.ReadAll(io.LimitReader(r.Body, actBytes+1))
	if err == nil && len(body) > actBytes {
		writeFailure(w, failf(http.StatusRequestEntityTooLarge, "the request is too long"))
		return
	}
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		writeFailure(w, failf(http.StatusBadRequest, "the request is no act: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
	defer cancel()
	answer, target, err := c.do(ctx, r, &a)
	cause := ""
	if err != nil {
		cause = err.Error()
	}
	c.Door.AuditAct(r, "console."+a.Act, target, cause, err == nil)
	if err != nil {
		if _, ok := err.(*failure); !ok {
			err = failf(http.StatusConflict, "%v", err)
		}
		writeFailure(w, err)
		return
	}
	answer.Done, answer.Act = true, a.Act
	door.WriteJSON(w, http.StatusOK, answer)
}

// do carries out an operator's request. target is its path or session, for the audit log.
func (c *Console) do(ctx context.Context, r *http.Request, a *act) (answer *acted, target string, err error) {
	confirm := func(want string) error {
		if a.Confirm == want {
			return nil
		}
		return failf(http.StatusBadRequest, "confirm is %q, and must be %q", a.Confirm, want)
	}
	switch a.Act {
	case "break":
		if err := confirm(a.Path); err != nil {
			return nil, a.Path, err
		}
		return c.breakLock(ctx, r, a)
	case "end":
		if err := confirm(a.Session); err != nil {
			return nil, a.Session, err
		}
		answer, err = c.endSession(ctx, r, a)
		return answer, a.Session, err
	case "transfer":
		to, id := 0, quorum.NoMember
		if a.To != nil {
			to = max(*a.To, 0)
		}
		target = strconv.Itoa(to)
		if err := confirm(target); err != nil {
			return nil, target, err
		}
		if to > 0 {
			id = quorum.MemberID(to)
		}
		leader, err := ops.Transfer(ctx, c, door.CallerOf(r).Identities, id)
		return &acted{Leader: &leader, Says: fmt.Sprintf("Member %d leads now.", leader)}, target, err
	case "snapshot":
		if err := confirm("snapshot"); err != nil {
			return nil, "", err
		}
		info, err := c.Replica().TakeSnapshot(ctx)
		return &acted{Index: &info.Index, Bytes: &info.Bytes,
			Says: fmt.Sprintf("The snapshot has the state up to entry %d.", info.Index)}, "", err
	}
	return nil, "", failf(http.StatusBadRequest, "there is no act %q: break, end, transfer and snapshot", a.Act)
}

// deleteNode deletes a node if its czxid is still that one, 0 for any, and returns the zxid.
func (c *Console) deleteNode(ctx context.Context, r *http.Request, path string, czxid wire.Zxid) (wire.Zxid, error) {
	same := false
	c.View(func(store *znode.Store) {
		st, ok := store.Node(path)
		same = ok && (czxid == 0 || st.Czxid == czxid)
	})
	if !same {
		return 0, fmt.Errorf("the node %s has gone, or is another one now", path)
	}
	return c.Sessions().DeleteNode(ctx, door.CallerOf(r).Addr, path)
}

// breakLock deletes the node of a holder.
func (c *Console) breakLock(ctx context.Context, r *http.Request, a *act) (*acted, string, error) {
	var holders []locknode.Contender
	err := c.index.with(func() {
		if l := c.index.locks[a.Path]; l != nil {
			for _, h := range l.queue {
				if (h.Held || h.MayHold) && (a.Node == "" || h.Node == a.Node) {
					holders = append(holders, h)
				}
			}
		}
	})
	switch {
	case err != nil:
		return nil, a.Path, err
	case len(holders) == 0:
		return nil, a.Path, failf(http.StatusNotFound, "nobody holds %s with such a node", a.Path)
	case len(holders) > 1:
		return nil, a.Path, failf(http.StatusBadRequest, "%d hold %s: node must say which", len(holders), a.Path)
	case a.Token != 0 && a.Token != holders[0].Token:
		return nil, a.Path, failf(http.StatusConflict, "the holder has the token %d now", holders[0].Token)
	}
	h := holders[0]
	path := h.Path + "/" + h.Node
	zxid, err := c.deleteNode(ctx, r, path, wire.Zxid(h.Token))
	if err != nil {
		return nil, path, err
	}
	return &acted{Zxid: ops.Hex(zxid), Session: ops.Hex(h.Session), Says: whatHolderSees(&h)}, path, nil
}

// believing are the libraries with locks that do not notice the loss of their node.
var believing = map[string]string{
	locknode.LibraryCurator:   "Curator's recipe",
	locknode.LibraryKazoo:     "kazoo",
	locknode.LibraryGo:        "go-zookeeper",
	locknode.LibraryZooKeeper: "ZooKeeper's recipe",
}

func whatHolderSees(h *locknode.Contender) string {
	text := fmt.Sprintf("The node is gone, and the next in the queue holds the lock. The holder was session %s. ",
		ops.Hex(h.Session))
	switch library, believes := believing[h.Library]; {
	case h.Library == locknode.LibraryOwn:
		text += "Its library watches its node: Grant.Lost is closed at once. "
	case h.Layout == locknode.LayoutLatch:
		text += "Curator's LeaderLatch does not watch its own node: it believes that it leads until its session " +
			"is lost. "
	case believes:
		text += library + " does not watch its own node: it believes that it holds the lock until it releases it " +
			"(which may fail with NoNode) or its session is lost. "
	default:
		text += "Whether its program notices depends on whether it watches the node. "
	}
	return text + fmt.Sprintf("Its token is %d: a resource that checks tokens refuses it once it has seen a newer one.",
		h.Token)
}

func (c *Console) endSession(ctx context.Context, r *http.Request, a *act) (*acted, error) {
	id, ok := sessionID(a.Session)
	if !ok {
		return nil, failf(http.StatusBadRequest, "session is %q, and should be like 0x100004a2b3c0001", a.Session)
	}
	n := 0
	c.View(func(store *znode.Store) { n = store.Sessions().EphemeralCount(wire.SessionID(id)) })
	if _, err := c.Sessions().EndSession(ctx, door.CallerOf(r).Addr, wire.SessionID(id)); err != nil {
		return nil, err
	}
	return &acted{Session: a.Session, Ephemerals: &n,
			Says: fmt.Sprintf("The session is closed, and its %d ephemeral nodes "+
				"are gone. Its client learns that it has expired when it connects again, which its library "+
				"does at once.", n)},
		nil
}
