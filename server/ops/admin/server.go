package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
)

// Server answers requests below its base.
type Server struct {
	*ops.Shared
	cfg    *zoocfg.Config
	base   string // the path below which the commands are
	byName map[string]*command
	index  string // the answer to the base itself
	// text is the configuration file, and properties are its settings by the name that ZooKeeper's
	// system property would have; both without secrets.
	text       string
	properties map[string]string

	snapshots, restores limiter
}

// New returns a Server. It reads the configuration file.
func New(shared *ops.Shared) *Server {
	cfg := shared.Config()
	s := &Server{Shared: shared, cfg: cfg, base: cmp.Or(cfg.HTTP.AdminBase, "/commands"), byName: map[string]*command{}}
	if cfg.File != "" {
		if text, err := os.ReadFile(cfg.File); err == nil { // it has been read before
			s.text, s.properties = zoocfg.Redact(string(text))
		}
	}
	names := []string{snapshotName, restoreName, shedName}
	for i := range commands {
		c := &commands[i]
		for _, name := range append([]string{c.name}, c.aliases...) {
			s.byName[name] = c
		}
		names = append(names, c.name)
	}
	slices.Sort(names)
	var index strings.Builder
	for _, name := range names {
		fmt.Fprintf(&index, "<a href=\"%s/%s\">%s</a>\n<br/>\n", s.base, name, name)
	}
	s.index = index.String()
	return s
}

// Register adds the commands to a mux: the base, and all paths below it.
func (s *Server) Register(mux door.Mux) {
	mux.Handle(s.base, s)
	mux.Handle(s.base+"/", s)
}

// The texts of ZooKeeper.
const (
	notServing = "This ZooKeeper instance is not currently serving requests"
	noAuth     = "Auth info is missing for the command"
	notAllowed = "Not authorized"
)

// ServeHTTP implements http.Handler. An unknown command, and a member that serves no clients, are
// answered with status 200 and an error, as in ZooKeeper.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := s.nameIn(r)
	c := s.byName[name]
	switch {
	case name == snapshotName || name == "snap":
		s.serveSnapshot(w, r)
	case s.IsRestore(r):
		s.serveRestore(w, r)
	case name == shedName || name == "shed":
		s.serveShed(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
	case name == "":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(s.index))
	case c == nil:
		s.fail(w, http.StatusOK, name, "Unknown command: "+name)
	case !c.anyTime && !s.serving():
		s.fail(w, http.StatusOK, c.name, notServing)
	case (c.changes || c.private && !door.CallerOf(r).IsLocal()) && !s.allowed(w, r, c.name):
	default:
		s.run(w, r, c)
		if c.changes {
			s.audit(r, c.name, nil)
		}
	}
}

// serving reports whether any clients are served, those of read-only mode included.
func (s *Server) serving() bool {
	m := s.Standing()
	return m.Serving || m.ReadOnly
}

// audit records a request for a command that is for super users, and why it was not carried out, or
// nil.
func (s *Server) audit(r *http.Request, operation string, err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	s.Door.AuditAct(r, operation, "/", why, err == nil)
}

const shedName = "shed_connections"

// serveShed answers POST /commands/shed_connections, of super users: it moves the clients of a
// share of the sessions, in percent, to other members. The share is a parameter, or in a JSON
// object as the body: {"percentage": 25}.
func (s *Server) serveShed(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if !s.allowed(w, r, shedName) {
		return
	}
	var asked struct {
		Percentage *int `json:"percentage"`
	}
	var err error
	if text := r.URL.Query().Get("percentage"); text != "" {
		asked.Percentage = new(int)
		*asked.Percentage, err = strconv.Atoi(text)
	} else {
		err = json.NewDecoder(r.Body).Decode(&asked)
	}
	if err != nil || asked.Percentage == nil || *asked.Percentage < 0 || *asked.Percentage > 100 {
		s.fail(w, http.StatusBadRequest, shedName, "percentage must be a number from 0 to 100")
		return
	}
	n := s.Sessions().Shed(r.Context(), *asked.Percentage, door.Timeout/2)
	s.audit(r, shedName, nil)
	s.answer(w, http.StatusOK, shedName, Fields{{"percentage_requested", *asked.Percentage}, {"connections_shed", n}})
}

func (s *Server) nameIn(r *http.Request) string {
	name, ok := strings.CutPrefix(r.URL.Path, s.base)
	if !ok {
		return ""
	}
	return strings.TrimPrefix(name, "/")
}

// errNotAllowed is why a request that is not from a super user is not carried out.
var errNotAllowed = errors.New("the super user has not asked for it")

// allowed answers a request that is not from a super user.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request, name string) bool {
	switch {
	case door.CallerOf(r).IsSuper():
		return true
	case r.Header.Get("Authorization") == "":
		s.fail(w, http.StatusUnauthorized, name, noAuth)
	default:
		s.fail(w, http.StatusForbidden, name, notAllowed)
	}
	s.audit(r, name, errNotAllowed)
	return false
}

// listingWait bounds how long a listing waits for others to be sent.
const listingWait = time.Second

func (s *Server) run(w http.ResponseWriter, r *http.Request, c *command) {
	if c.listing {
		end, ok := s.BeginListing(r.Context(), listingWait)
		if !ok {
			s.fail(w, http.StatusServiceUnavailable, c.name, "other listings are being sent; try again")
			return
		}
		defer end()
	}
	s.answer(w, http.StatusOK, c.name, c.run(&request{s, door.CallerOf(r), r.URL.Query()}))
}

// cutError is the error of an answer with lists that are not complete.
const cutError = "the rest is longer than maxResponseBytes"

// answer sends the fields of a command, and behind them its name and its error.
func (s *Server) answer(w http.ResponseWriter, status int, name string, fields Fields) {
	out := writer{max: s.cfg.Limits.Response}
	failed := false
	out.object(func(yield func(string, any) bool) {
		for _, f := range fields {
			failed = failed || f.Name == "error"
			if !yield(f.Name, f.Value) {
				return
			}
		}
		if !yield("command", name) || failed {
			return
		}
		var err any
		if out.cut {
			err = cutError
		}
		yield("error", err)
	})
	door.SendJSON(w, status, out.b.Bytes())
}

// fail sends an error. It stands behind the name of the command then.
func (s *Server) fail(w http.ResponseWriter, status int, name, reason string) {
	out := writer{max: s.cfg.Limits.Response}
	out.value(Fields{{"command", name}, {"error", reason}})
	door.SendJSON(w, status, out.b.Bytes())
}
