package recipes

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// startRecipes starts Curator's and kazoo's recipes, a process each.
func startRecipes(t *testing.T, addr string) (curator, kazoo *contender) {
	jar := filepath.Join(javaDir, "curator-recipes.jar")
	needTool(t, jar, "libcurator-recipes-java default-jdk-headless")
	needTool(t, "/usr/lib/python3/dist-packages/kazoo", "python3-kazoo")
	java, err := exec.LookPath("java")
	if err != nil {
		needTool(t, "java", "default-jdk-headless")
	}
	curator = startContender(t, "curator", nil, java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jar,
		filepath.Join("testdata", "CuratorRecipes.java"), addr)
	kazoo = startContender(t, "kazoo", nil, python, filepath.Join("testdata", "kazoo_recipes.py"), addr)
	curator.expect("ready")
	kazoo.expect("ready")
	return curator, kazoo
}

// TestLiveRecipesOfOthers: each recipe together with its counterparts of Curator
// and of kazoo, on one path.
func TestLiveRecipesOfOthers(t *testing.T) {
	eachServer(t, func(t *testing.T, addr string) {
		ctx := limit(t, 2*time.Minute)
		s := live(t, addr, liveTimeout)
		curator, kazoo := startRecipes(t, addr)
		for _, test := range []struct {
			name string
			run  func(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender)
		}{
			{"Counter", counterWithOthers},
			{"Barrier", barrierWithOthers},
			{"DoubleBarrier", doubleBarrierWithOthers},
			{"Group", groupWithOthers},
			{"Election", electionWithOthers},
			{"Election of kazoo", electionWithKazoo},
			{"Queue", queueWithOthers},
		} {
			// One after the other: they talk to the same two processes.
			t.Run(test.name, func(t *testing.T) {
				curator.t, kazoo.t = t, t
				test.run(t, ctx, s, livePath(t), curator, kazoo)
			})
			if t.Failed() {
				break // the conversation is out of step
			}
		}
		curator.t, kazoo.t = t, t
	})
}

// tell has a process do something, and returns the rest of the line that it says.
func tell(c *contender, line, want string) string {
	c.t.Helper()
	c.say(line)
	return c.expect(want)
}

// counterWithOthers: three libraries add to one number at the same time, in each
// of the formats that they share.
func counterWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	const rounds = 20
	for _, tt := range []struct {
		format CounterFormat
		other  *contender
		add    string
	}{
		{Decimal, kazoo, "add"}, {SharedCount, kazoo, "add8"}, {AtomicLong, curator, "add"},
	} {
		path := fmt.Sprint(path, int(tt.format))
		c := NewCounter(s, path, CounterOptions{Format: tt.format})
		if n, err := c.Get(ctx); n != 0 || err != nil {
			t.Errorf("Get of nothing = %d, %v", n, err)
		}
		if n, err := c.Add(ctx, -1000); n != -1000 || err != nil {
			t.Errorf("Add = %d, %v", n, err)
		}
		if got := tell(tt.other, fmt.Sprint(tt.add, " ", path, " 2000"), "value"); got != "1000" {
			t.Errorf("%s has %s, want 1000", tt.other.name, got)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range rounds {
				if _, err := c.Add(ctx, 1); err != nil {
					t.Error(err)
				}
			}
		})
		for range rounds {
			tell(tt.other, fmt.Sprint(tt.add, " ", path, " 100"), "value")
		}
		wg.Wait()
		if n, err := c.Get(ctx); n != 1000+101*rounds || err != nil {
			t.Errorf("%d, %v, want %d", n, err, 1000+101*rounds)
		}
		awaitChildren(t, ctx, s, path, 0) // no tag
		if err := s.Conn().Delete(path, -1); err != nil {
			t.Error(err)
		}
	}
}

func barrierWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	b := NewBarrier(s, path, nil)
	tell(curator, "set "+path, "done")
	through := make(chan error)
	go func() { through <- b.Wait(ctx) }()
	if err := b.Set(ctx); err != nil { // set already
		t.Error(err)
	}
	select {
	case err := <-through:
		t.Fatalf("Curator's barrier does not hold: %v", err)
	default:
	}
	tell(curator, "remove "+path, "done")
	if err := <-through; err != nil {
		t.Error(err)
	}
	if err := b.Set(ctx); err != nil {
		t.Error(err)
	}
	curator.say("wait " + path)
	if err := b.Remove(ctx); err != nil {
		t.Error(err)
	}
	curator.expect("done")
}

// doubleBarrierWithOthers: all three begin together and leave together.
func doubleBarrierWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	for round := range 3 {
		b := NewDoubleBarrier(s, path, 3, nil)
		var in *Inside
		entered := make(chan error, 1)
		enter := []func(){
			func() { go func() { var err error; in, err = b.Enter(ctx, nil); entered <- err }() },
			func() { curator.say("enter " + path + " 3") },
			func() { kazoo.say("enter " + path + " 3") },
		}
		for i := range 3 { // another one is the last each time
			enter[(i+round)%3]()
			if i < 2 {
				awaitMembers(t, ctx, s, path, i+1)
			}
			select {
			case err := <-entered:
				if i < 2 {
					t.Fatalf("round %d: let in with %d of 3: %v", round, i+1, err)
				}
				entered <- err
			case line := <-curator.lines:
				if i < 2 {
					t.Fatalf("round %d: Curator says %q with %d of 3", round, line, i+1)
				}
				curator.lines <- line
			case line := <-kazoo.lines:
				if i < 2 {
					t.Fatalf("round %d: kazoo says %q with %d of 3", round, line, i+1)
				}
				kazoo.lines <- line
			default:
			}
		}
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		curator.expect("entered")
		kazoo.expect("entered")

		// We leave first, and wait for the others.
		left := make(chan error, 1)
		go func() { left <- in.Leave(ctx) }()
		awaitMembers(t, ctx, s, path, 2)
		select {
		case err := <-left:
			t.Fatalf("round %d: left before the others: %v", round, err)
		default:
		}
		curator.say("leave")
		kazoo.say("leave")
		curator.expect("left")
		kazoo.expect("left")
		if err := <-left; err != nil {
			t.Error(err)
		}
		awaitMembers(t, ctx, s, path, 0)
	}
}

// awaitMembers waits until path has n children other than "ready".
func awaitMembers(t *testing.T, ctx context.Context, s *Session, path string, n int) {
	t.Helper()
	l, err := s.link.ready(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = s.watches.until(ctx, l, func() (view, error) { return s.watches.children(path) }, func(v view) (bool, error) {
		names = slices.DeleteFunc(v.names, func(n string) bool { return n == readyName })
		return len(names) == n, nil
	})
	if err != nil {
		t.Fatalf("%s has the members %v, want %d: %v", path, names, n, err)
	}
}

func groupWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	g := NewGroup(s, path, nil)
	views := make(chan []Member)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(views)
		for members, err := range g.Watch(watching) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			views <- members
		}
	}()
	await := func(want ...string) {
		t.Helper()
		var got []string
		for view := range views {
			got = nil
			for _, m := range view {
				got = append(got, string(m.Data))
			}
			if slices.Sort(got); slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("members %v, want %v", got, want)
	}
	await()
	m, err := g.Join(ctx, "", []byte("go"))
	if err != nil {
		t.Fatal(err)
	}
	await("go")
	tell(curator, "join "+path+" java-1 java", "joined")
	await("go", "java")
	tell(kazoo, "join "+path+" python", "joined")
	await("go", "java", "python")

	if got := tell(kazoo, "members", "members"); got != "go,python" {
		t.Errorf("kazoo sees %s", got)
	}
	for got := ""; ; { // its cache is some time behind
		got = tell(curator, "members", "members")
		if strings.Contains(got, m.ID()+"=go,") && strings.Contains(got, "=python,") && strings.Contains(got, "java-1=java,") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("Curator sees %s", got)
		}
	}
	if _, err := g.Join(ctx, "java-1", nil); !errors.Is(err, ErrTaken) {
		t.Errorf("Join with Curator's id = %v, want ErrTaken", err)
	}
	if err := m.SetData(ctx, []byte("went")); err != nil {
		t.Error(err)
	}
	await("java", "python", "went")
	tell(curator, "quit", "gone")
	await("python", "went")
	if err := m.Leave(ctx); err != nil {
		t.Error(err)
	}
	await("python")
	tell(kazoo, "quit", "gone")
	await()
	if all, err := g.Members(ctx); len(all) != 0 || err != nil {
		t.Errorf("Members = %v, %v", all, err)
	}
}

// electionWithOthers: leadership goes round between the three, and each knows who
// leads.
func electionWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	e := NewElection(s, path, ElectionOptions{})
	var last int64
	leads := func(token int64, who string) {
		t.Helper()
		if token <= last {
			t.Errorf("%s leads with token %d after %d", who, token, last)
		}
		last = token
		leader, err := e.Leader(ctx)
		if err != nil || leader.Token != token {
			t.Errorf("Leader = %+v, %v, want token %d of %s", leader, err, token, who)
		}
	}
	for range 3 {
		mine, err := e.Campaign(ctx, []byte("go"))
		if err != nil {
			t.Fatal(err)
		}
		leads(mine.Token(), "go")
		tell(curator, "stand "+path+" java", "standing")
		awaitChildren(t, ctx, s, path, 2)
		kazoo.say("stand " + path + " python latch")
		awaitChildren(t, ctx, s, path, 3)
		if got := tell(curator, "leader", "leader"); got != "go" {
			t.Errorf("Curator says %q leads, want go", got)
		}
		curator.say("await")
		wantSilent(t, curator)
		wantSilent(t, kazoo)
		again := make(chan *Leadership)
		go func() {
			l, err := mine.StandAgain(ctx, []byte("go again"))
			if err != nil {
				t.Error(err)
			}
			again <- l
		}()
		leads(parseToken(t, curator.expect("leads")), "java")
		wantSilent(t, kazoo)
		if l, err := e.Leader(ctx); err != nil || string(l.Data) != "java" {
			t.Errorf("leader %+v, %v, want java", l, err)
		}
		awaitChildren(t, ctx, s, path, 3)
		tell(curator, "resign", "resigned")
		leads(parseToken(t, kazoo.expect("leads")), "python")
		tell(kazoo, "resign", "resigned")
		l := <-again
		if l == nil {
			t.FailNow()
		}
		leads(l.Token(), "go")
		if err := l.Resign(ctx); err != nil {
			t.Error(err)
		}
		awaitChildren(t, ctx, s, path, 0)
		if _, err := e.Leader(ctx); !errors.Is(err, ErrNoLeader) {
			t.Errorf("Leader = %v, want ErrNoLeader", err)
		}
	}
}

// wantSilent checks that c, which waits, has not said that it leads.
func wantSilent(t *testing.T, c *contender) {
	t.Helper()
	select {
	case line := <-c.lines:
		t.Errorf("%s says %q while another leads", c.name, line)
	default:
	}
}

// electionWithKazoo is an election with kazoo's own names, which is configured to wait for ours.
func electionWithKazoo(t *testing.T, ctx context.Context, s *Session, path string, _, kazoo *contender) {
	e := NewElection(s, path, ElectionOptions{})
	mine, err := e.Campaign(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	kazoo.say("stand " + path + " python patterns")
	awaitChildren(t, ctx, s, path, 2)
	wantSilent(t, kazoo)
	if err := mine.Resign(ctx); err != nil {
		t.Error(err)
	}
	token := parseToken(t, kazoo.expect("leads"))
	if leader, err := e.Leader(ctx); err != nil || leader.Token != token || token <= mine.Token() {
		t.Errorf("Leader = %+v, %v, want token %d, after %d", leader, err, token, mine.Token())
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := e.Campaign(short, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Campaign beside kazoo's leader = %v", err)
	}
	tell(kazoo, "resign", "resigned")
}

func queueWithOthers(t *testing.T, ctx context.Context, s *Session, path string, curator, kazoo *contender) {
	q := NewQueue(s, path, nil)
	tell(kazoo, "put "+path+" second 100", "put")
	if err := q.Put(ctx, Entry{Data: []byte("third")}, Entry{Data: []byte("first"), Priority: -50}); err != nil {
		t.Fatal(err)
	}
	tell(kazoo, "put "+path+" last 999", "put")
	take := func(want string, priority int) *Item {
		t.Helper()
		it, err := q.Take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if string(it.Data()) != want || it.Priority() != priority {
			t.Fatalf("took %s (%d), want %s (%d)", it.Data(), it.Priority(), want, priority)
		}
		return it
	}
	first := take("first", -50)
	if got := tell(kazoo, "get "+path, "got"); got != "second" {
		t.Errorf("kazoo got %s, want second", got)
	}
	third := take("third", 0)
	if err := first.Done(ctx); err != nil {
		t.Error(err)
	}
	// The item that kazoo gives back is the next one.
	if got := tell(kazoo, "release", "released"); got != "True" {
		t.Error(got)
	}
	second := take("second", 0)
	if err := third.Return(ctx); err != nil {
		t.Error(err)
	}
	if got := tell(kazoo, "get "+path, "got"); got != "third" {
		t.Errorf("kazoo got %s, want third", got)
	}
	if got := tell(kazoo, "consume", "consumed"); got != "True" {
		t.Error(got)
	}
	if err := second.Done(ctx); err != nil {
		t.Error(err)
	}
	last := take("last", MaxPriority)
	// An item comes back when its consumer vanishes.
	conn := s.Conn().(*zk.Conn)
	if err := conn.Delete(path+"/taken/"+last.ID(), -1); err != nil {
		t.Fatal(err)
	}
	<-last.Lost()
	if got := tell(kazoo, "get "+path, "got"); got != "last" {
		t.Errorf("kazoo got %s, want last", got)
	}
	if got := tell(kazoo, "consume", "consumed"); got != "True" {
		t.Error(got)
	}
	if err := last.Done(ctx); err == nil {
		t.Error("Done of an item that another has consumed = nil")
	}
	if items, taken, err := q.Len(ctx); items != 0 || taken != 0 || err != nil {
		t.Errorf("Len = %d, %d, %v", items, taken, err)
	}
}
