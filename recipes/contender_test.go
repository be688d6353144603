package recipes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test binary runs as a contender, a process of its own, if this is set to
// the path of a lock.
const (
	contenderEnv        = "RECIPES_TEST_CONTENDER"
	contenderServerEnv  = "RECIPES_TEST_SERVER"
	contenderTimeoutEnv = "RECIPES_TEST_TIMEOUT"
	contenderFileEnv    = "RECIPES_TEST_SESSION_FILE"
)

// contend is the contender's main. It executes the commands of stdin, a line at a time:
//
//	lock     granted TOKEN NODE, or: error TEXT
//	resumed  resumed true, or: resumed false
//	held     held true, or: held false TEXT
//	unlock   unlocked, or: error TEXT
//	run N KIND...
//	         N times: enter TOKEN KIND, leave; after each it waits for a line. Then:
//	         done. KIND is mutex, read, write, or lease=N; the rounds take turns
//
// "lost TEXT" is printed when Lost is closed other than by unlock.
func contend(path string) int {
	timeout, err := time.ParseDuration(os.Getenv(contenderTimeoutEnv))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := Connect(Config{
		Servers:        []string{os.Getenv(contenderServerEnv)},
		SessionTimeout: timeout,
		HostProvider:   &impatientHosts{},
		Dial:           dialLive,
		SessionFile:    os.Getenv(contenderFileEnv),
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	defer s.Close()
	m := NewMutex(s, path, MutexOptions{})
	ctx := context.Background()
	var g *Grant
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for in.Scan() {
		command, arg, _ := strings.Cut(in.Text(), " ")
		switch command {
		case "lock":
			if g, err = m.Lock(ctx); err != nil {
				fmt.Println("error", err)
				break
			}
			fmt.Println("granted", g.Token(), g.Node())
			go func(g *Grant) {
				<-g.Lost()
				if err := g.Err(); err != ErrReleased {
					fmt.Println("lost", err)
				}
			}(g)
		case "resumed":
			fmt.Println("resumed", g.Resumed())
		case "held":
			if err := g.Err(); err != nil {
				fmt.Println("held false", err)
			} else {
				fmt.Println("held true")
			}
		case "unlock":
			if err := g.Unlock(ctx); err != nil {
				fmt.Println("error", err)
			} else {
				fmt.Println("unlocked")
			}
		case "run":
			words := strings.Fields(arg)
			n, _ := strconv.Atoi(words[0])
			for i := range n {
				if g, err = contenderLock(s, path, words[1+i%(len(words)-1)]).Lock(ctx); err != nil {
					fmt.Println("error", err)
					return 1
				}
				fmt.Println("enter", g.Token(), g.Kind())
				in.Scan()
				fmt.Println("leave")
				in.Scan()
				if err := g.Unlock(ctx); err != nil {
					fmt.Println("error", err)
					return 1
				}
			}
			fmt.Println("done")
		}
	}
	return 0
}

// contenderLock is a lock by the word for it.
func contenderLock(s *Session, path, kind string) Locker {
	leases, _ := strings.CutPrefix(kind, "lease=")
	switch kind {
	case "mutex":
		return NewMutex(s, path, MutexOptions{})
	case "read":
		return NewRWMutex(s, path, MutexOptions{}).RLocker()
	case "write":
		return NewRWMutex(s, path, MutexOptions{})
	case "shared":
		return NewSemaphore(s, path, SemaphoreOptions{CountPath: path + "-count"})
	}
	n, err := strconv.Atoi(leases)
	if err != nil {
		panic(err)
	}
	return NewSemaphore(s, path, SemaphoreOptions{Leases: n})
}

// contender is a process that fights for a lock.
type contender struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // its answers; closed at the end
	lost  chan string // its news of lost grants, at any time
	log   syncBuffer  // its stderr
}

func startContender(t *testing.T, name string, env []string, command string, args ...string) *contender {
	c := &contender{
		t: t, name: name, cmd: exec.Command(command, args...),
		lines: make(chan string, 100), lost: make(chan string, 100),
	}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.log
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(stdout)
	}()
	t.Cleanup(func() {
		c.stdin.Close()
		c.cmd.Process.Kill()
		<-read
		c.cmd.Wait()
	})
	return c
}

func (c *contender) read(stdout io.Reader) {
	defer close(c.lines)
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if why, ok := strings.CutPrefix(out.Text(), "lost "); ok {
			c.lost <- why
		} else {
			c.lines <- out.Text()
		}
	}
}

// startGo starts this test binary as a contender.
func startGo(t *testing.T, addr, path string, timeout time.Duration, env ...string) *contender {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := startContender(t, "go", append([]string{
		contenderEnv + "=" + path, contenderServerEnv + "=" + addr, contenderTimeoutEnv + "=" + timeout.String(),
	}, env...), exe)
	c.expect("ready")
	return c
}

func (c *contender) say(line string) { fmt.Fprintln(c.stdin, line) }

// next returns the next line; "" at the end.
func (c *contender) next() string { return <-c.lines }

// expect reads a line, which must start with the given words, and returns the
// rest of it.
func (c *contender) expect(words string) string {
	c.t.Helper()
	line := c.next()
	rest, ok := strings.CutPrefix(line, words)
	if !ok {
		c.t.Fatalf("%s said %q, want %q\n%s", c.name, line, words, c.log.String())
	}
	return strings.TrimSpace(rest)
}

// grant has the contender lock, and returns its token.
func (c *contender) grant() int64 {
	c.t.Helper()
	c.say("lock")
	return parseToken(c.t, c.expect("granted"))
}

func parseToken(t *testing.T, text string) int64 {
	t.Helper()
	first, _, _ := strings.Cut(text, " ")
	token, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// arena detects holders that must not hold at a time, outside of the cluster.
type arena struct {
	t      *testing.T
	leases int // of a semaphore
	mu     sync.Mutex
	inside map[string]Kind
	token  int64 // the largest
	write  int64 // the largest of a writer
	rounds int
	most   int // that were inside at a time
}

// enter notes that somebody says it has the lock alone; token 0 if it has no token.
func (a *arena) enter(name string, token int64) { a.enterAs(name, token, KindWrite) }

func (a *arena) enterAs(name string, token int64, kind Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rounds++
	for other, k := range a.inside {
		if kind == KindWrite || k == KindWrite {
			a.t.Errorf("%s enters to %v while %s is inside to %v", name, kind, other, k)
		}
	}
	if a.inside == nil {
		a.inside = make(map[string]Kind)
	}
	a.inside[name] = kind
	a.most = max(a.most, len(a.inside))
	if kind == KindLease && len(a.inside) > a.leases {
		a.t.Errorf("%s enters as number %d of %d", name, len(a.inside), a.leases)
	}
	if token == 0 || kind == KindLease {
		return
	}
	if token <= a.write || kind == KindWrite && token <= a.token {
		a.t.Errorf("%s enters to %v with token %d after %d, of a writer %d", name, kind, token, a.token, a.write)
	}
	a.token = max(a.token, token)
	if kind == KindWrite {
		a.write = token
	}
}

func (a *arena) leave(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inside, name)
}

// kinds are the contenders' words for the kinds of their grants.
var kinds = map[string]Kind{"": KindWrite, "write": KindWrite, "read": KindRead, "lease": KindLease}

// follow answers a contender's "enter" and "leave" until it is done.
func (a *arena) follow(c *contender) {
	for {
		line := c.next()
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "enter":
			number, kind, _ := strings.Cut(rest, " ")
			token, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				a.t.Error(err)
			}
			a.enterAs(c.name, token, kinds[kind])
		case "leave":
			a.leave(c.name)
		case "done":
			return
		default:
			a.t.Errorf("%s said %q\n%s", c.name, line, c.log.String())
			return
		}
		c.say("ok")
	}
}
