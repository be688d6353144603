package znode

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"lockkeeper/wire"
)

// driver feeds commands to two replicas the way a cluster does: encoded, and applied by each of
// them. After every entry it checks all that holds in every state: the invariants, that the
// replicas agree, and that a snapshot carries the whole state. The second replica goes on from such
// a snapshot every few entries.
type driver struct {
	t       testing.TB
	s, twin *Store
	term    uint64
	timeMs  int64
	clockMs int64
	flags   Flags
	entries int
	conns   map[wire.SessionID]*conn
	tap     func(entry []byte) // sees every entry after it was applied
}

// conn is the knowledge of the member that has the connection of a session.
type conn struct {
	generation, seq uint64
	password        wire.Password
	addr            string
	ids             []Identity // beyond the address
	shown           bool       // of a script: the state keeps identities of the connection
}

func newDriver(t testing.TB) *driver {
	return &driver{t: t, s: New(), twin: New(), timeMs: 1000, clockMs: 1000, conns: map[wire.SessionID]*conn{}}
}

// outcome is a Result that outlives the call, with nothing in it that the Store goes on using.
func outcome(r *Result) Result {
	o := *r
	o.Multi = append([]OpResult(nil), r.Multi...)
	o.Events = append([]Event(nil), r.Events...)
	for i := range o.Events {
		o.Events[i].ACL, o.Events[i].list = slices.Clone(o.Events[i].ACL), nil
		o.Events[i].above, o.Events[i].buried = nil, false // see TestGuards
	}
	return o
}

// apply applies one entry with these commands to both replicas.
func (d *driver) apply(cmds ...Command) []Result {
	d.t.Helper()
	var encoded [][]byte
	for _, c := range cmds {
		encoded = append(encoded, c.Append(nil))
	}
	entry := AppendEntry(nil, Stamp{d.timeMs, d.clockMs, d.flags}, encoded)
	results := applyTo(d.t, d.s, d.term, entry)
	if twins := applyTo(d.t, d.twin, d.term, entry); !reflect.DeepEqual(results, twins) {
		d.t.Fatalf("the replicas disagree about %+v:\n%+v\n%+v", cmds, results, twins)
	}
	d.verify()
	if d.tap != nil {
		d.tap(entry)
	}
	return results
}

// applyTo applies an encoded entry and then overwrites it: the Store must have copied what it
// keeps.
func applyTo(t testing.TB, s *Store, term uint64, encoded []byte) []Result {
	t.Helper()
	mine := bytes.Clone(encoded)
	e, err := DecodeEntry(mine)
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	s.Apply(term, e, func(_ *Command, r *Result) { results = append(results, outcome(r)) })
	for i := range mine {
		mine[i] = 0xEE
	}
	return results
}

func (d *driver) verify() {
	d.t.Helper()
	d.entries++
	if err := d.s.Check(); err != nil {
		d.t.Fatal(err)
	}
	if a, b := d.s.Digest(), d.twin.Digest(); a != b {
		d.t.Fatalf("digests of the replicas: %x, %x", a, b)
	}
	if d.entries%3 != 0 {
		return
	}
	d.twin = restored(d.t, d.s)
	if err := d.twin.Check(); err != nil {
		d.t.Fatalf("after restore: %v", err)
	}
	if a, b := d.s.Digest(), d.twin.Digest(); a != b {
		d.t.Fatalf("digests before and after restore: %x, %x", a, b)
	}
}

// snapshotBytes returns s as a snapshot.
func snapshotBytes(t testing.TB, s *Store) []byte {
	t.Helper()
	sn := s.Snapshot()
	defer sn.Release()
	var b bytes.Buffer
	n, err := sn.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo: %d bytes of %d, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// restored returns a copy of s that went through a snapshot.
func restored(t testing.TB, s *Store) *Store {
	t.Helper()
	c, err := Restore(bytes.NewReader(snapshotBytes(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// open returns the command that opens a session, and remembers the connection.
func (d *driver) open(id wire.SessionID) Command {
	c := &conn{generation: d.s.state.sessions.generations.first(), password: wire.Password(fmt.Appendf(nil, "%016x", uint64(id))), addr: "10.0.0.1"}
	d.conns[id] = c
	return Command{Session: id, Seq: 1<<63 | uint64(id), Body: &CreateSession{Connection: Connection{TimeoutMs: 4000, Password: c.password, Addr: c.addr}}}
}

// request returns the session's next request.
func (d *driver) request(id wire.SessionID, op wire.Op, body wire.Record) Command {
	c := d.conns[id]
	c.seq++
	cmd := Command{Session: id, Generation: c.generation, Seq: c.seq, Body: &Request{Op: op, Identities: c.ids}}
	if body != nil {
		cmd.req().Body = body.Append(nil)
	}
	return cmd
}

// do applies the session's next request by itself.
func (d *driver) do(id wire.SessionID, op wire.Op, body wire.Record) Result {
	d.t.Helper()
	return d.apply(d.request(id, op, body))[0]
}

// must is do for a request that has to succeed.
func (d *driver) must(id wire.SessionID, op wire.Op, body wire.Record) Result {
	d.t.Helper()
	r := d.do(id, op, body)
	if r.Status != Done || r.Code != wire.CodeOK {
		d.t.Fatalf("%v %+v: %v %v", op, body, r.Status, r.Code)
	}
	return r
}

// create returns the body of a create with an open ACL.
func create(path, data string, mode wire.CreateMode) wire.Record {
	return wire.CreateRequest{Path: path, Data: []byte(data), ACL: wire.OpenACL, Mode: mode}
}
