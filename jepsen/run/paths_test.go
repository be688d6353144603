package run

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// TestPaths: over a path that is cut no byte comes or goes, and nobody can connect; open
// connections end when it is whole again. Other paths are whole.
func TestPaths(t *testing.T) {
	got := make(chan string, 2)
	listen := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			b, _ := io.ReadAll(io.TeeReader(c, c))
			got <- string(b)
		}()
		return l.Addr().String()
	}
	p := new(paths)
	open := func(addr string) net.Conn {
		c, err := p.dial("tcp", addr, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	echoed := func(c net.Conn, text string) {
		b := make([]byte, len(text))
		_, err := io.WriteString(c, text)
		if _, rerr := io.ReadFull(c, b); err != nil || rerr != nil || string(b) != text {
			t.Errorf("%q came back as %q: %v, %v", text, b, err, rerr)
		}
	}
	one, other := listen(), listen()
	a, b := open(one), open(other)
	echoed(a, "before")
	echoed(b, "before")
	p.follow(bufio.NewReader(strings.NewReader(cutLine + `["` + one + `"]` + "\n")))
	if _, err := io.WriteString(a, "lost"); err != nil {
		t.Errorf("write over a path that is cut: %v", err)
	}
	echoed(b, "while")
	if _, err := p.dial("tcp", one, time.Millisecond); !errors.Is(err, errCut) {
		t.Errorf("connect over a path that is cut: %v", err)
	}
	p.follow(bufio.NewReader(strings.NewReader(cutLine + "null\n")))
	if _, err := a.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that has lost bytes goes on")
	}
	b.Close()
	for range 2 {
		if text := <-got; text != "before" && text != "beforewhile" {
			t.Errorf("a server got %q", text)
		}
	}
}

// TestProgressBound: ZooKeeper's bound is later, by syncLimit and a tick.
func TestProgressBound(t *testing.T) {
	test := Default
	test.Target = jepsen.Lockkeeper("x")
	if d := test.progressBound(); d != 16*time.Second {
		t.Errorf("lockkeeper: %v", d)
	}
	test.Target.Name = "zookeeper"
	if d := test.progressBound(); d != 28*time.Second {
		t.Errorf("zookeeper: %v", d)
	}
}
