package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
	"lockkeeper/recipes"
)

const (
	// watchPause is how often -watch reads the locks if the server has no persistent watches.
	watchPause = time.Second
	// lookPause is the least time between two reads of -watch.
	lookPause = 20 * time.Millisecond
)

type lockLister struct {
	clientFlags
	console consoleFlags
	watch   bool
	past    bool          // show the history
	timeout time.Duration // of reading the locks once
	fs      *flag.FlagSet
	root    string
	changes *treeChanges // nil without -watch
	shown   bool         // something was shown, and it was
	last    string       // this list
}

func (l *lockLister) flags(fs *flag.FlagSet, e env) {
	l.clientFlags.flags(fs, e)
	l.console.flags(fs, e)
	l.fs = fs
	fs.BoolVar(&l.past, "history", false,
		"show who held the lock PATH from when to when, and how it ended, as far as the member at -http has seen it")
	fs.BoolVar(&l.watch, "watch", false,
		"go on, and show the locks again whenever something has changed. \"passed by\" are "+
			"contenders that have come and gone, or stopped waiting, between two looks: they may have held the lock. "+
			"No one is "+
			"missed while the connection stands (with a server older than ZooKeeper 3.6 it looks once a second, "+
			"and misses some)")
	durationVar(fs, &l.timeout, "timeout", tryPatience,
		"`d` how long to try to reach the cluster (default 10s, but not at all if nobody listens at any address)")
}

func (l *lockLister) run(_ env, args []string) error {
	l.root = "/"
	if err := l.check(); err != nil {
		return usageError{err}
	}
	if len(args) == 1 && args[0] != "/" {
		l.root = args[0]
		if err := checkPath(l.root); err != nil {
			return err
		}
	}
	if l.past {
		if len(args) == 0 || l.watch {
			return usageError{errors.New("-history: it shows one lock, PATH, once")}
		}
		err := l.history()
		var wrong usageError
		if err != nil && !errors.As(err, &wrong) {
			return l.fail(exitFailed, err)
		}
		return err
	}
	var config recipes.Config
	if l.watch {
		l.changes = newTreeChanges()
		config.Tree = &recipes.TreeWatch{Path: l.root, Notify: l.changes.notify}
	}
	if err := l.show(config, given(l.fs, "timeout")); err != nil {
		return l.fail(exitFailed, err)
	}
	return nil
}

// show shows the locks, once or until a signal comes. Without patience a cluster that cannot be
// connected to ends it at once.
func (l *lockLister) show(config recipes.Config, patience bool) error {
	c, err := l.connect(config)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	if err := l.reach(ctx, c, patience); err != nil {
		return err
	}
	for {
		list, err := c.locks(l.root, l.timeout)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && c.connected():
			return fmt.Errorf("not all nodes at and below %s could be looked through within %v: PATH names a part of "+
				"the tree, and "+
				"-timeout gives more time (a lockkeeper server gives all locks at once, unless it has no memory for "+
				"them; this one did not)", l.root, l.timeout)
		case errors.Is(err, context.DeadlineExceeded):
			return errors.New(c.unreachable())
		case errors.Is(err, recipes.ErrLoginRequired):
			return loginRequired()
		case err != nil:
			return err
		case l.changes == nil:
			l.print(list)
			return nil
		}
		l.update(list)
		var tick <-chan time.Time
		if l.changes.isPolling() {
			tick = time.After(watchPause)
		}
		select {
		case <-l.changes.changed:
			time.Sleep(lookPause) // changes collects the events meanwhile
		case <-tick:
		case <-l.e.signals:
			return nil
		}
	}
}

// update prints the changes since the previous update, and contenders that came and went in
// between.
func (l *lockLister) update(list lockList) {
	passed, missed := l.changes.shown(list)
	key := list.json()
	if l.shown && key == l.last && len(passed) == 0 {
		return
	}
	if l.shown && !l.json {
		fmt.Fprintf(l.e.stdout, "\n-- %s\n", time.Now().Format(instantLayout))
	}
	for _, p := range passed {
		if l.json {
			_ = json.NewEncoder(l.e.stdout).Encode(map[string]passedBy{"passed": p})
		} else {
			fmt.Fprintf(l.e.stdout, "passed by: %s  %s  %s\n", plain(p.Path), p.Kind, plain(p.Node))
		}
	}
	if missed > 0 {
		l.say("missed", fmt.Sprintf("%d more have passed by", missed), "count", missed)
	}
	if !l.shown || key != l.last {
		l.shown, l.last = true, key
		l.print(list)
	}
}

func (l *lockLister) print(list lockList) {
	text := list.text(time.Now())
	if l.json {
		text = list.json()
	}
	fmt.Fprint(l.e.stdout, text)
}

// sessionText is a session as ZooKeeper's tools write it.
func sessionText(session int64) string { return fmt.Sprintf("0x%x", uint64(session)) }

type lockState struct {
	Path       string      `json:"path"`
	Contenders []contender `json:"contenders"` // holders first, then in the order of the queue
}

// contender is a contender as the recipes report it, with fields that come from servers or from the
// whole list.
type contender struct {
	recipes.Contender
	// SessionText is the session as ZooKeeper's tools write it; as a number it is too large for
	// many readers of JSON.
	SessionText string `json:"session"`
	Address     string `json:"address,omitempty"` // of its client
	// Since is when it became a holder. If that is not known, it is not SinceExact, and Since is
	// when it came into the queue.
	Since      *time.Time `json:"since,omitempty"`
	SinceExact bool       `json:"sinceExact,omitempty"`
	// Deadlock: its session waits for itself, directly or through others.
	Deadlock bool `json:"deadlock,omitempty"`
}

func newContender(c recipes.Contender) contender {
	if c.Info != nil {
		c.Data = nil // it is where Info comes from
	}
	one := contender{Contender: c, SessionText: sessionText(c.Session)}
	if c.Held || c.MayHold {
		one.Since = &one.Queued
	}
	return one
}

type lockList []lockState

// locks reads all locks at and below a path: as a report if the server makes one, else node by
// node.
func (c *client) locks(root string, timeout time.Duration) (lockList, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for try := 1; ; try++ {
		list, err := c.reportedLocks(ctx, root)
		switch {
		case !errors.Is(err, recipes.ErrNoReport):
			return list, err
		case errors.Is(err, zk.ErrNoNode), try == reportTries:
			return c.walkedLocks(ctx, root)
		}
		select { // others ask the server, too, or it has no memory for the locks
		case <-time.After(reportPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

const (
	// reportTries is how often a server that makes reports is asked for one.
	reportTries = 4
	reportPause = 300 * time.Millisecond
)

// walkedLocks reads the locks node by node, as any ZooKeeper server can be asked. Since when they
// are held nobody knows there.
func (c *client) walkedLocks(ctx context.Context, root string) (lockList, error) {
	found, err := c.Contentions(ctx, root)
	if err != nil {
		return nil, err
	}
	addresses := c.flags.sessionAddresses(ctx, c.servers)
	list := lockList{}
	for _, lock := range found {
		l := lockState{Path: lock.Path}
		for _, one := range lock.Contenders {
			c := newContender(one)
			c.Address = addresses[one.Session]
			l.Contenders = append(l.Contenders, c)
		}
		list = append(list, l)
	}
	list.markDeadlocks()
	return list, nil
}

// markDeadlocks marks the contenders that wait for a holder that waits, over any number of locks,
// for their own session.
func (l lockList) markDeadlocks() {
	locks := make([]locknode.Lock, len(l))
	for i, lock := range l {
		locks[i].Path = lock.Path
		for _, c := range lock.Contenders {
			locks[i].Contenders = append(locks[i].Contenders, c.Contender)
		}
	}
	for _, d := range locknode.Deadlocks(locks) {
		for _, r := range d.Waiting {
			l[r.Lock].Contenders[r.Contender].Deadlock = true
		}
	}
}

func (l lockList) json() string {
	var b strings.Builder
	for _, lock := range l {
		_ = json.NewEncoder(&b).Encode(lock) // it fails for a time beyond the year 9999, at most
	}
	return b.String()
}

// nobodyHint is for a user who expected to see a lock: of a command that has ended, for example.
const nobodyHint = "(a lock is there while a program holds it: 'lockkeeper lock /locks/try sleep 60' in another " +
	"terminal holds one for a minute; 'lockkeeper locks -history PATH' shows who held it before)\n"

func (l lockList) text(now time.Time) string {
	if len(l) == 0 {
		return "nobody holds or waits for a lock\n" + nobodyHint
	}
	var b strings.Builder
	for _, lock := range l {
		fmt.Fprintf(&b, "%s\n", plain(lock.Path))
		position := 0
		for _, c := range lock.Contenders {
			state := "holds"
			switch {
			case c.MayHold:
				state = "may hold"
			case !c.Held:
				position++
				state = fmt.Sprintf("waits %d", position)
			}
			fmt.Fprintf(&b, "  %-8s %-7s %s", state, c.Kind, c.since(now))
			for _, s := range []string{c.self(), c.Address, "session " + c.SessionText, c.Library,
				fmt.Sprintf("token %d", c.Token)} {
				if s != "" {
					b.WriteString("  " + s)
				}
			}
			if c.Priority != 0 {
				fmt.Fprintf(&b, "  priority %d", c.Priority)
			}
			if c.Yielded {
				b.WriteString("  has yielded")
			}
			if c.Orphan {
				b.WriteString("  orphan?")
			}
			if c.Deadlock {
				b.WriteString("  deadlock")
			}
			b.WriteByte('\n')
		}
		for _, warning := range lock.warnings() {
			fmt.Fprintf(&b, "  warning: %s\n", warning)
		}
	}
	return b.String()
}

// instantLayout shows a time with its time zone.
const instantLayout = "2006-01-02 15:04:05Z07:00"

// since says since when a contender holds, or waits.
func (c *contender) since(now time.Time) string {
	at := c.Queued
	if c.Since != nil {
		at = *c.Since
	}
	text := at.Local().Format(instantLayout)
	switch {
	case c.MayHold:
		return fmt.Sprintf("queued %s (%s)", text, age(now.Sub(at)))
	case c.Since == nil || c.SinceExact:
		return fmt.Sprintf("since %s (%s)", text, age(now.Sub(at)))
	}
	return fmt.Sprintf("queued %s, since then or later (at most %s)", text, age(now.Sub(at)))
}

// warnings describes, once for each kind of node, which others its owners may not wait for.
func (l lockState) warnings() (warnings []string) {
	for _, c := range l.Contenders {
		if len(c.MayIgnore) == 0 {
			continue
		}
		words := fmt.Sprintf("%s of %s may not wait for %s: there may be two holders", cmp.Or(c.Layout, "unknown"),
			cmp.Or(c.Library, "an unknown library"), strings.Join(c.MayIgnore, ", "))
		if !slices.Contains(warnings, words) {
			warnings = append(warnings, words)
		}
	}
	return warnings
}

// self is how a contender describes itself.
func (c *contender) self() string {
	if name := c.Identifier(); name != "" {
		return fmt.Sprintf("%q", name)
	}
	if c.Info == nil && c.Address != "" && strings.HasPrefix(c.Address, string(c.Data)) {
		return "" // as Curator's
	}
	if c.Info == nil {
		return printable(string(c.Data))
	}
	var parts []string
	if who := c.Info.Who(); who != "" {
		parts = append(parts, plain(who))
	}
	if c.Info.Note != "" {
		parts = append(parts, fmt.Sprintf("%q", c.Info.Note))
	}
	if within := c.Info.WithinSessions(); len(within) > 0 {
		texts := make([]string, len(within))
		for i, id := range within {
			texts[i] = sessionText(id)
		}
		parts = append(parts, "within "+strings.Join(texts, ","))
	}
	return strings.Join(parts, " ")
}

// brief describes a contender within a sentence.
func (c *contender) brief(now time.Time) string {
	var parts []string
	for _, s := range []string{c.self(), c.Library, "session " + c.SessionText, fmt.Sprintf("token %d", c.Token)} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if c.Priority != 0 {
		parts = append(parts, fmt.Sprintf("priority %d", c.Priority))
	}
	return strings.Join(append(parts, c.since(now)), ", ")
}

// plain returns a text of another client as it is, or quoted if a terminal should not see it as it
// is.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return printable(text)
	}
	return text
}

// printable shows data that a terminal should not see as they are.
func printable(data string) string {
	const most = 80
	if data == "" {
		return ""
	}
	if len(data) > most {
		data = data[:most] + "..."
	}
	return fmt.Sprintf("%q", data)
}

// age is a duration for people.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // the clocks differ
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// passedBy is a contender that has come and gone, or has stopped waiting, without having been shown
// as a holder: between two reads, in which it may have held the lock.
type passedBy struct {
	Path string       `json:"path"` // of the node's parent
	Node string       `json:"node"`
	Kind recipes.Kind `json:"kind"`
}

// mostChanges bounds the nodes that treeChanges keeps. It only counts further ones.
const mostChanges = 100_000

// treeChanges collects the contenders that a recipes.TreeWatch reports, for locks -watch.
type treeChanges struct {
	changed chan struct{} // has an element when there is something new

	mu      sync.Mutex
	polling bool            // the server has no such watches
	holds   map[string]bool // nodes that are there and have been shown as holders
	passed  []string        // nodes that are gone and have not been
	missed  int             // beyond mostChanges
}

func newTreeChanges() *treeChanges {
	return &treeChanges{changed: make(chan struct{}, 1), holds: map[string]bool{}}
}

func (t *treeChanges) notify(e zk.Event) {
	dir, name := splitPath(e.Path)
	kind, _ := recipes.NodeKind(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Type == zk.EventNotWatching:
		t.polling = true
	case e.Type == zk.EventSession:
		if e.State != zk.StateHasSession {
			return
		}
	case kind == recipes.KindUnknown || dir == "": // nodes of queues and others have numbers, too
		return
	case e.Type == zk.EventNodeDeleted:
		switch {
		case t.holds[e.Path]:
		case len(t.passed) < mostChanges:
			t.passed = append(t.passed, e.Path)
		default:
			t.missed++
		}
		delete(t.holds, e.Path)
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// shown records a read of all locks, and returns the contenders that have come and gone since the
// previous one, and the number beyond mostChanges.
//
// Order: the events come over the connection of the reads, and a member sends an event before it
// sends an answer that shows the change. So a node that the read does not find is gone, though its
// deletion may have been lost with an earlier connection.
func (t *treeChanges) shown(list lockList) (passed []passedBy, missed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := make(map[string]bool, len(t.passed))
	for _, p := range t.passed {
		gone[p] = true
	}
	clear(t.holds)
	for _, l := range list {
		for _, c := range l.Contenders {
			node := c.Path + "/" + c.Node
			switch {
			case !c.Held && !c.MayHold:
			case gone[node]: // it was read before it went
				delete(gone, node)
			case len(t.holds) < mostChanges:
				t.holds[node] = true
			}
		}
	}
	for _, p := range t.passed {
		if gone[p] {
			dir, name := splitPath(p)
			kind, _ := recipes.NodeKind(name)
			passed = append(passed, passedBy{Path: dir, Node: name, Kind: kind})
		}
	}
	missed = t.missed
	t.passed, t.missed = nil, 0
	return passed, missed
}

// isPolling reports that the server has no persistent watches.
func (t *treeChanges) isPolling() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.polling
}

func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// queuesReport has the fields of the report queues that the command reads (docs/api.md).
type queuesReport struct {
	Locks []struct {
		Lock struct {
			Path string `json:"path"`
		} `json:"lock"`
		Offset int                 `json:"offset"`
		Queue  []reportedContender `json:"queue"`
	} `json:"locks"`
	Next *struct {
		From   string `json:"from"`
		Offset int    `json:"offset"`
	} `json:"next"`
}

type reportedContender struct {
	Path       string        `json:"path"`
	Node       string        `json:"node"`
	Session    string        `json:"session"`
	Address    string        `json:"address"`
	Held       bool          `json:"held"`
	MayHold    bool          `json:"mayHold"`
	Mode       locknode.Kind `json:"mode"`
	Token      int64         `json:"token"`
	CreatedAt  time.Time     `json:"createdAt"`
	QueuedAt   time.Time     `json:"queuedAt"`
	SinceAt    *time.Time    `json:"sinceAt"`
	SinceExact bool          `json:"sinceExact"`
	Orphan     bool          `json:"orphan"`
	Deadlock   bool          `json:"deadlock"`
	Library    string        `json:"library"`
	Layout     string        `json:"layout"`
	MayIgnore  []string      `json:"mayIgnore"`
	Data       *struct {
		Base64 []byte `json:"base64"`
	} `json:"data"`
}

// reportedLocks reads the locks as reports of the server, which has them at hand: all of one moment
// if they fit into one report.
func (c *client) reportedLocks(ctx context.Context, root string) (lockList, error) {
	q := url.Values{}
	if root != "/" {
		q.Set("under", root)
	}
	list := lockList{}
	for {
		text, err := c.Report(ctx, "queues", q)
		if err != nil {
			return nil, err
		}
		var r queuesReport
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%w: %w", recipes.ErrNoReport, err)
		}
		for _, l := range r.Locks {
			if n := len(list); n == 0 || l.Offset == 0 || list[n-1].Path != l.Lock.Path {
				list = append(list, lockState{Path: l.Lock.Path})
			}
			state := &list[len(list)-1]
			for _, one := range l.Queue {
				state.Contenders = append(state.Contenders, one.contender())
			}
		}
		if r.Next == nil {
			return list, nil
		}
		q.Set("from", r.Next.From)
		q.Set("offset", strconv.Itoa(r.Next.Offset))
	}
}

func (r *reportedContender) contender() contender {
	var data []byte
	if r.Data != nil {
		data = r.Data.Base64
	}
	session, _ := strconv.ParseUint(r.Session, 0, 64) // it is the server's own
	one := locknode.New(r.Path, r.Node, int64(session), r.CreatedAt, r.Token, data)
	one.Queued, one.Kind, one.Held, one.MayHold = r.QueuedAt, r.Mode, r.Held, r.MayHold
	one.Orphan, one.Library, one.Layout = r.Orphan, r.Library, r.Layout
	if len(r.MayIgnore) > 0 {
		one.MayIgnore = r.MayIgnore
	}
	c := newContender(one)
	c.Address, c.Deadlock = r.Address, r.Deadlock
	if r.SinceAt != nil {
		c.Since, c.SinceExact = r.SinceAt, r.SinceExact
	}
	return c
}
