package recipes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

var updateGuarantees = flag.Bool("update", false, "write the table of who excludes whom into docs/guarantees.md")

// pairForm is one kind of lock of one library.
type pairForm struct {
	title  string // its row in docs/guarantees.md
	column string // of those that hold: who has a node of this layout
	in     string // the program that takes it: go, java or python
	name   string // the program's name of it
}

var pairForms = []pairForm{
	{"`recipes.Mutex`, `lockkeeper lock`", "lock-", "go", "Mutex"},
	{"`recipes.RWMutex` to write", "WRIT", "go", "write"},
	{"`recipes.RWMutex` to read, `lock -shared`", "READ", "go", "read"},
	{"`recipes.Semaphore`, `lock -n 1`", "Curator lease", "go", "Semaphore"},
	{"go-zookeeper `Lock`", "lock-", "go", "Lock"},
	{"Curator `InterProcessMutex`", "lock-", "java", "InterProcessMutex"},
	{"`SharedMutex` (recipes/clients) over Curator", "lock-", "java", "SharedMutex"},
	{"Curator `InterProcessReadWriteLock` to write", "WRIT", "java", "writeLock"},
	{"Curator `InterProcessReadWriteLock` to read", "READ", "java", "readLock"},
	{"Curator `InterProcessSemaphoreV2` of 1", "Curator lease", "java", "InterProcessSemaphoreV2"},
	{"ZooKeeper's recipe `WriteLock` (Java)", "x-", "java", "WriteLock"},
	{"`SharedLock` (docs/locks.md, recipes/clients) over kazoo", "lock-", "python", "SharedLock"},
	{"kazoo `Lock(…, extra_lock_patterns=[\"-\", \"__\"])`", "lock", "python", "patterns"},
	{"kazoo `Lock`", "lock", "python", "Lock"},
	{"kazoo `WriteLock`", "lock", "python", "WriteLock"},
	{"kazoo `ReadLock`", "rlock", "python", "ReadLock"},
	{"kazoo `Semaphore` of 1", "kazoo lease", "python", "Semaphore"},
}

func (f pairForm) reads() bool { return f.column == "READ" || f.column == "rlock" }

var pairColumns = []string{"lock-", "WRIT", "READ", "lock", "rlock", "x-", "Curator lease", "kazoo lease"}

// The ways of a lock that finds another in its place.
const (
	pairWaits  = "waits"
	pairShares = "shares"
	pairNever  = "never" // not even when the other has left
	pairIn     = "**in**"
	pairFails  = "fails"
)

const (
	pairGrace   = 700 * time.Millisecond // of silence, that a lock waits
	pairAtOnce  = 12                     // pairs that are played at a time
	pairAfter   = 5 * time.Second        // within which a lock is taken that is free
	pairPatient = 30 * time.Second
)

// TestLivePairs lets each lock of each library hold a path, and each come to the same path. It
// compares the outcome with the table of docs/guarantees.md, and sees that who waits gets in when
// the other has left.
func TestLivePairs(t *testing.T) {
	goOnly(t)
	eachServer(t, func(t *testing.T, addr string) {
		programs := map[string]pairProgram{
			"go":     newPairGo(t, addr),
			"java":   newPairProcess(t, startPairJava(t, addr)),
			"python": newPairProcess(t, startPairPython(t, addr)),
		}
		want := readPairTable(t)
		var mu sync.Mutex
		got := make(map[[2]string]string) // by row and column
		slots := make(chan struct{}, pairAtOnce)
		var wg sync.WaitGroup
		for i, holder := range pairForms {
			for j, comer := range pairForms {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					cell := [2]string{comer.title, holder.column}
					p := pair{holder: holder, comer: comer, path: fmt.Sprintf("%s-%d-%d", livePath(t), i, j), want: want[cell]}
					result, err := p.play(t, programs)
					if err != nil {
						t.Errorf("%s holds, %s comes: %v", holder.title, comer.title, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if was, ok := got[cell]; ok && was != result {
						t.Errorf("%s holds, %s comes: %s, but %s with another of its column", holder.title, comer.title, result, was)
					}
					got[cell] = result
					if result != p.want && !*updateGuarantees {
						t.Errorf("%s holds, %s comes: %s; docs/guarantees.md has %q", holder.title, comer.title, result, p.want)
					}
				})
			}
		}
		wg.Wait()
		if *updateGuarantees && !t.Failed() {
			writePairTable(t, got)
		}
	})
}

// pair is one lock that holds a path, and one that comes.
type pair struct {
	holder, comer pairForm
	path          string
	want          string // the expected outcome for the comer; "" if it is not known
}

// play returns the outcome for the comer. On a busy machine it may come when the holder has left,
// or be slow to notice that it has: a result that says so is believed if it is the same with more
// time.
func (p pair) play(t *testing.T, programs map[string]pairProgram) (string, error) {
	grace := pairGrace
	if p.want != pairWaits && p.want != pairNever {
		grace = 3 * time.Second
	}
	after := pairAfter
	for again := 0; ; again++ {
		result, err := p.once(t, programs, fmt.Sprintf("%s-%d", p.path, again), grace, after)
		if err != nil || result == p.want || (result != pairWaits && result != pairNever) || again == 2 {
			return result, err
		}
		grace, after = 5*time.Second, 4*after
	}
}

// once plays the pair on a path: the holder leaves after grace, and the comer has so long to get in
// after that.
func (p pair) once(t *testing.T, programs map[string]pairProgram, path string, grace, after time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), pairPatient+grace+after)
	defer cancel()
	first := programs[p.holder.in].lock(0, p.holder.name, path)
	if err := first.await(ctx, "in"); err != nil {
		return "", fmt.Errorf("the holder: %w", err)
	}
	second := programs[p.comer.in].lock(1, p.comer.name, path)
	result := pairWaits
	select {
	case line := <-second.lines:
		if strings.HasPrefix(line, "failed") {
			first.unlock()
			return pairFails, first.await(ctx, "out")
		}
		result = pairIn
		if p.holder.reads() && p.comer.reads() {
			result = pairShares
		}
	case <-time.After(grace):
	}
	first.unlock()
	if err := first.await(ctx, "out"); err != nil {
		return "", fmt.Errorf("the holder: %w", err)
	}
	if result == pairWaits {
		select {
		case line := <-second.lines:
			if line != "in" {
				return "", fmt.Errorf("after the holder has left: %s", line)
			}
		case <-time.After(after):
			return pairNever, nil
		}
	}
	second.unlock()
	return result, second.await(ctx, "out")
}

// pairProgram takes locks, each for one of two sessions.
type pairProgram interface {
	lock(side int, form, path string) *pairLock
}

// pairLock is a lock that somebody has been told to take.
type pairLock struct {
	lines  chan string // "in", "out", "failed REASON"
	unlock func()
}

func newPairLock(unlock func()) *pairLock {
	return &pairLock{lines: make(chan string, 3), unlock: unlock}
}

func (l *pairLock) await(ctx context.Context, want string) error {
	select {
	case line := <-l.lines:
		if line != want {
			return fmt.Errorf("%q, want %q", line, want)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not %q in time", want)
	}
}

// pairProcess is a program of another language.
type pairProcess struct {
	c     *contender
	mu    sync.Mutex
	locks []*pairLock
}

func newPairProcess(t *testing.T, c *contender) *pairProcess {
	c.expect("ready")
	p := &pairProcess{c: c}
	go func() {
		for line := range c.lines {
			word, rest, _ := strings.Cut(line, " ")
			number, rest, _ := strings.Cut(rest, " ")
			var id int
			if _, err := fmt.Sscan(number, &id); err != nil {
				t.Errorf("%s said %q", c.name, line)
				continue
			}
			p.mu.Lock()
			l := p.locks[id]
			p.mu.Unlock()
			l.lines <- strings.TrimSpace(word + " " + rest)
		}
	}()
	return p
}

func (p *pairProcess) lock(side int, form, path string) *pairLock {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := len(p.locks)
	l := newPairLock(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.c.say(fmt.Sprint("unlock ", id))
	})
	p.locks = append(p.locks, l)
	p.c.say(fmt.Sprintf("lock %d %d %s %s", id, side, form, path))
	return l
}

func startPairPython(t *testing.T, addr string) *contender {
	needTool(t, "/usr/lib/python3/dist-packages/kazoo", "python3-kazoo")
	return startContender(t, "kazoo", nil, python, filepath.Join("testdata", "pair_contender.py"), addr)
}

func startPairJava(t *testing.T, addr string) *contender {
	var jars []string
	for _, jar := range []string{"curator-recipes.jar", "zookeeper-recipes-lock.jar"} {
		jars = append(jars, filepath.Join(javaDir, jar))
		needTool(t, jars[len(jars)-1], "libcurator-recipes-java zookeeper default-jdk-headless")
	}
	classes := t.TempDir()
	classPath := strings.Join(append(jars, classes), string(os.PathListSeparator))
	out, err := exec.Command("javac", "-cp", classPath, "-d", classes,
		filepath.Join("clients", "SharedMutex.java"), filepath.Join("testdata", "PairContender.java")).CombinedOutput()
	if err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return startContender(t, "java", nil, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classPath, "PairContender", addr)
}

// pairGo takes this package's locks, and go-zookeeper's.
type pairGo struct{ sides [2]*Session }

func newPairGo(t *testing.T, addr string) *pairGo {
	return &pairGo{[2]*Session{live(t, addr, pairPatient), live(t, addr, pairPatient)}}
}

func (p *pairGo) lock(side int, form, path string) *pairLock {
	released := make(chan struct{})
	l := newPairLock(sync.OnceFunc(func() { close(released) }))
	go func() {
		release, err := p.acquire(p.sides[side], form, path)
		if err != nil {
			l.lines <- "failed " + err.Error()
			return
		}
		l.lines <- "in"
		<-released
		if err := release(); err != nil {
			l.lines <- "failed " + err.Error()
			return
		}
		l.lines <- "out"
	}()
	return l
}

func (p *pairGo) acquire(s *Session, form, path string) (release func() error, err error) {
	if form == "Lock" {
		l := zk.NewLock(s.Conn().(*zk.Conn), path, zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}
	kind := map[string]string{"Mutex": "mutex", "Semaphore": "lease=1"}[form]
	if kind == "" {
		kind = form
	}
	ctx, cancel := context.WithTimeout(context.Background(), pairPatient)
	defer cancel()
	g, err := contenderLock(s, path, kind).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return g.Unlock(context.Background()) }, nil
}

// The table in docs/guarantees.md stands between these lines.
const (
	guaranteesFile  = "../docs/guarantees.md"
	pairTableBegins = "<!-- who waits for whom: written by go test ./recipes -run TestLivePairs -update -->\n"
	pairTableEnds   = "<!-- the end of the table -->\n"
)

// splitGuarantees returns the document in three parts: before, the table, behind.
func splitGuarantees(t *testing.T) (before, table, behind string) {
	t.Helper()
	text, err := os.ReadFile(guaranteesFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), pairTableBegins)
	table, behind, ok2 := strings.Cut(rest, pairTableEnds)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", guaranteesFile)
	}
	return before, table, behind
}

// readPairTable returns the cells by row and column.
func readPairTable(t *testing.T) map[[2]string]string {
	t.Helper()
	_, table, _ := splitGuarantees(t)
	cells := make(map[[2]string]string)
	for line := range strings.Lines(table) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(parts) != len(pairColumns)+1 {
			continue
		}
		for i, column := range pairColumns {
			cells[[2]string{strings.TrimSpace(parts[0]), column}] = strings.TrimSpace(parts[i+1])
		}
	}
	return cells
}

func writePairTable(t *testing.T, cells map[[2]string]string) {
	t.Helper()
	before, _, behind := splitGuarantees(t)
	var b strings.Builder
	b.WriteString("| who comes | ")
	b.WriteString(strings.Join([]string{"`lock-`", "`__WRIT__`", "`__READ__`", "`__lock__`", "`__rlock__`", "`x-`", "Curator lease", "kazoo lease"}, " | "))
	b.WriteString(" |\n|" + strings.Repeat("---|", len(pairColumns)+1) + "\n")
	for _, f := range pairForms {
		b.WriteString("| " + f.title)
		for _, column := range pairColumns {
			b.WriteString(" | " + cells[[2]string{f.title, column}])
		}
		b.WriteString(" |\n")
	}
	if err := os.WriteFile(guaranteesFile, []byte(before+pairTableBegins+b.String()+pairTableEnds+behind), 0o644); err != nil {
		t.Fatal(err)
	}
}
