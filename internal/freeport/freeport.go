package freeport

import (
	"fmt"
	"net"
	"os"
	"sync"
)

const (
	firstPort = 25000
	lastPort  = 32000
)

var (
	mu sync.Mutex
	// next is where the search goes on. Processes start at different places, which makes a
	// collision between two test binaries unlikely.
	next = firstPort + os.Getpid()*31%(lastPort-firstPort)
)

// Take returns n ports.
func Take(n int) (ports []int, err error) {
	for range n {
		port, err := Block(1)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// Block returns the first of n free ports in a row.
func Block(size int) (first int, err error) {
	mu.Lock()
	defer mu.Unlock()
	for free, tries := 0, 0; tries < lastPort-firstPort; tries++ {
		if next == lastPort {
			next, free = firstPort, 0
		}
		port := next
		next++
		if !isFree(port) {
			free = 0
			continue
		}
		if free++; free == size {
			return next - size, nil
		}
	}
	return 0, fmt.Errorf("freeport: there are no %d free ports in a row between %d and %d", size, firstPort, lastPort)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
