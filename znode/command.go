package znode

import (
	"encoding/binary"
	"fmt"

	"lockkeeper/wire"
)

// Kind is the kind of a command.
type Kind uint8

// All kinds of commands, each with its body. The numbers are part of the log's format.
const (
	KindRequest       Kind = 1  // Request
	KindCreateSession Kind = 2  // CreateSession
	KindAttach        Kind = 3  // Attach
	KindExpire        Kind = 4  // Expire
	KindCluster       Kind = 5  // NameCluster
	KindReap          Kind = 6  // Reap
	KindSync          Kind = 7  // Sync
	KindMembers       Kind = 8  // SetMembers
	KindChangeMembers Kind = 9  // ChangeMembers
	KindReconfig      Kind = 10 // Reconfigure
	KindReconfigured  Kind = 11 // Reconfigured
	KindRestore       Kind = 12 // RestoreStep
)

// kinds has the name of each kind, and makes an empty body of it.
var kinds = [...]struct {
	name string
	body func() Body
}{
	KindRequest:       {"request", func() Body { return new(Request) }},
	KindCreateSession: {"createSession", func() Body { return new(CreateSession) }},
	KindAttach:        {"attach", func() Body { return new(Attach) }},
	KindExpire:        {"expire", func() Body { return new(Expire) }},
	KindCluster:       {"cluster", func() Body { return new(NameCluster) }},
	KindReap:          {"reap", func() Body { return new(Reap) }},
	KindSync:          {"sync", func() Body { return new(Sync) }},
	KindMembers:       {"members", func() Body { return new(SetMembers) }},
	KindChangeMembers: {"changeMembers", func() Body { return new(ChangeMembers) }},
	KindReconfig:      {"reconfig", func() Body { return new(Reconfigure) }},
	KindReconfigured:  {"reconfigured", func() Body { return new(Reconfigured) }},
	KindRestore:       {"restore", func() Body { return new(RestoreStep) }},
}

// known reports whether there is such a kind.
func (k Kind) known() bool { return k != 0 && int(k) < len(kinds) }

// String returns the name of k, for tests and logs.
func (k Kind) String() string {
	if k.known() {
		return kinds[k].name
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Command is the unit of the replicated log.
//
// A client's requests have the Seq 1, 2, 3, ... in the order in which they arrived, under the
// session's current generation; so have the steps of a restore. Where a Seq only serves to
// recognise the command, it is a random number with the top bit set.
type Command struct {
	Session    wire.SessionID // 0: the command is of no session
	Generation uint64         // of the session's connection: 1 at its creation, +1 with each attach
	Seq        uint64
	Body       Body
}

// Body is the part of a command that its kind determines: a pointer to one of the types below.
type Body interface {
	kind() Kind
	append(b []byte) []byte
	decode(d *decoder)
}

// Request is a client's request, as the client sent it.
type Request struct {
	Op   wire.Op
	Body []byte // after the header
	// Identities of the session's connection, without its address. They replace the identities
	// that the state has for the session's generation; none leave these as they are.
	Identities []Identity
}

// Connection describes a new connection of a session.
type Connection struct {
	TimeoutMs int32  // negotiated
	Addr      string // the client's address as identity of scheme "ip"
	Password  wire.Password
}

// CreateSession opens a session. The proposing member has chosen its id.
type CreateSession struct{ Connection }

// Attach moves a session to a new connection. The command's Generation is the current one, as far
// as the member knows.
type Attach struct{ Connection }

// Expire closes a session that was silent for too long, if the command's Generation is still the
// current one.
type Expire struct{}

// NameCluster gives the state the id of its cluster, if it has none yet.
type NameCluster struct{ ID ClusterID }

// Reap deletes a container or TTL node, if at the entry's time it is to be reaped: the leader has
// found it so, but something may have come in between.
type Reap struct {
	Path        string
	NeverUsedMs int32 // after this time a container that never had a child is reaped too; 0: never
}

// Sync changes nothing: the member that proposed it learns, when it applies it, that it has
// everything that was committed before.
type Sync struct{}

// SetMembers makes the members in a config text the cluster's members if none are known yet. Later
// it may only change their addresses, and nothing once reconfig is enabled: see Store.Members.
type SetMembers struct{ Text string }

// ChangeMembers begins a change to the members in a config text, as long as reconfig never was
// enabled.
type ChangeMembers struct{ Text string }

// Reconfigure begins a change of the members that a member itself has requested.
type Reconfigure struct{ Request []byte }

// Reconfigured ends a change of the members. It has the Session, Generation and Seq of the command
// that began the change.
type Reconfigured struct {
	Code wire.Code // CodeOK when raft has the new configuration; else the change had no effect
	Why  string    // it had none
}

// RestoreStep is a step of replacing the state: see replacement.
type RestoreStep struct {
	Step uint8
	Data []byte
}

func (*Request) kind() Kind       { return KindRequest }
func (*CreateSession) kind() Kind { return KindCreateSession }
func (*Attach) kind() Kind        { return KindAttach }
func (*Expire) kind() Kind        { return KindExpire }
func (*NameCluster) kind() Kind   { return KindCluster }
func (*Reap) kind() Kind          { return KindReap }
func (*Sync) kind() Kind          { return KindSync }
func (*SetMembers) kind() Kind    { return KindMembers }
func (*ChangeMembers) kind() Kind { return KindChangeMembers }
func (*Reconfigure) kind() Kind   { return KindReconfig }
func (*Reconfigured) kind() Kind  { return KindReconfigured }
func (*RestoreStep) kind() Kind   { return KindRestore }

// Kind returns the kind of the command; 0 without a body.
func (c *Command) Kind() Kind {
	if c.Body == nil {
		return 0
	}
	return c.Body.kind()
}

// Closes reports whether c is a client's request to close its session.
func (c *Command) Closes() bool {
	r, ok := c.Body.(*Request)
	return ok && r.Op == wire.OpCloseSession
}

// Key identifies a command: two commands with the same key are the same one, sent twice.
type Key struct {
	Session    wire.SessionID
	Generation uint64
	Seq        uint64
	Kind       Kind
}

// Key returns c's key.
func (c *Command) Key() Key {
	return Key{Session: c.Session, Generation: c.Generation, Seq: c.Seq, Kind: c.Kind()}
}

// Append encodes c behind b and returns the extended slice. Nil and empty slices are the same.
//
//	u8 kind | u64 session | uvarint generation | uvarint seq | body
//
//	Request                varint op | bytes body | identities
//	CreateSession, Attach  varint timeoutMs | bytes password | bytes addr
//	NameCluster            u64 ClusterID
//	Reap                   bytes path | varint neverUsedMs
//	SetMembers,
//	ChangeMembers          bytes text
//	Reconfigure            bytes request
//	Reconfigured           varint code | bytes why
//	RestoreStep            u8 step | bytes data
//	Expire, Sync           nothing
//	identities             uvarint n, n x (bytes scheme, bytes id)
//
// u64 is big-endian; bytes is a uvarint length and that many bytes.
func (c *Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Session))
	b = binary.AppendUvarint(b, c.Generation)
	b = binary.AppendUvarint(b, c.Seq)
	return c.Body.append(b)
}

// CommandSession returns the session of an encoded command, 0 if b is too short for one.
func CommandSession(b []byte) wire.SessionID {
	if len(b) < 9 {
		return 0
	}
	return wire.SessionID(binary.BigEndian.Uint64(b[1:]))
}

func (r *Request) append(b []byte) []byte {
	b = appendBytes(binary.AppendVarint(b, int64(r.Op)), r.Body)
	return appendIdentities(b, r.Identities)
}

func (r *Request) decode(d *decoder) {
	r.Op, r.Body, r.Identities = wire.Op(d.varint32()), d.bytes(), d.identities()
}

func (c *Connection) append(b []byte) []byte {
	b = appendBytes(binary.AppendVarint(b, int64(c.TimeoutMs)), c.Password[:])
	return appendString(b, c.Addr)
}

func (c *Connection) decode(d *decoder) {
	c.TimeoutMs, c.Password, c.Addr = d.varint32(), d.password(), d.string()
}

func (*Expire) append(b []byte) []byte { return b }
func (*Expire) decode(*decoder)        {}

func (*Sync) append(b []byte) []byte { return b }
func (*Sync) decode(*decoder)        {}

func (n *NameCluster) append(b []byte) []byte { return binary.BigEndian.AppendUint64(b, uint64(n.ID)) }
func (n *NameCluster) decode(d *decoder)      { n.ID = ClusterID(d.u64()) }

func (r *Reap) append(b []byte) []byte {
	return binary.AppendVarint(appendString(b, r.Path), int64(r.NeverUsedMs))
}
func (r *Reap) decode(d *decoder) { r.Path, r.NeverUsedMs = d.string(), d.varint32() }

func (m *SetMembers) append(b []byte) []byte { return appendString(b, m.Text) }
func (m *SetMembers) decode(d *decoder)      { m.Text = d.string() }

func (m *ChangeMembers) append(b []byte) []byte { return appendString(b, m.Text) }
func (m *ChangeMembers) decode(d *decoder)      { m.Text = d.string() }

func (r *Reconfigure) append(b []byte) []byte { return appendBytes(b, r.Request) }
func (r *Reconfigure) decode(d *decoder)      { r.Request = d.bytes() }

func (r *Reconfigured) append(b []byte) []byte {
	return appendString(binary.AppendVarint(b, int64(r.Code)), r.Why)
}
func (r *Reconfigured) decode(d *decoder) { r.Code, r.Why = wire.Code(d.varint32()), d.string() }

func (r *RestoreStep) append(b []byte) []byte { return appendBytes(append(b, r.Step), r.Data) }
func (r *RestoreStep) decode(d *decoder)      { r.Step, r.Data = d.u8(), d.bytes() }

func appendIdentities(b []byte, ids []Identity) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendString(appendString(b, id.Scheme), id.ID)
	}
	return b
}

// identities reads identities; nil if there are none.
func (d *decoder) identities() []Identity {
	// An identity takes two bytes at least, which bounds the allocation for a damaged count.
	n := d.count(2)
	if n == 0 {
		return nil
	}
	ids := make([]Identity, n)
	for i := range ids {
		ids[i] = Identity{Scheme: d.string(), ID: d.string()}
	}
	return ids
}

// DecodeCommand reads one command from the start of b and returns the rest of b. Slices of the body
// alias b. It allocates at most in proportion to len(b). Errors: ErrDamaged; ErrNewer for an
// unknown kind.
func DecodeCommand(b []byte) (c Command, rest []byte, err error) {
	d := decoder{b: b}
	if c, err = d.command(newBodyOf); err != nil {
		return Command{}, nil, err
	}
	return c, d.b, nil
}

// newBodyOf returns a new body of a known kind.
func newBodyOf(k Kind) Body { return kinds[k].body() }

// command reads a command. body returns the body to decode into, of which all fields are replaced.
func (d *decoder) command(body func(Kind) Body) (c Command, err error) {
	kind := Kind(d.u8())
	c.Session = wire.SessionID(d.u64())
	c.Generation = d.uvarint()
	c.Seq = d.uvarint()
	switch {
	case kind.known():
		c.Body = body(kind)
		c.Body.decode(d)
	case d.err == nil && kind != 0:
		d.err = fmt.Errorf("%w: it has the kind %d, this program knows %d to %d",
			ErrNewer, uint8(kind), KindRequest, KindRestore)
	default:
		d.fail(kind.String())
	}
	if d.err != nil {
		return Command{}, fmt.Errorf("znode: decode command: %w", d.err)
	}
	return c, nil
}
