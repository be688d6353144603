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

// DecodeBody decodes a request's body. The record is a pointer to:
//
//	create, create2, createContainer             CreateRequest
//	createTTL                                    CreateTTLRequest
//	delete                                       DeleteRequest
//	exists, getData, getChildren, getChildren2   PathWatchRequest
//	setData                                      SetDataRequest
//	getACL, getAllChildrenNumber                 PathRequest
//	deleteContainer                              PathRequest
//	setACL                                       SetACLRequest
//	sync                                         SyncRequest
//	check                                        CheckVersionRequest
//	multi, multiRead                             MultiRequest
//	reconfig                                     ReconfigRequest
//	checkWatches, removeWatches                  WatchesRequest
//	addWatch                                     AddWatchRequest
//	setWatches, setWatches2                      SetWatchesRequest
//	getEphemerals                                GetEphemeralsRequest
//	auth                                         AuthPacket
//	sasl                                         SASLRequest
//	ping, whoAmI, closeSession                   Empty, whatever the body is
//
// Other ops give an error that wraps ErrUnknownOp. Any other error means that the body cannot be
// decoded, which a client is told with CodeMarshallingError (auth: the connection is closed). A
// null path counts as that, except that it becomes "" in setData, setACL, check, addWatch,
// checkWatches, removeWatches and getEphemerals, and has a flag in sync. Whether a client may send
// the op, and whether the values make sense, is for others to say.
//
// Buffers in the record alias body; strings do not.
func DecodeBody(op Op, body []byte) (Record, error) {
	d := Decoder{b: body}
	r := decodeBody(op, &d)
	if d.err != nil {
		return nil, fmt.Errorf("wire: %v request: %w", op, d.err)
	}
	if r == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownOp, int32(op))
	}
	return r, nil
}

// decodeBody calls concrete methods, not an interface's, so that the Decoder stays on the stack.
// It leaves a failure in d.
func decodeBody(op Op, d *Decoder) Record {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer:
		r := new(CreateRequest)
		_ = r.Decode(d)
		return r
	case OpCreateTTL:
		r := new(CreateTTLRequest)
		_ = r.Decode(d)
		return r
	case OpDelete:
		r := new(DeleteRequest)
		_ = r.Decode(d)
		return r
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		r := new(PathWatchRequest)
		_ = r.Decode(d)
		return r
	case OpSetData:
		r := new(SetDataRequest)
		_ = r.Decode(d)
		return r
	case OpGetACL, OpGetAllChildrenNumber, OpDeleteContainer:
		r := new(PathRequest)
		_ = r.Decode(d)
		return r
	case OpSetACL:
		r := new(SetACLRequest)
		_ = r.Decode(d)
		return r
	case OpSync:
		r := new(SyncRequest)
		_ = r.Decode(d)
		return r
	case OpCheck:
		r := new(CheckVersionRequest)
		_ = r.Decode(d)
		return r
	case OpMulti, OpMultiRead:
		r := new(MultiRequest)
		r.decode(d, op)
		return r
	default:
		return decodeSessionBody(op, d)
	}
}

// decodeSessionBody is decodeBody for the ops about watches, identities, the session and the
// cluster.
func decodeSessionBody(op Op, d *Decoder) Record {
	switch op {
	case OpReconfig:
		r := new(ReconfigRequest)
		_ = r.Decode(d)
		return r
	case OpCheckWatches, OpRemoveWatches:
		r := new(WatchesRequest)
		_ = r.Decode(d)
		return r
	case OpAddWatch:
		r := new(AddWatchRequest)
		_ = r.Decode(d)
		return r
	case OpSetWatches, OpSetWatches2:
		r := &SetWatchesRequest{V2: op == OpSetWatches2}
		_ = r.Decode(d)
		return r
	case OpGetEphemerals:
		r := new(GetEphemeralsRequest)
		_ = r.Decode(d)
		return r
	case OpAuth:
		r := new(AuthPacket)
		_ = r.Decode(d)
		return r
	case OpSASL:
		r := new(SASLRequest)
		_ = r.Decode(d)
		return r
	case OpPing, OpWhoAmI, OpCloseSession:
		return new(Empty)
	default:
		return nil
	}
}

// Empty is the record without fields.
type Empty struct{}

// Append encodes nothing.
func (Empty) Append(b []byte) []byte { return b }

// Decode reads nothing.
func (*Empty) Decode(*Decoder) error { return nil }
