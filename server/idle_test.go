package server

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"lockkeeper/wire"
)

// idleSessions is enough that the rest of the process, which changes by some KB, does not count.
const idleSessions = 2000

// TestSessionMemory holds the memory of an idle session on the member of its client: the heap, and
// the stack of its goroutine, which must not be the one that the handshake has grown. The other
// members have 0.1 KB for it. The memory of a bare connection, both of its ends and a goroutine
// that reads, is Go's, and not counted.
func TestSessionMemory(t *testing.T) {
	s := startReal(t, func(cfg *Config) { cfg.Client.MaxCnxnsPerAddr = idleSessions })
	bare := func() (heap, stack int) { return memoryOfEach(t, bareListener(t), func(net.Conn) {}) }
	bareHeap, bareStack := bare()
	// What earlier tests have left may have become garbage meanwhile, or may have been used again.
	heapAgain, stackAgain := bare()
	bareHeap, bareStack = max(bareHeap, heapAgain), max(bareStack, stackAgain)
	request := wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 30_000, Password: make([]byte, wire.PasswordLen)})
	answer := make([]byte, len(wire.AppendFrame(nil, wire.ConnectResponse{Password: make([]byte, wire.PasswordLen)})))
	heap, stack := memoryOfEach(t, s.ClientAddr().String(), func(c net.Conn) {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
	})
	heap, stack = heap-bareHeap, stack-bareStack
	t.Logf("%d bytes of heap, %d of stack beside those of a bare connection, %d and %d", heap, stack, bareHeap, bareStack)
	// 416 bytes are the Session, 208 the connection, 80 its row, 48 its lease; 25 each the indexes
	// of the rows, the leases and the sessions.
	if heap > 1000 {
		t.Errorf("an idle session takes %d bytes of heap", heap)
	}
	if stack > 300 {
		t.Errorf("the goroutine of an idle session takes %d bytes of stack more than one that only reads", stack)
	}
}

// bareListener accepts connections, reads from each in a goroutine, and returns its address.
func bareListener(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				var b [1]byte
				_, _ = c.Read(b[:])
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// memoryOfEach opens idleSessions connections and returns the bytes of heap and stack of each.
func memoryOfEach(t *testing.T, addr string, open func(net.Conn)) (heap, stack int) {
	var before, after runtime.MemStats
	conns := make([]net.Conn, idleSessions)
	settledMemory(&before)
	for i := range conns {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		open(c)
		conns[i] = c
	}
	settledMemory(&after)
	runtime.KeepAlive(conns)
	return (int(after.HeapAlloc) - int(before.HeapAlloc)) / idleSessions,
		(int(after.StackInuse) - int(before.StackInuse)) / idleSessions
}

// settledMemory reads the memory without garbage: pools give up their content in the second
// collection.
func settledMemory(m *runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(m)
}
