package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/recipes"
)

// session is the worker's one connection, with its last report.
type session struct {
	conn    *zk.Conn
	recipes *recipes.Session // over the same connection

	mu      sync.Mutex
	ready   chan struct{} // closed while the session is connected
	session int64         // the id of the newest session
}

// connect starts the client library. report gets the connection's events as the harness wants them.
// The timeout must be one that the servers grant as it is: go-zookeeper does not show the granted
// one.
func connect(servers []string, timeout time.Duration, report func(string)) (*session, error) {
	s := &session{ready: make(chan struct{})}
	connected := false // only the library's own goroutine uses it
	made := make(chan struct{})
	conn, events, err := zk.Connect(servers, timeout, zk.WithLogger(log.Default()),
		zk.WithEventCallback(func(e zk.Event) {
			<-made
			if e.Type != zk.EventSession {
				return
			}
			switch e.State {
			case zk.StateHasSession:
				connected = true
				s.up()
				report(fmt.Sprintf("connected %s 0x%x", e.Server, uint64(s.conn.SessionID())))
			case zk.StateDisconnected:
				// The library says so also after an attempt that led nowhere.
				if connected {
					connected = false
					s.down()
					report("suspended")
				}
			case zk.StateExpired:
				report("expired")
			}
		}))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	s.recipes = recipes.NewSession(conn, events, timeout)
	close(made)
	return s, nil
}

func (s *session) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = s.conn.SessionID()
	close(s.ready)
}

func (s *session) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = make(chan struct{})
}

// current is the id of the newest session.
func (s *session) current() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// awaitReady waits until the session is connected.
func (s *session) awaitReady(ctx context.Context) error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retry calls try until it fails with something else than the loss of the
// connection. try must be such that it may be done twice.
func (s *session) retry(ctx context.Context, try func() error) error {
	for {
		if err := s.awaitReady(ctx); err != nil {
			return err
		}
		err := try()
		if !connectionLost(err) {
			return err
		}
		// The library fails requests before it tells of the disconnection; in
		// between, the next try would fail at once as well.
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connectionLost says whether an error of the library means that the request's
// outcome is unknown because the connection broke. When a write fails, the
// library hands out the bare error of the socket.
func connectionLost(err error) bool {
	if errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) || errors.Is(err, io.EOF) {
		return true
	}
	_, ok := errors.AsType[net.Error](err)
	return ok
}
