package wire

import (
	"errors"
	"fmt"
)

// ErrUnknownOp says that a request's op is none that a body can be decoded for. The client gets
// CodeUnimplemented with ZxidNone, then the connection is closed.
var ErrUnknownOp = errors.New("wire: unknown op")

// Request is a frame of a client after the handshake, with its header decoded and its body not yet.
type Request struct {
	Xid  Xid
	Op   Op
	Body []byte // aliases the frame
}

// DecodeRequest splits a frame's payload into header and body. A payload of less than 8 bytes is an
// error; the connection is then closed without an answer.
func DecodeRequest(frame []byte) (Request, error) {
	d := Decoder{b: frame}
	r := Request{Xid: Xid(d.Int32()), Op: Op(d.Int32())}
	if d.err != nil {
		return Request{}, fmt.Errorf("wire: request header: %w", d.err)
	}
	r.Body = frame[d.off:]
	return r, nil
}

// AppendRequest appends a request as a client sends it, with its length. body is nil for an op
// without one.
func AppendRequest(b []byte, xid Xid, op Op, body Record) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = appendInt32(b, int32(xid))
	b = appendInt32(b, int32(op))
	if body != nil {
		b = body.Append(b)
	}
	return setFrameLen(b, start)
}

// DecodeBody decodes a request's body. The record is a pointer to the request type of op, which
// newRequest lists. The multiRead and multi ops have the same type; ping, whoAmI and closeSession
// give *Empty, whatever the body is.
//
// Other ops give an error that wraps ErrUnknownOp. Any other error means that the body cannot be
// decoded: the client gets CodeMarshallingError (auth: the connection is closed). A
// null path counts as that, except that it becomes "" in setData, setACL, check, addWatch,
// checkWatches, removeWatches and getEphemerals, and has a flag in sync. Whether a client may send
// the op, and whether the values are valid, is not checked.
//
// Buffers in the record alias body; strings do not.
func DecodeBody(op Op, body []byte) (Record, error) {
	r := newRequest(op)
	if r == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownOp, int32(op))
	}
	d := Decoder{b: body}
	r.Decode(&d)
	if m, ok := r.(*MultiRequest); ok && len(m.Ops) > 0 && m.Ops[0].kind() != op {
		d.fail("%v inside a %v", m.Ops[0].Op, op)
	}
	if d.err != nil {
		return nil, fmt.Errorf("wire: %v request: %w", op, d.err)
	}
	return r, nil
}

// decodable is a pointer to a record.
type decodable interface {
	Record
	Decode(*Decoder)
}

// newRequest returns an empty record of the type that the body of op has, nil for unknown ops.
func newRequest(op Op) decodable {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer:
		return new(CreateRequest)
	case OpCreateTTL:
		return new(CreateTTLRequest)
	case OpDelete:
		return new(DeleteRequest)
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		return new(PathWatchRequest)
	case OpSetData:
		return new(SetDataRequest)
	case OpGetACL, OpGetAllChildrenNumber, OpDeleteContainer:
		return new(PathRequest)
	case OpSetACL:
		return new(SetACLRequest)
	case OpSync:
		return new(SyncRequest)
	case OpCheck:
		return new(CheckVersionRequest)
	case OpMulti, OpMultiRead:
		return new(MultiRequest)
	case OpReconfig:
		return new(ReconfigRequest)
	case OpCheckWatches, OpRemoveWatches:
		return new(WatchesRequest)
	case OpAddWatch:
		return new(AddWatchRequest)
	case OpSetWatches, OpSetWatches2:
		return &SetWatchesRequest{V2: op == OpSetWatches2}
	case OpGetEphemerals:
		return new(GetEphemeralsRequest)
	case OpAuth:
		return new(AuthPacket)
	case OpSASL:
		return new(SASLRequest)
	case OpPing, OpWhoAmI, OpCloseSession:
		return new(Empty)
	}
	return nil
}

// Empty is the record without fields.
type Empty struct{}

// Append encodes nothing.
func (Empty) Append(b []byte) []byte { return b }

// Decode reads nothing.
func (*Empty) Decode(*Decoder) {}
