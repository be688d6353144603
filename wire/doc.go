// Package wire is the ZooKeeper client protocol as bytes: frames, records, op codes, error codes,
// flags and limits. It is the only package that knows the encoding. It never decides whether a
// request is allowed or what it does, and it has no state, no goroutine and no socket. Begin
// reading with Op and Code, which are the only lists of these numbers, then DecodeRequest and
// AppendReply.
//
// A frame is 4 length bytes and a payload. The first payload on a connection is a ConnectRequest,
// answered by a ConnectResponse; every later one has a header:
//
//	client to server                      server to client
//	+--------+-----+----+---------+       +--------+-----+------+-----+----------+
//	| length | xid | op | request |       | length | xid | zxid | err | response |
//	+--------+-----+----+---------+       +--------+-----+------+-----+----------+
//	 4        4     4    any               4        4     8      4     any; none when err is not 0
//
// A server reads and writes:
//
//	frame, err := wire.ReadFrame(conn, nil, wire.DefaultMaxBuffer)
//	req, err := wire.DecodeRequest(frame)           // header
//	rec, err := wire.DecodeBody(req.Op, req.Body)   // *wire.CreateRequest, ...
//	h := wire.ReplyHeader{Xid: req.Xid, Zxid: zxid}
//	out = wire.AppendReply(out, h, wire.CreateResponse{Path: path})
//
// AppendRequest, DecodeReply and DecodeResponse are the client's side of the same.
//
// # Records
//
// Every record of the protocol is a struct with Append (encode, on the value) and Decode (on the
// pointer). A decoded record can be encoded again, and gives the same bytes unless the input used a
// freedom of the format (a boolean of 2, a vector count of -5, bytes behind the record, invalid
// UTF-8, a null where it means the same as empty). Null and empty differ on the wire: in a buffer
// or vector nil is null and an empty slice is empty; a string comes with a flag where the
// difference matters.
//
// # Memory
//
// A decoded []byte aliases the frame it came from, so the frame must not be reused while the record
// is in use; strings are copies. Decoding allocates in proportion to the bytes at hand: a Decoder
// compares each length and count with the remaining bytes before it uses it.
//
// # Errors
//
// A decode error is a plain error that names the fault and its place. The caller chooses the
// client's answer: docs/protocol/wire.md section 11. Only two are for comparing: ErrFrameLength and
// ErrUnknownOp. Encoding cannot fail; it panics on a record that cannot exist.
//
// Functions may be called from any goroutine; a Decoder or a record belongs to one at a time.
package wire
