package verdicts

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
	"lockkeeper/locknode"
	"lockkeeper/recipes"
)

const (
	directories = 60 // of each family
	patience    = 2 * time.Minute
	atOnce      = 8
)

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// form is the form of the node names of a kind of lock. H is a hexadecimal digit.
type form struct {
	ask    string // the program's name of the kind
	prefix string
}

// family are the locks of a library that may share a path.
type family struct {
	name  string
	forms []form
	alike []string // prefixes of names that end like the library's, and count for it
}

const (
	dashes = "_c_HHHHHHHH-HHHH-HHHH-HHHH-HHHHHHHHHHHH-"
	uuid   = "HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH"
)

var (
	curatorFamilies = []family{
		{"Curator InterProcessMutex", []form{{"mutex", dashes + "lock-"}}, []string{"block-", "lock-"}},
		{"Curator InterProcessReadWriteLock", []form{{"write", dashes + "__WRIT__"}, {"read", dashes + "__READ__"}},
			[]string{"my__WRIT__", "__READ__"}},
		{"Curator LeaderLatch", []form{{"latch", dashes + "latch-"}}, []string{"latch-"}},
	}
	kazooFamilies = []family{
		{"kazoo Lock", []form{{"Lock", uuid + "__lock__"}}, []string{"my__lock__", "__lock__"}},
		{"kazoo WriteLock and ReadLock", []form{{"WriteLock", uuid + "__lock__"}, {"ReadLock", uuid + "__rlock__"}},
			[]string{"my__lock__", "x__rlock__"}},
	}
	// Package recipes waits for all of them.
	mixedFamily = family{"recipes", []form{
		{"", dashes + "lock-"}, {"", dashes + "__WRIT__"}, {"", dashes + "__READ__"}, {"", uuid + "__lock__"},
		{"", uuid + "__rlock__"}, {"", "_c_" + uuid + "-lock-"}, {"", "x-HHHHH-"}, {"", uuid},
	}, []string{"n_", "block-"}}
)

// node is a node of a directory; its data are its name.
type node struct {
	name       string
	ask        string // the kind of lock that makes it, "" if it is none of the library's
	persistent bool
	end        bool // its number is from the end of the counter
}

// directory is the path of a lock with random nodes.
type directory struct {
	path    string
	nodes   []node
	verdict []locknode.Contender
}

func fill(r *rand.Rand, pattern string) string {
	name := []byte(pattern)
	for i := range name {
		if name[i] == 'H' {
			name[i] = "0123456789abcdef"[r.IntN(16)]
		}
	}
	return string(name)
}

// newDirectory makes a directory with contenders of the family, and other nodes beside. Numbers of
// contenders are different: a server hands out none twice, but for the last one.
func newDirectory(r *rand.Rand, path string, f family) *directory {
	d := &directory{path: path}
	numbers := r.Perm(24)
	number := func() string {
		n := int64(numbers[0])
		numbers = numbers[1:]
		if r.IntN(10) == 0 { // beyond 32 bits
			n += locknode.MaxSequence + 1 + r.Int64N(1e9)
		}
		return fmt.Sprintf("%010d", n)
	}
	for range 1 + r.IntN(6) {
		n := node{}
		switch form := f.forms[r.IntN(len(f.forms))]; {
		case r.IntN(6) == 0:
			n.name = f.alike[r.IntN(len(f.alike))] + number()
		case form.prefix == uuid:
			n.name = fill(r, uuid[:22]) + []string{"0000000001", "9999999999", "abcdef0123"}[r.IntN(3)]
		case r.IntN(12) == 0:
			n = node{name: fill(r, form.prefix) + fmt.Sprint(-2147483648+r.IntN(9)), ask: form.ask, end: true}
		case r.IntN(12) == 0:
			n = node{name: fill(r, form.prefix) + fmt.Sprint(locknode.MaxSequence), ask: form.ask, end: true}
		default:
			n = node{name: fill(r, form.prefix) + number(), ask: form.ask}
		}
		d.nodes = append(d.nodes, n)
	}
	for range r.IntN(6) {
		d.nodes = append(d.nodes, bystander(r, number()))
	}
	r.Shuffle(len(d.nodes), func(i, j int) { d.nodes[i], d.nodes[j] = d.nodes[j], d.nodes[i] })
	seen := map[string]bool{}
	d.nodes = slices.DeleteFunc(d.nodes, func(n node) bool {
		again := seen[n.name]
		seen[n.name] = true
		return again
	})
	return d
}

// bystander is a node that is no contender for the library, or for nobody. Curator sorts all
// children by the rest behind its own "lock-", or by the whole name, and reads no stat. So it also
// waits for a persistent node with the name of a contender, for "lock-" alone, and for names of
// digits or of characters that sort before them. kazoo waits for the first of these. There are no
// such nodes here.
func bystander(r *rand.Rand, number string) node {
	return []node{
		{name: "job-" + number, persistent: true},
		{name: "job-" + number},
		{name: "jobs", persistent: true},
		{name: "web-1"},
		{name: "lock-x"},
		{name: "job-0" + number},
		{name: "user--" + number[1:]},
		{name: "job-" + number + "x"},
	}[r.IntN(8)]
}

// server is a member with two clients, who own the nodes.
type server struct {
	ctx     context.Context
	addr    string
	conns   []*zk.Conn
	session *recipes.Session
	seed    uint64
	r       *rand.Rand
}

func newServer(t *testing.T) *server {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	target, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{
		Target: target, Members: 1, Dir: jepsen.KeptDir(t, false),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &server{ctx: ctx, addr: cluster.Servers(), seed: rand.Uint64()}
	s.r = rand.New(rand.NewPCG(s.seed, 0))
	for range 3 {
		client, _, err := jepsen.OpenGoClient(jepsen.GoClientConfig{Servers: []string{s.addr}, SessionTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		if err := client.AwaitSession(ctx); err != nil {
			t.Fatal(err)
		}
		s.conns = append(s.conns, client.Conn)
	}
	s.session, err = recipes.Connect(recipes.Config{Servers: []string{s.addr}, SessionTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.session.Close)
	return s
}

// make makes directories of a family on the server.
func (s *server) make(t *testing.T, f family) []*directory {
	t.Helper()
	var all []*directory
	root := "/" + strings.ReplaceAll(f.name, " ", "-")
	for i := range directories {
		all = append(all, newDirectory(s.r, fmt.Sprintf("%s-%d", root, i), f))
	}
	each(t, all, func(d *directory) error {
		acl := zk.WorldACL(zk.PermAll)
		if _, err := s.conns[0].Create(d.path, nil, 0, acl); err != nil {
			return err
		}
		for i, n := range d.nodes {
			flags := int32(zk.FlagEphemeral)
			if n.persistent {
				flags = 0
			}
			if _, err := s.conns[(i+len(d.path))%len(s.conns)].Create(d.path+"/"+n.name, []byte(n.name), flags, acl); err != nil {
				return fmt.Errorf("create %s: %w", n.name, err)
			}
		}
		return nil
	})
	return all
}

// each does something with each directory, some at a time.
func each(t *testing.T, all []*directory, do func(d *directory) error) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, d := range all {
		slots <- struct{}{}
		wg.Go(func() {
			if err := do(d); err != nil {
				t.Errorf("%s: %v", d.path, err)
			}
			<-slots
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// question is whether a node of a library gets the lock.
type question struct {
	d *directory
	n node
}

// ask has a program answer the questions about all directories.
func ask(t *testing.T, cmd *exec.Cmd, questions []question) (gets []bool) {
	t.Helper()
	var in, log bytes.Buffer
	for _, q := range questions {
		fmt.Fprintln(&in, q.n.ask, q.d.path, q.n.name)
	}
	cmd.Stdin, cmd.Stderr = &in, &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	for line := range strings.Lines(string(out)) {
		gets = append(gets, line == "in\n")
	}
	if len(gets) != len(questions) {
		t.Fatalf("%d answers to %d questions\n%s", len(gets), len(questions), log.String())
	}
	return gets
}

// compare asks a library about all of its nodes, and compares the verdicts.
func (s *server) compare(t *testing.T, families []family, command func(addr string) *exec.Cmd) {
	var all []*directory
	var questions []question
	for _, f := range families {
		all = append(all, s.make(t, f)...)
	}
	for _, d := range all {
		for _, n := range d.nodes {
			if n.ask != "" {
				questions = append(questions, question{d, n})
			}
		}
	}
	each(t, all, func(d *directory) (err error) {
		d.verdict, err = s.session.Contenders(s.ctx, d.path)
		return err
	})
	in := 0
	for i, gets := range ask(t, command(s.addr), questions) {
		q := questions[i]
		at := slices.IndexFunc(q.d.verdict, func(c locknode.Contender) bool { return c.Node == q.n.name })
		if at < 0 {
			t.Fatalf("seed %d, %s: %s is no contender", s.seed, q.d.path, q.n.name)
		}
		if fault := q.fault(&q.d.verdict[at], gets); fault != "" {
			t.Errorf("seed %d, %s of %s: %s, in:\n%s", s.seed, q.n.ask, q.n.name, fault, q.d)
		}
		if gets {
			in++
		}
	}
	t.Logf("seed %d: %d directories, %d of %d contenders get the lock", s.seed, len(all), in, len(questions))
	if in == 0 || in == len(questions) {
		t.Error("the libraries gave the same answer to all questions")
	}
}

// fault returns the fault of a verdict, given whether the library gives the lock to the node.
func (q *question) fault(c *locknode.Contender, gets bool) string {
	if gets {
		if !c.Held && !c.MayHold {
			return "gets the lock, and is said to wait"
		}
		return ""
	}
	// A negative number comes first for the library, but nobody gets one while the lock is free:
	// who is said to hold has got the lock before.
	end := slices.ContainsFunc(q.d.nodes, func(n node) bool { return n.end })
	// The name does not tell kazoo's WriteLock, which waits for readers, from its Lock.
	reader := q.n.ask == "WriteLock" && slices.ContainsFunc(q.d.nodes, func(n node) bool {
		return locknode.Layout(n.name) == locknode.LayoutKazooRead
	})
	// kazoo's ReadLock waits for the newest writer, also for one behind it (docs/guarantees.md).
	newest := q.n.ask == "ReadLock" && slices.ContainsFunc(q.d.nodes, func(n node) bool {
		return locknode.Layout(n.name) == locknode.LayoutKazooLock
	})
	if c.Held && !end && !newest {
		return "waits, and is said to hold"
	}
	if c.MayHold && !end && !newest && !reader && len(c.MayIgnore) == 0 {
		return "waits, and is said to be able to hold"
	}
	return ""
}

// has says whether a node has a number.
func (d *directory) has(number int) bool {
	return slices.ContainsFunc(d.nodes, func(n node) bool {
		seq, ok := locknode.Sequence(n.name)
		return ok && seq == int64(number)
	})
}

func (d *directory) String() string {
	var b strings.Builder
	for _, n := range d.nodes {
		fmt.Fprintf(&b, "  %+v\n", n)
	}
	return b.String()
}

func TestKazoo(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	kazoo, err := tools.Kazoo()
	jepsen.Need(t, err)
	s.compare(t, kazooFamilies, func(addr string) *exec.Cmd {
		return exec.CommandContext(s.ctx, kazoo.Command[0], filepath.Join("testdata", "kazoo_queues.py"), addr)
	})
}

func TestCurator(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const jar = "/usr/share/java/curator-recipes.jar"
	if _, err := os.Stat(jar); err != nil {
		jepsen.Need(t, fmt.Errorf("%s: %w (apt-get install libcurator-recipes-java)", jar, jepsen.ErrMissing))
	}
	java, err := exec.LookPath("java")
	if err != nil {
		jepsen.Need(t, fmt.Errorf("java: %w (apt-get install default-jdk-headless)", jepsen.ErrMissing))
	}
	s.compare(t, curatorFamilies, func(addr string) *exec.Cmd {
		return exec.CommandContext(s.ctx, java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar,
			filepath.Join("testdata", "CuratorQueues.java"), addr)
	})
}

// TestRecipes lets a new contender of package recipes come to each directory, and compares with the
// verdict on the directory with its node in it.
func TestRecipes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	families := append(append(slices.Clone(curatorFamilies), kazooFamilies...), mixedFamily)
	var all []*directory
	for _, f := range families {
		all = append(all, s.make(t, f)...)
	}
	var in, out atomic.Int64
	each(t, all, func(d *directory) error {
		if err := s.leads(d); err != nil {
			return fmt.Errorf("seed %d, an election over:\n%s: %w", s.seed, d, err)
		}
		for came, kind := range []string{"lock-", "__WRIT__", "__READ__"} {
			if d.has(len(d.nodes) + came) {
				break // a server hands out no number twice: nobody says who is in front then
			}
			got, err := s.comes(d, kind, len(d.nodes)+came)
			if err != nil {
				return fmt.Errorf("seed %d, %s comes to:\n%s: %w", s.seed, kind, d, err)
			}
			if got {
				in.Add(1)
			} else {
				out.Add(1)
			}
		}
		return nil
	})
	t.Logf("seed %d: %d directories, %d got the lock, %d did not", s.seed, len(all), in.Load(), out.Load())
	if min(in.Load(), out.Load()) == 0 {
		t.Error("all did the same")
	}
}

// leads compares the leader, for the Election of package recipes, with the first of the queue.
func (s *server) leads(d *directory) error {
	all, err := s.session.Contenders(s.ctx, d.path)
	if err != nil {
		return err
	}
	first := ""
	if queue := locknode.Sorted(d.path, all).Lock; len(queue) > 0 {
		first = d.path + "/" + queue[0].Node
	}
	election := recipes.NewElection(s.session, d.path, recipes.ElectionOptions{})
	leader, err := election.Leader(s.ctx)
	if err != nil && !errors.Is(err, recipes.ErrNoLeader) {
		return err
	}
	end := slices.ContainsFunc(d.nodes, func(n node) bool { return n.end && d.path+"/"+n.name == leader.Node })
	if leader.Node != first && !end { // of two nodes from the end of the counter, either may lead
		return fmt.Errorf("leader %q, first %q", leader.Node, first)
	}
	return nil
}

// comes tries to take the lock with a node that gets a number, and says whether it got it. The
// error says that the verdict is another one.
func (s *server) comes(d *directory, kind string, number int) (in bool, err error) {
	all, err := s.session.Contenders(s.ctx, d.path)
	if err != nil {
		return false, err
	}
	try := recipes.NewMutex(s.session, d.path, recipes.MutexOptions{}).TryLock
	if rw := recipes.NewRWMutex(s.session, d.path, recipes.MutexOptions{}); kind == "__WRIT__" {
		try = rw.TryLock
	} else if kind == "__READ__" {
		try = rw.TryRLock
	}
	grant, err := try(s.ctx)
	if err != nil && !errors.Is(err, recipes.ErrLocked) {
		return false, err
	}
	if in = err == nil; in {
		defer grant.Unlock(s.ctx)
	}
	const note = `{"by":"lockkeeper/recipes","since":"2026-11-21T14:00:00Z"}`
	name := fmt.Sprintf("_c_00000000-0000-0000-0000-000000000000-%s%010d", kind, number)
	last := int64(0)
	for _, c := range all {
		last = max(last, c.Token)
	}
	all = append(all, locknode.New(d.path, name, 1, time.Time{}, last+1, []byte(note)))
	all = locknode.Resolve(locknode.Sorted(d.path, all))
	c := all[slices.IndexFunc(all, func(c locknode.Contender) bool { return c.Node == name })]
	if c.MayHold || c.Held != in {
		return in, fmt.Errorf("got the lock: %v, with number %d; is said to hold: %v, may hold: %v", in, number, c.Held, c.MayHold)
	}
	return in, nil
}
