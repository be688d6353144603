package differ

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"lockkeeper/wire"
)

// line is an item as text, which two servers must agree about, and the zxids in it, which differ.
type line struct {
	text  string
	zxids []zref
}

// zref is a zxid that a server sent, and its role.
type zref struct {
	zxid wire.Zxid
	role role
}

// role is the meaning of a zxid.
type role int

const (
	// update: the zxid of a change. Each server has its own numbers; which of them are equal, and
	// their order, must correspond.
	update role = iota
	// position: the zxid of the server's state. The same updates must come before it.
	position
	// notice: the zxid of a notification, of the update that it is about. ZooKeeper 3.8 sends none.
	notice
)

// describe formats an item.
func (s *side) describe(it *item) line {
	p := printer{side: s}
	switch it.kind {
	case reply:
		p.reply(it)
	case event:
		p.add("event")
		if it.header.Err != wire.CodeOK {
			p.add(" err=%d", it.header.Err)
		}
		p.zxid(it.header.Zxid, notice)
		p.body(wire.OpNotification, it.body)
	case handshake:
		p.add("connected")
		p.record(it.connect)
		if again := it.connect.Append(nil); !bytes.Equal(again, it.body) {
			p.add(" OTHER BYTES: %x", it.body)
		}
	default:
		p.add("%s %q", it.kind, it.body)
	}
	return p.line
}

// A printer formats records. A field that is zero or null is left out. With a side it formats the
// items of that server: lists without a meaningful order are sorted, zxids go into the line, and
// sessions have names.
type printer struct {
	line
	side *side
}

func (p *printer) add(format string, args ...any) { p.text += fmt.Sprintf(format, args...) }

func (p *printer) zxid(z wire.Zxid, r role) { p.zxids = append(p.zxids, zref{z, r}) }

func (p *printer) reply(it *item) {
	r, h := it.request, it.header
	if r == nil {
		p.add("reply to no request, xid=%d: %v %x", h.Xid, h.Err, it.body)
		return
	}
	p.add("%v: %v", r.Op, h.Err)
	if r.OwnXid {
		p.add(" xid=%d", h.Xid)
	}
	switch {
	case h.Zxid == 0 || h.Zxid == wire.ZxidNone:
		p.add(" zxid=%d", h.Zxid)
	case h.Err == wire.CodeOK && r.changes(it.body):
		p.zxid(h.Zxid, update)
	default:
		p.zxid(h.Zxid, position)
	}
	if h.Err == wire.CodeOK {
		p.body(r.Op, it.body)
	} else if len(it.body) > 0 {
		p.add(" with a body: %x", it.body)
	}
}

// body formats the response to an op.
func (p *printer) body(op wire.Op, body []byte) {
	rec, err := wire.DecodeResponse(op, body)
	if err != nil {
		p.add(" of unknown form: %x", body)
		return
	}
	p.record(rec)
	if again := rec.Append(nil); !bytes.Equal(again, body) {
		p.add(" OTHER BYTES: %x", body)
	}
}

// record formats a record of the protocol; nil is none.
func (p *printer) record(rec any) {
	if v := reflect.Indirect(reflect.ValueOf(rec)); v.Kind() == reflect.Struct {
		p.fields(v)
	} else if v.IsValid() {
		p.add(" %x", v.Bytes())
	}
}

func (p *printer) fields(v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch password, _ := f.Interface().([]byte); {
		case f.IsZero() && name != "Version":
		case name == "Path":
			p.add(" %q", f)
		case name == "Password" && len(password) > 0: // it is random, and it is not 0
			zero := !slices.ContainsFunc(password, func(b byte) bool { return b != 0 })
			p.add(" password=%d bytes, zero=%v", len(password), zero)
		default:
			p.add(" %s%s=", strings.ToLower(name[:1]), name[1:])
			p.value(f)
		}
	}
}

func (p *printer) value(v reflect.Value) {
	switch x := v.Interface().(type) {
	case []byte:
		if len(x) > 64 {
			p.add("%q...(%d bytes)", x[:16], len(x))
		} else {
			p.add("%q", x)
		}
	case []string:
		if p.side != nil {
			x = slices.Sorted(slices.Values(x))
		}
		p.add("%q", x)
	case []wire.ClientInfo:
		x = slices.Clone(x)
		slices.SortFunc(x, func(a, b wire.ClientInfo) int {
			return strings.Compare(a.AuthScheme+"\x00"+a.User, b.AuthScheme+"\x00"+b.User)
		})
		p.add("%q", x)
	case []wire.ACL:
		if len(x) == 1 && x[0] == wire.OpenACL[0] {
			p.add("open")
		} else {
			p.add("%+v", x)
		}
	case wire.Stat:
		p.stat(&x)
	case wire.SessionID:
		p.add("%s", p.side.session(x))
	case fmt.Stringer, error:
		p.add("%v", x)
	default:
		p.composed(v)
	}
}

// composed formats a value that consists of others, and plain ones.
func (p *printer) composed(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		p.value(v.Elem())
	case reflect.Struct:
		p.add("{")
		p.fields(v)
		p.add("}")
	case reflect.Slice:
		for i := range v.Len() {
			p.value(v.Index(i))
		}
	default:
		p.add("%v", v)
	}
}

func (p *printer) stat(s *wire.Stat) {
	p.zxid(s.Czxid, update)
	p.zxid(s.Mzxid, update)
	p.zxid(s.Pzxid, update)
	p.add("{v%d c%d a%d len=%d children=%d", s.Version, s.Cversion, s.Aversion, s.DataLength, s.NumChildren)
	if s.EphemeralOwner != 0 {
		p.add(" owner=%s", p.side.session(s.EphemeralOwner))
	}
	p.time("ctime", s.Czxid, s.Ctime)
	p.time("mtime", s.Mzxid, s.Mtime)
	p.add("}")
}

// time adds nothing for a time that makes sense: the same in all that one update changed, and
// between the beginning of the run and now.
func (p *printer) time(name string, z wire.Zxid, ms int64) {
	known, ok := p.side.times[z]
	switch {
	case !ok && (ms < p.side.started.Add(-time.Second).UnixMilli() || ms > time.Now().Add(time.Second).UnixMilli()):
		p.add(" %s out of range", name)
	case !ok:
		p.side.times[z] = ms
	case known != ms:
		p.add(" %s differs by %d ms within one zxid", name, ms-known)
	}
}

// session is the name of a session: the slot that opened it, and which of the slot's sessions it
// is.
func (s *side) session(id wire.SessionID) string {
	if name, ok := s.sessions[id]; ok {
		return name
	}
	return "unknown"
}
