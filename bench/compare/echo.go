package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"lockkeeper/internal/rawsock"
	"lockkeeper/wire"
)

// echoArg makes this program a server that does nothing: it reads requests, one goroutine for each connection, and answers
// all that have come with one system call. It speaks as much of ZooKeeper's protocol as package bench needs, so that the same
// load generator measures what the machine and Go's network cost, whatever a server does beyond that.
//
// Three of them can stand for a cluster that costs nothing: they answer writes as a cluster does, those of one entry all at once, and
// tell whoever watches of a write on any of them.
const echoArg = "echo-server"

// echoServer is such a server.
type echoServer struct {
	group int      // so many answers to writes are sent at once; with 1 each goes by itself
	peers []string // addresses of the others of its cluster

	mu       sync.Mutex
	held     []heldAnswer
	watchers []net.Conn
	links    []net.Conn // to the peers, from the first write that anybody watches for
}

type heldAnswer struct {
	c net.Conn
	b []byte
}

// echoLink is the first frame of a connection that is not a client's. Each byte behind it says that there was a write.
var echoLink = []byte{'w'}

// serveEcho serves until it is killed. Its arguments are an address, the group, and the addresses of the peers.
func serveEcho(args []string) error {
	if len(args) < 2 {
		return errors.New("echo: an address and a number are wanted")
	}
	group, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	s := &echoServer{group: group, peers: args[2:]}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "echo: listening on", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = s.serve(rawsock.Wrap(c)) // the client has gone
		}()
	}
}

const (
	maxEchoBytes  = 1 << 20
	echoTimeoutMs = 30_000
)

// serve answers one connection.
func (s *echoServer) serve(c net.Conn) error {
	r := bufio.NewReaderSize(c, 16<<10)
	first, err := wire.ReadFrame(r, nil, maxEchoBytes)
	if err != nil {
		return err
	}
	if bytes.Equal(first, echoLink) {
		for {
			if _, err := r.ReadByte(); err != nil {
				return err
			}
			s.fire()
		}
	}
	hello := wire.ConnectResponse{TimeoutMs: echoTimeoutMs, SessionID: 1, Password: make([]byte, wire.PasswordLen), HasReadOnly: true}
	out := wire.AppendFrame(nil, hello)
	data := &wire.GetDataResponse{Data: make([]byte, 100)}
	var frame []byte
	for {
		if r.Buffered() == 0 && len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		var err error
		if frame, err = wire.ReadFrame(r, frame, maxEchoBytes); err != nil {
			return err
		}
		d := wire.NewDecoder(frame)
		xid, op := wire.Xid(d.Int32()), wire.Op(d.Int32())
		if d.Err() != nil {
			return errors.New("echo: not a request")
		}
		var body wire.Record
		switch op {
		case wire.OpGetData:
			if body = data; frame[len(frame)-1] != 0 {
				s.watch(c)
			}
		case wire.OpSetData:
			body = &wire.StatResponse{}
			if err := s.tell(); err != nil {
				return err
			}
		case wire.OpCreate:
			body = &wire.CreateResponse{Path: "/echo"}
		case wire.OpGetChildren:
			body = &wire.GetChildrenResponse{}
		case wire.OpSync:
			body = &wire.SyncResponse{Path: "/"}
		}
		header := wire.ReplyHeader{Xid: xid, Zxid: 1}
		if op == wire.OpSetData && s.group > 1 {
			s.hold(c, wire.AppendReply(nil, header, body))
		} else {
			out = wire.AppendReply(out, header, body)
		}
	}
}

// hold keeps an answer until the group is complete.
func (s *echoServer) hold(c net.Conn, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held = append(s.held, heldAnswer{c, b}); len(s.held) < s.group {
		return
	}
	all := s.held
	s.held = nil
	go func() {
		for _, a := range all {
			_, _ = a.c.Write(a.b) // who reads from it notices
		}
	}()
}

func (s *echoServer) watch(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, c)
}

// tell tells all watchers, if this server has any, and has its peers tell theirs.
func (s *echoServer) tell() error {
	s.mu.Lock()
	watched := len(s.watchers) > 0
	for watched && len(s.links) < len(s.peers) {
		c, err := net.Dial("tcp", s.peers[len(s.links)])
		if err == nil {
			_, err = c.Write(append([]byte{0, 0, 0, byte(len(echoLink))}, echoLink...))
		}
		if err != nil {
			s.mu.Unlock()
			return err
		}
		s.links = append(s.links, c)
	}
	links := s.links
	s.mu.Unlock()
	if !watched {
		return nil
	}
	for _, l := range links {
		if _, err := l.Write(echoLink); err != nil {
			return err
		}
	}
	s.fire()
	return nil
}

// fire sends an event to each watcher.
func (s *echoServer) fire() {
	s.mu.Lock()
	watchers := s.watchers
	s.watchers = nil
	s.mu.Unlock()
	event := wire.AppendReply(nil, wire.ReplyHeader{Xid: wire.XidNotification, Zxid: -1},
		&wire.WatcherEvent{Type: wire.EventNodeDataChanged, State: wire.StateSyncConnected, Path: "/bench/herd0"})
	for _, c := range watchers {
		_, _ = c.Write(event) // who reads from it notices
	}
}
