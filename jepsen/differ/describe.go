package differ

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockkeeper/wire"
)

// line is an item in words that two servers must agree about, and the zxids in it, which they need not.
type line struct {
	text  string
	zxids []zref
}

// zref is a zxid that a server told, and what has to be so about it.
type zref struct {
	zxid wire.Zxid
	role role
}

// role says what a zxid is.
type role int

const (
	// update is that of a change: each server has its own numbers, but equal ones and their order
	// must correspond.
	update role = iota
	// position is that of the server's state: which updates come before it must correspond.
	position
	// notice is that of a notification: of the update that it is about. ZooKeeper 3.8 does not tell.
	notice
)

// describer makes lines of items.
type describer struct {
	*side
	line line
}

func (s *side) describe(it *item) line {
	d := describer{side: s}
	switch it.kind {
	case reply:
		d.reply(it)
	case event:
		d.event(it)
	case handshake:
		d.handshake(it)
	case closed:
		d.add("end of connection")
	case silence:
		d.add("silence")
	case garbage:
		d.add("garbage %q", it.body)
	}
	return d.line
}

func (d *describer) add(format string, args ...any) {
	d.line.text += fmt.Sprintf(format, args...)
}

func (d *describer) zxid(z wire.Zxid, r role) {
	d.line.zxids = append(d.line.zxids, zref{z, r})
}

func (d *describer) handshake(it *item) {
	c := &it.connect
	d.add("connected version=%d timeout=%d session=%s", c.ProtocolVersion, c.TimeoutMs, d.session(c.SessionID))
	if c.HasReadOnly {
		d.add(" readOnly=%v", c.ReadOnly)
	}
	zero := make([]byte, wire.PasswordLen)
	switch {
	case len(c.Password) != wire.PasswordLen:
		d.add(" password=%x", c.Password)
	case bytes.Equal(c.Password, zero):
		d.add(" password=0")
	}
	if again := c.Append(nil); !bytes.Equal(again, it.body) {
		d.add(" TRAILING BYTES: %x", it.body)
	}
}

func (d *describer) event(it *item) {
	var e wire.WatcherEvent
	if err := wire.Decode(it.body, &e); err != nil || !bytes.Equal(e.Append(nil), it.body) {
		d.add("event of unknown form: %x", it.body)
		return
	}
	d.add("%v %q", e.Type, e.Path)
	if e.State != wire.StateSyncConnected {
		d.add(" state=%d", e.State)
	}
	if it.header.Err != wire.CodeOK {
		d.add(" err=%d", it.header.Err)
	}
	d.zxid(it.header.Zxid, notice)
}

func (d *describer) reply(it *item) {
	r := it.request
	if r == nil {
		d.add("reply to no request, xid=%d: %v %x", it.header.Xid, it.header.Err, it.body)
		return
	}
	d.add("%v: ", r.Op)
	if r.OwnXid {
		d.add("xid=%d ", it.header.Xid)
	}
	switch z := it.header.Zxid; {
	case z == 0 || z == wire.ZxidNone:
		d.add("zxid=%d ", z)
	case it.header.Err == wire.CodeOK && r.changes(it.body):
		d.zxid(z, update)
	default:
		d.zxid(z, position)
	}
	if it.header.Err != wire.CodeOK {
		d.add("%v", it.header.Err)
		if len(it.body) > 0 {
			d.add(" with a body: %x", it.body)
		}
		return
	}
	d.add("ok")
	rec, err := wire.DecodeResponse(r.Op, it.body)
	if err != nil {
		d.add(" of unknown form: %x", it.body)
		return
	}
	d.record(rec)
	if again := rec.Append(nil); !bytes.Equal(again, it.body) {
		d.add(" OTHER BYTES: %x", it.body)
	}
}

// record describes the body of a reply. Lists whose order means nothing are sorted.
func (d *describer) record(rec wire.Record) {
	switch q := rec.(type) {
	case *wire.CreateResponse:
		d.add(" %q", q.Path)
	case *wire.Create2Response:
		d.add(" %q", q.Path)
		d.stat(&q.Stat)
	case *wire.StatResponse:
		d.stat(&q.Stat)
	case *wire.GetDataResponse:
		d.add(" %s", dataText(q.Data))
		d.stat(&q.Stat)
	case *wire.GetACLResponse:
		d.add(" %s", aclsText(q.ACL))
		d.stat(&q.Stat)
	case *wire.GetChildrenResponse:
		d.names(q.Children)
	case *wire.GetChildren2Response:
		d.names(q.Children)
		d.stat(&q.Stat)
	case *wire.GetEphemeralsResponse:
		d.names(q.Ephemerals)
	case *wire.MultiResponse:
		for i := range q.Results {
			d.add("; ")
			d.part(&q.Results[i])
		}
	case *wire.WhoAmIResponse:
		list := slices.Clone(q.Clients)
		slices.SortFunc(list, func(a, b wire.ClientInfo) int {
			return strings.Compare(a.AuthScheme+"\x00"+a.User, b.AuthScheme+"\x00"+b.User)
		})
		d.add(" %+v", list)
	case *wire.SASLResponse:
		d.add(" %s", dataText(q.Token))
	case *wire.Empty:
	default:
		d.add(" %+v", rec)
	}
}

// part describes a part of the reply to a multi or a multiRead.
func (d *describer) part(p *wire.MultiResult) {
	d.add("%v", p.Op)
	switch p.Op {
	case wire.OpError:
		d.add(" %v", p.Err)
	case wire.OpCreate, wire.OpCreate2:
		d.add(" %q", p.Path)
	case wire.OpGetData:
		d.add(" %s", dataText(p.Data))
	case wire.OpGetChildren:
		d.names(p.Children)
	}
	if p.Stat != nil {
		d.stat(p.Stat)
	}
}

func (d *describer) names(list []string) {
	if list == nil {
		d.add(" null")
		return
	}
	d.add(" %q", slices.Sorted(slices.Values(list)))
}

func (d *describer) stat(s *wire.Stat) {
	d.zxid(s.Czxid, update)
	d.zxid(s.Mzxid, update)
	d.zxid(s.Pzxid, update)
	d.add(" {v%d c%d a%d len=%d children=%d", s.Version, s.Cversion, s.Aversion, s.DataLength, s.NumChildren)
	if s.EphemeralOwner != 0 {
		d.add(" owner=%s", d.session(s.EphemeralOwner))
	}
	d.time("ctime", s.Czxid, s.Ctime)
	d.time("mtime", s.Mzxid, s.Mtime)
	d.add("}")
}

// time says nothing of a time that makes sense: the same for all that one update did, and between the beginning of
// the run and now.
func (d *describer) time(name string, z wire.Zxid, ms int64) {
	known, ok := d.times[z]
	switch {
	case !ok && (ms < d.started.Add(-time.Second).UnixMilli() || ms > time.Now().Add(time.Second).UnixMilli()):
		d.add(" %s out of range", name)
	case !ok:
		d.times[z] = ms
	case known != ms:
		d.add(" %s differs by %d ms within one zxid", name, ms-known)
	}
}

// session is the name of a session: where it was opened, and as which one.
func (d *describer) session(id wire.SessionID) string {
	if id == 0 {
		return "none"
	}
	if name, ok := d.sessions[id]; ok {
		return name
	}
	return "unknown"
}
