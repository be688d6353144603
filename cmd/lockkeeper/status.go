package main

import (
	"cmp"
	"context"
	"encoding/json"
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

func (c *statusCommand) flags(fs *flag.FlagSet, e env) {
	c.clientFlags.flags(fs, e)
	durationVar(fs, &c.timeout, "timeout", wordPatience, "`d` how long to wait for the answer of a server (default 2s)")
	fs.IntVar(&c.mayStop, "may-stop", -1, "`n` asks the leader whether member n may be stopped now, and shows "+
		"nothing else")
	durationVar(fs, &c.wait, "wait", 0, "`d` with -may-stop: how long to wait until it may")
}

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
		s.Notes = append(s.Notes, "the members have other addresses than those that were given, so only those "+
			"that were "+
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
	// ZooKeeper has the list in a node that everybody may read.
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
		wg.Go(func() { all[i] = c.query(ctx, address, c.timeout) })
	}
	wg.Wait()
	return all
}

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
		s.Notes = append(s.Notes, "the list of members cannot be read: the servers that were named are taken for "+
			"all of them")
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
		fmt.Fprintf(c.e.stdout, "member %d may be stopped now: the others are enough without it. Its clients, with "+
			"%d sessions, go to them. "+
			"For %v it counts as stopped.\n", a.Member, a.Sessions,
			(time.Duration(a.HoldsMs) * time.Millisecond).Round(time.Second))
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
	return nil, fmt.Errorf("member %d has not been found: none of the servers that answer names it, or knows where "+
		"its clients connect", c.mayStop)
}

// mayStopPatience is how long a member has to ask the leader.
const mayStopPatience = 6 * time.Second

func (s *clusterStatus) text() string {
	var b strings.Builder
	width := len("SERVER")
	for _, m := range s.Members {
		width = max(width, len(m.Server))
	}
	fmt.Fprintf(&b, "%-*s  %-3s  %-10s  %-14s  %5s  %7s  %8s  %-12s  %s\n", width, "SERVER", "ID", "ROLE", "ZXID",
		"LAG",
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
		fmt.Fprintf(&b, "%-*s  %-3s  %-10s  %-14s  %5s  %7d  %8s  %-12s  %s\n", width, m.Server, id, m.Role, m.Zxid,
			lag,
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
