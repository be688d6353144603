package wire

import "fmt"

// multiHeaderLen is the number of bytes of a MultiHeader:
//
//	0      4      5      9
//	+------+------+------+
//	| type | done | err  |
//	+------+------+------+
//
// One precedes every part of a multi, in requests (err -1) and in responses. The one after the
// last part has type -1, done 1, err -1.
const multiHeaderLen = 9

func appendMultiHeader(b []byte, op Op, done bool, err Code) []byte {
	b = appendInt32(b, int32(op))
	b = appendBool(b, done)
	return appendInt32(b, int32(err))
}

func appendMultiEnd(b []byte) []byte { return appendMultiHeader(b, OpError, true, -1) }

func (d *Decoder) multiHeader() (op Op, done bool, err Code) {
	return Op(d.Int32()), d.Bool(), Code(d.Int32())
}

// MultiRequest is the body of multi and multiRead. A multi holds writes and checks, a multiRead
// holds reads; none holds both. An empty one is legal.
type MultiRequest struct{ Ops []MultiOp }

// MultiOp is one part of a MultiRequest.
//
//	Op                                 Record
//	create, create2, createContainer   *CreateRequest
//	createTTL                          *CreateTTLRequest
//	delete                             *DeleteRequest
//	setData                            *SetDataRequest
//	check                              *CheckVersionRequest
//	getChildren, getData               *PathWatchRequest (multiRead; Watch means nothing)
type MultiOp struct {
	Op     Op
	Record Record
}

// Append encodes r.
func (r MultiRequest) Append(b []byte) []byte {
	for _, op := range r.Ops {
		b = appendMultiHeader(b, op.Op, false, -1)
		b = op.Record.Append(b)
	}
	return appendMultiEnd(b)
}

// Decode reads r, a multi or a multiRead, from d. The Op of a create comes from its mode first, as
// ZooKeeper has it: a container mode makes it createContainer whatever the header says. An error
// means that ZooKeeper 3.9 fails the multi as a whole: an op that may not be inside, reads mixed
// with writes, an invalid mode, a TTL mode without a TTL or the reverse, a TTL out of range, a null
// ACL, a null path (also where a request of its own would get CodeBadArguments). Data aliases the
// input.
func (r *MultiRequest) Decode(d *Decoder) {
	r.Ops = nil
	for d.err == nil {
		op, done, _ := d.multiHeader()
		if d.err != nil || done {
			break
		}
		r.Ops = append(r.Ops, decodeMultiOp(op, d))
		if kind := r.Ops[0].kind(); r.Ops[len(r.Ops)-1].kind() != kind {
			d.fail("%v inside a %v", op, kind)
		}
	}
	if d.err != nil {
		r.Ops = nil
	}
}

// kind returns the op of the requests that m may be a part of.
func (m *MultiOp) kind() Op {
	if m.Op == OpGetChildren || m.Op == OpGetData {
		return OpMultiRead
	}
	return OpMulti
}

// decodeMultiOp decodes the part of a multi or multiRead that follows a header with op.
func decodeMultiOp(op Op, d *Decoder) MultiOp {
	if d.nullAhead() {
		d.fail("null path in a multi")
	}
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpSetData, OpCheck, OpGetChildren, OpGetData:
	default:
		d.fail("%v inside a multi", op)
		return MultiOp{}
	}
	rec := newRequest(op)
	rec.Decode(d)
	switch r := rec.(type) {
	case *CreateRequest:
		return multiCreate(op, r, -1, d)
	case *CreateTTLRequest:
		switch {
		case !r.Mode.TTL():
			return multiCreate(op, &CreateRequest{r.Path, r.Data, r.ACL, r.Mode}, r.TTL, d)
		case r.TTL < 1 || r.TTL > MaxTTLMs:
			d.fail("TTL %d", r.TTL)
		case r.ACL == nil:
			d.fail("null ACL in a multi")
		}
	}
	return MultiOp{op, rec}
}

// multiCreate settles the op of a create without a TTL mode. ttl is -1 where the request has no
// such field.
func multiCreate(op Op, r *CreateRequest, ttl int64, d *Decoder) MultiOp {
	switch {
	case d.err != nil:
	case !r.Mode.Valid():
		d.fail("create mode %d in a multi", r.Mode)
	case r.Mode.TTL() || ttl >= 0:
		d.fail("create mode %d with TTL %d in a multi", r.Mode, ttl)
	case r.ACL == nil:
		d.fail("null ACL in a multi")
	case r.Mode.Container():
		op = OpCreateContainer
	case op == OpCreateTTL:
		// ZooKeeper makes a create without a TTL of it, and then fails at its own type.
		d.fail("createTTL with mode %d in a multi", r.Mode)
	}
	return MultiOp{op, r}
}

// nullAhead reports whether the next value is a null string.
func (d *Decoder) nullAhead() bool {
	ahead := *d
	return ahead.Int32() == -1
}

// MultiResponse answers multi and multiRead; the reply's header has CodeOK even when the multi
// failed.
type MultiResponse struct{ Results []MultiResult }

// MultiResult is the outcome of one part. Which fields are used depends on Op:
//
//	create                                   Path
//	create2, createContainer, createTTL      Path, Stat (all are create2 on the wire)
//	setData                                  Stat
//	delete, check                            none
//	getData (multiRead)                      Data, Stat
//	getChildren (multiRead)                  Children
//	error                                    Err
//
// A result with an Err is encoded as OpError whatever Op says. When a multi fails, every part is an
// OpError: with CodeOK before the part that failed and CodeRuntimeInconsistency after it.
type MultiResult struct {
	Op       Op
	Err      Code
	Path     string
	Stat     *Stat // nil encodes as the zero Stat
	Data     []byte
	Children []string
}

// Append encodes r.
func (r MultiResponse) Append(b []byte) []byte {
	for i := range r.Results {
		b = r.Results[i].append(b)
	}
	return appendMultiEnd(b)
}

func (r *MultiResult) append(b []byte) []byte {
	if r.Err != CodeOK || r.Op == OpError {
		b = appendMultiHeader(b, OpError, false, r.Err)
		return appendInt32(b, int32(r.Err))
	}
	stat := r.Stat
	if stat == nil {
		stat = new(Stat)
	}
	switch r.Op {
	case OpCreate:
		b = appendMultiHeader(b, OpCreate, false, CodeOK)
		return appendString(b, r.Path)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		b = appendMultiHeader(b, OpCreate2, false, CodeOK)
		return stat.Append(appendString(b, r.Path))
	case OpSetData:
		b = appendMultiHeader(b, OpSetData, false, CodeOK)
		return stat.Append(b)
	case OpGetData:
		b = appendMultiHeader(b, OpGetData, false, CodeOK)
		return stat.Append(appendBuffer(b, r.Data))
	case OpGetChildren:
		b = appendMultiHeader(b, OpGetChildren, false, CodeOK)
		return appendStrings(b, r.Children)
	case OpDelete, OpCheck:
		return appendMultiHeader(b, r.Op, false, CodeOK)
	}
	// Only a program error gets here, and a half-made response would desynchronise the client.
	panic(fmt.Sprintf("wire: result of %v in a multi response", r.Op))
}

// Decode reads r from d. Data aliases the input.
func (r *MultiResponse) Decode(d *Decoder) {
	r.Results = nil
	for d.err == nil {
		op, done, _ := d.multiHeader()
		if d.err != nil || done {
			break
		}
		r.Results = append(r.Results, decodeMultiResult(op, d))
	}
	if d.err != nil {
		r.Results = nil
	}
}

func decodeMultiResult(op Op, d *Decoder) MultiResult {
	r := MultiResult{Op: op}
	switch op {
	case OpError:
		r.Err = Code(d.Int32())
	case OpCreate:
		r.Path = d.Path()
	case OpCreate2:
		r.Path = d.Path()
		r.Stat = d.newStat()
	case OpSetData:
		r.Stat = d.newStat()
	case OpGetData:
		r.Data = d.Buffer()
		r.Stat = d.newStat()
	case OpGetChildren:
		r.Children = d.Strings()
	case OpDelete, OpCheck:
	default:
		d.fail("%v in a multi response", op)
	}
	return r
}

func (d *Decoder) newStat() *Stat {
	s := new(Stat)
	s.Decode(d)
	return s
}
