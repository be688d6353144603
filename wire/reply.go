package wire

import "fmt"

// replyHeaderLen is the number of bytes of an encoded ReplyHeader.
const replyHeaderLen = 16

// ReplyHeader begins every frame of a server after the handshake.
type ReplyHeader struct {
	Xid Xid
	// last update this member has applied; see docs/protocol/wire.md section 5 for the exceptions
	Zxid Zxid
	Err  Code // when not CodeOK, only a reply to sasl has a body
}

// Append encodes h.
func (h ReplyHeader) Append(b []byte) []byte {
	b = appendInt32(b, int32(h.Xid))
	b = appendInt64(b, int64(h.Zxid))
	return appendInt32(b, int32(h.Err))
}

// Decode reads h from d.
func (h *ReplyHeader) Decode(d *Decoder) {
	h.Xid, h.Zxid, h.Err = Xid(d.Int32()), Zxid(d.Int64()), Code(d.Int32())
}

// AppendReply appends a reply with its length. body is nil for an op without a reply body; it is
// left out when h.Err is not CodeOK, except for a SASLResponse: ZooKeeper sends it with an error,
// too.
func AppendReply(b []byte, h ReplyHeader, body Record) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = h.Append(b)
	_, always := body.(SASLResponse)
	if body != nil && h.Err == CodeOK || always {
		b = body.Append(b)
	}
	return setFrameLen(b, start)
}

// DecodeReply splits a frame's payload, as a client receives it, into header and body. The body
// aliases the frame and is empty when the op has none, and, except for sasl, when the header has an
// error.
func DecodeReply(frame []byte) (h ReplyHeader, body []byte, err error) {
	if err := Decode(frame, &h); err != nil {
		return ReplyHeader{}, nil, fmt.Errorf("wire: reply header: %w", err)
	}
	return h, frame[replyHeaderLen:], nil
}

// DecodeResponse decodes the body of a successful reply to op; the record is a pointer to the
// response type of that op, *Empty where it has none. For the body of a notification, op is
// OpNotification.
func DecodeResponse(op Op, body []byte) (Record, error) {
	r := newResponse(op)
	if r == nil {
		return nil, fmt.Errorf("%w: %d", ErrUnknownOp, int32(op))
	}
	if err := Decode(body, r); err != nil {
		return nil, fmt.Errorf("wire: %v response: %w", op, err)
	}
	return r, nil
}

// newResponse is newRequest for the body of the reply to op.
func newResponse(op Op) decodable {
	switch op {
	case OpNotification:
		return new(WatcherEvent)
	case OpCreate:
		return new(CreateResponse)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		return new(Create2Response)
	case OpExists, OpSetData, OpSetACL:
		return new(StatResponse)
	case OpGetData, OpReconfig:
		return new(GetDataResponse)
	case OpGetACL:
		return new(GetACLResponse)
	case OpGetChildren:
		return new(GetChildrenResponse)
	case OpGetChildren2:
		return new(GetChildren2Response)
	case OpSync:
		return new(SyncResponse)
	case OpMulti, OpMultiRead:
		return new(MultiResponse)
	case OpGetEphemerals:
		return new(GetEphemeralsResponse)
	case OpGetAllChildrenNumber:
		return new(GetAllChildrenNumberResponse)
	case OpWhoAmI:
		return new(WhoAmIResponse)
	case OpSASL:
		return new(SASLResponse)
	case OpAddWatch:
		return new(ErrorResponse)
	case OpDelete, OpPing, OpCheckWatches, OpRemoveWatches, OpDeleteContainer, OpAuth, OpSetWatches,
		OpSetWatches2, OpCloseSession:
		return new(Empty)
	}
	return nil
}

// ErrorResponse is a body that holds a code: the answer to addWatch, always CodeOK, and a failed
// part of a multi.
type ErrorResponse struct{ Err Code }

// Append encodes r.
func (r ErrorResponse) Append(b []byte) []byte { return appendInt32(b, int32(r.Err)) }

// Decode reads r from d.
func (r *ErrorResponse) Decode(d *Decoder) { r.Err = Code(d.Int32()) }
