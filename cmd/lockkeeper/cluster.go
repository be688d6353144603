package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
	"lockkeeper/server"
	"lockkeeper/server/ops"
)

// clusterPatience is longer than a cluster waits for a new member to get its data.
const clusterPatience = 150 * time.Second

type clusterCommand struct {
	clientFlags
	fs      *flag.FlagSet
	what    string
	args    []string
	http    string
	timeout time.Duration
	force   bool
}

func (c *clusterCommand) flags(fs *flag.FlagSet, e env) {
	c.clientFlags.flags(fs, e)
	c.fs = fs
	fs.StringVar(&c.http, "http", "",
		"`host:port` the HTTP port of any member, for transfer-leader "+
			"(default: the host of the first of -servers, port 8080)")
	durationVar(fs, &c.timeout, "timeout", clusterPatience,
		"`d` how long to try (default 2m30s, but not at all if nobody listens at any address)")
	fs.BoolVar(&c.force, "force", false, "add: keep a member that has never answered the others, instead of "+
		"taking it back")
}

func (c *clusterCommand) run(e env, args []string) error {
	err := c.check(args)
	if err != nil {
		return usageError{err}
	}
	c.command += " " + c.what
	switch c.what {
	case "list":
		err = c.list()
	case "add":
		err = c.change(c.args, nil)
	case "remove":
		err = c.change(nil, c.args)
	default:
		err = c.transfer()
	}
	if err != nil {
		return c.fail(exitFailed, err)
	}
	return nil
}

func (c *clusterCommand) check(words []string) error {
	if err := c.clientFlags.check(); err != nil {
		return err
	}
	if len(words) == 0 {
		return errors.New("say what to do: list, add, remove or transfer-leader")
	}
	c.what, c.args = words[0], words[1:]
	switch c.what {
	case "list":
		if len(c.args) > 0 {
			return fmt.Errorf("unexpected %q behind list", c.args[0])
		}
	case "add":
		if len(c.args) == 0 {
			return errors.New("add needs a server line: add 'server.4=10.0.0.4:2888:3888;2181' " +
				"(in quotes, because of the semicolon)")
		}
		for i, line := range c.args {
			if c.args[i] = line; !strings.HasPrefix(line, "server.") {
				c.args[i] = "server." + line
			}
			ms, _, err := server.ParseConfigText(c.args[i])
			if err != nil {
				return fmt.Errorf("add: %w", err)
			}
			if ms[0].ClientAddr == "" {
				return fmt.Errorf("add: %s: the client port is missing: ...;2181 (in quotes, because of the semicolon)",
					ms[0].Key())
			}
		}
	case "remove":
		c.args = strings.Split(strings.Join(c.args, ","), ",")
		for i, id := range c.args {
			c.args[i] = strings.TrimPrefix(strings.TrimSpace(id), "server.")
			if !isMemberNumber(c.args[i]) {
				return fmt.Errorf("remove: %q is not the number of a member", id)
			}
		}
	case "transfer-leader":
		if len(c.args) > 1 {
			return fmt.Errorf("one member, please: unexpected %q", c.args[1])
		}
		if len(c.args) == 1 && !isMemberNumber(c.args[0]) {
			return fmt.Errorf("transfer-leader: %q is not the number of a member", c.args[0])
		}
	default:
		return fmt.Errorf("unknown %q: list, add, remove or transfer-leader", c.what)
	}
	return nil
}

func isMemberNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 8)
	return err == nil
}

// open connects, authenticates, and reads the present members and their version.
func (c *clusterCommand) open(ctx context.Context) (_ *client, ms []server.Member, version string, err error) {
	cl, err := c.connect(recipes.Config{})
	if err != nil {
		return nil, nil, "", err
	}
	defer func() {
		if err != nil {
			cl.Close()
		}
	}()
	if err := c.reach(ctx, cl, given(c.fs, "timeout")); err != nil {
		return nil, nil, "", err
	}
	var data []byte
	err = within(ctx, func() (err error) {
		for ctx.Err() == nil {
			// The member that answers may be behind, and an operator empties a disk after reading
			// the list.
			if _, err = cl.Conn().Sync("/zookeeper/config"); err == nil {
				data, _, err = cl.Conn().Get("/zookeeper/config")
			}
			if !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, zk.ErrConnectionClosed) {
				return err // those two only mean that there is no connection yet
			}
		}
		return context.DeadlineExceeded
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, nil, "", errors.New(cl.unreachable())
	case err != nil:
		return nil, nil, "", err
	}
	ms, version, err = server.ParseConfigText(string(data))
	return cl, ms, version, err
}

// within calls f, and waits for it no longer than ctx allows.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type listed struct {
	ops.ListedMember
	Version string `json:"version"` // of the list
}

func (c *clusterCommand) list() error {
	ctx, cancel := context.WithTimeout(context.Background(), min(c.timeout, tryPatience))
	defer cancel()
	cl, ms, version, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	if len(ms) == 0 {
		fmt.Fprintln(c.e.stdout, "this server stands alone: it is no member of a cluster")
		return nil
	}
	list := c.query(ctx, cl.Conn().(*zk.Conn).Server(), wordPatience).list
	if !slices.EqualFunc(list, ms, func(r ops.ListedMember, m server.Member) bool { return r.ID == m.ID }) {
		list = c.queryEach(ctx, ms) // it is ZooKeeper, or does not have the change yet
	}
	if c.json {
		for _, l := range list {
			_ = json.NewEncoder(c.e.stdout).Encode(listed{l, version})
		}
		return nil
	}
	fmt.Fprintf(c.e.stdout, "%-4s %-12s %-16s %-24s %-24s %-9s %s\n", "ID", "ROLE", "STATE", "PEERS", "CLIENTS",
		"PROTOCOL", "PEER AUTH")
	for _, l := range list {
		protocol := "unknown"
		if l.Protocol != 0 {
			protocol = strconv.Itoa(int(l.Protocol))
		}
		fmt.Fprintf(c.e.stdout, "%-4d %-12s %-16s %-24s %-24s %-9s %s\n", l.ID, l.Role, l.State, l.Peers, l.Clients,
			protocol, cmp.Or(l.PeerAuth, "unknown"))
	}
	fmt.Fprintf(c.e.stdout, "version %s\n", version)
	return nil
}

// queryEach queries the state of each member, for servers that do not report on each other.
func (c *clusterCommand) queryEach(ctx context.Context, ms []server.Member) []ops.ListedMember {
	list := make([]ops.ListedMember, len(ms))
	var wg sync.WaitGroup
	for i, m := range ms {
		list[i] = ops.Listed(m)
		wg.Go(func() { list[i].State = c.stateOf(ctx, list[i]) })
	}
	wg.Wait()
	return list
}

func (c *clusterCommand) stateOf(ctx context.Context, m ops.ListedMember) string {
	if m.Clients == "" {
		return "unknown" // the client port is in its own file only
	}
	s := c.query(ctx, m.Clients, wordPatience)
	switch {
	case s.Role != "":
		return s.Role
	case s.Error == errNotServing.Error():
		return "not serving"
	}
	return m.State
}

func (c *clusterCommand) change(joining, leaving []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	first, stop := context.WithTimeout(ctx, min(c.timeout, tryPatience))
	defer stop()
	cl, before, version, err := c.open(first)
	if err != nil {
		return err
	}
	defer cl.Close()
	if len(before) == 0 {
		return errors.New("this server stands alone: it is no member of a cluster. Start it with the server lines of " +
			"one, and it begins that " +
			"with its data (docs/cluster.md)")
	}
	for _, id := range leaving {
		if !slices.ContainsFunc(before, func(m server.Member) bool { return strconv.Itoa(int(m.ID)) == id }) {
			return fmt.Errorf("there is no member %s", id)
		}
	}
	from, err := strconv.ParseInt(version, 16, 64)
	if err != nil {
		return fmt.Errorf("the version of the list of members: %w", err)
	}
	conn := cl.Conn().(*zk.Conn)
	if len(joining) > 0 {
		c.tellWaiting(joining)
	}
	err = within(ctx, func() error {
		_, err := conn.IncrementalReconfig(joining, leaving, from)
		return err
	})
	if err != nil {
		return c.explain(err, before, joining, leaving)
	}
	list := c.membersAfter(ctx, conn, joining)
	if silent := silentOf(list, joining); len(silent) > 0 && !c.force {
		return c.takeBack(ctx, conn, before, joining, silent)
	}
	words := "removed " + strings.Join(leaving, ", ")
	if len(joining) > 0 {
		words = "added " + strings.Join(joining, ", ")
	}
	voters, live, text := tolerance(list)
	c.say("changed", words+". "+text, "voters", voters, "live", live)
	return nil
}

// tellWaiting prints the members that add waits for.
func (c *clusterCommand) tellWaiting(joining []string) {
	for _, line := range joining {
		if ms, _, err := server.ParseConfigText(line); err == nil {
			c.say("waiting", fmt.Sprintf("waiting for the leader to reach %s at %s, send it the data and give it "+
				"its place",
				ms[0].Key(), ms[0].PeerAddr()))
		}
	}
}

// reportPatience is how long members that were added have to be seen by the one that reports: it
// queries the others once a second.
const reportPatience = 3 * time.Second

// membersAfter are the members after a change, as one of them sees them: when it has heard from all
// that are joining, or else after reportPatience.
func (c *clusterCommand) membersAfter(ctx context.Context, conn *zk.Conn, joining []string) (list []ops.ListedMember) {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	for {
		var ms []server.Member
		if data, _, err := conn.Get("/zookeeper/config"); err == nil {
			ms, _, _ = server.ParseConfigText(string(data))
		}
		now := c.query(ctx, conn.Server(), wordPatience).list
		if now == nil && len(ms) > 0 {
			now = c.queryEach(ctx, ms) // it is ZooKeeper
		}
		same := slices.EqualFunc(now, ms, func(r ops.ListedMember, m server.Member) bool {
			return r.ID == m.ID && r.Peers == m.PeerAddr()
		})
		if same && len(ms) > 0 {
			list = now
			if len(silentOf(list, joining)) == 0 {
				return list
			}
		}
		select {
		case <-ctx.Done():
			return list
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// silentOf returns the joining members that do not answer the others, or are not in the list.
func silentOf(list []ops.ListedMember, joining []string) (silent []server.Member) {
	for _, line := range joining {
		ms, _, err := server.ParseConfigText(line)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(list, func(l ops.ListedMember) bool { return l.ID == ms[0].ID })
		if i < 0 || list[i].Peers != ms[0].PeerAddr() || !list[i].Answers() {
			silent = append(silent, ms[0])
		}
	}
	return silent
}

// tolerance counts the voters and the live voters, and describes the number that may fail.
func tolerance(list []ops.ListedMember) (voters, live int, text string) {
	var silent []string
	for _, l := range list {
		if l.Role != "participant" {
			continue
		}
		voters++
		if l.Answers() {
			live++
		} else {
			silent = append(silent, fmt.Sprintf("%d (%s)", l.ID, l.Peers))
		}
	}
	if voters == 0 {
		return 0, 0, "The members do not say how they are: see 'cluster list'"
	}
	text = fmt.Sprintf("%d voters, %d of them answer: ", voters, live)
	switch spare := live - (voters/2 + 1); {
	case spare > 0:
		text += fmt.Sprintf("%d more may fail", spare)
	case spare == 0:
		text += "none may fail"
	default:
		text += "they are no majority"
	}
	if len(silent) > 0 {
		text += "; no answer from member " + strings.Join(silent, ", ")
	}
	return voters, live, text
}

// takeBack undoes an addition if the new members have never answered: as voters they would only
// reduce the number of tolerated failures. The error describes the result.
func (c *clusterCommand) takeBack(ctx context.Context, conn *zk.Conn, before []server.Member, joining []string,
	silent []server.Member) error {
	var rejoin, leave, names []string
	for _, m := range silent {
		names = append(names, fmt.Sprintf("%s at %s", m.Key(), m.PeerAddr()))
	}
	for _, line := range joining {
		ms, _, err := server.ParseConfigText(line)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(before, func(m server.Member) bool { return m.ID == ms[0].ID }); i >= 0 {
			rejoin = append(rejoin, before[i].String())
		} else {
			leave = append(leave, strconv.Itoa(int(ms[0].ID)))
		}
	}
	why := fmt.Errorf("no answer from %s: start the member first, and compare its address and its peer secret with "+
		"those of the others",
		strings.Join(names, ", "))
	data, _, err := conn.Get("/zookeeper/config")
	if err == nil {
		var version string
		if _, version, err = server.ParseConfigText(string(data)); err == nil {
			var from int64
			if from, err = strconv.ParseInt(version, 16, 64); err == nil {
				err = within(ctx, func() error {
					_, err := conn.IncrementalReconfig(rejoin, leave, from)
					return err
				})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%w. It IS a member now, because taking it back failed (%v): 'cluster remove' it, "+
			"or start it", why, err)
	}
	return fmt.Errorf("%w. The members are as they were before. With -force it stays a member", why)
}

// explain formats an error of reconfig.
func (c *clusterCommand) explain(err error, before []server.Member, joining, leaving []string) error {
	switch {
	case errors.Is(err, zk.ErrReconfigDisabled):
		return errors.New("refused: the members do not allow it (reconfigEnabled=true in the zoo.cfg of each); " +
			"without it they follow the server lines in the files of a majority")
	case errors.Is(err, zk.ErrNoAuth):
		return errors.New("refused: -auth must be the super user, or somebody with WRITE on /zookeeper/config")
	case errors.Is(err, zk.ErrBadVersion):
		return errors.New("refused: the members have just been changed by somebody else; " +
			"look at 'cluster list' and try again")
	case errors.Is(err, zk.ErrBadArguments):
		return errors.New("refused: it would leave too few voters (at least 2, unless standaloneEnabled=false), " +
			"or two members with one address")
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("the answer got lost (%v): 'cluster list' shows what came of it", err)
	}
	// The library has no errors for these two codes, only their numbers in a text.
	switch text := err.Error(); {
	case strings.HasSuffix(text, " -14"):
		return errors.New("refused: another change is under way; try again when it is done")
	case strings.HasSuffix(text, " -13"):
		return errors.New("refused: " + missingVoters(before, joining, leaving))
	}
	return err
}

// missingVoters describes which voters that would be needed cannot be reached. This machine may
// reach other members than the leader does.
func missingVoters(before []server.Member, joining, leaving []string) string {
	after := slices.DeleteFunc(slices.Clone(before), func(m server.Member) bool {
		return slices.Contains(leaving, strconv.Itoa(int(m.ID)))
	})
	for _, line := range joining {
		if ms, _, err := server.ParseConfigText(line); err == nil {
			after = slices.DeleteFunc(after, func(m server.Member) bool { return m.ID == ms[0].ID })
			after = append(after, ms...)
		}
	}
	voters, live := 0, 0
	var missing []string
	for _, m := range after {
		if m.Observer {
			continue
		}
		voters++
		if conn, err := net.DialTimeout("tcp", m.PeerAddr(), 2*time.Second); err == nil {
			_ = conn.Close()
			live++
		} else {
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Key(), m.PeerAddr()))
		}
	}
	if len(missing) == 0 {
		return "there would be no majority of live voters that have the data; the leader's log says more"
	}
	return fmt.Sprintf("would leave %d of %d live, as seen from this machine: missing %s",
		live, voters, strings.Join(missing, ", "))
}

// defaultHTTPPort is the default port of ZooKeeper's admin server.
const defaultHTTPPort = "8080"

func (c *clusterCommand) transfer() error {
	target, member, err := c.httpPort(c.http)
	if err != nil {
		return err
	}
	addr := target.Host
	target.Path = "/leader"
	if len(c.args) > 0 {
		target.RawQuery = url.Values{"to": c.args}.Encode()
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(c.timeout, tryPatience))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return err
	}
	if id, ok, err := c.identity(); err != nil {
		return err
	} else if ok {
		req.Header.Set("Authorization", id.Scheme+" "+string(id.Secret))
	}
	defer member.CloseIdleConnections()
	resp, err := member.Do(req)
	var dial *net.OpError
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &dial) && dial.Op == "dial") {
		return fmt.Errorf("%s does not answer as a member does: is it the HTTP port of a member? (%w)", addr, err)
	}
	if err != nil {
		return fmt.Errorf("cannot reach the HTTP port of a member (admin.enableServer=true, -http host:port): %w", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var answer struct {
		Leader int    `json:"leader"`
		Error  string `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil || resp.StatusCode != http.StatusOK && answer.Error == "" {
		return fmt.Errorf("%s answers %s: is it the HTTP port of a member?", addr, resp.Status)
	}
	if answer.Error != "" {
		return errors.New("refused: " + answer.Error)
	}
	c.say("changed", fmt.Sprintf("member %d leads", answer.Leader), "leader", answer.Leader)
	return nil
}
