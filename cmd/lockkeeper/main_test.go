package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockkeeper/cmd/lockkeeper/internal/guard"
	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

// asCommand makes the test binary the command itself, so that tests see a real process.
const asCommand = "LOCKKEEPER_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" || len(os.Args) == 2 && os.Args[1] == guard.Command {
		main()
		return
	}
	heedSignals()
	os.Exit(m.Run())
}

// heedSignals has the commands that tests start heed the signals that this process was started to
// ignore, as with nohup or in the background of a script: a new program gets the default action for
// signals that its parent catches.
func heedSignals() {
	for _, s := range guard.Forwarded {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// TestIgnoredSignalsStayIgnored: nohup has its effect, on the command too.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	p := s.startBinary("/bin/sh", t.TempDir(), "-c",
		fmt.Sprintf(`trap "" HUP; exec %s lock /l sh -c 'echo has; while ! test -e go; do sleep 0.02; done; echo done'`, os.Args[0]))
	if l := p.line(); l != "has" {
		t.Fatalf("it says %q", l)
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if status, lines := p.wait(); status != exitOK || len(lines) != 1 || lines[0] != "done" {
		t.Errorf("status %d, %q", status, lines)
	}
}

// user is somebody who runs commands, with the environment variables that they have.
type user struct {
	t         *testing.T
	variables map[string]string
	configDir string
}

// as returns the user for a subtest.
func (u *user) as(t *testing.T) *user { return &user{t, u.variables, u.configDir} }

// environ is the environment of a process that is the command.
func (u *user) environ() []string {
	list := append(os.Environ(), asCommand+"=1", "XDG_CONFIG_HOME="+cmp.Or(u.configDir, "/nowhere"))
	for name, value := range u.variables {
		list = append(list, name+"="+value)
	}
	return list
}

// invoke runs a command line that ends by itself.
func (u *user) invoke(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, env{&out, &err, nil, u.variables, u.configDir})
	return status, out.String(), err.String()
}

// invoke is the user's, without variables.
func invoke(args ...string) (status int, stdout, stderr string) { return new(user).invoke(args...) }

func TestHelp(t *testing.T) {
	t.Parallel()
	of := func(name string) string {
		c, _ := findCommand(name)
		return c.help()
	}
	for _, c := range []struct {
		args  []string
		usage string
	}{
		{[]string{"help"}, page("main")},
		{[]string{"--help"}, page("main")},
		{[]string{"-h"}, page("main")},
		{[]string{"-help"}, page("main")},
		{[]string{"help", "serve"}, of("serve")},
		{[]string{"help", "version"}, of("version")},
		{[]string{"help", "help"}, page("help")},
		{[]string{"--help", "serve"}, of("serve")},
		{[]string{"serve", "--help"}, of("serve")},
		{[]string{"serve", "-h"}, of("serve")},
		{[]string{"serve", "-log-level", "debug", "-h"}, of("serve")},
		{[]string{"serve", "zoo.cfg", "-h"}, of("serve")},
		{[]string{"cluster", "list", "-h"}, of("cluster")},
		{[]string{"lock", "-h"}, of("lock")},
		{[]string{"version", "--help"}, of("version")},
		{[]string{"help", "--help"}, page("help")},
	} {
		status, stdout, stderr := invoke(c.args...)
		if status != exitOK || stdout != c.usage || stderr != "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", c.args, status, stdout, stderr)
		}
	}
}

// The help of each command describes every flag: the name of its value, and its effect, on lines
// that a terminal shows as they are.
func TestHelpDescribesFlags(t *testing.T) {
	flags := 0
	for _, c := range commands() {
		text := c.help()
		c.flagSet(env{}).VisitAll(func(f *flag.Flag) {
			flags++
			value := ` \S.*`
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
				value = ""
			}
			if !regexp.MustCompile(`(?m)^\t-` + f.Name + value + `  +\S`).MatchString(text) {
				t.Errorf("%s: -%s is not described in\n%s", c.name, f.Name, text)
			}
		})
		for line := range strings.Lines(text) {
			if n := len(strings.TrimRight(strings.ReplaceAll(line, "\t", "        "), "\n")); n > 98 {
				t.Errorf("%s: a line of %d columns: %s", c.name, n, line)
			}
		}
	}
	if flags < 40 {
		t.Errorf("%d flags in all", flags)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}, {"-version"}} {
		status, stdout, stderr := invoke(args...)
		if status != exitOK || stderr != "" || !regexp.MustCompile(`\Alockkeeper \d+\.\d+\.\d+\ncommit     (unknown|[0-9a-f]{12}.*)\ndate       (unknown|\d{4}-.* UTC)\ncompiler   go\S+\nprotocol   ZooKeeper 3\.9\.5\n\z`).MatchString(stdout) {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const (
		list    = "'lockkeeper help' lists the commands.\n"
		serves  = "'lockkeeper help serve' shows how to use it.\n"
		version = "'lockkeeper help version' shows how to use it.\n"
	)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sevre"}, "lockkeeper: unknown command \"sevre\"\nDid you mean: lockkeeper serve\n" + list},
		{[]string{"Version"}, "lockkeeper: unknown command \"Version\"\nDid you mean: lockkeeper version\n" + list},
		{[]string{"help", "serv"}, "lockkeeper: unknown command \"serv\"\nDid you mean: lockkeeper serve\n" + list},
		{[]string{"frobnicate"}, "lockkeeper: unknown command \"frobnicate\"\n" + list},
		{[]string{file}, "lockkeeper: unknown command \"" + file + "\"\nTo start a member with that configuration file: lockkeeper serve " + file + "\n" + list},
		{[]string{"version", "please"}, "lockkeeper version: unexpected argument \"please\"\n" + version},
		{[]string{"version", "-x"}, "lockkeeper version: flag provided but not defined: -x\n" + version},
		{[]string{"serve", "-x"}, "lockkeeper serve: flag provided but not defined: -x\n" + serves},
		{[]string{"-x"}, "lockkeeper serve: flag provided but not defined: -x\n" + serves},
		{[]string{"serve", "a.cfg", "b.cfg"}, "lockkeeper serve: unexpected argument \"b.cfg\"\n" + serves},
		{[]string{"serve", "-data-dir", "d", "a.cfg"}, "lockkeeper serve: -data-dir is for a start without a file; set dataDir in a.cfg\n" + serves},
		{[]string{"serve", "-client-address", ":1", "a.cfg"}, "lockkeeper serve: -client-address is for a start without a file; set clientPort and clientPortAddress in a.cfg\n" + serves},
		{[]string{"serve", "-log-level", "loud"}, "lockkeeper serve: -log-level must be debug, info, warn or error, not \"loud\"\n" + serves},
		{[]string{"serve", "-log-format", "xml"}, "lockkeeper serve: -log-format must be text or json, not \"xml\"\n" + serves},
	} {
		status, stdout, stderr := invoke(c.args...)
		if status != exitUsage || stdout != "" || stderr != c.want {
			t.Errorf("%q: status %d, stdout %q, stderr\n%swant\n%s", c.args, status, stdout, stderr, c.want)
		}
	}
}

// TestDoesNotStart: every reason stands on a line of its own, with the place first.
func TestDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	inUse := fmt.Sprintf("clientPort: cannot listen on 127.0.0.1:%d: address already in use; stop the program that uses the port, or choose another one\nlockkeeper: not started\n", port)
	for _, c := range []struct {
		text string
		args []string
		want string
	}{
		{"clientPort=x\ntickTime=-1\n", []string{"serve", file},
			file + ": dataDir: is not set\n" + file + ":1: clientPort: must be a number, not \"x\"\n" + file + ":2: tickTime: must be at least 1, not -1\nlockkeeper: not started\n"},
		{"clientPort=1\ndatadir=/tmp\ntickTimeMs=1\nrequireKerberosConfig=true\n", []string{"serve", file}, file + ":3: tickTimeMs: warning: neither ZooKeeper nor lockkeeper knows this key; ignored. The nearest known key is tickTime\n" +
			file + ":2: datadir: there is no such key; dataDir is probably meant (-allow-unknown-keys ignores keys like this one)\n" +
			file + ":4: requireKerberosConfig: this version has no Kerberos (GSSAPI); set it to false to start without\nlockkeeper: not started\n"},
		{"clientPort=1\ndatadir=/tmp\n", []string{"serve", "-allow-unknown-keys", file}, file + ":2: datadir: warning: neither ZooKeeper nor lockkeeper knows this key; ignored, though it looks like dataDir\n" +
			file + ": dataDir: is not set\nlockkeeper: not started\n"},
		{"", []string{"serve", file + "x"}, "lockkeeper: not started: server: read configuration " + file + "x: no such file or directory\n"},
		{fmt.Sprintf("clientPortAddress=127.0.0.1\nclientPort=%d\ndataDir=%s\n", port, dir), []string{"serve", "-log-level", "warn", file}, file + ":2: " + inUse},
		{"", []string{"serve", "-data-dir", dir, "-client-address", taken.Addr().String()}, inUse},
		{"", []string{"-data-dir", dir, "-client-address", "here"}, "clientPort: \"here\" is not host:port: address here: missing port in address\nlockkeeper: not started\n"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := invoke(c.args...)
		if status != exitFailed || stdout != "" || stderr != c.want {
			t.Errorf("%q: status %d, stdout %q, stderr\n%swant\n%s", c.args, status, stdout, stderr, c.want)
		}
	}
}

// process is the command, running.
type process struct {
	*exec.Cmd
	t      *testing.T
	lines  chan string // of standard output, closed at its end
	stderr lockedBuffer
}

// lockedBuffer may be read while the process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *lockedBuffer) Len() int { return len(b.String()) }

// start starts the command in a directory of its own, unless dir names one.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return (&user{t: t}).start(dir, args...)
}

func (u *user) start(dir string, args ...string) *process {
	u.t.Helper()
	return u.startBinary(os.Args[0], dir, args...)
}

// startBinary starts that program as the command.
func (u *user) startBinary(binary, dir string, args ...string) *process {
	t := u.t
	t.Helper()
	p := &process{Cmd: exec.Command(binary, args...), t: t, lines: make(chan string, 100)}
	p.Env = u.environ()
	p.Dir = dir
	p.Stderr = &p.stderr
	p.WaitDelay = time.Second
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it has ended if all went well
		_ = p.Wait()         // this also stops reading from pipes that its children may have open
		<-read
		if t.Failed() {
			t.Logf("standard error:\n%s", p.stderr.String())
		}
	})
	return p
}

// line is the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatal("it has ended")
		}
		return l
	case <-time.After(20 * time.Second):
		p.t.Fatal("it said nothing")
	}
	return ""
}

// signal sends a signal and returns the exit status.
func (p *process) signal(sig syscall.Signal) int {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	status, _ := p.wait()
	return status
}

var listens = regexp.MustCompile(`^lockkeeper listens on (\S+), keeps its data in (\S+), shows its locks at (\S+), and stops at Ctrl-C\.$`)

func word(t *testing.T, addr, word string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%s: %v after %q", word, err, b)
	}
	return string(b)
}

// TestServeWithoutFile: one line on standard output, nothing on standard error, the data directory
// where the line says, and a clean end.
func TestServeWithoutFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := start(t, dir, "-client-address", "127.0.0.1:0")
		m := listens.FindStringSubmatch(p.line())
		if m == nil {
			t.Fatal("the line says something else")
		}
		if want := filepath.Join(dir, "lockkeeper-data"); m[2] != want {
			t.Errorf("data in %s, want %s", m[2], want)
		}
		if _, err := os.Stat(filepath.Join(m[2], "raft.db")); err != nil {
			t.Error(err)
		}
		checkConsole(t, m[3])
		if got := word(t, m[1], "srvr"); !strings.Contains(got, "Zookeeper version: 3.9.5-lockkeeper") && !strings.Contains(got, "not currently serving") {
			t.Errorf("srvr: %q", got)
		}
		if status := p.signal(sig); status != exitOK {
			t.Errorf("%v: status %d", sig, status)
		}
		if p.stderr.Len() > 0 {
			t.Errorf("standard error: %s", p.stderr.String())
		}
	}
}

// checkConsole: the address in the start line is the console, for this machine only.
func checkConsole(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(page), "<title>lockkeeper") {
		t.Errorf("%s is no console: %v\n%.200s", url, err, page)
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("the console is at %s", url)
	}
}

// TestServeConsoleFlag: -console names the place or turns the console off. A place that was named
// and is taken stops the start; with a file the flag is refused.
func TestServeConsoleFlag(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-console", "127.0.0.1:0")
	if m := listens.FindStringSubmatch(p.line()); m == nil {
		t.Error("there is no console")
	} else {
		checkConsole(t, m[3])
	}
	p.signal(syscall.SIGTERM)
	p = start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-console", "off")
	if line := p.line(); !strings.HasSuffix(line, "/lockkeeper-data, and stops at Ctrl-C.") {
		t.Errorf("-console off: %s", line)
	}
	p.signal(syscall.SIGTERM)
	p = start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-console", taken.Addr().String())
	if status, _ := p.wait(); status != exitFailed || !strings.Contains(p.stderr.String(), "address already in use") {
		t.Errorf("a port in use: status %d, %s", status, p.stderr.String())
	}
	p = start(t, t.TempDir(), "serve", "-console", "off", "zoo.cfg")
	if status, _ := p.wait(); status != exitUsage || !strings.Contains(p.stderr.String(), "admin.serverAddress") {
		t.Errorf("with a file: status %d, %s", status, p.stderr.String())
	}
}

// TestServeFile: the log is on standard error, at the level that was asked for.
func TestServeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	text := "clientPortAddress=127.0.0.1\nclientPort=%d\ndataDir=%s/data\n4lw.commands.whitelist=ruok\npreAllocSize=1\n"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	if err := os.WriteFile(file, fmt.Appendf(nil, text, port, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "", "serve", file)
	if got, want := p.line(), fmt.Sprintf("lockkeeper listens on 127.0.0.1:%d, keeps its data in %s/data, and stops at Ctrl-C. "+
		"Its console is off: admin.serverAddress=127.0.0.1 in %s opens it.", port, dir, file); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := word(t, fmt.Sprintf("127.0.0.1:%d", port), "ruok"); got != "imok" {
		t.Errorf("ruok: %q", got)
	}
	if status := p.signal(syscall.SIGTERM); status != exitOK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"ignored: preAllocSize", `level=INFO msg="member started"`, "level=INFO msg=stopping signal=terminated", `level=INFO msg="member stopped"`} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

// With -log-format json each line of the log is an object with readable texts as values.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-log-level", "info", "-log-format", "json")
	p.line()
	if status := p.signal(syscall.SIGTERM); status != exitOK {
		t.Errorf("status %d", status)
	}
	seen := map[any]map[string]any{}
	for line := range strings.Lines(p.stderr.String()) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		seen[event["msg"]] = event
	}
	started := seen["member started"]
	if clients, _ := started["clients"].(string); !strings.HasPrefix(clients, "127.0.0.1:") || started["level"] != "INFO" || seen["member stopped"] == nil {
		t.Errorf("the log has %v", seen)
	}
}

// SIGHUP stops a member as SIGTERM does.
func TestHangupStopsInOrder(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-log-level", "info")
	p.line()
	if status := p.signal(syscall.SIGHUP); status != exitOK {
		t.Errorf("status %d", status)
	}
	if log := p.stderr.String(); !strings.Contains(log, "msg=stopping signal=hangup") || !strings.Contains(log, `msg="member stopped"`) {
		t.Error("the log does not say that it stopped in order")
	}
}

// TestSecondSignal ends it at once although a client does not close its side, but only when it
// comes more than a second after the first: timeout(1) sends one signal twice.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "-client-address", "127.0.0.1:0", "-log-level", "info")
	m := listens.FindStringSubmatch(p.line())
	if m == nil {
		t.Fatal("the line says something else")
	}
	c, err := net.Dial("tcp", m[1])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "srvr"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := p.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	// It has taken the first signal when it closes its port.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		probe, err := net.Dial("tcp", m[1])
		if err != nil {
			break
		}
		_ = probe.Close()
		if time.Now().After(deadline) {
			t.Fatal("the port stays open")
		}
	}
	for more := true; more; {
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case _, more = <-p.lines: // which end with the process
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = p.Wait() // the status says more
	if took := time.Since(begin); took < signalRepeat {
		t.Errorf("it was ended by a signal that came %v after the first", took)
	}
	if status := p.ProcessState.ExitCode(); status != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("status %d after %v", status, time.Since(begin))
	}
	if !strings.Contains(p.stderr.String(), "lockkeeper: second signal (terminated), stopped at once\n") {
		t.Error("it does not say so")
	}
}

func TestStartupLine(t *testing.T) {
	begin := "lockkeeper listens on port 2181 of every address, keeps its data in /d, "
	for end, c := range map[string]struct {
		http net.Addr
		tls  zoocfg.TLSMode
	}{
		"and stops at Ctrl-C.": {},
		"shows its locks at http://127.0.0.1:8080/, and stops at Ctrl-C.":  {http: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}},
		"shows its locks at https://localhost:8443/, and stops at Ctrl-C.": {&net.TCPAddr{IP: net.IPv6unspecified, Port: 8443}, zoocfg.TLSOnly},
	} {
		cfg := server.Config{Data: zoocfg.Data{Dir: "/d"}, HTTP: zoocfg.HTTP{TLS: c.tls}}
		if got := startupLine(&net.TCPAddr{IP: net.IPv6unspecified, Port: 2181}, c.http, &cfg); got != begin+end {
			t.Errorf("got %s", got)
		}
	}
}

// TestDemo: it says where its consoles are, a lock is held, and Ctrl-C ends it well and soon.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir(), "demo")
	var lines []string
	for held := regexp.MustCompile(`/demo/report +\w+ holds it, token \d+`); len(lines) == 0 || !held.MatchString(lines[len(lines)-1]); {
		lines = append(lines, p.line())
	}
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(strings.Join(lines, "\n"))
	checkConsole(t, url)
	if status := p.signal(syscall.SIGINT); status != exitOK {
		t.Errorf("status %d: %s", status, p.stderr.String())
	}
	if p.stderr.Len() > 0 {
		t.Errorf("standard error: %s", p.stderr.String())
	}
}
