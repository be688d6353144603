package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"lockkeeper/cmd/lockkeeper/internal/contexts"
	"lockkeeper/server/ops/admin"
)

// snapshotGrace is how long the connection may take to end after a signal.
const snapshotGrace = 2 * time.Second

type snapshotCommand struct {
	clientFlags
	what, file string
	http       string
	base       string
	of         string
	yes        bool
}

func (c *snapshotCommand) flags(fs *flag.FlagSet, e env) {
	c.clientFlags.flags(fs, e)
	fs.StringVar(&c.http, "http", "",
		"`host:port` the HTTP port of any member (default: the host of the first of -servers, port 8080)")
	fs.StringVar(&c.base, "commands", "/commands", "`path` below which the HTTP port has its commands: "+
		"admin.commandURL (default /commands)")
	fs.StringVar(&c.of, "of-cluster", "", "`id` of the cluster that the snapshot is from, if that is another one")
	fs.BoolVar(&c.yes, "yes", false, "restore without asking")
}

func (c *snapshotCommand) check(words []string) error {
	if err := c.clientFlags.check(); err != nil {
		return err
	}
	switch {
	case len(words) == 0 || words[0] != "save" && words[0] != "restore":
		return errors.New("say what to do: save or restore")
	case len(words) != 2:
		return fmt.Errorf("%s needs the name of one file", words[0])
	case !strings.HasPrefix(c.base, "/"):
		return errors.New("-commands: a path begins with /")
	}
	c.what, c.file = words[0], words[1]
	return nil
}

func (c *snapshotCommand) run(e env, args []string) error {
	if err := c.check(args); err != nil {
		return usageError{err}
	}
	c.command += " " + c.what
	member, addr, err := c.member()
	if err != nil {
		return usageError{err}
	}
	defer member.HTTP.CloseIdleConnections()
	do := c.save
	if c.what == "restore" {
		if err := c.confirm(addr); err != nil {
			return err
		}
		do = c.restore
	}
	err, sig := untilSignal(e, snapshotGrace, func(ctx context.Context) error { return do(ctx, member) })
	switch {
	case errors.Is(err, admin.ErrUnknown):
		return c.fail(exitUnknown, err)
	case sig != nil:
		return signalStatus(sig)
	case err != nil:
		return c.fail(exitFailed, err)
	}
	return nil
}

// member is the member with the HTTP port in use, and its address.
func (c *snapshotCommand) member() (*admin.Client, string, error) {
	target, client, err := c.httpPort(c.http)
	if err != nil {
		return nil, "", err
	}
	m := &admin.Client{URL: target.String() + c.base, HTTP: client}
	id, ok, err := c.identity()
	if ok {
		m.Authorization = id.Scheme + " " + string(id.Secret)
	}
	return m, target.Host, err
}

// httpPort is the URL of a member's HTTP port and a client for it. An empty addr stands for the
// host of the first server and the usual port.
func (f *clientFlags) httpPort(addr string) (url.URL, *http.Client, error) {
	if addr = cmp.Or(addr, f.from.Get(contexts.HTTP)); addr == "" {
		servers, _ := serverList(f.servers) // checked
		host, _, _ := net.SplitHostPort(servers[0])
		addr = net.JoinHostPort(host, defaultHTTPPort)
	}
	config, err := f.tls.config()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	if before, rest, ok := strings.Cut(addr, "://"); ok {
		scheme, addr = before, rest
	}
	return url.URL{Scheme: scheme, Host: addr}, &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, err
}

// save writes the snapshot to a temporary file beside the file, and renames that when it is
// complete and durable.
func (c *snapshotCommand) save(ctx context.Context, member *admin.Client) (err error) {
	f, err := os.CreateTemp(filepath.Dir(c.file), filepath.Base(c.file)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	p := c.progress("received")
	info, err := member.Snapshot(ctx, f, p.show)
	p.end()
	if err == nil {
		err = replaceFile(f, c.file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.file, err)
	}
	c.say("saved", fmt.Sprintf("%s has the state at zxid 0x%x: %d nodes, %d bytes", c.file, uint64(info.Zxid),
		info.Nodes, p.done),
		"file", c.file, "zxid", fmt.Sprintf("0x%x", uint64(info.Zxid)), "nodes", info.Nodes, "bytes", p.done)
	return nil
}

// replaceFile makes a file that is complete durable, and then gives it the name of another one,
// durably. If the disk fails before that, the other file keeps its name.
func replaceFile(f interface {
	Name() string
	Sync() error
	Close() error
}, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (c *snapshotCommand) restore(ctx context.Context, member *admin.Client) error {
	f, err := os.Open(c.file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	info, err := admin.CheckSnapshot(bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		return fmt.Errorf("%s: nothing has been sent: %w", c.file, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	p := c.progress("sent")
	zxid, err := member.Restore(ctx, f, st.Size(), c.of, p.show)
	p.end()
	if err != nil {
		return fmt.Errorf("%s: %w", c.file, err)
	}
	c.say("restored", fmt.Sprintf("the cluster has the state of %s, of zxid 0x%x, since zxid 0x%x; all sessions "+
		"have ended",
		c.file, uint64(info.Zxid), uint64(zxid)), "file", c.file, "of", fmt.Sprintf("0x%x", uint64(info.Zxid)), "zxid",
		fmt.Sprintf("0x%x", uint64(zxid)))
	return nil
}

// confirm has the user type the name of the operation.
func (c *snapshotCommand) confirm(addr string) error {
	if c.yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError{errors.New("restore replaces the state of the whole cluster and ends all sessions: -yes is " +
			"needed without a terminal")}
	}
	fmt.Fprintf(c.e.stderr, "The state of the cluster of %s is replaced by %s. Everything newer is lost, and all "+
		"sessions and locks end.\nType restore to go on: ", addr, c.file)
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.TrimSpace(line) != "restore" {
		return c.fail(exitFailed, errors.New("nothing has been done"))
	}
	return nil
}

// transferProgress shows on a terminal how much has been transferred.
type transferProgress struct {
	out  *os.File // nil: nothing is shown
	verb string
	done int64
	next time.Time
}

func (c *snapshotCommand) progress(verb string) *transferProgress {
	if c.json {
		return &transferProgress{}
	}
	return newProgress(c.e, verb)
}

// newProgress shows on stderr, if that is a terminal.
func newProgress(e env, verb string) *transferProgress {
	p := &transferProgress{verb: verb}
	if f, ok := e.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.out = f
	}
	return p
}

func (p *transferProgress) show(done, all int64) {
	p.done = done
	if now := time.Now(); p.out != nil && (!now.Before(p.next) || done == all) {
		p.next = now.Add(200 * time.Millisecond)
		fmt.Fprintf(p.out, "\r\x1b[K%s %.1f of %.1f MB", p.verb, float64(done)/1e6, float64(all)/1e6)
	}
}

func (p *transferProgress) end() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
