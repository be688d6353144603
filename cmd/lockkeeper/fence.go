package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"lockkeeper/cmd/lockkeeper/internal/fenceproxy"
	"lockkeeper/recipes/fence"
)

// fenceCommand is an HTTP proxy that refuses requests with an older token.
type fenceCommand struct {
	listen, to, lock, state string
	requests                int
	bodyBytes               int64
	timeout, wait, settle   time.Duration
}

func (f *fenceCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&f.listen, "listen", "", "`host:port` where to accept requests; an address that only the holders of "+
		"the lock reach")
	fs.StringVar(&f.to, "to", "", "`URL` of the resource, http or https")
	fs.StringVar(&f.lock, "lock", "", "`path` of the lock that protects the resource: its tokens are remembered by "+
		"this name")
	fs.StringVar(&f.state, "state", "lockkeeper-fence.state",
		"`file` that remembers the newest token; its directory has to survive a power cut (default "+
			"lockkeeper-fence.state)")
	fs.IntVar(&f.requests, "requests", 256, "`n` requests at once; another one is answered 503 (default 256)")
	fs.Int64Var(&f.bodyBytes, "body", 64<<20, "`bytes` of a request's body at the most (default 67108864)")
	durationVar(fs, &f.timeout, "timeout", time.Minute, "`duration` of a request at the most, with its answer "+
		"(default 1m)")
	durationVar(fs, &f.wait, "wait", 30*time.Second,
		"`duration` for which a newer token waits for older requests in flight, before it is answered 503 "+
			"(default 30s)")
	durationVar(fs, &f.settle, "settle", 10*time.Second, "`duration` for which the resource may go on working on a "+
		"request after its connection has closed (default 10s)")
}

func (f *fenceCommand) run(e env, _ []string) error {
	target, err := f.check()
	if err != nil {
		return err
	}
	memory, err := fence.OpenFile(f.state)
	if err != nil {
		return err
	}
	defer memory.Close()
	log := slog.New(slog.NewTextHandler(e.stderr, nil))
	proxy, err := fenceproxy.New(fenceproxy.Config{Target: target, Lock: f.lock, Memory: memory, Requests: f.requests,
		BodyBytes: f.bodyBytes, Timeout: f.timeout, Wait: f.wait, Settle: f.settle, Log: log})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           proxy,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       f.timeout,
		WriteTimeout:      f.timeout + f.wait,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	fmt.Fprintf(e.stdout, "lockkeeper fence listens on %s\n", listener.Addr())
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(boundedListener{listener, make(chan struct{}, fenceConnections*f.requests)})
	}()
	select {
	case err := <-served:
		return err
	case <-e.signals:
	}
	return f.end(e, server)
}

// end lets the requests in flight end, unless there is a second signal.
func (f *fenceCommand) end(e env, server *http.Server) error {
	err, sig := untilSignal(e, 0, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.timeout+f.wait)
		defer cancel()
		return server.Shutdown(ctx)
	})
	if sig != nil {
		_ = server.Close()
		return signalStatus(sig)
	}
	return err
}

// check returns the target of flags that are right.
func (f *fenceCommand) check() (*url.URL, error) {
	var missing []string
	for _, given := range [][2]string{{"-listen", f.listen}, {"-to", f.to}, {"-lock", f.lock}, {"-state", f.state}} {
		if given[1] == "" {
			missing = append(missing, given[0])
		}
	}
	if len(missing) > 0 {
		return nil, wrongUsage("%s: a value is needed", strings.Join(missing, ", "))
	}
	target, err := url.Parse(f.to)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, wrongUsage("-to: %q is no URL as http://127.0.0.1:8000 is", f.to)
	}
	if !strings.HasPrefix(f.lock, "/") {
		return nil, wrongUsage("-lock: the path of a lock begins with /, unlike %q", f.lock)
	}
	const most = 1 << 16
	if f.requests < 1 || f.requests > most || f.bodyBytes < 0 {
		return nil, wrongUsage("-requests is a number from 1 to %d, and -body is not negative", most)
	}
	if f.timeout <= 0 || f.wait < 0 || f.settle < 0 {
		return nil, wrongUsage("-timeout is longer than 0; -wait and -settle are not negative")
	}
	return target, nil
}

// fenceConnections is the number of connections at once for each of -requests.
const fenceConnections = 4

// boundedListener accepts no more connections than its channel has room for.
type boundedListener struct {
	net.Listener
	room chan struct{}
}

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &boundedConn{Conn: c, room: l.room}, nil
		default:
			_ = c.Close()
		}
	}
}

// boundedConn is a connection that takes room in a boundedListener.
type boundedConn struct {
	net.Conn
	room chan struct{}
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	if !errors.Is(err, net.ErrClosed) {
		<-c.room
	}
	return err
}
