package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockkeeper/recipes"
	"lockkeeper/server"
	"lockkeeper/server/ops"
)

// Exit statuses of status, beside exitOK, exitFailed and exitUsage.
const (
	exitDegraded = 3
	exitNoQuorum = 4
)

const (
	stateHealthy  = "healthy"
	stateDegraded = "degraded"
	stateNoQuorum = "no quorum"
)

type statusCommand struct {
	clientFlags
	timeout time.Duration
	mayStop int // the member that is about to be stopped; -1: the cluster is shown
	wait    time.Duration
}

func (c *statusCommand) flags(fs *flag.FlagSet) {
	c.clientFlags.flags(fs)
	durationVar(fs, &c.timeout, "timeout", wordPatience, "`d` how long to wait for the answer of a server (default 2s)")
	fs.IntVar(&c.mayStop, "may-stop", -1, "`n` asks the leader whether member n may be stopped now, and shows nothing else")
	durationVar(fs, &c.wait, "wait", 0, "`d` with -may-stop: how long to wait until it may")
}

// memberStatus is what one server says of itself. Nil and empty is what it does not say.
type memberStatus struct {
	Server string `json:"server"`
	ID     *uint8 `json:"id,omitempty"`
	// Role is leader, follower, observer, standalone or read-only.
	Role  string `json:"role,omitempty"`
	Error string `json:"error,omitempty"`
	Zxid  string `json:"zxid,omitempty"`
	// Lag is in updates, behind the newest that was seen, of the same term.
	Lag         *uint64    `json:"lag,omitempty"`
	Connections int        `json:"connections"`
	Outstanding int        `json:"outstanding"`
	Nodes       int        `json:"nodes"`
	Sessions    *int       `json:"sessions,omitempty"` // of the whole cluster
	Latency     *latencyMs `json:"latencyMs,omitempty"`
	Version     string     `json:"version,omitempty"`
	// Readiness is that of ops.ListedMember.
	Readiness string `json:"readiness,omitempty"`

	zxid     uint64
	term     uint64 // 0 if it does not say
	observer bool   // the list of members says so
	list     []ops.ListedMember
}

type latencyMs struct {
	Min int     `json:"min"`
	Avg float64 `json:"avg"`
	Max int     `json:"max"`
}

// serves reports whether it is a voter that takes part in a quorum.
func (m *memberStatus) serves() bool {
	return m.Role == "leader" || m.Role == "follower" || m.Role == "standalone"
}

// counts reports whether another one may fail for it: it serves, and does not say that it is
// behind. ZooKeeper serves nobody before it has caught up.
func (m *memberStatus) counts() bool {
	return m.serves() && (m.Readiness == "" || m.Readiness == ops.ReadyText)
}

// leaderTerm is the term of the leader as far as this server says; 0 if it does not. ZooKeeper has
// epochs for terms.
func (m *memberStatus) leaderTerm() (term uint64) {
	if m.Version != "" && !strings.Contains(m.Version, "lockkeeper") {
		return m.zxid >> 32
	}
	if m.Role == "leader" || m.Role == "standalone" {
		term = m.term
	}
	for _, l := range m.list {
		if l.State == "leader" {
			term = max(term, l.Term)
		}
	}
	return term
}

func (m *memberStatus) isObserver() bool { return m.observer || m.Role == "observer" }

type clusterStatus struct {
	State    string          `json:"state"`
	Voters   int             `json:"voters"`
	Serving  int             `json:"serving"` // of the voters, those that have caught up
	Quorum   int             `json:"quorum"`
	MayFail  int             `json:"mayFail"` // of those that serve
	Term     uint64          `json:"term"`    // of the leader; 0 if that is not known
	Sessions *int            `json:"sessions,omitempty"`
	Members  []*memberStatus `json:"members"`
	Notes    []string        `json:"notes,omitempty"`
}

func (c *statusCommand) run(e env, args []string) error {
	c.e = e
	if err := c.clientFlags.check(); err != nil {
		return usageError{err}
	}
	if c.wait != 0 && c.mayStop < 0 {
		return wrongUsage("-wait is for -may-stop")
	}
	servers, _ := serverList(c.servers) // checked
	if c.mayStop >= 0 {
		return c.askMayStop(servers)
	}
	s, sig := untilSignal(e, time.Second, func(ctx context.Context) *clusterStatus { return c.look(ctx, servers) })
	if sig != nil {
		return signalStatus(sig)
	}
	if c.json {
		if err := json.NewEncoder(e.stdout).Encode(s); err != nil {
			return err
		}
	} else {
		fmt.Fprint(e.stdout, s.text())
	}
	switch s.State {
	case stateDegraded:
		return exitStatus(exitDegraded)
	case stateNoQuorum:
		return exitStatus(exitNoQuorum)
	}
	return nil
}

// look queries the servers that are named, and the members that they name.
func (c *statusCommand) look(ctx context.Context, servers []string) *clusterStatus {
	s := &clusterStatus{Members: c.queryAll(ctx, servers)}
	list := c.members(ctx, s.Members)
	defer s.explain()
	if list == nil {
		s.judge(nil)
		return s
	}
	at := make([][]string, len(list))
	for i, l := range list {
		at[i] = addresses(ctx, l.Clients)
	}
	strange := false // a server answers at an address that the list does not have
	var known []*memberStatus
	seen := map[uint8]bool{}
	for _, m := range s.Members {
		m.identify(list, at, addresses(ctx, m.Server))
		if m.ID != nil && seen[*m.ID] {
			continue // one member under two names
		}
		if m.ID != nil {
			seen[*m.ID] = true
		}
		strange = strange || m.ID == nil && m.Error == ""
		known = append(known, m)
	}
	s.Members = known
	var others []string
	for _, l := range list {
		if !seen[l.ID] && l.Clients != "" {
			others = append(others, l.Clients)
		}
	}
	if strange && len(others) > 0 {
		s.Notes = append(s.Notes, "the members have other addresses than those that were given, so only those that were "+
			"given have been queried")
	} else {
		more := c.queryAll(ctx, others)
		for _, m := range more {
			m.identify(list, at, []string{m.Server})
		}
		s.Members = append(s.Members, more...)
	}
	slices.SortStableFunc(s.Members, func(a, b *memberStatus) int {
		if a.ID == nil || b.ID == nil {
			return 0
		}
		return cmp.Compare(*a.ID, *b.ID)
	})
	s.judge(list)
	return s
}

// addresses are the addresses that host:port stands for.
func addresses(ctx context.Context, server string) []string {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	hosts, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return []string{server}
	}
	list := []string{server}
	for _, h := range hosts {
		list = append(list, net.JoinHostPort(h, port))
	}
	return list
}

// identify finds the member in the list: by the number that it says it has, or by its addresses.
func (m *memberStatus) identify(list []ops.ListedMember, at [][]string, own []string) {
	for i, l := range list {
		same := m.ID != nil && *m.ID == l.ID || m.ID == nil &&
			slices.ContainsFunc(at[i], func(a string) bool { return slices.Contains(own, a) })
		if same {
			m.ID, m.observer, m.Readiness = &l.ID, l.Role == "observer", l.Readiness
			for _, own := range m.list { // what it says itself is newer
				if own.ID == l.ID {
					m.Readiness = own.Readiness
				}
			}
			return
		}
	}
	m.ID = nil // ZooKeeper says 0 where it stands alone
}

// members is the list of members, from whichever server has it; nil for a server that is alone.
func (c *statusCommand) members(ctx context.Context, all []*memberStatus) []ops.ListedMember {
	var serving []string
	for _, m := range all {
		if m.list != nil {
			return m.list
		}
		if m.serves() || m.isObserver() {
			serving = append(serving, m.Server)
		}
	}
	if len(serving) == 0 {
		return nil
	}
	// Without mbrs, the list is a node that everybody may read.
	one := c.clientFlags
	one.servers = strings.Join(serving, ",")
	cl, err := one.connect(recipes.Config{})
	if err != nil {
		return nil
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if cl.Reach(ctx) != nil {
		return nil
	}
	var data []byte
	err = within(ctx, func() (err error) { data, _, err = cl.Conn().Get("/zookeeper/config"); return err })
	if err != nil {
		return nil
	}
	ms, _, err := server.ParseConfigText(string(data))
	if err != nil {
		return nil
	}
	var list []ops.ListedMember
	for _, m := range ms {
		list = append(list, ops.Listed(m))
	}
	return list
}

func (c *statusCommand) queryAll(ctx context.Context, servers []string) []*memberStatus {
	all := make([]*memberStatus, len(servers))
	var wg sync.WaitGroup
	for i, address := range servers {
		wg.Go(func() { all[i] = c.query(ctx, address) })
	}
	wg.Wait()
	return all
}

func (c *statusCommand) query(ctx context.Context, address string) *memberStatus {
	m := &memberStatus{Server: address}
	text, err := c.word(ctx, address, "srvr", c.timeout)
	if err == nil {
		err = m.parse(text)
	}
	if err != nil {
		m.Error = err.Error()
	}
	if text == "" {
		return m
	}
	// These are answered if the whitelist of the server has them.
	for _, word := range []string{"mntr", "conf", "mbrs"} {
		text, err := c.word(ctx, address, word, c.timeout)
		if err != nil {
			break
		}
		switch word {
		case "mntr":
			m.Sessions = number[int](text, "zk_global_sessions\t")
			if term := number[int](text, "zk_raft_term\t"); term != nil {
				m.term = uint64(*term)
			}
		case "conf":
			m.ID = number[uint8](text, "serverId=")
		case "mbrs":
			m.list, _ = ops.ParseMembersText(text)
		}
	}
	return m
}

// number reads the number behind a prefix at the beginning of a line; nil without.
func number[T int | uint8](text, prefix string) *T {
	_, rest, found := strings.Cut("\n"+text, "\n"+prefix)
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if !found || err != nil || uint64(T(n)) != n {
		return nil
	}
	v := T(n)
	return &v
}

// errNotServing says that a server serves no clients.
var errNotServing = errors.New("serves nobody: it knows no leader")

// explain adds why members serve nobody, or do not count, as they say themselves.
func (s *clusterStatus) explain() {
	for _, m := range s.Members {
		why, not := strings.CutPrefix(m.Readiness, ops.NotReadyText)
		switch {
		case !not:
		case m.Error == errNotServing.Error():
			m.Error = "serves nobody: " + why
		case m.Role != "" && m.ID != nil:
			s.Notes = append(s.Notes, fmt.Sprintf("member %d does not count: %s", *m.ID, why))
		}
	}
}

// parse reads the answer to srvr.
func (m *memberStatus) parse(text string) error {
	switch {
	case strings.Contains(text, "not currently serving"):
		return errNotServing
	case strings.Contains(text, "not in the whitelist"):
		return errors.New("does not answer the four-letter word srvr (4lw.commands.whitelist)")
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Zookeeper version":
			m.Version, _, _ = strings.Cut(value, ",")
		case "Latency min/avg/max":
			var l latencyMs
			if n, _ := fmt.Sscanf(strings.ReplaceAll(value, "/", " "), "%d %g %d", &l.Min, &l.Avg, &l.Max); n == 3 {
				m.Latency = &l
			}
		case "Connections":
			m.Connections, _ = strconv.Atoi(value)
		case "Outstanding":
			m.Outstanding, _ = strconv.Atoi(value)
		case "Node count":
			m.Nodes, _ = strconv.Atoi(value)
		case "Zxid":
			m.Zxid = value
			m.zxid, _ = strconv.ParseUint(strings.TrimPrefix(value, "0x"), 16, 64)
		case "Mode":
			m.Role = value
		}
	}
	if m.Role == "" {
		return errors.New("answers, but not as a client port does: is it the port of something else?")
	}
	return nil
}

// judge counts, and says in which state the cluster is. Without a list of its members those that
// were named count.
func (s *clusterStatus) judge(list []ops.ListedMember) {
	var newest uint64
	observers, leaders, down := 0, 0, 0
	for _, m := range s.Members {
		newest = max(newest, m.zxid)
		switch {
		case m.isObserver():
			observers++
		case m.counts():
			s.Serving++
		}
		s.Term = max(s.Term, m.leaderTerm())
		if m.Role == "leader" || m.Role == "standalone" {
			leaders++
		}
		if m.Role == "" || m.Role == "read-only" {
			down++
		}
		if m.Sessions != nil {
			s.Sessions = m.Sessions
		}
	}
	const counter = 1<<32 - 1 // the part of a zxid below its epoch
	epoch := newest &^ counter >> 32
	for _, m := range s.Members {
		if m.Zxid != "" && m.zxid>>32 == epoch {
			lag := newest - m.zxid
			m.Lag = &lag
		}
	}
	s.Voters = len(s.Members) - observers
	if list != nil {
		s.Voters = 0
		for _, l := range list {
			if l.Role != "observer" {
				s.Voters++
			}
		}
	} else if s.Voters > 1 {
		s.Notes = append(s.Notes, "the list of members cannot be read: the servers that were named are taken for all of them")
	}
	s.Quorum = s.Voters/2 + 1
	s.MayFail = max(s.Serving-s.Quorum, 0)
	switch {
	case leaders > 1:
		s.Notes = append(s.Notes, "more than one server says that it leads: they are of different clusters, or the "+
			"leadership has just changed")
	case leaders == 0 && s.Serving > 0:
		s.Notes = append(s.Notes, "the leader has not been seen")
	}
	switch {
	case s.Serving == 0:
		s.State = stateNoQuorum
	case s.Serving < s.Voters || leaders != 1 || down > 0:
		s.State = stateDegraded
	default:
		s.State = stateHealthy
	}
}

// askMayStop asks whether a member may be stopped now. The member itself asks the leader.
func (c *statusCommand) askMayStop(servers []string) error {
	type outcome struct {
		a   *ops.Stoppable
		err error
	}
	o, sig := untilSignal(c.e, time.Second, func(ctx context.Context) outcome {
		a, err := c.awaitMayStop(ctx, servers)
		return outcome{a, err}
	})
	switch {
	case sig != nil:
		return signalStatus(sig)
	case o.err != nil:
		return c.fail(exitFailed, o.err)
	}
	if a := o.a; c.json {
		_ = json.NewEncoder(c.e.stdout).Encode(a)
	} else if a.Stoppable {
		fmt.Fprintf(c.e.stdout, "member %d may be stopped now: the others are enough without it. Its clients, with %d sessions, go to them. "+
			"For %v it counts as stopped.\n", a.Member, a.Sessions, (time.Duration(a.HoldsMs) * time.Millisecond).Round(time.Second))
	} else {
		fmt.Fprintf(c.e.stdout, "member %d may not be stopped now: %s\n", a.Member, a.Reason)
	}
	if !o.a.Stoppable {
		return exitStatus(exitFailed)
	}
	return nil
}

// mayStopPause is between two questions of those that wait.
const mayStopPause = time.Second

// awaitMayStop asks until the member may be stopped, waiting is over, or does not help.
func (c *statusCommand) awaitMayStop(ctx context.Context, servers []string) (*ops.Stoppable, error) {
	for until := time.Now().Add(c.wait); ; {
		a, err := c.askStoppable(ctx, servers)
		left := time.Until(until)
		if left <= 0 || err == nil && (a.Stoppable || a.Hopeless) {
			return a, err
		}
		select {
		case <-time.After(min(mayStopPause, left)):
		case <-ctx.Done():
			return a, cmp.Or(err, ctx.Err())
		}
	}
}

// askStoppable finds the member and asks it once.
func (c *statusCommand) askStoppable(ctx context.Context, servers []string) (*ops.Stoppable, error) {
	s := c.look(ctx, servers)
	for _, m := range s.Members {
		if alone := m.Role == "standalone" && len(s.Members) == 1; !alone && (m.ID == nil || int(*m.ID) != c.mayStop) {
			continue
		}
		text, err := c.word(ctx, m.Server, "mays", max(c.timeout, mayStopPatience))
		if err != nil {
			return nil, fmt.Errorf("member %d at %s: %w", c.mayStop, m.Server, err)
		}
		var a ops.Stoppable
		if json.Unmarshal([]byte(text), &a) != nil {
			return nil, fmt.Errorf("member %d at %s does not know the four-letter word mays", c.mayStop, m.Server)
		}
		return &a, nil
	}
	return nil, fmt.Errorf("member %d has not been found: none of the servers that answer names it, or knows where its clients connect", c.mayStop)
}

// mayStopPatience is how long a member has to ask the leader.
const mayStopPatience = 6 * time.Second

func (s *clusterStatus) text() string {
	var b strings.Builder
	width := len("SERVER")
	for _, m := range s.Members {
		width = max(width, len(m.Server))
	}
	fmt.Fprintf(&b, "%-*s  %-3s  %-10s  %-14s  %5s  %7s  %8s  %-12s  %s\n", width, "SERVER", "ID", "ROLE", "ZXID", "LAG",
		"CLIENTS", "SESSIONS", "LATENCY(ms)", "VERSION")
	for _, m := range s.Members {
		id, lag, sessions, latency := "-", "-", "-", "-"
		if m.ID != nil {
			id = strconv.Itoa(int(*m.ID))
		}
		if m.Error != "" {
			fmt.Fprintf(&b, "%-*s  %-3s  %s\n", width, m.Server, id, m.Error)
			continue
		}
		if m.Lag != nil {
			lag = strconv.FormatUint(*m.Lag, 10)
		}
		if m.Sessions != nil {
			sessions = strconv.Itoa(*m.Sessions)
		}
		if m.Latency != nil {
			latency = fmt.Sprintf("%d/%.1f/%d", m.Latency.Min, m.Latency.Avg, m.Latency.Max)
		}
		fmt.Fprintf(&b, "%-*s  %-3s  %-10s  %-14s  %5s  %7d  %8s  %-12s  %s\n", width, m.Server, id, m.Role, m.Zxid, lag,
			m.Connections, sessions, latency, m.Version)
	}
	fmt.Fprintf(&b, "%s: %d of %d voters serve", s.State, s.Serving, s.Voters)
	if s.State != stateNoQuorum {
		if s.Term != 0 {
			fmt.Fprintf(&b, " in term %d", s.Term)
		}
		fmt.Fprintf(&b, ", %d make a quorum, %d more may fail", s.Quorum, s.MayFail)
	}
	b.WriteByte('\n')
	for _, note := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.String()
}
