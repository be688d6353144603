package jepsen

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// Members listen below the range from which the kernel takes the ports of
// outgoing connections (32768 and up on Linux). A member that is killed and
// restarted must get its old port back, and a client's outgoing connection
// must not have taken it in the meantime.
const (
	firstPort = 25000
	lastPort  = 32000
)

// ports hands out loopback ports that nobody listens on. Every port is given
// out once per process.
type ports struct {
	mu   sync.Mutex
	next int
}

// freePorts is shared by all clusters of the process, so that two of them
// never get the same port. Processes start at different places, which makes a
// collision between two test binaries unlikely.
var freePorts = ports{next: firstPort + os.Getpid()*31%(lastPort-firstPort)}

// take returns n ports that were free a moment ago.
func (p *ports) take(n int) ([]int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []int
	for tries := 0; len(found) < n; tries++ {
		if tries == lastPort-firstPort {
			return nil, fmt.Errorf("jepsen: no %d free ports between %d and %d", n, firstPort, lastPort)
		}
		port := p.next
		if p.next++; p.next == lastPort {
			p.next = firstPort
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // taken by somebody else
		}
		_ = l.Close()
		found = append(found, port)
	}
	return found, nil
}
