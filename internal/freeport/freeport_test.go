package freeport

import (
	"fmt"
	"net"
	"testing"
)

func TestPortsAreFreeAndGivenOutOnce(t *testing.T) {
	seen := map[int]bool{}
	note := func(port int) {
		if seen[port] || port < firstPort || port >= lastPort || !isFree(port) {
			t.Errorf("port %d", port)
		}
		seen[port] = true
	}
	ports, err := Take(20)
	if err != nil || len(ports) != 20 {
		t.Fatal(ports, err)
	}
	for _, p := range ports {
		note(p)
	}
	// The second of the next ones is taken.
	mu.Lock()
	taken := next + 1
	mu.Unlock()
	if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", taken)); err == nil {
		defer l.Close()
	}
	first, err := Block(3)
	if err != nil || first <= taken && taken < first+3 {
		t.Fatalf("a block at %d although %d is taken, %v", first, taken, err)
	}
	for i := range 3 {
		note(first + i)
	}
}

func TestNoRoom(t *testing.T) {
	if p, err := Block(lastPort - firstPort + 1); err == nil {
		t.Errorf("port %d", p)
	}
}
