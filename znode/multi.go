package znode

import (
	"fmt"

	"lockkeeper/wire"
)

// applyMulti applies the ops of a multi one after the other, each seeing what those before it did.
// If one fails, all are taken back and nothing remains of them: not an event, not a number in a
// parent's sequence.
func (s *Store) applyMulti(body []byte, r *Result) wire.Code {
	rec, err := wire.DecodeBody(wire.OpMulti, body)
	if err != nil {
		return wire.CodeMarshallingError
	}
	ops := rec.(*wire.MultiRequest).Ops
	s.tx.undoing = true
	at, code := 0, wire.CodeOK
	for ; at < len(ops); at++ {
		s.multi = append(s.multi, OpResult{})
		if code = s.multiOp(&ops[at], &s.multi[at]); code != wire.CodeOK {
			s.rollback()
			break
		}
	}
	switch code {
	case wire.CodeOK:
	case wire.CodeMarshallingError:
		// ZooKeeper stumbles over the op rather than refuse it, and the whole request with it.
		return code
	default:
		s.failMulti(at, len(ops), code)
	}
	r.Multi = s.multi
	return wire.CodeOK
}

// failMulti sets the results of a multi of n ops whose op number at failed with code.
func (s *Store) failMulti(at, n int, code wire.Code) {
	s.multi = s.multi[:0]
	for i := range n {
		res := OpResult{Op: wire.OpError}
		switch {
		case i == at:
			res.Code = code
		case i > at:
			res.Code = wire.CodeRuntimeInconsistency
		}
		s.multi = append(s.multi, res)
	}
}

// multiOp applies one op of a multi.
func (s *Store) multiOp(op *wire.MultiOp, res *OpResult) wire.Code {
	res.Op = op.Op
	switch req := op.Record.(type) {
	case *wire.CreateRequest:
		kind := kindPersistent
		switch {
		case op.Op == wire.OpCreateContainer:
			kind = kindContainer
		case req.Mode.Ephemeral():
			kind = kindEphemeral
		}
		if op.Op != wire.OpCreate {
			res.Op = wire.OpCreate2
		}
		full := wire.CreateTTLRequest{Path: req.Path, Data: req.Data, ACL: req.ACL, Mode: req.Mode, TTL: noTTL}
		return s.create(kind, &full, &res.Path, &res.Stat)
	case *wire.CreateTTLRequest:
		res.Op = wire.OpCreate2
		return s.create(kindTTL, req, &res.Path, &res.Stat)
	case *wire.DeleteRequest:
		return s.delete(req)
	case *wire.SetDataRequest:
		return s.setData(req, &res.Stat)
	case *wire.CheckVersionRequest:
		return s.check(req)
	}
	// The decoder lets no other op into a multi, so this is a program error, and members might
	// differ in it.
	panic(fmt.Sprintf("znode: %v inside a multi", op.Op))
}
