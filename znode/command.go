package znode

import (
	"encoding/binary"
	"fmt"

	"lockkeeper/wire"
)

// Kind says what a command is about.
type Kind uint8

// All kinds of commands. The numbers are part of the log's format.
const (
	// KindRequest is a client's request: Op and Body as the client sent them, under the session's
	// current generation, with Seq 1, 2, 3, ... in the order in which the requests arrived.
	KindRequest Kind = 1
	// KindCreateSession opens the session whose id the proposing member has chosen. Seq is a random
	// number with the top bit set; it only serves to recognise the command.
	KindCreateSession Kind = 2
	// KindAttach moves a session to a new connection. Generation is the one that the member
	// believes current.
	KindAttach Kind = 3
	// KindExpire closes a session that was silent for too long, if Generation is still the current
	// one.
	KindExpire Kind = 4
	// KindCluster names the cluster whose state this is: Body is its ClusterID, 8 bytes. It counts
	// if the state has no name yet.
	KindCluster Kind = 5
	// KindReap deletes the container or TTL node whose path is Body, if at the entry's time it is
	// to be reaped: the leader has found it so, but something may have come in between. TimeoutMs
	// is after how long a container that never had a child is reaped too; 0 means never.
	KindReap Kind = 6
	// KindSync changes nothing: the member that proposed it learns, when it applies it, that it has
	// everything that was committed before. Seq is a random number with the top bit set, as in
	// KindCreateSession.
	KindSync Kind = 7
	// KindMembers makes the members in Body, a config text, those of the cluster if none are known
	// yet. Later it may only change their addresses, and nothing once reconfig is enabled: see
	// Store.Members. With a Seq, a number with the top bit set, it begins a change to the members
	// in Body, as long as reconfig never was enabled.
	KindMembers Kind = 8
	// KindReconfig begins a change of the members that a member itself has requested: Body is a
	// reconfig request. Seq is a random number with the top bit set, as in
	// KindCreateSession.
	KindReconfig Kind = 9
	// KindReconfigured ends a change of the members. Session, Generation and Seq are those of the
	// command that began it. TimeoutMs is the code of its result: CodeOK when raft has the new
	// configuration, else the change had no effect, and Body is a text that says why.
	KindReconfigured Kind = 10
	// KindRestore is a step of replacing the state: see replacement. Session, Generation and Seq
	// are as in KindRequest, Body is the number of the step and what belongs to it.
	KindRestore Kind = 11
)

// String returns the name of k, for tests and logs.
func (k Kind) String() string {
	names := [...]string{
		KindRequest: "request", KindCreateSession: "createSession", KindAttach: "attach",
		KindExpire: "expire", KindCluster: "cluster", KindReap: "reap", KindSync: "sync",
		KindMembers: "members", KindReconfig: "reconfig", KindReconfigured: "reconfigured", KindRestore: "restore",
	}
	if int(k) < len(names) && k != 0 {
		return names[k]
	}
	return fmt.Sprintf("kind%d", uint8(k))
}

// Identity is what a connection has authenticated as: a scheme and a name within the scheme.
// The scheme "super" with any id passes every check.
type Identity struct{ Scheme, ID string }

// Command is the unit of the replicated log. Which fields count depends on Kind; the others are
// zero.
type Command struct {
	Kind       Kind
	Session    wire.SessionID
	Generation uint64  // of the session's connection: 1 at its creation, +1 with each attach
	Seq        uint64  // of the request within its generation
	Op         wire.Op // KindRequest only
	// KindRequest: the request after its header. KindMembers: the config text.
	// KindReap: the path. KindReconfig: the request. KindRestore: the step
	Body []byte
	// Identities are what the session's connection has authenticated as, without its address. They
	// replace those that the state keeps for the session's generation; none leave these as they
	// are. KindRequest only.
	Identities []Identity
	// KindCreateSession, KindAttach: the negotiated session timeout. KindReap, KindReconfigured:
	// see there
	TimeoutMs int32
	Password  []byte // KindCreateSession, KindAttach: wire.PasswordLen bytes
	// KindCreateSession, KindAttach: the client's address as identity of scheme "ip"
	Addr string
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
	return Key{Session: c.Session, Generation: c.Generation, Seq: c.Seq, Kind: c.Kind}
}

// Append encodes c behind b and returns the extended slice. Nil and empty slices are the same.
//
//	u8 kind | u64 session | uvarint generation | uvarint seq | varint op | bytes body |
//	uvarint n, n x (bytes scheme, bytes id) | varint timeoutMs | bytes password | bytes addr
//
// u64 is big-endian; bytes is a uvarint length and that many bytes.
func (c *Command) Append(b []byte) []byte {
	b = append(b, byte(c.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Session))
	b = binary.AppendUvarint(b, c.Generation)
	b = binary.AppendUvarint(b, c.Seq)
	b = binary.AppendVarint(b, int64(c.Op))
	b = appendBytes(b, c.Body)
	b = appendIdentities(b, c.Identities)
	b = binary.AppendVarint(b, int64(c.TimeoutMs))
	b = appendBytes(b, c.Password)
	return appendString(b, c.Addr)
}

func appendIdentities(b []byte, ids []Identity) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = appendString(appendString(b, id.Scheme), id.ID)
	}
	return b
}

// identities reads what appendIdentities wrote; nil if there are none.
func (d *decoder) identities() []Identity {
	// An identity takes two bytes at least, which bounds what a damaged count can make us allocate.
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

// DecodeCommand reads one command from the start of b and returns what follows it. Body and
// Password alias b. It allocates at most in proportion to len(b). A kind that it does not know
// is ErrNewer.
func DecodeCommand(b []byte) (c Command, rest []byte, err error) {
	d := decoder{b: b}
	c.Kind = Kind(d.u8())
	c.Session = wire.SessionID(d.u64())
	c.Generation = d.uvarint()
	c.Seq = d.uvarint()
	c.Op = wire.Op(d.varint32())
	c.Body = d.bytes()
	c.Identities = d.identities()
	c.TimeoutMs = d.varint32()
	c.Password = d.bytes()
	c.Addr = d.string()
	switch {
	case d.err != nil:
	case c.Kind > KindRestore:
		d.err = fmt.Errorf("%w: it has the kind %d, this program knows %d to %d",
			ErrNewer, uint8(c.Kind), KindRequest, KindRestore)
	case c.Kind < KindRequest:
		d.fail(c.Kind.String())
	}
	if d.err != nil {
		return Command{}, nil, fmt.Errorf("znode: decode command: %w", d.err)
	}
	return c, d.b, nil
}
