package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"

	"lockkeeper/wire"
)

// echoArg makes this program a server that does nothing: it reads requests, one goroutine for each connection, and answers
// all that have come with one system call. It speaks as much of ZooKeeper's protocol as package bench needs, so that the same
// load generator measures what the machine and Go's network cost, whatever a server does beyond that.
const echoArg = "echo-server"

// serveEcho serves on addr until it is killed.
func serveEcho(addr string) error {
	l, err := net.Listen("tcp", addr)
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
			_ = echo(c) // the client has gone
		}()
	}
}

const (
	maxEchoBytes  = 1 << 20
	echoTimeoutMs = 30_000
)

// echo answers one connection.
func echo(c net.Conn) error {
	r := bufio.NewReaderSize(c, 16<<10)
	if _, err := wire.ReadFrame(r, nil, maxEchoBytes); err != nil {
		return err
	}
	hello := wire.ConnectResponse{TimeoutMs: echoTimeoutMs, SessionID: 1, Password: make([]byte, wire.PasswordLen), HasReadOnly: true}
	out := wire.AppendFrame(nil, hello)
	data := &wire.GetDataResponse{Data: make([]byte, 100)}
	var frame []byte
	for {
		if r.Buffered() == 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		var err error
		if frame, err = wire.ReadFrame(r, frame, maxEchoBytes); err != nil {
			return err
		}
		var header struct {
			xid wire.Xid
			op  wire.Op
		}
		d := wire.NewDecoder(frame)
		header.xid, header.op = wire.Xid(d.Int32()), wire.Op(d.Int32())
		var body wire.Record
		switch header.op {
		case wire.OpGetData:
			body = data
		case wire.OpCreate:
			body = &wire.CreateResponse{Path: "/echo"}
		case wire.OpGetChildren:
			body = &wire.GetChildrenResponse{}
		case wire.OpSync:
			body = &wire.SyncResponse{Path: "/"}
		}
		out = wire.AppendReply(out, wire.ReplyHeader{Xid: header.xid, Zxid: 1}, body)
		if d.Err() != nil {
			return errors.New("echo: not a request")
		}
	}
}
