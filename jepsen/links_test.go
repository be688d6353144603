package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// echoPort is where the hosts of these tests listen.
const echoPort = 7777

// A talk is a connection between two hosts: one of them speaks, the other one hears.
type talk struct {
	t     *testing.T
	say   func(line string)
	heard <-chan string
	close func()
}

// hears fails the test unless the next line that is heard is want.
func (k *talk) hears(want string) {
	k.t.Helper()
	select {
	case got := <-k.heard:
		if got != want {
			k.t.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		k.t.Errorf("did not hear %q", want)
	}
}

// silent fails the test if anything has been heard.
func (k *talk) silent(when string) {
	k.t.Helper()
	select {
	case got := <-k.heard:
		k.t.Errorf("%s: heard %q", when, got)
	default:
	}
}

// Both kinds of links are blocked in one direction, silently, on connections that are open already.
func TestBlock(t *testing.T) {
	t.Run("proxies", func(t *testing.T) {
		p := NewProxies(3, 1)
		defer closeAll(t, p)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		testBlock(t, p, func(t *testing.T, from, to int) (there, back *talk) {
			addr, err := p.Between(from, to, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			near, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return newTalk(t, near, far, near.Close), newTalk(t, far, near, far.Close)
		})
	})
	t.Run("network", func(t *testing.T) {
		Need(t, FindNetwork())
		n, err := NewNetwork(testTimeout(t, time.Minute), 3, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(t, n)
		testBlock(t, n, func(t *testing.T, from, to int) (there, back *talk) { return inNetwork(t, n, from, to) })
	})
}

func closeAll(t *testing.T, c io.Closer) {
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// newTalk connects from, which writes, with to, which reads.
func newTalk(t *testing.T, from io.Writer, to io.Reader, close func() error) *talk {
	heard := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(to); lines.Scan(); {
			heard <- lines.Text()
		}
		heard <- "end"
	}()
	return &talk{
		t: t, heard: heard,
		say: func(line string) {
			if _, err := io.WriteString(from, line+"\n"); err != nil {
				t.Errorf("say %q: %v", line, err)
			}
		},
		close: func() { _ = close() },
	}
}

// testHost makes this test binary a host's end of a connection: it listens, or calls, sends its
// standard input and prints the received bytes.
const testHost = "JEPSEN_TEST_HOST"

func beHost(addr string) {
	var conn net.Conn
	var err error
	if rest, listen := strings.CutPrefix(addr, "listen "); listen {
		var l net.Listener
		if l, err = net.Listen("tcp", rest); err == nil {
			fmt.Println("listening")
			conn, err = l.Accept()
		}
	} else {
		conn, err = net.Dial("tcp", addr)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.Close()
		os.Exit(0)
	}()
	_, err = io.Copy(os.Stdout, conn)
	fmt.Println("end", err)
	os.Exit(0)
}

// inNetwork opens a connection between two hosts of a network.
func inNetwork(t *testing.T, n *Network, from, to int) (there, back *talk) {
	places := n.Places()
	host := func(i int, addr string) (io.WriteCloser, *bufio.Reader) {
		args := append(slices.Clone(places[i-1].enter), os.Args[0])
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), testHost+"="+addr)
		cmd.SysProcAttr = procAttr()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return in, bufio.NewReader(out)
	}
	at := fmt.Sprintf("%s:%d", places[to-1].PeerHost, echoPort)
	farIn, farOut := host(to, "listen "+at)
	if line, err := farOut.ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("%q, %v", line, err)
	}
	nearIn, nearOut := host(from, at)
	return newTalk(t, nearIn, farOut, nearIn.Close), newTalk(t, farIn, nearOut, farIn.Close)
}

func testBlock(t *testing.T, links Links, open func(t *testing.T, from, to int) (there, back *talk)) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	there, back := open(t, 1, 2)
	there.say("one")
	there.hears("one")
	back.say("two")
	back.hears("two")

	must(links.Block(1, 2))
	must(links.Block(1, 2)) // once is enough
	there.say("held")
	back.say("still here") // the other direction is open
	back.hears("still here")
	back.say("and still")
	back.hears("and still")
	there.silent("1 to 2 is blocked")
	must(links.Unblock(1, 2))
	there.hears("held")

	// Both ways, by groups; host 3 is in none.
	must(Partition(links, [][]int{{1}, {2}}))
	there.say("a")
	back.say("b")
	must(links.Block(3, 1)) // is blocked already
	there.silent("1 and 2 are apart")
	back.silent("1 and 2 are apart")
	// A bridge: both see 3, and not each other.
	must(Partition(links, [][]int{{1, 3}, {2, 3}}))
	third, _ := open(t, 3, 1)
	third.say("from 3")
	third.hears("from 3")
	there.silent("1 and 2 see only 3")
	must(HealAll(links))
	there.hears("a")
	back.hears("b")

	// That the other end has gone is not heard of either.
	must(links.Block(1, 2))
	there.close()
	back.say("into nothing")
	there.silent("1 to 2 is blocked")
	must(HealAll(links))
	select {
	case got := <-there.heard:
		if !strings.HasPrefix(got, "end") {
			t.Errorf("heard %q, want the end", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("did not hear that the other end has gone")
	}

	if err := links.Block(1, 4); !errors.Is(err, errNoHost) {
		t.Errorf("Block of a host that is not there: %v", err)
	}
	if err := Partition(links, [][]int{{1, 0}}); !errors.Is(err, errNoHost) {
		t.Errorf("Partition of a host that is not there: %v", err)
	}
	if err := links.Block(2, 2); err == nil {
		t.Error("Block of a host from itself succeeds")
	}
}

// A bad link delays and stalls, and still delivers everything in order.
func TestProxiesShape(t *testing.T) {
	p := NewProxies(2, 1)
	defer closeAll(t, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, err := p.Between(1, 2, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if err := p.Shape(1, Shape{Delay: 50 * time.Millisecond, Jitter: 40 * time.Millisecond, Loss: 0.3}); err != nil {
		t.Fatal(err)
	}
	there := newTalk(t, near, far, near.Close)
	began := time.Now()
	for i := range 20 {
		there.say(fmt.Sprint(i))
	}
	for i := range 20 {
		there.hears(fmt.Sprint(i))
	}
	// Not before the shortest delay; how much later depends on the machine.
	if took := time.Since(began); took < 10*time.Millisecond {
		t.Errorf("20 lines took %v over a link that takes 10 to 90 ms", took)
	}
	if err := p.Shape(3, Shape{}); !errors.Is(err, errNoHost) {
		t.Errorf("Shape of a host that is not there: %v", err)
	}
}

// A cluster of real members behind proxies loses its leader when that is cut off, and finds it
// again.
func TestProxiesCluster(t *testing.T) {
	ctx := testTimeout(t, time.Minute)
	p := NewProxies(3, 1)
	defer closeAll(t, p)
	testCutLeader(ctx, t, p, ClusterConfig{Target: findTarget(t, "lockkeeper"), Members: 3, Between: p.Between})
}

// A network of the most hosts that there may be, and a cluster in it.
func TestNetworkOfSeven(t *testing.T) {
	target := findTarget(t, "lockkeeper")
	Need(t, FindNetwork())
	ctx := testTimeout(t, time.Minute)
	n, err := NewNetwork(ctx, MaxHosts, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, n)
	testCutLeader(ctx, t, n, ClusterConfig{Target: target, Members: MaxHosts, Places: n.Places()})
	if _, err := NewNetwork(ctx, MaxHosts+1, t.TempDir()); err == nil {
		t.Error("a network of one host too many is made")
	}
}

func testCutLeader(ctx context.Context, t *testing.T, links Links, cfg ClusterConfig) {
	cfg.Dir = filepath.Join(t.TempDir())
	cluster, err := StartCluster(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, cluster)
	old, err := cluster.AwaitLeader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var rest []int
	for _, m := range cluster.Members() {
		if m != old {
			rest = append(rest, m.ID)
		}
	}
	if err := Partition(links, [][]int{rest}); err != nil {
		t.Fatal(err)
	}
	err = Poll(ctx, 20*time.Millisecond, func() error {
		if mode, err := old.Mode(ctx); err == nil && mode == "leader" {
			return fmt.Errorf("%s still leads", old)
		}
		for _, id := range rest {
			if mode, err := cluster.Members()[id-1].Mode(ctx); err == nil && mode == "leader" {
				return nil
			}
		}
		return errors.New("nobody leads on the majority's side")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := HealAll(links); err != nil {
		t.Fatal(err)
	}
	if err := cluster.AwaitServing(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.AwaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
}
