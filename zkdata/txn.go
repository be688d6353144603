package zkdata

import (
	"encoding/binary"
	"errors"
	"fmt"

	"lockkeeper/wire"
)

// Txn is one transaction of a log.
type Txn struct {
	Session wire.SessionID // that sent the request; 0 for the server's own
	Cxid    int32          // the xid of that request
	Zxid    wire.Zxid
	TimeMs  int64 // since 1970
	Op      wire.Op
	// Body is a pointer to one of the types below, or nil for a transaction without effect.
	Body any
}

// CreateSession opens the session of its transaction.
type CreateSession struct{ TimeoutMs int32 }

// CloseSession ends the session of its transaction, and deletes Paths and the session's other
// ephemeral nodes.
type CloseSession struct{ Paths []string }

// Create creates a node, of any kind.
type Create struct {
	Op        wire.Op
	Path      string
	Data      []byte
	ACL       []wire.ACL
	Ephemeral bool
	// ParentCreates is the number of children that the parent has had, with this one; -1: unknown.
	ParentCreates int32
	TTLMs         int64 // of a TTL node
}

// Delete deletes a node.
type Delete struct{ Path string }

// SetData gives a node data. Version is the node's afterwards.
type SetData struct {
	Path    string
	Data    []byte
	Version int32
}

// SetACL gives a node an ACL. Version is the node's aversion afterwards.
type SetACL struct {
	Path    string
	ACL     []wire.ACL
	Version int32
}

// Failed is a request that was refused. It has used up its zxid.
type Failed struct{ Code wire.Code }

// Check is a part of a multi that had to hold.
type Check struct {
	Path    string
	Version int32
}

// Multi takes effect as a whole, or not at all if one of Ops is a Failed.
type Multi struct{ Ops []any }

func (m *Multi) failed() bool {
	for _, op := range m.Ops {
		if _, ok := op.(*Failed); ok {
			return true
		}
	}
	return false
}

// owner is the ephemeralOwner of the new node.
func (c *Create) owner(session wire.SessionID) int64 {
	switch {
	case c.Op == wire.OpCreateContainer:
		return ContainerOwner
	case c.Op == wire.OpCreateTTL:
		return ttlOwner | c.TTLMs
	case c.Ephemeral:
		return int64(session)
	}
	return 0
}

// txnHeaderLen is the length of the header in front of a transaction's body.
const txnHeaderLen = 8 + 4 + 8 + 8 + 4

// errTxn says that the bytes of a transaction are invalid or of an unknown type.
var errTxn = errors.New("no transaction that this program knows")

// DecodeTxn decodes the payload of a record of a log. Bytes behind the body, such as a digest of
// the tree, are ignored. The transaction shares memory with b.
func DecodeTxn(b []byte) (*Txn, error) {
	if len(b) < txnHeaderLen {
		return nil, fmt.Errorf("%w: %d bytes", errTxn, len(b))
	}
	t := &Txn{
		Session: wire.SessionID(binary.BigEndian.Uint64(b)),
		Cxid:    int32(binary.BigEndian.Uint32(b[8:])),
		Zxid:    wire.Zxid(binary.BigEndian.Uint64(b[12:])),
		TimeMs:  int64(binary.BigEndian.Uint64(b[20:])),
		Op:      wire.Op(binary.BigEndian.Uint32(b[28:])),
	}
	var err error
	t.Body, err = decodeBody(t.Op, b[txnHeaderLen:], false)
	return t, err
}

// body is the body of a transaction, which decodes itself.
type body interface{ Decode(*wire.Decoder) }

// decodeBody decodes the body of a transaction, or of a part of a multi.
func decodeBody(op wire.Op, b []byte, part bool) (any, error) {
	var v body
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return decodeCreate(op, b)
	case wire.OpDelete, wire.OpDeleteContainer:
		v = &Delete{}
	case wire.OpSetData, wire.OpReconfig:
		v = &SetData{}
	case wire.OpSetACL:
		v = &SetACL{}
	case wire.OpError:
		v = &Failed{}
	case wire.OpCheck:
		// As a transaction of its own only a faulty release wrote it. It has no effect.
		v = &Check{}
	case wire.OpCreateSession:
		v = &CreateSession{}
	case wire.OpCloseSession:
		c := &CloseSession{}
		if wire.Decode(b, c) != nil {
			c.Paths = nil // there are none: the bytes are a digest
		}
		return c, nil
	case wire.OpMulti:
		return decodeMulti(b)
	default:
		return nil, fmt.Errorf("%w: type %d", errTxn, op)
	}
	if part && (op == wire.OpCreateSession || op == wire.OpReconfig || op == wire.OpSetACL) {
		return nil, fmt.Errorf("%w: type %d in a multi", errTxn, op)
	}
	if err := wire.Decode(b, v); err != nil {
		return nil, fmt.Errorf("%w: %w", errTxn, err)
	}
	return v, nil
}

// decodeCreate decodes a create of any kind. Releases before 3.4 did not write ParentCreates.
func decodeCreate(op wire.Op, b []byte) (any, error) {
	c := &Create{Op: op}
	err := wire.Decode(b, c)
	if err != nil && op == wire.OpCreate {
		old := &createV0{}
		if wire.Decode(b, old) == nil {
			return &Create{Op: op, Path: old.Path, Data: old.Data, ACL: old.ACL, Ephemeral: old.Ephemeral,
				ParentCreates: -1}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTxn, err)
	}
	return c, nil
}

func decodeMulti(b []byte) (any, error) {
	var parts multiParts
	if err := wire.Decode(b, &parts); err != nil {
		return nil, fmt.Errorf("%w: %w", errTxn, err)
	}
	m := &Multi{Ops: make([]any, len(parts))}
	for i, p := range parts {
		if p.op == wire.OpMulti || p.op == wire.OpCloseSession {
			return nil, fmt.Errorf("%w: type %d in a multi", errTxn, p.op)
		}
		var err error
		if m.Ops[i], err = decodeBody(p.op, p.body, true); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Decode reads c; Op selects the fields to read.
func (c *Create) Decode(d *wire.Decoder) {
	c.Path, c.Data, c.ACL = d.Path(), d.Buffer(), d.ACLs()
	if c.Op == wire.OpCreate || c.Op == wire.OpCreate2 {
		c.Ephemeral = d.Bool()
	}
	c.ParentCreates = d.Int32()
	if c.Op == wire.OpCreateTTL {
		c.TTLMs = d.Int64()
	}
}

// createV0 is a create as releases before 3.4 wrote it.
type createV0 struct {
	Path      string
	Data      []byte
	ACL       []wire.ACL
	Ephemeral bool
}

// Decode reads c.
func (c *createV0) Decode(d *wire.Decoder) {
	c.Path, c.Data, c.ACL, c.Ephemeral = d.Path(), d.Buffer(), d.ACLs(), d.Bool()
}

// Decode reads c.
func (c *CreateSession) Decode(d *wire.Decoder) { c.TimeoutMs = d.Int32() }

// Decode reads c.
func (c *CloseSession) Decode(d *wire.Decoder) { c.Paths = d.Strings() }

// Decode reads t.
func (t *Delete) Decode(d *wire.Decoder) { t.Path = d.Path() }

// Decode reads t.
func (t *SetData) Decode(d *wire.Decoder) {
	t.Path, t.Data, t.Version = d.Path(), d.Buffer(), d.Int32()
}

// Decode reads t.
func (t *SetACL) Decode(d *wire.Decoder) { t.Path, t.ACL, t.Version = d.Path(), d.ACLs(), d.Int32() }

// Decode reads t.
func (t *Failed) Decode(d *wire.Decoder) { t.Code = wire.Code(d.Int32()) }

// Decode reads t.
func (t *Check) Decode(d *wire.Decoder) { t.Path, t.Version = d.Path(), d.Int32() }

// multiParts are the parts of a multi, not decoded yet.
type multiParts []struct {
	op   wire.Op
	body []byte
}

// Decode reads p.
func (p *multiParts) Decode(d *wire.Decoder) {
	n, _ := d.Count(4 + 4)
	*p = make(multiParts, n)
	for i := range *p {
		(*p)[i].op, (*p)[i].body = wire.Op(d.Int32()), d.Buffer()
	}
}
