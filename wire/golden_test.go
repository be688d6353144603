package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The files in testdata/frames are conversations between a client library and a ZooKeeper. A line
// is one of
//
//	# ...           what follows
//	connection N    the frames that follow belong to this connection
//	> hex           a frame of the client, with its length bytes
//	~ hex           the same, but one that uses a freedom of the format: what we encode has other bytes
//	! hex           the same, but one whose body the server refused to decode
//	< hex           a frame of the server

type goldenFrame struct {
	where string // file and line, for messages
	about string // the comment above
	conn  string
	kind  byte
	frame []byte // with its length bytes
}

func goldenFiles(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/frames/*.txt")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no golden files (%v)", err)
	}
	return files
}

func readGolden(tb testing.TB, file string) []goldenFrame {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var frames []goldenFrame
	var about, conn string
	for i, line := range strings.Split(string(text), "\n") {
		key, rest, _ := strings.Cut(line, " ")
		switch key {
		case "":
		case "#":
			about = rest
		case "connection":
			conn = rest
		case ">", "~", "!", "<":
			b, err := hex.DecodeString(rest)
			if err != nil {
				tb.Fatalf("%s:%d: %v", file, i+1, err)
			}
			where := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
			frames = append(frames, goldenFrame{where, about, conn, key[0], b})
		default:
			tb.Fatalf("%s:%d: %q", file, i+1, line)
		}
	}
	return frames
}

// goldenConn follows one connection, so that a reply is decoded as its request's op demands.
type goldenConn struct {
	ready       bool // the ConnectRequest was seen
	connected   bool // the ConnectResponse was seen
	hasReadOnly bool
	ops         map[Xid]Op
}

func TestGolden(t *testing.T) {
	seen := map[Op]int{}
	for _, file := range goldenFiles(t) {
		conns := map[string]*goldenConn{}
		for _, f := range readGolden(t, file) {
			c := conns[f.conn]
			if c == nil {
				c = &goldenConn{ops: map[Xid]Op{}}
				conns[f.conn] = c
			}
			payload, err := ReadFrame(bytes.NewReader(f.frame), nil, DefaultMaxBuffer)
			if err != nil {
				t.Fatalf("%s (%s): %v", f.where, f.about, err)
			}
			if f.kind == '<' {
				c.server(t, f, payload)
			} else if op, ok := c.client(t, f, payload); ok {
				seen[op]++
			}
		}
	}
	// What the clients at hand can send; the files must not lose any of it.
	for _, op := range []Op{OpCreate, OpDelete, OpExists, OpGetData, OpSetData, OpGetACL, OpSetACL, OpGetChildren, OpSync,
		OpPing, OpGetChildren2, OpMulti, OpCreate2, OpReconfig, OpCheckWatches, OpRemoveWatches, OpCreateContainer,
		OpCreateTTL, OpMultiRead, OpAuth, OpSetWatches, OpSASL, OpGetEphemerals, OpGetAllChildrenNumber, OpSetWatches2,
		OpAddWatch, OpWhoAmI, OpCloseSession} {
		if seen[op] == 0 {
			t.Errorf("no golden frame of %v", op)
		}
	}
}

func (c *goldenConn) client(t *testing.T, f goldenFrame, payload []byte) (Op, bool) {
	if !c.ready {
		c.ready = true
		var r ConnectRequest
		if err := Decode(payload, &r); err != nil {
			t.Errorf("%s (%s): %v", f.where, f.about, err)
		}
		c.hasReadOnly = r.HasReadOnly
		sameBytes(t, f, AppendFrame(nil, r))
		return 0, false
	}
	req, err := DecodeRequest(payload)
	if err != nil {
		t.Errorf("%s (%s): %v", f.where, f.about, err)
		return 0, false
	}
	c.ops[req.Xid] = req.Op
	if req.Op == OpPing {
		c.ops[XidPing] = OpPing
	}
	rec, err := DecodeBody(req.Op, req.Body)
	if (err != nil) != (f.kind == '!') {
		t.Errorf("%s (%s): decoded to %+v, %v", f.where, f.about, rec, err)
	}
	if err != nil {
		return 0, false
	}
	out := AppendRequest(nil, req.Xid, req.Op, rec)
	if f.kind == '>' {
		sameBytes(t, f, out)
		return req.Op, true
	}
	if bytes.Equal(out, f.frame) {
		t.Errorf("%s (%s): marked ~ but encodes to the same bytes", f.where, f.about)
	}
	again, err := DecodeBody(req.Op, out[12:])
	if err != nil || !reflect.DeepEqual(again, rec) {
		t.Errorf("%s (%s): decoded %+v, encoded and decoded %+v, %v", f.where, f.about, rec, again, err)
	}
	return req.Op, true
}

func (c *goldenConn) server(t *testing.T, f goldenFrame, payload []byte) {
	if !c.connected {
		c.connected = true
		var r ConnectResponse
		if err := Decode(payload, &r); err != nil {
			t.Errorf("%s (%s): %v", f.where, f.about, err)
		}
		if r.HasReadOnly != c.hasReadOnly {
			t.Errorf("%s (%s): response has readOnly: %v, request: %v", f.where, f.about, r.HasReadOnly, c.hasReadOnly)
		}
		sameBytes(t, f, AppendFrame(nil, r))
		return
	}
	h, body, err := DecodeReply(payload)
	if err != nil {
		t.Errorf("%s (%s): %v", f.where, f.about, err)
		return
	}
	op, ok := c.ops[h.Xid]
	if h.Xid == XidNotification {
		op, ok = OpNotification, true
	}
	if !ok {
		t.Errorf("%s (%s): reply to xid %d, which was not sent", f.where, f.about, h.Xid)
		return
	}
	if h.Err != CodeOK {
		// ZooKeeper puts an empty multi response behind the error of a multi; nobody reads it and
		// we do not send it.
		want := AppendReply(nil, h, nil)
		if (op != OpMulti && op != OpMultiRead) || len(body) != multiHeaderLen {
			sameBytes(t, f, want)
		}
		return
	}
	rec, err := DecodeResponse(op, body)
	if err != nil {
		t.Errorf("%s (%s): %v", f.where, f.about, err)
		return
	}
	sameBytes(t, f, AppendReply(nil, h, rec))
}

func sameBytes(t *testing.T, f goldenFrame, got []byte) {
	t.Helper()
	if !bytes.Equal(got, f.frame) {
		t.Errorf("%s (%s):\n got %x\nwant %x", f.where, f.about, got, f.frame)
	}
}
