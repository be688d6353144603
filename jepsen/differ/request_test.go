package differ

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"

	"lockkeeper/wire"
)

// A Request is one request as a client sends it, or a damaged form of one.
type Request struct {
	Op   wire.Op
	Body wire.Record // nil: the request has no body
	// Xid is the request's own number if OwnXid is set; otherwise the connection counts.
	Xid    wire.Xid
	OwnXid bool
	// Since, of setWatches and setWatches2, is the number of the step with the zxid that
	// RelativeZxid stands for, which differs between servers; noStep if the number in the record is
	// meant.
	Since  int
	Damage Damage
}

// noStep is a Request.Since that refers to no step.
const noStep = -1

// Damage describes the damage to the bytes of a request.
type Damage struct {
	NullPath bool // the first string of the body is null
	Cut      int  // number of bytes missing at the end of the body
	Tail     int  // number of extra bytes at the end of the body
}

// newRequest is an undamaged request.
func newRequest(op wire.Op, body wire.Record) Request {
	return Request{Op: op, Body: body, Since: noStep}
}

// encoded is a body as bytes.
type encoded []byte

// Append appends the bytes as they are.
func (e encoded) Append(b []byte) []byte { return append(b, e...) }

// body is the body as it goes over the wire. relative is the value of Since.
func (r *Request) body(relative wire.Zxid) wire.Record {
	rec := r.Body
	if w, ok := rec.(wire.SetWatchesRequest); ok && r.Since != noStep {
		w.RelativeZxid = relative
		rec = w
	}
	if r.Damage == (Damage{}) || rec == nil {
		return rec
	}
	b := rec.Append(nil)
	if r.Damage.NullPath {
		b = nullPath(r.Op, b)
	}
	b = b[:len(b)-min(r.Damage.Cut, len(b))]
	for range r.Damage.Tail {
		b = append(b, 0xAB)
	}
	return encoded(b)
}

// nullPath replaces the first string of a body by null. In a multi that is the path of its first
// part.
func nullPath(op wire.Op, b []byte) []byte {
	const multiHeaderLen = 9
	at := 0
	if op == wire.OpMulti || op == wire.OpMultiRead {
		at = multiHeaderLen
	}
	if len(b) < at+4 {
		return b
	}
	end := at + 4 + int(max(0, int32(binary.BigEndian.Uint32(b[at:]))))
	out := append([]byte{}, b[:at]...)
	out = append(out, 0xFF, 0xFF, 0xFF, 0xFF)
	return append(out, b[min(end, len(b)):]...)
}

// path is the path that the request is about, "" if there is none or more than one.
func (r *Request) path() string {
	if v := reflect.ValueOf(r.Body); v.Kind() == reflect.Struct && v.FieldByName("Path").IsValid() {
		return v.FieldByName("Path").String()
	}
	return ""
}

// watched are the paths that the request may set a watch on.
func (r *Request) watched() []string {
	switch q := r.Body.(type) {
	case wire.PathWatchRequest:
		if q.Watch {
			return []string{q.Path}
		}
	case wire.AddWatchRequest:
		return []string{q.Path}
	case wire.SetWatchesRequest:
		return slices.Concat(q.Data, q.Exist, q.Child, q.Persistent, q.PersistentRecursive)
	}
	return nil
}

// creates are the ops that make a node, and writes those that have a zxid of their own and are
// checked against ACLs.
var (
	creates = []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL}
	writes  = append(creates[:len(creates):len(creates)], wire.OpDelete, wire.OpSetData, wire.OpSetACL)
)

// changes says whether the request, if it succeeds, has a zxid of its own in both servers.
func (r *Request) changes(reply []byte) bool {
	if r.Op != wire.OpMulti {
		return r.Op == wire.OpCloseSession || slices.Contains(writes, r.Op)
	}
	m, ok := multiResponse(reply)
	return ok && slices.ContainsFunc(m.Results, func(part wire.MultiResult) bool {
		// When one has failed, all are errors. A check changes nothing.
		return part.Op != wire.OpError && part.Op != wire.OpCheck
	})
}

func multiResponse(reply []byte) (m wire.MultiResponse, ok bool) {
	err := wire.Decode(reply, &m)
	return m, err == nil
}

// needsACL says whether the request is a write with an outcome that can depend on ACLs.
func (r *Request) needsACL() bool { return r.Op == wire.OpMulti || slices.Contains(writes, r.Op) }

// mayClose says whether the connection can end because of this request, so that nothing may be sent
// behind it before that is known.
func (r *Request) mayClose() bool {
	switch r.Op {
	case wire.OpAuth, wire.OpSASL, wire.OpCloseSession, wire.OpNotification:
		return true
	}
	_, err := wire.DecodeResponse(r.Op, nil)
	return errors.Is(err, wire.ErrUnknownOp)
}

// String is the request in one line.
func (r Request) String() string {
	p := printer{}
	p.add("%v", r.Op)
	p.record(r.Body)
	if r.Since != noStep {
		p.add(" since=step%d", r.Since)
	}
	if r.OwnXid {
		p.add(" xid=%d", r.Xid)
	}
	p.record(r.Damage)
	return p.text
}
