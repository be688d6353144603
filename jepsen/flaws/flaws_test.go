package flaws

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/zkconn"
	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// patience is how long a server may take to answer.
const patience = 10 * time.Second

// A flaw is a published flaw of ZooKeeper that a client can play.
type flaw struct {
	cve string
	// members is the size of the cluster, 0 means one.
	members int
	// own says that it harms the server, so that nothing else is played on it. With options
	// ZooKeeper has a server of its own, too: they are more of its JVM.
	own     bool
	options []string
	// play plays the flaw, and returns the outcome.
	play func(s *scene) string
	// zookeeper and lockkeeper are the expected outcomes on ZooKeeper 3.8.0 and here.
	zookeeper, lockkeeper string
}

// A scene is a server on which flaws are played.
type scene struct {
	t       *testing.T
	ctx     context.Context
	target  string
	cluster *jepsen.Cluster
	member  *jepsen.Member
	dir     string
}

// settings are the settings of every server.
var settings = []string{"audit.enable=true", "extendedTypesEnabled=true", "4lw.commands.whitelist=srvr",
	"ensembleAuthName=alpha", "authProvider.1=org.apache.zookeeper.server.auth.EnsembleAuthenticationProvider"}

// openScene starts a server.
func openScene(t *testing.T, target jepsen.Target, members int) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s := &scene{ctx: ctx, target: target.Name, dir: t.TempDir()}
	extra := settings
	if target.Name == "lockkeeper" {
		extra = append(extra[:len(extra):len(extra)], "audit.file={dir}/audit.log")
	}
	var err error
	s.cluster, err = jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: max(1, members), Dir: s.dir, Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	s.member = s.cluster.Members()[0]
	return s
}

// A client is one connection with a session.
type client struct {
	*zkconn.Conn
	s *scene
}

// connect opens a session. auth, if there is any, are logins of scheme digest.
func (s *scene) connect(auth ...string) *client {
	s.t.Helper()
	nc, err := net.DialTimeout("tcp", s.member.ClientAddr, patience)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{zkconn.New(nc), s}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Handshake(wire.ConnectRequest{TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)}); err != nil {
		s.t.Fatal(err)
	}
	for _, a := range auth {
		c.must(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(a)})
	}
	return c
}

// errEnd says that the server has ended the connection.
var errEnd = errors.New("the connection is ended")

// frame is the frame of the next request.
func (c *client) frame(op wire.Op, body wire.Record) []byte {
	b, _ := c.Append(nil, op, body)
	return b
}

// ask sends a request, and is answer then.
func (c *client) ask(op wire.Op, body wire.Record) (reply []byte, events []string, err error) {
	_, _ = c.Write(c.frame(op, body)) // reading fails, too
	return c.answer(op)
}

// answer returns the body of the next answer, which is to a request of that kind, and the events
// before it. The error is the code of the answer, or errEnd.
func (c *client) answer(op wire.Op) (reply []byte, events []string, err error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	for {
		h, reply, err := c.ReadReply()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.s.t.Fatalf("no answer to %v", op)
		case err != nil:
			return nil, events, errEnd
		case h.Xid != wire.XidNotification:
			return bytes.Clone(reply), events, h.Err.Err()
		}
		var e wire.WatcherEvent
		if err := wire.Decode(reply, &e); err != nil {
			c.s.t.Fatal(err)
		}
		events = append(events, fmt.Sprintf("%v %s", e.Type, e.Path))
	}
}

// must is ask for a request that has to succeed.
func (c *client) must(op wire.Op, body wire.Record) []byte {
	c.s.t.Helper()
	reply, _, err := c.ask(op, body)
	if err != nil {
		c.s.t.Fatalf("%v: %v", op, err)
	}
	return reply
}

// outcome is the answer to a request as text.
func (c *client) outcome(op wire.Op, body wire.Record) string {
	_, _, err := c.ask(op, body)
	return text(err)
}

func text(err error) string {
	if err == nil {
		return "Ok"
	}
	return err.Error()
}

// create makes a node; with owner only that user of scheme digest has rights.
func (c *client) create(path, owner string) {
	c.s.t.Helper()
	acl := wire.OpenACL
	if owner != "" {
		acl = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth", ID: owner}}}
	}
	c.must(wire.OpCreate, wire.CreateRequest{Path: path, ACL: acl})
}

// log returns the member's log, with its audit log behind it.
func (s *scene) log() string {
	text, err := os.ReadFile(s.member.LogPath())
	if err != nil {
		s.t.Fatal(err)
	}
	audit, err := os.ReadFile(filepath.Join(filepath.Dir(s.member.LogPath()), "audit.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text) + string(audit)
}

// logged waits until the member's log has a text, and returns the line with it, and its end.
func (s *scene) logged(part string) (line string) {
	s.t.Helper()
	err := jepsen.Poll(s.ctx, 20*time.Millisecond, func() error {
		for l := range strings.Lines(s.log()) {
			if strings.Contains(l, part) {
				line = l
				return nil
			}
		}
		return fmt.Errorf("%q is not logged", part)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return line
}

// afterwards says whether the server serves. If it is gone, restart has it start again.
func (s *scene) afterwards(restart bool) string {
	s.t.Helper()
	gone := func() (is bool) {
		err := jepsen.Poll(s.ctx, 20*time.Millisecond, func() error {
			is = !s.member.Running()
			if !is && s.takesWrite() != nil {
				return errors.New("it neither serves nor ends")
			}
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
		return is
	}
	if !gone() {
		return "the server serves"
	}
	if !restart {
		return "the server is gone"
	}
	if err := s.member.Start(); err != nil {
		s.t.Fatal(err)
	}
	if gone() {
		return "the server is gone, and does not start again"
	}
	return "the server is gone, and starts again"
}

// takesWrite returns how a write of a new session fails.
func (s *scene) takesWrite() error {
	nc, err := net.DialTimeout("tcp", s.member.ClientAddr, patience)
	if err != nil {
		return err
	}
	c := zkconn.New(nc)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Handshake(wire.ConnectRequest{TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)}); err != nil {
		return err
	}
	b, _ := c.Append(nil, wire.OpCreate, wire.CreateRequest{Path: "/after-", ACL: wire.OpenACL, Mode: wire.ModePersistentSequential})
	if _, err := c.Write(b); err != nil {
		return err
	}
	h, _, err := c.ReadReply()
	return errors.Join(err, h.Err.Err())
}

// TestPublishedFlaws plays every flaw on both servers.
func TestPublishedFlaws(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	servers := []struct {
		name   string
		target func(f flaw) (jepsen.Target, error)
		want   func(f flaw) string
	}{
		{"zookeeper", func(f flaw) (jepsen.Target, error) { return jepsen.ZooKeeper(f.options...) },
			func(f flaw) string { return f.zookeeper }},
		{"lockkeeper", func(flaw) (jepsen.Target, error) { return lockkeeper, nil },
			func(f flaw) string { return f.lockkeeper }},
	}
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			open := func(t *testing.T, f flaw) *scene {
				target, err := server.target(f)
				jepsen.Need(t, err)
				return openScene(t, target, f.members)
			}
			shared := open(t, flaw{})
			for _, f := range flaws {
				t.Run(f.cve, func(t *testing.T) {
					s := shared
					if f.own || f.members > 1 {
						s = open(t, f)
					}
					s.t = t
					if got, want := f.play(s), server.want(f); got != want {
						t.Errorf("%s, want %s", got, want)
					}
				})
			}
		})
	}
}

// Every flaw that is played is in the table of docs/security.md, with its outcome.
func TestFlawsAreInTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## Published flaws of ZooKeeper\n")
	if !found {
		t.Fatal("no section about published flaws")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]string{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.HasPrefix(cells[1], " CVE-") {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	for _, f := range flaws {
		if !strings.Contains(rows[f.cve], "`TestPublishedFlaws`") {
			t.Errorf("%s: %q does not say that it is played", f.cve, rows[f.cve])
		}
		delete(rows, f.cve)
	}
	for cve, row := range rows {
		if strings.Contains(row, "`TestPublishedFlaws`") || !strings.Contains(row, "not played: ") {
			t.Errorf("%s is played by nobody: %q", cve, row)
		}
	}
}
