package differ

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"lockkeeper/wire"
)

// explanation is a difference between ZooKeeper 3.8.0, the first server, and lockkeeper, the
// second, that is meant to be. docs/compatibility.md lists them all.
type explanation struct {
	name   string
	reason string
	// ops says that both items are replies to a request for one of these; from and to that these
	// are the codes of the two. Each is left out where it does not matter.
	ops      []wire.Op
	from, to []wire.Code
	// applies says, beyond that, whether this is the difference between two items; nil means yes.
	applies func(p *pairing, x, y *item) bool
	// onlyA says that the first server has sent an item too many. applies has no y then.
	onlyA bool
	// confirm makes a request that shows that the explanation holds: both servers must refuse it
	// with NoAuth.
	confirm func(x *item) Request
	// mend makes the requests, if any, after which both servers are in the same state again.
	mend func(x *item) []Request
}

// explain finds the explanation for the difference between two items, one of which may be nil.
func (p *pairing) explain(x, y *item) *explanation {
	i := slices.IndexFunc(explanations, func(e explanation) bool {
		if e.onlyA {
			return x != nil && e.applies(p, x, nil)
		}
		return x != nil && y != nil &&
			(len(e.ops) == 0 || answers(x, e.ops) && answers(y, e.ops)) &&
			(len(e.from) == 0 || slices.Contains(e.from, x.header.Err)) &&
			(len(e.to) == 0 || slices.Contains(e.to, y.header.Err)) &&
			(e.applies == nil || e.applies(p, x, y))
	})
	if i < 0 {
		return nil
	}
	return &explanations[i]
}

// answers says whether an item is the reply to a request for one of the ops.
func answers(it *item, ops []wire.Op) bool {
	return it.kind == reply && it.request != nil && slices.Contains(ops, it.request.Op)
}

// like says whether x equals y once change has been made to a copy of it.
func (p *pairing) like(x, y *item, change func(x *item)) bool {
	changed := *x
	change(&changed)
	return p.pair(&changed, y) == ""
}

type (
	ops   = []wire.Op
	codes = []wire.Code
)

// explanations is the whole list.
var explanations = []explanation{
	{
		name:   "exists needs READ",
		reason: "3.8.0 answers exists without permission; 3.8.4 and 3.9.2 do not (ZOOKEEPER-4799)",
		ops:    ops{wire.OpExists}, from: codes{wire.CodeOK}, to: codes{wire.CodeNoAuth},
		confirm: func(x *item) Request {
			return newRequest(wire.OpGetData, wire.PathWatchRequest{Path: x.request.path()})
		},
		mend: func(x *item) []Request {
			// 3.8.0 has set the watch, too.
			if len(x.request.watched()) == 0 {
				return nil
			}
			return []Request{newRequest(wire.OpRemoveWatches,
				wire.WatchesRequest{Path: x.request.path(), Type: wire.WatchTypeAny})}
		},
	},
	{
		name:   "checkWatches finds other people's watches",
		reason: "3.8.0 says Ok if anybody watches the path; from 3.9 on only the caller's watches count",
		ops:    ops{wire.OpCheckWatches}, from: codes{wire.CodeOK}, to: codes{wire.CodeNoWatcher},
		applies: func(p *pairing, x, _ *item) bool {
			_, others := p.c.watch(x.request.path(), p.slot)
			return others
		},
	},
	{
		name: "checkWatches on a path without a slash in front",
		reason: "3.8.0 fails when it looks for watches above it, and does not look at all for the empty path; from " +
			"3.9 on it looks for the path as it stands",
		ops: ops{wire.OpCheckWatches}, to: codes{wire.CodeNoWatcher, wire.CodeOK},
		applies: func(p *pairing, x, y *item) bool {
			path := x.request.path()
			if path == "" {
				own, _ := p.c.watch("", p.slot)
				return x.header.Err == wire.CodeNoWatcher && y.header.Err == wire.CodeOK && own
			}
			return x.header.Err == wire.CodeMarshallingError && !strings.HasPrefix(path, "/")
		},
	},
	{
		name:   "the kinds of watches that 3.9 has added",
		reason: "checkWatches of type 4 (persistent) and 5 (persistent recursive): 3.8 does not know them, 3.9.0 does",
		ops:    ops{wire.OpCheckWatches}, from: codes{wire.CodeMarshallingError},
		to: codes{wire.CodeNoWatcher, wire.CodeOK},
		applies: func(_ *pairing, x, _ *item) bool {
			q, ok := x.request.Body.(wire.WatchesRequest)
			return ok && (q.Type == wire.WatchTypePersistent || q.Type == wire.WatchTypePersistentRecursive)
		},
	},
	{
		name:   "create2 inside of a multi",
		reason: "3.8.0 answers as for create, without a Stat; 3.8.2 and 3.9.0 with it",
		ops:    ops{wire.OpMulti},
		applies: func(p *pairing, x, y *item) bool {
			there, ok := multiResponse(x.body)
			here, alsoOK := multiResponse(y.body)
			if !ok || !alsoOK || len(there.Results) != len(here.Results) {
				return false
			}
			for i := range here.Results {
				if here.Results[i].Op == wire.OpCreate2 && there.Results[i].Op == wire.OpCreate &&
					newborn(y, i, here.Results[i].Stat) {
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
		reason: "ZooKeeper sends the beginning of a multi response behind the error of a multi that it stumbles " +
			"over, and the response of a create behind its NoNode if the parent was made by such a multi just " +
			"before; no client reads that",
		ops: append(ops{wire.OpMulti, wire.OpMultiRead}, creates...),
		applies: func(p *pairing, x, y *item) bool {
			return x.header.Err != wire.CodeOK && len(x.body) > 0 &&
				(!answers(x, creates) || x.header.Err == wire.CodeNoNode && p.behind(x.request, wire.OpMulti)) &&
				p.like(x, y, func(bare *item) { bare.body = nil })
		},
	},
	{
		name: "a null path and something else wrong",
		reason: "ZooKeeper looks at the mode and the TTL of a create before it stumbles over a null path; here the " +
			"null path is found first, when the request is decoded",
		ops: creates, from: codes{wire.CodeBadArguments, wire.CodeUnimplemented}, to: codes{wire.CodeMarshallingError},
		applies: func(_ *pairing, x, _ *item) bool { return x.request.Damage.NullPath },
	},
	{
		name: "the order of one's own identities",
		reason: "an ACL entry of scheme auth becomes one for each identity: in ZooKeeper in the order of a hash " +
			"table, here in that of the auth requests",
		ops: ops{wire.OpGetACL},
		applies: func(p *pairing, x, y *item) bool {
			a, ok := sortedACL(x)
			b, alsoOK := sortedACL(y)
			return ok && alsoOK && p.pair(&a, &b) == ""
		},
	},
	{
		name:   "characters beyond the basic plane",
		reason: "Java's encoder writes the two surrogates of such a character, which is no UTF-8; here it is UTF-8",
		applies: func(p *pairing, x, y *item) bool {
			at := 0
			if x.kind == event {
				at = 8 // behind type and state
			} else if !answers(x, ops{wire.OpSync}) {
				return false
			}
			text := joinSurrogates(x.body, at)
			return text != nil && p.like(x, y, func(asUTF8 *item) { asUTF8.body = text })
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
		name: "requests behind closeSession",
		reason: "nothing of it takes effect; ZooKeeper sometimes gets round to saying so before it closes the " +
			"connection",
		onlyA: true,
		applies: func(p *pairing, x, _ *item) bool {
			return x.kind == reply && p.behind(x.request, wire.OpCloseSession) && closingRefuses(x)
		},
	},
	{
		name: "setWatches on a node that may not be read",
		reason: "ZooKeeper tells that the node is there, and whether it has changed since the zxid in the request, and so " +
			"when; lockkeeper sets the watch in any case",
		onlyA: true,
		applies: func(p *pairing, x, _ *item) bool {
			var e wire.WatcherEvent
			if x.kind != event || wire.Decode(x.body, &e) != nil {
				return false
			}
			return slices.ContainsFunc(p.step.Requests, func(r Request) bool {
				q, ok := r.Body.(wire.SetWatchesRequest)
				return ok && (e.Type == wire.EventNodeDataChanged && slices.Contains(q.Data, e.Path) ||
					e.Type == wire.EventNodeCreated && slices.Contains(q.Exist, e.Path) ||
					e.Type == wire.EventNodeChildrenChanged && slices.Contains(q.Child, e.Path))
			})
		},
		mend: func(x *item) []Request {
			var e wire.WatcherEvent
			_ = wire.Decode(x.body, &e)
			return []Request{newRequest(wire.OpRemoveWatches, wire.WatchesRequest{Path: e.Path, Type: wire.WatchTypeAny})}
		},
	},
	{
		name: "recursive watches below a node that may not be read",
		reason: "ZooKeeper names a node that the client may read below one whose children it may not list; lockkeeper " +
			"does not",
		onlyA: true,
		applies: func(_ *pairing, x, _ *item) bool {
			var e wire.WatcherEvent
			return x.kind == event && wire.Decode(x.body, &e) == nil && strings.LastIndexByte(e.Path, '/') > 0 &&
				e.Type != wire.EventNodeChildrenChanged
		},
	},
	{
		name: "a multi with a part that cannot be",
		reason: "3.8 refuses the part (bad flags, null ACL, TTL out of range), 3.9 the whole request with " +
			"MarshallingError; nothing takes effect in either",
		ops: ops{wire.OpMulti}, from: codes{wire.CodeOK}, to: codes{wire.CodeMarshallingError},
		applies: func(_ *pairing, x, _ *item) bool {
			m, decoded := multiResponse(x.body)
			multi, ok := x.request.Body.(wire.MultiRequest)
			return decoded && len(m.Results) > 0 && m.Results[0].Op == wire.OpError &&
				ok && (x.request.Damage.NullPath || slices.ContainsFunc(multi.Ops, impossible))
		},
	},
}

// behind says whether a request of the step is sent behind one for op.
func (p *pairing) behind(r *Request, op wire.Op) bool {
	found := false
	for i := range p.step.Requests {
		q := &p.step.Requests[i]
		if q == r {
			return found
		}
		found = found || q.Op == op
	}
	return false
}

// closingRefuses says whether a reply is one that ZooKeeper gives for a session that is being
// closed: that it has expired, or, once it has been closed, that it is unknown, or an error that it
// finds before it looks at the session. A multi looks at the session with each of its parts, so an
// empty one passes.
func closingRefuses(it *item) bool {
	switch it.header.Err {
	case wire.CodeSessionExpired, wire.CodeUnknownSession, wire.CodeMarshallingError:
		return true
	case wire.CodeReconfigDisabled:
		return it.request.Op == wire.OpReconfig
	case wire.CodeBadArguments, wire.CodeUnimplemented: // the mode and the TTL
		return slices.Contains(creates, it.request.Op)
	case wire.CodeOK:
		m, ok := multiResponse(it.body)
		return it.request.Op == wire.OpMulti && ok && (len(m.Results) == 0 ||
			slices.ContainsFunc(m.Results, func(part wire.MultiResult) bool { return part.Err != wire.CodeOK }))
	}
	return false
}

// impossible says whether a part of a multi is a create that no server takes, whatever there is in
// its tree.
func impossible(part wire.MultiOp) bool {
	switch q := part.Record.(type) {
	case wire.CreateRequest:
		return !q.Mode.Valid() || q.ACL == nil || q.Mode.TTL()
	case wire.CreateTTLRequest:
		return !q.Mode.Valid() || q.ACL == nil || q.Mode.TTL() != (q.TTL != -1) || q.Mode.TTL() &&
			(q.TTL <= 0 || q.TTL > wire.MaxTTLMs)
	}
	return false
}

// newborn says whether stat belongs to a node that part i of the multi has just made.
func newborn(it *item, i int, stat *wire.Stat) bool {
	multi, ok := it.request.Body.(wire.MultiRequest)
	if !ok || i >= len(multi.Ops) || stat == nil {
		return false
	}
	var data []byte
	switch q := multi.Ops[i].Record.(type) {
	case wire.CreateRequest:
		data = q.Data
	case wire.CreateTTLRequest:
		data = q.Data
	default:
		return false
	}
	z := it.header.Zxid
	return *stat == wire.Stat{
		Czxid: z, Mzxid: z, Pzxid: z, Ctime: stat.Ctime, Mtime: stat.Ctime,
		DataLength: int32(len(data)), EphemeralOwner: stat.EphemeralOwner,
	}
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
		for j < len(q.ACL) && q.ACL[i].Scheme == "digest" && q.ACL[j].Scheme == "digest" &&
			q.ACL[i].Perms == q.ACL[j].Perms {
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

// joinSurrogates returns a body whose string at a place holds surrogates as Java writes them, with
// UTF-8 instead; nil if there are none.
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
