package differ

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"lockkeeper/wire"
)

// explanation is a difference between ZooKeeper 3.8.0, the first server, and lockkeeper, the second, that is meant
// to be. docs/compatibility.md lists them all.
type explanation struct {
	name   string
	reason string
	covers covers
	// applies says whether this is the difference between two items. With covers onlyA or onlyB
	// the other item is whatever comes next, or nil.
	applies func(p *pairing, x, y *item) bool
	// confirm makes a request, if any, that shows that the explanation holds: both servers must refuse it with NoAuth.
	confirm func(x *item) *Request
	// mend makes the requests, if any, after which both servers are in the same state again.
	mend func(x, y *item) []Request
}

// covers says which items are not to be compared any more.
type covers int

const (
	bothItems covers = iota
	onlyA
	onlyB
)

// explain finds the explanation for the difference between two items, one of which may be nil.
func (p *pairing) explain(x, y *item) *explanation {
	for i := range explanations {
		e := &explanations[i]
		if (x != nil || e.covers == onlyB) && (y != nil || e.covers == onlyA) && e.applies(p, x, y) {
			return e
		}
	}
	return nil
}

// answers says whether both items are replies to a request for op.
func answers(x, y *item, ops ...wire.Op) bool {
	if x.kind != reply || y.kind != reply || x.request == nil || y.request == nil {
		return false
	}
	for _, op := range ops {
		if x.request.Op == op {
			return true
		}
	}
	return false
}

// explanations is the whole list.
var explanations = []explanation{
	{
		name:   "exists needs READ",
		reason: "3.8.0 answers exists without permission; 3.8.4 and 3.9.2 do not (ZOOKEEPER-4799)",
		applies: func(_ *pairing, x, y *item) bool {
			return answers(x, y, wire.OpExists) && x.header.Err == wire.CodeOK && y.header.Err == wire.CodeNoAuth
		},
		confirm: func(x *item) *Request {
			r := newRequest(wire.OpGetData, wire.PathWatchRequest{Path: x.request.path()})
			return &r
		},
		mend: func(x, _ *item) []Request {
			// 3.8.0 has set the watch, too.
			q := x.request.Body.(wire.PathWatchRequest)
			if !q.Watch {
				return nil
			}
			return []Request{newRequest(wire.OpRemoveWatches, wire.WatchesRequest{Path: q.Path, Type: wire.WatchTypeAny})}
		},
	},
	{
		name:   "checkWatches finds other people's watches",
		reason: "3.8.0 says Ok if anybody watches the path; from 3.9 on only the caller's watches count",
		applies: func(p *pairing, x, y *item) bool {
			return answers(x, y, wire.OpCheckWatches) && x.header.Err == wire.CodeOK && y.header.Err == wire.CodeNoWatcher &&
				p.c.watchedByOthers(x.request.path(), p.slot)
		},
	},
	{
		name: "checkWatches on a path without a slash in front",
		reason: "3.8.0 fails when it looks for watches above it, and does not look at all for the empty path; from 3.9 on it " +
			"looks for the path as it stands",
		applies: func(p *pairing, x, y *item) bool {
			if !answers(x, y, wire.OpCheckWatches) || strings.HasPrefix(x.request.path(), "/") {
				return false
			}
			if x.request.path() == "" {
				return x.header.Err == wire.CodeNoWatcher && y.header.Err == wire.CodeOK && p.c.watchedBy("", p.slot)
			}
			return x.header.Err == wire.CodeMarshallingError && (y.header.Err == wire.CodeNoWatcher || y.header.Err == wire.CodeOK)
		},
	},
	{
		name:   "the kinds of watches that 3.9 has added",
		reason: "checkWatches of type 4 (persistent) and 5 (persistent recursive): 3.8 does not know them, 3.9.0 does",
		applies: func(_ *pairing, x, y *item) bool {
			if !answers(x, y, wire.OpCheckWatches) || x.header.Err != wire.CodeMarshallingError {
				return false
			}
			q, ok := x.request.Body.(wire.WatchesRequest)
			return ok && (q.Type == wire.WatchTypePersistent || q.Type == wire.WatchTypePersistentRecursive) &&
				(y.header.Err == wire.CodeNoWatcher || y.header.Err == wire.CodeOK)
		},
	},
	{
		name:   "create2 inside of a multi",
		reason: "3.8.0 answers as for create, without a Stat; 3.8.2 and 3.9.0 with it",
		applies: func(p *pairing, x, y *item) bool {
			if !answers(x, y, wire.OpMulti) {
				return false
			}
			var there, here wire.MultiResponse
			if wire.Decode(x.body, &there) != nil || wire.Decode(y.body, &here) != nil || len(there.Results) != len(here.Results) {
				return false
			}
			for i := range here.Results {
				if here.Results[i].Op == wire.OpCreate2 && there.Results[i].Op == wire.OpCreate && newborn(y, i, here.Results[i].Stat) {
					here.Results[i].Op, here.Results[i].Stat = wire.OpCreate, nil
				}
			}
			asOld := *y
			asOld.body = here.Append(nil)
			return p.pair(x, &asOld) == ""
		},
	},
	{
		name: "a body behind an error",
		reason: "ZooKeeper sends the beginning of a multi response behind the error of a multi that it stumbles over, and the " +
			"response of a create behind its NoNode if the parent was made by such a multi just before; no client reads that",
		applies: func(p *pairing, x, y *item) bool {
			if x.header.Err == wire.CodeOK || len(x.body) == 0 || !answers(x, y, wire.OpMulti, wire.OpMultiRead) &&
				!(x.header.Err == wire.CodeNoNode && p.behindMulti(x.request) &&
					answers(x, y, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL)) {
				return false
			}
			bare := *x
			bare.body = nil
			return p.pair(&bare, y) == ""
		},
	},
	{
		name: "a null path and something else wrong",
		reason: "ZooKeeper looks at the mode and the TTL of a create before it stumbles over a null path; here the " +
			"null path is found first, when the request is decoded",
		applies: func(_ *pairing, x, y *item) bool {
			return answers(x, y, wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL) &&
				x.request.Damage.NullPath && y.header.Err == wire.CodeMarshallingError &&
				(x.header.Err == wire.CodeBadArguments || x.header.Err == wire.CodeUnimplemented)
		},
	},
	{
		name:   "the order of one's own identities",
		reason: "an ACL entry of scheme auth becomes one for each identity: in ZooKeeper in the order of a hash table, here in that of the auth requests",
		applies: func(p *pairing, x, y *item) bool {
			if !answers(x, y, wire.OpGetACL) {
				return false
			}
			a, ok := sortedACL(x)
			b, alsoOK := sortedACL(y)
			return ok && alsoOK && p.pair(&a, &b) == ""
		},
	},
	{
		name:   "characters beyond the basic plane",
		reason: "Java's encoder writes the two surrogates of such a character, which is no UTF-8; here it is UTF-8",
		applies: func(p *pairing, x, y *item) bool {
			at := map[itemKind]int{event: 8, reply: 0}[x.kind]
			if x.kind != event && !answers(x, y, wire.OpSync) {
				return false
			}
			asUTF8 := *x
			asUTF8.body = joinSurrogates(x.body, at)
			return asUTF8.body != nil && p.pair(&asUTF8, y) == ""
		},
	},
	{
		name:   "a connection that is not closed behind a failed auth",
		reason: "ZooKeeper closes it, but rarely forgets to, while it does not read from it any more either",
		applies: func(p *pairing, x, y *item) bool {
			return x.kind == silence && y.kind == closed && p.authFailed
		},
	},
	{
		name:   "requests behind closeSession",
		reason: "nothing of it takes effect; ZooKeeper sometimes gets round to saying so before it closes the connection",
		covers: onlyA,
		applies: func(p *pairing, x, _ *item) bool {
			return x.kind == reply && p.behindClose(x.request) && closingRefuses(x)
		},
	},
	{
		name: "a multi with a part that cannot be",
		reason: "3.8 refuses the part (bad flags, null ACL, TTL out of range), 3.9 the whole request with MarshallingError; " +
			"nothing takes effect in either",
		applies: func(_ *pairing, x, y *item) bool {
			if !answers(x, y, wire.OpMulti) || y.header.Err != wire.CodeMarshallingError || x.header.Err != wire.CodeOK {
				return false
			}
			var m wire.MultiResponse
			if wire.Decode(x.body, &m) != nil || len(m.Results) == 0 || m.Results[0].Op != wire.OpError {
				return false
			}
			multi, ok := x.request.Body.(wire.MultiRequest)
			return ok && (x.request.Damage.NullPath || slices.ContainsFunc(multi.Ops, impossible))
		},
	},
}

// behindMulti says whether a request of the step stands behind a multi.
func (p *pairing) behindMulti(r *Request) bool {
	for i := range p.step.Requests {
		switch q := &p.step.Requests[i]; {
		case q == r:
			return false
		case q.Op == wire.OpMulti:
			return true
		}
	}
	return false
}

// behindClose says whether a request of the step stands behind one that ends the session.
func (p *pairing) behindClose(r *Request) bool {
	closing := false
	for i := range p.step.Requests {
		q := &p.step.Requests[i]
		if q == r {
			return closing
		}
		closing = closing || q.Op == wire.OpCloseSession
	}
	return false
}

// closingRefuses says whether a reply is one that ZooKeeper gives for a session that is being closed: that it has
// expired, or what it finds wrong before it looks at the session. A multi looks at the session with each of its parts, so
// an empty one passes.
func closingRefuses(it *item) bool {
	switch it.header.Err {
	case wire.CodeSessionExpired, wire.CodeMarshallingError:
		return true
	case wire.CodeReconfigDisabled:
		return it.request.Op == wire.OpReconfig
	case wire.CodeBadArguments, wire.CodeUnimplemented: // the mode and the TTL
		switch it.request.Op {
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
			return true
		}
	case wire.CodeOK:
		var m wire.MultiResponse
		return it.request.Op == wire.OpMulti && wire.Decode(it.body, &m) == nil &&
			(len(m.Results) == 0 || slices.ContainsFunc(m.Results, func(part wire.MultiResult) bool { return part.Err != wire.CodeOK }))
	}
	return false
}

// impossible says whether a part of a multi is a create that no server takes, whatever there is in its tree.
func impossible(part wire.MultiOp) bool {
	ttlOK := func(m wire.CreateMode, ttl int64) bool {
		return !m.TTL() && ttl == -1 || m.TTL() && ttl > 0 && ttl <= wire.MaxTTLMs
	}
	switch q := part.Record.(type) {
	case wire.CreateRequest:
		return !q.Mode.Valid() || q.ACL == nil || !ttlOK(q.Mode, -1)
	case wire.CreateTTLRequest:
		return !q.Mode.Valid() || q.ACL == nil || !ttlOK(q.Mode, q.TTL)
	}
	return false
}

// newborn says whether stat is that of a node that part i of the multi has just made.
func newborn(it *item, i int, stat *wire.Stat) bool {
	multi, ok := it.request.Body.(wire.MultiRequest)
	if !ok || i >= len(multi.Ops) || stat == nil {
		return false
	}
	size := 0
	switch q := multi.Ops[i].Record.(type) {
	case wire.CreateRequest:
		size = len(q.Data)
	case wire.CreateTTLRequest:
		size = len(q.Data)
	default:
		return false
	}
	want := wire.Stat{
		Czxid: it.header.Zxid, Mzxid: it.header.Zxid, Pzxid: it.header.Zxid, Ctime: stat.Ctime, Mtime: stat.Ctime,
		DataLength: int32(size), EphemeralOwner: stat.EphemeralOwner,
	}
	return *stat == want
}

// sortedACL is a reply to getACL with every run of digest entries of the same permissions sorted.
func sortedACL(it *item) (item, bool) {
	var q wire.GetACLResponse
	if it.header.Err != wire.CodeOK || wire.Decode(it.body, &q) != nil {
		return item{}, false
	}
	runs := 0
	for i := 0; i < len(q.ACL); {
		j := i + 1
		for j < len(q.ACL) && q.ACL[i].Scheme == "digest" && q.ACL[j].Scheme == "digest" && q.ACL[i].Perms == q.ACL[j].Perms {
			j++
		}
		if j > i+1 {
			runs++
			slices.SortFunc(q.ACL[i:j], func(a, b wire.ACL) int { return strings.Compare(a.ID.ID, b.ID.ID) })
		}
		i = j
	}
	sorted := *it
	sorted.body = q.Append(nil)
	return sorted, runs > 0
}

// joinSurrogates returns a body whose string at a place holds surrogates as Java writes them, with UTF-8 instead;
// nil if there are none.
func joinSurrogates(body []byte, at int) []byte {
	if len(body) < at+4 {
		return nil
	}
	var text []byte
	found := false
	for rest := body[at+4:]; len(rest) > 0; {
		if len(rest) >= 6 && rest[0] == 0xED && rest[1]&0xF0 == 0xA0 && rest[3] == 0xED && rest[4]&0xF0 == 0xB0 {
			half := func(b []byte) rune { return 0xD000 | rune(b[1]&0x3F)<<6 | rune(b[2]&0x3F) }
			text = utf8.AppendRune(text, utf16.DecodeRune(half(rest), half(rest[3:])))
			rest, found = rest[6:], true
			continue
		}
		text, rest = append(text, rest[0]), rest[1:]
	}
	if !found {
		return nil
	}
	out := append([]byte{}, body[:at]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
	return append(out, text...)
}
