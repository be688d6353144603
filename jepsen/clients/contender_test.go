package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// sources is the directory of the clients.
const sources = "../../clients"

// javaDir is where Debian's packages put their jars.
const javaDir = "/usr/share/java"

// jars are the libraries of the Java client; packages has them, and the JDK.
var jars = []string{"curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute",
	"guava", "slf4j-api", "slf4j-simple"}

const packages = "default-jdk-headless libcurator-recipes-java libslf4j-java"

// A language is one of the clients, ready to run.
type language struct {
	name string
	// contender runs the program that locks, units the client's own tests; an error of units is a
	// test that fails. path is free for its nodes. program runs a source file.
	contender func(servers string) *exec.Cmd
	units     func(servers, path string) *exec.Cmd
	program   func(file string) *exec.Cmd
}

// java compiles the client in dir, which is clients/java or a copy, to a directory of the test.
func java(t testing.TB, dir string) language {
	t.Helper()
	var path []string
	for _, jar := range jars {
		file := filepath.Join(javaDir, jar+".jar")
		if _, err := os.Stat(file); err != nil {
			jepsen.Need(t, fmt.Errorf("%s: %w (apt-get install %s)", file, jepsen.ErrMissing, packages))
		}
		path = append(path, file)
	}
	if _, err := exec.LookPath("javac"); err != nil {
		jepsen.Need(t, fmt.Errorf("javac: %w (apt-get install %s)", jepsen.ErrMissing, packages))
	}
	target := t.TempDir()
	build := exec.Command(filepath.Join(dir, "build"), "test")
	build.Env = append(os.Environ(), "TARGET="+target)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	path = append(path, filepath.Join(target, "lockkeeper-client.jar"), filepath.Join(target, "test-classes"))
	run := func(program string, args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{
			"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
			"-cp", strings.Join(path, ":"), program,
		}, args...)...)
	}
	return language{
		name:      "java",
		contender: func(servers string) *exec.Cmd { return run("lockkeeper.curator.Contender", servers, timeoutMs()) },
		units:     func(servers, path string) *exec.Cmd { return run("lockkeeper.curator.Checks", servers, path) },
		program:   func(file string) *exec.Cmd { return run(file) },
	}
}

// python is the client in dir, which is clients/python or a copy, with the Python that has kazoo.
func python(t testing.TB, dir string) language {
	t.Helper()
	kazoo, err := tools.Kazoo()
	jepsen.Need(t, err)
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(kazoo.Command[0], args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}
	return language{
		name: "python",
		contender: func(servers string) *exec.Cmd {
			return run("-u", filepath.Join("tests", "contender.py"), servers, timeoutMs())
		},
		units:   func(string, string) *exec.Cmd { return run("-m", "unittest", "discover", "tests") },
		program: func(file string) *exec.Cmd { return run(file) },
	}
}

func timeoutMs() string { return strconv.FormatInt(sessionTimeout.Milliseconds(), 10) }

// A line is one that a contender has said.
type line struct {
	at    time.Duration // by jepsen.Monotonic
	words []string
}

func (l line) String() string { return strings.Join(l.words, " ") }

// token is the token in a line "granted" or "wrote".
func (l line) token() int64 {
	token, _ := strconv.ParseInt(l.words[2], 10, 64)
	return token
}

// node is the path of the node in a line "granted".
func (l line) node() string { return l.words[3] }

// A contender is a process that locks.
type contender struct {
	name    string
	process *jepsen.Process
	in      io.WriteCloser

	mu    sync.Mutex
	lines []line
	next  chan struct{} // closed and made anew with each line, and at the end
	err   error         // why there are no more lines
}

// start starts a contender and waits until it is connected.
func (s *stage) start(l language, name, servers string) *contender {
	c := &contender{name: name, next: make(chan struct{})}
	cmd := l.contender(servers)
	out, in := io.Pipe() // not cmd.StdoutPipe: cmd.Wait would close it before the last line is read
	cmd.Stdout = in
	var err error
	c.in, err = cmd.StdinPipe()
	s.must(err)
	c.process, err = jepsen.StartProcess(name, cmd, filepath.Join(s.dir, name+".log"))
	s.must(err)
	s.contenders = append(s.contenders, c)
	go func() {
		<-c.process.Done()
		_ = in.Close()
	}()
	go c.read(out)
	s.await(c, 0, "ready")
	return c
}

// read reads what the process says, until it ends.
func (c *contender) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		at, words, _ := strings.Cut(lines.Text(), " ")
		ns, _ := strconv.ParseInt(at, 10, 64)
		c.say(line{at: time.Duration(ns), words: strings.Fields(words)}, nil)
	}
	c.say(line{words: []string{""}}, fmt.Errorf("%s has ended:\n%s", c.name, c.process.LogTail(4000)))
}

// say adds a line, and with err says that it is the last one.
func (c *contender) say(l line, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines, c.err = append(c.lines, l), err
	close(c.next)
	c.next = make(chan struct{})
}

// said is the number of lines so far.
func (c *contender) said() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.lines)
}

// find returns the first line that begins with the words, after the first from lines. If there is
// none, it returns a channel that closes with the next line, or an error if no more will come or a
// command of the handle has failed.
func (c *contender) find(from int, words []string) (line, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines[from:] {
		switch {
		case len(l.words) >= len(words) && slices.Equal(l.words[:len(words)], words):
			return l, nil, nil
		case l.words[0] == "failed" && len(words) > 1 && l.words[1] == words[1]:
			return line{}, nil, fmt.Errorf("%s: %s, instead of %q", c.name, l, words)
		}
	}
	return line{}, c.next, c.err
}

// await waits for a line that begins with the words, after the first from lines.
func (s *stage) await(c *contender, from int, words ...string) line {
	return s.awaitUntil(s.ctx, c, from, words)
}

// promptly is for an event that nothing delays.
const promptly = 5 * time.Second

// soon is await for a line that has to come promptly.
func (s *stage) soon(c *contender, from int, words ...string) line {
	ctx, cancel := context.WithTimeout(s.ctx, promptly)
	defer cancel()
	return s.awaitUntil(ctx, c, from, words)
}

func (s *stage) awaitUntil(ctx context.Context, c *contender, from int, words []string) line {
	for {
		l, next, err := c.find(from, words)
		s.must(err)
		if next == nil {
			return l
		}
		select {
		case <-next:
		case <-ctx.Done():
			s.failf("%s does not say %q: %v", c.name, words, context.Cause(ctx))
		}
	}
}

// send sends a command and does not wait for the answer.
func (s *stage) send(c *contender, handle string, command ...string) {
	_, err := fmt.Fprintln(c.in, handle, strings.Join(command, " "))
	s.must(err)
}

// do sends a command and waits for the answer, which begins with the word.
func (s *stage) do(c *contender, handle, command, word string) line {
	from := c.said()
	s.send(c, handle, command)
	return s.await(c, from, word, handle)
}

// stop ends the process.
func (c *contender) stop() error {
	_ = c.in.Close()
	return c.process.Kill()
}
