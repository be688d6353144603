package peer

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// Of a stream that is reset when it is closed nothing arrives later.
func TestResetOnCloseSendsNothingMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	members := []Member{{ID: 1, Addr: "127.0.0.1:0"}, {ID: 2, Addr: l.Addr().String()}}
	roster := NewRoster(members, false, fakeLocal{})
	roster.SetCluster(pairCluster)
	port, err := Listen(Config{ID: 1, Disk: 1, Members: members}, roster, fakeLocal{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		far, err := l.Accept()
		if err != nil {
			t.Error(err)
		} else if _, err = io.ReadFull(far, make([]byte, prefaceLen)); err == nil {
			_, _ = far.Write([]byte{NewestVersion, 0}) // the version, and the verdict
		}
		accepted <- far
	}()
	near, err := port.DialDisk(t.Context(), 2, 2, StreamRaft)
	if err != nil {
		t.Fatal(err)
	}
	near.ResetOnClose()
	far := <-accepted
	defer far.Close()
	near.Close()
	if _, err := io.ReadAll(far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v", err)
	}
}
