package floor

import (
	"bufio"
	"fmt"
	"net"

	"lockkeeper/wire"
)

const (
	maxRequestBytes = 1 << 20
	// timeoutMs is the session timeout that every client gets; no session expires.
	timeoutMs = 30_000
)

// node is the answer to every read.
var node = wire.GetDataResponse{Data: make([]byte, 100), Stat: wire.Stat{DataLength: 100}}

// serveClients serves the clients of a member.
func serveClients(addr string, w writes) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		go serveClient(conn, w)
	}
}

// serveClient serves one client until its connection ends.
func serveClient(conn net.Conn, w writes) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 16<<10)
	if _, err := wire.ReadFrame(r, nil, maxRequestBytes); err != nil {
		return
	}
	out := wire.AppendFrame(nil, wire.ConnectResponse{TimeoutMs: timeoutMs, SessionID: 1,
		Password: make([]byte, wire.PasswordLen), HasReadOnly: true})
	c := &answering{conn: conn}
	var payload, answers []byte
	for frame := []byte(nil); ; {
		if len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return
			}
		}
		out, payload, answers = out[:0], payload[:0], answers[:0]
		closing := false
		// A client sends only reads, or only writes, at a time: answers need no order between both.
		for more := true; more && !closing; more = holdsFrame(r) {
			var err error
			if frame, err = wire.ReadFrame(r, frame, maxRequestBytes); err != nil {
				return
			}
			req, err := wire.DecodeRequest(frame)
			if err != nil {
				return
			}
			code, body := wire.CodeOK, wire.Record(nil)
			switch req.Op {
			case wire.OpPing:
			case wire.OpGetData:
				body = node
			case wire.OpExists:
				body = wire.StatResponse{Stat: node.Stat}
			case wire.OpGetChildren:
				body = wire.GetChildrenResponse{}
			case wire.OpCloseSession:
				closing = true
			case wire.OpCreate, wire.OpSetData, wire.OpDelete, wire.OpSync:
				payload = append(payload, req.Body...)
				answers = appendAnswer(answers, req)
				continue
			default:
				code = wire.CodeUnimplemented
			}
			out = wire.AppendReply(out, wire.ReplyHeader{Xid: req.Xid, Zxid: 1, Err: code}, body)
		}
		if len(answers) > 0 {
			w.submit(c, payload, answers)
		}
		if closing {
			_, _ = conn.Write(out)
			return
		}
	}
}

// appendAnswer appends the reply of a write.
func appendAnswer(b []byte, req wire.Request) []byte {
	var body wire.Record
	switch req.Op {
	case wire.OpCreate:
		var create wire.CreateRequest
		if err := wire.Decode(req.Body, &create); err == nil {
			body = wire.CreateResponse{Path: create.Path}
		}
	case wire.OpSync:
		body = wire.SyncResponse{}
	case wire.OpSetData:
		body = wire.StatResponse{Stat: node.Stat}
	}
	return wire.AppendReply(b, wire.ReplyHeader{Xid: req.Xid, Zxid: 1}, body)
}
