package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockkeeper/server"
)

func TestNodeUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ls"}, "a path is needed"},
		{[]string{"get", "a"}, `"a" is not the path of a node`},
		{[]string{"get", "/a/"}, `"/a/" is not the path of a node`},
		{[]string{"get", "/a//b"}, `"/a//b" is not the path of a node`},
		{[]string{"get", "/a", "b"}, `unexpected argument "b"`},
		{[]string{"set", "/a"}, "the new data is missing"},
		{[]string{"set", "/a", "b", "c"}, `unexpected argument "c"`},
		{[]string{"delete", "-r", "/"}, "/ cannot be deleted"},
		{[]string{"delete", "-r", "-version", "1", "/a"}, "-version is about one node"},
		{[]string{"create", "-c", "-ttl", "1s", "/a"}, "different kinds of nodes"},
		{[]string{"create", "-e", "-c", "/a"}, "different kinds of nodes"},
		{[]string{"create", "-ttl", "1us", "/a"}, "-ttl: must be at least 1ms"},
		{[]string{"create", "-acl", "world:anyone:q", "/a"}, "there is no permission 'q'"},
		{[]string{"create", "-acl", "world", "/a"}, `"world" is not scheme:id:perms`},
		{[]string{"stat", "-x", "/a"}, "flag provided but not defined: -x"},
		{[]string{"status", "x"}, `unexpected argument "x"`},
		{[]string{"config"}, "it can check a file"},
		{[]string{"config", "check"}, "it can check a file"},
	} {
		status, stdout, stderr := invoke(c.args...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q, %q", c.args, status, stdout, stderr)
		}
	}
}

// expect runs a command line and compares status, standard output and a part of standard error.
func (u *user) expect(args string, status int, stdout, stderr string) {
	u.t.Helper()
	s, out, err := u.invoke(strings.Fields(args)...)
	if s != status || out != stdout || !strings.Contains(err, stderr) || (err == "") != (stderr == "") {
		u.t.Errorf("%s: status %d, %q, %q; want %d, %q, %q", args, s, out, err, status, stdout, stderr)
	}
}

func TestNodeCommands(t *testing.T) {
	t.Parallel()
	s := cluster(t, func(c *server.Config) { c.Reap.ExtendedTypes = true })
	s.expect("get /a", exitNoNode, "", "/a does not exist")
	s.expect("create /a one", exitOK, "/a\n", "")
	s.expect("create /a one", exitNodeExists, "", "/a exists already")
	s.expect("create /b/c", exitNoNode, "", "the parent of /b/c does not exist (-p makes it)")
	s.expect("create -p /b/c/d -json", exitOK, "{\"path\":\"/b/c/d\"}\n", "")
	s.expect("get /a", exitOK, "one", "")
	s.expect("set -version 1 /a two", exitBadVersion, "", "/a does not have version 1")
	s.expect("set -version 0 /a two", exitOK, "", "")
	s.expect("set /a -- -2", exitOK, "", "")
	s.expect("get -sync /a", exitOK, "-2", "")
	s.expect("ls /", exitOK, "a\nb\nzookeeper\n", "")
	s.expect("ls -r /b", exitOK, "/b\n/b/c\n/b/c/d\n", "")
	s.expect("delete -version 7 /a", exitBadVersion, "", "version 7")
	s.expect("delete /a", exitOK, "", "")
	s.expect("delete /b", exitNotEmpty, "", "-r deletes them, too")
	s.expect("delete -r -json /b", exitOK, "{\"path\":\"/b\",\"deleted\":3}\n", "")
	s.expect("delete -r /b", exitNoNode, "", "/b does not exist")
	s.expect("create -s /s-", exitOK, "/s-0000000002\n", "")
	s.expect("create -c /container", exitOK, "/container\n", "")
	s.expect("create -ttl 1h /ttl", exitOK, "/ttl\n", "")
	s.expect("create -ttl 1h -s /ttl", exitOK, "/ttl0000000005\n", "")

	s.expect("create -auth u:p -acl auth::cdrwa,world:anyone:r /mine x", exitOK, "/mine\n", "")
	s.expect("set /mine y", exitNoAuth, "", "-auth or -auth-file says who you are")
	s.expect("set -auth u:p /mine y", exitOK, "", "")
	if _, text, _ := s.invoke("stat", "-auth=u:p", "-acl", "/mine"); !strings.Contains(text, "dataVersion = 1\n") ||
		!strings.Contains(text, "acl = digest:u:") || !strings.HasSuffix(text, "=:cdrwa\nacl = world:anyone:r\n") {
		t.Errorf("stat: %q", text)
	}
	// No argument is too long for the program (CVE-2016-5017): Linux passes up to 128 KiB.
	long := "/" + strings.Repeat("n", 128<<10-2)
	s.expect("create "+long+" "+long, exitOK, long+"\n", "")
	s.expect("get "+long, exitOK, long, "")
	s.expect("delete "+long, exitOK, "", "")
	// A user of scheme digest may have any name.
	if status, _, text := s.invoke("create", "-acl", "world:anyone:cdrwa,digest:eve\nacl = \x1b[2K:h:r", "/named"); status != exitOK {
		t.Fatal(text)
	}
	if _, text, _ := s.invoke("stat", "-acl", "/named"); !strings.HasSuffix(text, "acl = world:anyone:cdrwa\nacl = \"digest:eve\\nacl = \\x1b[2K:h:r\"\n") {
		t.Errorf("stat: %q", text)
	}
	s.expect("delete /named", exitOK, "", "")
	s.expect("create -acl auth::r /nobody", exitFailed, "", "auth::perms needs -auth")
	s.expect("create -auth u:p -acl auth::cdrwa /mine/hidden", exitOK, "/mine/hidden\n", "")
	s.expect("create -auth u:p /mine/hidden/more", exitOK, "/mine/hidden/more\n", "")
	s.expect("ls -r /mine", exitNoAuth, "/mine\n/mine/hidden\n", "what is below 1 nodes may not be listed")
	s.expect("ls -r -auth u:p /mine", exitOK, "/mine\n/mine/hidden\n/mine/hidden/more\n", "")

	var got nodeRecord
	_, text, _ := s.invoke("get", "-json", "/mine")
	if err := json.Unmarshal([]byte(text), &got); err != nil || string(*got.Data) != "y" || *got.Text != "y" || got.Stat.Version != 1 ||
		got.Stat.NumChildren != 1 || got.Stat.EphemeralOwner != "0x0" || time.Since(got.Stat.Mtime) > time.Hour {
		t.Errorf("get -json: %s, %v", text, err)
	}
	status, _, text := s.invoke("get", "-json", "/no")
	var failed map[string]any
	if err := json.Unmarshal([]byte(text), &failed); status != exitNoNode || err != nil || failed["error"] != "NoNode" || failed["path"] != "/no" {
		t.Errorf("status %d, %s, %v", status, text, err)
	}
}

// Data come from standard input as they are, and too many of them are refused before they are sent
// or told from a lost answer.
func TestNodeData(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	before := stdin
	defer func() { stdin = before }()
	stdin = strings.NewReader("a\x00\n\xff")
	s.expect("create /a -", exitOK, "/a\n", "")
	s.expect("get /a", exitOK, "a\x00\n\xff", "")
	if _, text, _ := s.invoke("get", "-json", "/a"); !strings.Contains(text, `"data":"YQAK/w=="`) || strings.Contains(text, `"text"`) {
		t.Errorf("get -json: %s", text)
	}
	stdin = strings.NewReader(strings.Repeat("x", maxNodeData+1))
	s.expect("set /a -", exitUsage, "", "longer than 1572864 bytes")
	stdin = strings.NewReader(strings.Repeat("x", 1_200_000))
	s.expect("set /a -", exitFailed, "", "jute.maxbuffer")
}

// A tree of a few thousand nodes is listed in order and deleted as a whole.
func TestNodeTree(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	c := newTestClient(t, s.Server)
	var want strings.Builder
	for i := range 5 {
		dir := fmt.Sprintf("/tree/d%02d", i)
		for _, path := range []string{"/tree", dir} {
			if _, err := c.Create(path, nil, 0, worldACL); err != nil && i == 0 {
				t.Fatal(err)
			}
		}
		if i == 0 {
			want.WriteString("/tree\n")
		}
		want.WriteString(dir + "\n")
		for j := range 2*nodesAhead + 3 {
			path := fmt.Sprintf("%s/n%03d", dir, j)
			if _, err := c.Create(path, nil, 0, worldACL); err != nil {
				t.Fatal(err)
			}
			want.WriteString(path + "\n")
		}
	}
	s.expect("ls -r /tree", exitOK, want.String(), "")
	s.expect("delete -r -json /tree", exitOK, fmt.Sprintf("{\"path\":\"/tree\",\"deleted\":%d}\n", strings.Count(want.String(), "\n")), "")
	s.expect("stat /tree", exitNoNode, "", "/tree does not exist")
}

// TestNodeUnreachable: a port that nobody has, one of something else, and a server that stops.
func TestNodeUnreachable(t *testing.T) {
	t.Parallel()
	u := user{t: t}
	u.expect("get -servers 127.0.0.1:1 /a", exitUnreachable, "", "'lockkeeper serve' starts a member; -servers names others")
	u.expect("get -servers no-such-host.invalid /a", exitUnreachable, "", "lookup no-such-host.invalid")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	u.expect("get -timeout 300ms -servers "+silent.Addr().String()+" /a", exitUnreachable, "", "the port may not be for clients ('lockkeeper status' tells more)")
}

// An ephemeral node is there as long as the command.
func TestNodeEphemeral(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	for _, end := range []string{"signal", "deletion"} {
		p := s.start("", "create", "-e", "-s", "/e-", "data")
		path := p.line()
		s.expect("get "+path, exitOK, "data", "")
		if end == "signal" {
			if status := p.signal(syscall.SIGTERM); status != exitOK {
				t.Errorf("status %d", status)
			}
			s.expect("get "+path, exitNoNode, "", "does not exist")
			continue
		}
		s.expect("delete "+path, exitOK, "", "")
		if status, _ := p.wait(); status != exitFailed || !strings.Contains(p.stderr.String(), path+" is gone") {
			t.Errorf("status %d, %s", status, p.stderr.String())
		}
	}
}
