package differ

import (
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// String is the request in one line.
func (r Request) String() string {
	t := r.Op.String() + bodyText(r.Body)
	if r.Since != noStep {
		t += fmt.Sprintf(" since=step%d", r.Since)
	}
	if r.OwnXid {
		t += fmt.Sprintf(" xid=%d", r.Xid)
	}
	if r.Damage.NullPath {
		t += " NULL PATH"
	}
	if r.Damage.Cut > 0 {
		t += fmt.Sprintf(" -%d BYTES", r.Damage.Cut)
	}
	if r.Damage.Tail > 0 {
		t += fmt.Sprintf(" +%d BYTES", r.Damage.Tail)
	}
	return t
}

func bodyText(rec wire.Record) string {
	switch q := rec.(type) {
	case nil:
		return ""
	case wire.CreateRequest:
		return fmt.Sprintf(" %q %s %s %s", q.Path, dataText(q.Data), aclsText(q.ACL), modeText(q.Mode))
	case wire.CreateTTLRequest:
		return fmt.Sprintf(" %q %s %s %s ttl=%d", q.Path, dataText(q.Data), aclsText(q.ACL), modeText(q.Mode), q.TTL)
	case wire.DeleteRequest:
		return fmt.Sprintf(" %q v%d", q.Path, q.Version)
	case wire.PathWatchRequest:
		if q.Watch {
			return fmt.Sprintf(" %q watch", q.Path)
		}
		return fmt.Sprintf(" %q", q.Path)
	case wire.PathRequest:
		return fmt.Sprintf(" %q", q.Path)
	case wire.SetDataRequest:
		return fmt.Sprintf(" %q %s v%d", q.Path, dataText(q.Data), q.Version)
	case wire.SetACLRequest:
		return fmt.Sprintf(" %q %s v%d", q.Path, aclsText(q.ACL), q.Version)
	case wire.CheckVersionRequest:
		return fmt.Sprintf(" %q v%d", q.Path, q.Version)
	case wire.AuthPacket:
		return fmt.Sprintf(" %q %s", q.Scheme, dataText(q.Auth))
	case wire.SASLRequest:
		return " " + dataText(q.Token)
	case wire.MultiRequest:
		var parts []string
		for _, op := range q.Ops {
			parts = append(parts, op.Op.String()+bodyText(op.Record))
		}
		return " {" + strings.Join(parts, "; ") + "}"
	}
	return sessionText(rec)
}

func sessionText(rec wire.Record) string {
	switch q := rec.(type) {
	case wire.WatchesRequest:
		return fmt.Sprintf(" %q type=%d", q.Path, q.Type)
	case wire.AddWatchRequest:
		return fmt.Sprintf(" %q mode=%d", q.Path, q.Mode)
	case wire.SetWatchesRequest:
		t := " data=" + pathsText(q.Data) + " exist=" + pathsText(q.Exist) + " child=" + pathsText(q.Child)
		if q.V2 {
			t += " persistent=" + pathsText(q.Persistent) + " recursive=" + pathsText(q.PersistentRecursive)
		}
		if q.RelativeZxid != 0 {
			t += fmt.Sprintf(" since=%v", q.RelativeZxid)
		}
		return t
	case wire.GetEphemeralsRequest:
		return fmt.Sprintf(" %q", q.PrefixPath)
	case wire.SyncRequest:
		if q.NullPath {
			return " null"
		}
		return fmt.Sprintf(" %q", q.Path)
	case encoded:
		return fmt.Sprintf(" bytes %x", []byte(q))
	}
	return fmt.Sprintf(" %+v", rec)
}

func pathsText(v []string) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("%q", v)
}

func dataText(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 64:
		return fmt.Sprintf("%q...(%d bytes)", b[:16], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func modeText(m wire.CreateMode) string {
	names := [...]string{"persistent", "ephemeral", "sequential", "ephemeral-sequential", "container", "ttl", "ttl-sequential"}
	if m.Valid() {
		return names[m]
	}
	return fmt.Sprintf("mode=%d", m)
}

func aclsText(v []wire.ACL) string {
	if v == nil {
		return "acl=null"
	}
	if len(v) == 1 && v[0] == wire.OpenACL[0] {
		return "open"
	}
	var parts []string
	for _, a := range v {
		scheme, id := fmt.Sprintf("%q", a.Scheme), fmt.Sprintf("%q", a.ID.ID)
		if a.NullScheme {
			scheme = "null"
		}
		if a.NullID {
			id = "null"
		}
		parts = append(parts, fmt.Sprintf("%s:%s:%d", scheme, id, a.Perms))
	}
	return "acl=[" + strings.Join(parts, " ") + "]"
}
