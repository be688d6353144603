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
	"strings"
	"time"

	"lockkeeper/cmd/lockkeeper/internal/contexts"
	"lockkeeper/recipes"
)

// httpVariable is the environment variable of -http.
const httpVariable = "LOCKKEEPER_HTTP"

// consoleFlags are the flags of commands that read the API of a member's console (docs/api.md).
type consoleFlags struct{ http string }

func (f *consoleFlags) flags(fs *flag.FlagSet, e env) {
	fs.StringVar(&f.http, "http", e.variables[httpVariable],
		"`host:port` where a member serves HTTP (admin.serverPort); https://host:port with TLS (default "+
			"$LOCKKEEPER_HTTP, or http of the context, or the host of the first of -servers, port 8080)")
}

const (
	consolePatience = 10 * time.Second
	consoleBytes    = 16 << 20 // of an answer
)

// readConsole reads an answer of the console. text is the answer as it came.
func (c *clientFlags) readConsole(f *consoleFlags, view string, q url.Values, answer any) (text []byte, err error) {
	servers, err := serverList(c.servers)
	if err != nil {
		return nil, usageError{err}
	}
	host, _, _ := net.SplitHostPort(servers[0])
	base := cmp.Or(f.http, c.from.Get(contexts.HTTP), net.JoinHostPort(host, defaultHTTPPort))
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	ctx, cancel := context.WithTimeout(context.Background(), consolePatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(base, "/")+"/api/v1/"+view+"?"+q.Encode(), nil)
	if err != nil {
		return nil, usageError{fmt.Errorf("-http: %w", err)}
	}
	if id, ok, err := c.identity(); err != nil {
		return nil, usageError{err}
	} else if ok && id.Scheme == digestScheme {
		r.Header.Set("Authorization", "digest "+string(id.Secret))
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = c.tls.config(); err != nil {
		return nil, usageError{err}
	}
	if t := transport.TLSClientConfig; t != nil {
		t.ServerName = r.URL.Hostname()
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return nil, fmt.Errorf("no member serves HTTP at %s: %w", base, err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, consoleBytes))
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w", base, err)
	}
	var failed struct {
		Error string `json:"error"`
	}
	if resp.StatusCode != http.StatusOK {
		if json.Unmarshal(text, &failed) == nil && failed.Error != "" {
			return nil, errors.New(failed.Error)
		}
		return nil, fmt.Errorf("%s answers %s: is it a member's HTTP port?", base, resp.Status)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", base, err)
	}
	return text, nil
}

// lockHistory has the fields of an answer of history that the command shows.
type lockHistory struct {
	Path      string     `json:"path"`
	Enabled   bool       `json:"enabled"`
	Hidden    bool       `json:"hidden"`
	Truncated bool       `json:"truncated"`
	BeginsAt  time.Time  `json:"beginsAt"`
	BeginsWhy string     `json:"beginsWhy"`
	Holds     []pastHold `json:"holds"`
	Quit      []struct{} `json:"quit"`
}

type pastHold struct {
	Node      string     `json:"node"`
	Session   string     `json:"session"`
	Mode      string     `json:"mode"`
	Token     int64      `json:"token"`
	FromAt    time.Time  `json:"fromAt"`
	FromExact bool       `json:"fromExact"`
	ToAt      *time.Time `json:"toAt"`
	End       string     `json:"end"`
	EndedBy   string     `json:"endedBy"`
	WaitedMs  int64      `json:"waitedMs"`
	HeldMs    int64      `json:"heldMs"`
	Note      string     `json:"note"`
	Who       string     `json:"who"`
	Address   string     `json:"address"`
}

// history shows who held a lock.
func (l *lockLister) history() error {
	var h lockHistory
	text, err := l.readHistory(&h)
	if err != nil {
		return err
	}
	if l.json {
		_, err := l.e.stdout.Write(text)
		return err
	}
	fmt.Fprint(l.e.stdout, h.text())
	return nil
}

// readHistory reads the history over HTTP if an address is given, else as a report on the client
// port, or over HTTP at the usual address if the server makes none.
func (l *lockLister) readHistory(h *lockHistory) (text []byte, err error) {
	q := url.Values{"path": {l.root}, "limit": {"500"}}
	if l.console.http == "" {
		c, err := l.connect(recipes.Config{})
		if err != nil {
			return nil, usageError{err}
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
		defer cancel()
		if err := l.reach(ctx, c, given(l.fs, "timeout")); err != nil {
			return nil, err
		}
		text, err = c.Report(ctx, "history", q)
		if err == nil {
			return text, json.Unmarshal(text, h)
		}
		if !errors.Is(err, recipes.ErrNoReport) {
			return nil, err
		}
	}
	return l.readConsole(&l.console, "history", q, h)
}

var beginnings = map[string]string{
	"start": "since then this member has run", "ring": "what was before has been overwritten (console.historyBytes)",
	"snapshot": "a snapshot replaced this member's state then",
}

func (h *lockHistory) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plain(h.Path))
	if !h.Enabled {
		b.WriteString("  this member keeps no history: console.historyBytes is 0\n")
	}
	if h.Hidden {
		b.WriteString("  what happened may not be shown: the node is gone, and no ACL says who may read it\n")
	}
	fmt.Fprintf(&b, "  the history begins at %s: %s\n", h.BeginsAt.Local().Format(instantLayout),
		cmp.Or(beginnings[h.BeginsWhy], h.BeginsWhy))
	if h.Truncated {
		b.WriteString("  older ones are left out\n")
	}
	for _, o := range h.Holds {
		from, to, end := o.FromAt.Local().Format("2006-01-02 15:04:05.000Z07:00"), "", "holds it"
		if !o.FromExact {
			from = "before " + from
		}
		held := age(time.Duration(o.HeldMs) * time.Millisecond)
		if o.ToAt != nil {
			to, end = " to "+o.ToAt.Local().Format("15:04:05.000"), o.End
			if o.End == "deleted" {
				end += " by session " + o.EndedBy
			}
		}
		fmt.Fprintf(&b, "  %s%s (%s)  %s  %s  waited %s  token %d  session %s", from, to, held, end, o.Mode,
			age(time.Duration(o.WaitedMs)*time.Millisecond), o.Token, o.Session)
		for _, s := range []string{o.Address, plain(o.Who), printable(o.Note)} {
			if s != "" {
				b.WriteString("  " + s)
			}
		}
		b.WriteByte('\n')
	}
	if len(h.Holds) == 0 {
		b.WriteString("  nobody has held it since\n")
	}
	if n := len(h.Quit); n > 0 {
		fmt.Fprintf(&b, "  %d left the queue before it was their turn\n", n)
	}
	return b.String()
}

type sessionsCommand struct {
	clientFlags
	console consoleFlags
	search  string
	sort    string
	limit   int
}

func (c *sessionsCommand) flags(fs *flag.FlagSet, e env) {
	c.clientFlags.flags(fs, e)
	c.console.flags(fs, e)
	fs.StringVar(&c.search, "search", "", "`text` only sessions with an id that contains it, or an address that "+
		"begins with it")
	fs.StringVar(&c.sort, "sort", "ephemerals", "`by` session, ephemerals, watches, received or left (default "+
		"ephemerals)")
	fs.IntVar(&c.limit, "limit", 50, "`n` show at most n, up to 200 (default 50)")
}

// listedSession has the fields of a session that the command shows. Pointers are nil if it is
// connected elsewhere.
type listedSession struct {
	Session     string `json:"session"`
	Address     string `json:"address"`
	TimeoutMs   int64  `json:"timeoutMs"`
	Generation  int64  `json:"generation"`
	Ephemerals  int    `json:"ephemerals"`
	Here        bool   `json:"here"`
	LastHeardMs int64  `json:"lastHeardMs"`
	Received    int64  `json:"received"`
	Watches     int    `json:"watches"`
	LeftMs      *int64 `json:"leftMs"`
}

func (c *sessionsCommand) run(_ env, args []string) error {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	var err error
	if len(args) == 1 {
		err = c.showOne(args[0])
	} else {
		err = c.showAll()
	}
	var wrong usageError
	if err != nil && !errors.As(err, &wrong) {
		return c.fail(exitFailed, err)
	}
	return err
}

func (c *sessionsCommand) showAll() error {
	var answer struct {
		Member   int             `json:"member"`
		Total    int             `json:"total"`
		Matched  int             `json:"matched"`
		Sessions []listedSession `json:"sessions"`
	}
	q := url.Values{"search": {c.search}, "sort": {c.sort}, "limit": {fmt.Sprint(c.limit)}}
	text, err := c.readConsole(&c.console, "sessions", q, &answer)
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.e.stdout.Write(text)
		return err
	}
	fmt.Fprintf(c.e.stdout, "%d sessions, %d of them below, as member %d sees them\n", answer.Matched,
		len(answer.Sessions), answer.Member)
	for i := range answer.Sessions {
		fmt.Fprintln(c.e.stdout, "  "+answer.Sessions[i].text())
	}
	return nil
}

func (s *listedSession) text() string {
	t := fmt.Sprintf("%s  %s  timeout %s  %d ephemerals", s.Session, s.Address,
		age(time.Duration(s.TimeoutMs)*time.Millisecond), s.Ephemerals)
	if s.Here {
		t += fmt.Sprintf("  %d watches  %d received  last heard %s ago", s.Watches, s.Received,
			age(time.Duration(s.LastHeardMs)*time.Millisecond))
	} else {
		t += "  connected elsewhere, or not at all"
	}
	if s.LeftMs != nil {
		t += fmt.Sprintf("  expires in %s if silent", age(time.Duration(*s.LeftMs)*time.Millisecond))
	}
	return t
}

func (c *sessionsCommand) showOne(id string) error {
	type paths struct {
		Total  int      `json:"total"`
		Hidden int      `json:"hidden"`
		Paths  []string `json:"paths"`
	}
	var answer struct {
		Session    listedSession `json:"session"`
		Ephemerals paths         `json:"ephemerals"`
		Watches    *paths        `json:"watches"`
		Holds      []string      `json:"holds"`
		Waits      []string      `json:"waits"`
	}
	text, err := c.readConsole(&c.console, "session", url.Values{"id": {id}, "limit": {"500"}}, &answer)
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.e.stdout.Write(text)
		return err
	}
	fmt.Fprintln(c.e.stdout, answer.Session.text())
	show := func(title string, list []string, more int) {
		for _, path := range list {
			fmt.Fprintf(c.e.stdout, "  %s %s\n", title, plain(path))
		}
		if more > 0 {
			fmt.Fprintf(c.e.stdout, "  %s %d more\n", title, more)
		}
	}
	show("holds", answer.Holds, 0)
	show("waits for", answer.Waits, 0)
	show("ephemeral", answer.Ephemerals.Paths, answer.Ephemerals.Total-len(answer.Ephemerals.Paths))
	if w := answer.Watches; w != nil {
		show("watches", w.Paths, w.Total-len(w.Paths))
	}
	return nil
}
