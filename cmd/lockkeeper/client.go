package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// serversVariable names the environment variable that stands for -servers.
const serversVariable = "LOCKKEEPER_SERVERS"

const defaultServers = "127.0.0.1:2181"

// usualServers is what -servers is if nobody says it.
func usualServers() string { return cmp.Or(os.Getenv(serversVariable), defaultServers) }

// clientFlags are the flags of every command that is a client.
type clientFlags struct {
	servers  string
	session  time.Duration
	auth     string
	authFile string
	json     bool
	tree     *recipes.TreeWatch // for connect; nil: none
	verbose  bool               // of those that run a command: say also what goes well
	logger   *slog.Logger       // nil: what package recipes logs is not said
}

// clientFlagsUsage is their part of the help texts.
const clientFlagsUsage = `	-servers host:port,...   members of the cluster; any that answers will do
	                         (default $LOCKKEEPER_SERVERS, or 127.0.0.1:2181)
	-session d               session timeout: for how long after it was last heard of
	                         the cluster keeps what this command holds (default 10s)
	-auth user:password      identity for ACLs of the scheme digest; of others: scheme:secret
	-auth-file file          the same, in the first line of a file: a command line can be
	                         seen by others (default: $LOCKKEEPER_AUTH)
	-json                    what the command says is JSON, one object a line
`

func addClientFlags(fs *flag.FlagSet) *clientFlags {
	f := &clientFlags{}
	fs.StringVar(&f.servers, "servers", usualServers(), "")
	fs.DurationVar(&f.session, "session", recipes.DefaultSessionTimeout, "")
	fs.StringVar(&f.auth, "auth", "", "")
	fs.StringVar(&f.authFile, "auth-file", "", "")
	fs.BoolVar(&f.json, "json", false, "")
	return f
}

// serverList checks -servers and returns them one by one, with their ports.
func (f *clientFlags) serverList() ([]string, error) {
	var list []string
	for s := range strings.SplitSeq(f.servers, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if strings.Contains(s, "/") {
			return nil, fmt.Errorf("-servers: %q: a path behind the servers (chroot) is not supported; write it in front of the lock's path", s)
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), "2181"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
			return nil, fmt.Errorf("-servers: %q is not host:port", s)
		}
		list = append(list, net.JoinHostPort(host, port))
	}
	if len(list) == 0 {
		return nil, errors.New("-servers: no server is named")
	}
	return list, nil
}

// tell is say for what goes well; it prints only if verbose or -json is set.
func (f *clientFlags) tell(e env, command, words string, event map[string]any) {
	if f.verbose || f.json {
		f.say(e, command, words, event)
	}
}

// check reports what is wrong with the flags.
func (f *clientFlags) check() error {
	if f.session < time.Second {
		return fmt.Errorf("-session: %v is less than a second", f.session)
	}
	if _, _, err := f.identity(); err != nil {
		return err
	}
	_, err := f.serverList()
	return err
}

// client is a connection to the cluster.
type client struct {
	*recipes.Session
	servers []string
}

// connect begins to connect. It does not wait.
func (f *clientFlags) connect() (*client, error) {
	servers, err := f.serverList()
	if err != nil {
		return nil, err
	}
	config := recipes.Config{Servers: servers, SessionTimeout: f.session, Tree: f.tree, Logger: f.logger}
	if id, ok, err := f.identity(); err != nil {
		return nil, err
	} else if ok {
		config.Auth = []recipes.Auth{id}
	}
	s, err := recipes.Connect(config)
	if err != nil {
		return nil, err
	}
	return &client{Session: s, servers: servers}, nil
}

func (c *client) connected() bool {
	return c.Conn().State() == zk.StateHasSession
}

// reach waits for the cluster, and returns at once if nothing listens at any address. With patience
// it says so, and has the caller go on: its requests wait.
func (f *clientFlags) reach(ctx context.Context, e env, command string, c *client, patience bool) error {
	err := c.Reach(ctx)
	switch {
	case patience && errors.Is(err, recipes.ErrUnreachable):
		f.say(e, command, c.unreachable()+"; still trying", map[string]any{"event": "unreachable"})
		return nil
	case errors.Is(err, recipes.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return errors.New(c.unreachable())
	}
	return err
}

// unreachable formats that no member is reachable, and why as far as that is known.
func (c *client) unreachable() string {
	text := "cannot reach the cluster at " + strings.Join(c.servers, ", ")
	over, cancel := context.WithCancel(context.Background())
	cancel() // what is known now
	if err := c.Reach(over); errors.Is(err, recipes.ErrUnreachable) {
		return text + strings.TrimPrefix(err.Error(), recipes.ErrUnreachable.Error())
	}
	return text + ": a member was reached, but it serves nobody: it may have no leader"
}

// given says whether a flag stands on the command line.
func given(fs *flag.FlagSet, name string) (found bool) {
	fs.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// say writes a message of the command itself: as text, or with -json the event and its
// fields. Both go to standard error, as standard output may belong to somebody else.
func (f *clientFlags) say(e env, command, words string, event map[string]any) {
	if !f.json {
		fmt.Fprintf(e.stderr, "lockkeeper %s: %s\n", command, words)
		return
	}
	event["message"] = words
	event["time"] = time.Now().UTC().Format(time.RFC3339Nano)
	b, err := json.Marshal(event)
	if err != nil { // strings and numbers only
		panic(err)
	}
	fmt.Fprintf(e.stderr, "%s\n", b)
}
