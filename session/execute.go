package session

import (
	"strings"
	"time"

	"lockkeeper/session/admission"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// executor answers the requests of one connection. It is made for a call.
type executor struct {
	m *member
	c *connection
}

// pending is a request that is not answered yet.
type pending struct {
	req      wire.Request
	record   wire.Record      // nil for writes
	code     wire.Code        // != 0: the answer to a request that is refused
	ids      []znode.Identity // when it was received
	seq      uint64           // != 0: a write
	received time.Time
	size     int  // of the frame, in bytes
	last     bool // the connection ends after the answer
	own      bool // answered within Submit: its caller sends the answer

	ticket admission.Ticket
	price  admission.Price
}

// execute answers a request at its place in the session's order. It runs inside View or, behind a
// write, inside the critical section of that write; so no change can come between the read and its
// watch.
func (x executor) execute(store *znode.Store, p *pending) {
	h := wire.ReplyHeader{Xid: p.req.Xid, Zxid: store.Zxid(), Err: p.code}
	var body wire.Record
	bytes := 0
	if p.code == wire.CodeOK && p.record != nil {
		if bytes, h.Err = x.measure(store, p); h.Err == wire.CodeOK {
			body, h.Err = x.answer(store, p)
		}
	}
	if token, ok := p.record.(*wire.SASLRequest); ok {
		body = *token // also with an error
	}
	switch {
	case p.req.Op == wire.OpAuth || p.req.Op == wire.OpSASL || p.code == wire.CodeSessionClosedRequireSASLAuth:
		h.Zxid = 0
	case p.code == wire.CodeUnimplemented:
		h.Zxid = wire.ZxidNone
	}
	x.m.audit.refused(x.c.id(), p.ids, &p.req, p.code)
	x.reply(p, h, body, bytes)
}

// nameCost is added to the bytes of each name of a child for Limits.Response: the
// names take memory until the answer is encoded.
const nameCost = 48

// multiReadNames bounds the names in the answer to a multiRead: all its reads see the same state,
// so they take place under one lock.
const multiReadNames = 100_000

// measure returns the largest size of the answer to a request, without making it; BadArguments if
// that is too much.
func (x executor) measure(store *znode.Store, p *pending) (bytes int, code wire.Code) {
	bytes, fits := x.answerSize(store, p)
	if !fits {
		x.m.stats.inc(&x.m.stats.TooLong)
		x.m.log.Debug("request refused: its answer would be too long", "session", x.c.id(), "client", x.c.addr(), "op",
			p.req.Op)
		return 0, wire.CodeBadArguments
	}
	return bytes, wire.CodeOK
}

// answerSize returns the largest size of the answer to a request, without making it, and whether
// the limits allow it.
func (x executor) answerSize(store *znode.Store, p *pending) (bytes int, fits bool) {
	limits := &x.m.cfg.Limits
	max, names := limits.Response, 0
	switch r := p.record.(type) {
	case *wire.PathWatchRequest:
		bytes, names = answerBytes(p.req.Op, store.Sizes(r.Path, p.ids))
	case *wire.PathRequest:
		bytes, names = answerBytes(p.req.Op, store.Sizes(r.Path, p.ids))
	case *wire.GetEphemeralsRequest:
		bytes = store.Sessions().EphemeralsBytes(x.c.id())
	case *wire.MultiRequest:
		if limits.MultiReadBytes > 0 {
			max = min(max, limits.MultiReadBytes)
		}
		if limits.MultiReadOps > 0 && len(r.Ops) > limits.MultiReadOps {
			return 0, false
		}
		for i := 0; i < len(r.Ops) && bytes+names*nameCost <= max; i++ {
			b, n := answerBytes(r.Ops[i].Op, store.Sizes(r.Ops[i].Record.(*wire.PathWatchRequest).Path, p.ids))
			bytes, names = bytes+b, names+n
			if names > multiReadNames {
				return 0, false
			}
		}
	}
	return bytes, bytes+names*nameCost <= max
}

// answerBytes returns the largest size of the answer to a read of a node with these sizes, with its
// header, and the number of names of children in it.
func answerBytes(op wire.Op, n znode.Sizes) (bytes, names int) {
	const around = 128 // header, Stat, lengths
	switch op {
	case wire.OpGetData:
		return around + n.Data, 0
	case wire.OpGetChildren, wire.OpGetChildren2:
		return around + n.Children, n.Names
	case wire.OpGetACL:
		return around + n.ACL, 0
	}
	return around, 0
}

// answer makes the body, or the error, of a reply.
func (x executor) answer(store *znode.Store, p *pending) (wire.Record, wire.Code) {
	switch r := p.record.(type) {
	case *wire.PathWatchRequest:
		return x.read(store, p, r)
	case *wire.PathRequest:
		return readPath(store, p, r)
	case *wire.SetWatchesRequest:
		if !x.setWatches(store, r, p.ids) {
			p.last = true
			return nil, wire.CodeBadArguments
		}
		return nil, wire.CodeOK
	case *wire.AddWatchRequest:
		return x.addWatch(r)
	case *wire.WatchesRequest:
		return nil, x.checkOrRemoveWatches(p.req.Op, r)
	case *wire.MultiRequest:
		return multiRead(store, p, r), wire.CodeOK
	case *wire.GetEphemeralsRequest:
		return wire.GetEphemeralsResponse{Ephemerals: ephemerals(store, x.c.id(), r.PrefixPath)}, wire.CodeOK
	}
	if p.req.Op == wire.OpWhoAmI {
		return wire.WhoAmIResponse{Clients: whoAmI(x.m.cfg.Auth.ownIdentities(p.ids))}, wire.CodeOK
	}
	return nil, wire.CodeOK // ping
}

// read answers exists, getData and getChildren, and sets the watch that goes with it. If the limits
// leave no space for the watch, the answer is BadArguments.
func (x executor) read(store *znode.Store, p *pending, r *wire.PathWatchRequest) (wire.Record, wire.Code) {
	watched := func(code wire.Code, may bool, data, child watchMode) wire.Code {
		if r.Watch && may && !x.m.watches.add(x.c, r.Path, data, child) {
			return wire.CodeBadArguments
		}
		return code
	}
	switch p.req.Op {
	case wire.OpExists:
		stat, code := store.Exists(r.Path, p.ids)
		return wire.StatResponse{Stat: stat}, watched(code, code == wire.CodeOK || code == wire.CodeNoNode, standard, 0)
	case wire.OpGetData:
		data, stat, code := store.Get(r.Path, p.ids)
		return wire.GetDataResponse{Data: data, Stat: stat}, watched(code, code == wire.CodeOK, standard, 0)
	}
	children, stat, code := store.Children(r.Path, p.ids)
	code = watched(code, code == wire.CodeOK, 0, standard)
	if p.req.Op == wire.OpGetChildren {
		return wire.GetChildrenResponse{Children: children}, code
	}
	return wire.GetChildren2Response{Children: children, Stat: stat}, code
}

func readPath(store *znode.Store, p *pending, r *wire.PathRequest) (wire.Record, wire.Code) {
	if p.req.Op == wire.OpGetACL {
		acl, stat, code := store.GetACL(r.Path, p.ids)
		return wire.GetACLResponse{ACL: acl, Stat: stat}, code
	}
	total, code := store.AllChildrenNumber(r.Path, p.ids)
	return wire.GetAllChildrenNumberResponse{Total: total}, code
}

// setWatches registers the watches of a client that has connected again, or notifies it at once of
// the changes that it has missed (docs/protocol/watches.md 4). It learns neither the existence of a
// node that it may not read nor its changes, which would tell their time: the watch is set in any
// case. setWatches returns false if the limits leave no space for all of them: then the
// connection has to end, because clients ignore an error here.
func (x executor) setWatches(store *znode.Store, r *wire.SetWatchesRequest, ids []znode.Identity) bool {
	const immediate = wire.ZxidNone
	ok := true
	again := func(paths []string, data, child watchMode, event wire.EventType, changed func(*wire.Stat) wire.Zxid) {
		for _, path := range paths {
			switch stat, exists, readable := store.Seen(path, ids); {
			case !exists:
				x.c.notify(immediate, wire.EventNodeDeleted, path)
			case readable && changed(&stat) > r.RelativeZxid:
				x.c.notify(immediate, event, path)
			default:
				ok = x.m.watches.add(x.c, path, data, child) && ok
			}
		}
	}
	again(r.Data, standard, 0, wire.EventNodeDataChanged, func(st *wire.Stat) wire.Zxid { return st.Mzxid })
	for _, path := range r.Exist {
		if _, _, readable := store.Seen(path, ids); readable {
			x.c.notify(immediate, wire.EventNodeCreated, path)
		} else {
			ok = x.m.watches.add(x.c, path, standard, 0) && ok
		}
	}
	again(r.Child, 0, standard, wire.EventNodeChildrenChanged, func(st *wire.Stat) wire.Zxid { return st.Pzxid })
	for _, path := range r.Persistent {
		ok = x.m.watches.add(x.c, path, persistent, persistent) && ok
	}
	for _, path := range r.PersistentRecursive {
		ok = x.m.watches.add(x.c, path, recursive, 0) && ok
	}
	return ok
}

func (x executor) addWatch(r *wire.AddWatchRequest) (wire.Record, wire.Code) {
	ok := false
	switch r.Mode {
	case wire.AddWatchPersistent:
		ok = x.m.watches.add(x.c, r.Path, persistent, persistent)
	case wire.AddWatchPersistentRecursive:
		ok = x.m.watches.add(x.c, r.Path, recursive, 0)
	default:
		return nil, wire.CodeMarshallingError
	}
	if !ok {
		return nil, wire.CodeBadArguments
	}
	return wire.ErrorResponse{}, wire.CodeOK // the Java client insists on this body
}

func (x executor) checkOrRemoveWatches(op wire.Op, r *wire.WatchesRequest) wire.Code {
	data, child, ok := watchKind(r.Type)
	if !ok {
		return wire.CodeMarshallingError
	}
	does := x.m.watches.remove
	if op == wire.OpCheckWatches {
		does = x.m.watches.has
	}
	if !does(x.c, r.Path, data, child) {
		return wire.CodeNoWatcher
	}
	return wire.CodeOK
}

// multiRead answers each part for itself; all see the same state.
func multiRead(store *znode.Store, p *pending, r *wire.MultiRequest) wire.Record {
	results := make([]wire.MultiResult, len(r.Ops))
	for i, op := range r.Ops {
		res := wire.MultiResult{Op: op.Op}
		path := op.Record.(*wire.PathWatchRequest).Path
		if op.Op == wire.OpGetData {
			var stat wire.Stat
			res.Data, stat, res.Err = store.Get(path, p.ids)
			res.Stat = &stat
		} else {
			res.Children, _, res.Err = store.Children(path, p.ids)
		}
		if res.Err != wire.CodeOK {
			res = wire.MultiResult{Op: wire.OpError, Err: res.Err}
		}
		results[i] = res
	}
	return wire.MultiResponse{Results: results}
}

func ephemerals(store *znode.Store, id wire.SessionID, prefix string) []string {
	paths := []string{}
	// As Java trims, which ZooKeeper does here: control characters too, and no space beyond ASCII.
	trimmed := strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' })
	all := trimmed == "" || trimmed == "/"
	for _, path := range store.Ephemerals(id) {
		if all || strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}
	return paths
}

// whoAmI lists identities without their secrets.
func whoAmI(ids []znode.Identity) []wire.ClientInfo {
	list := make([]wire.ClientInfo, len(ids))
	for i, id := range ids {
		list[i] = wire.ClientInfo{AuthScheme: id.Scheme, User: userName(id)}
	}
	return list
}

// writeReply returns the body of the reply to a write that succeeded.
func (x executor) writeReply(store *znode.Store, p *pending, res *znode.Result) wire.Record {
	switch p.req.Op {
	case wire.OpCreate:
		return wire.CreateResponse{Path: res.Path}
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return wire.Create2Response{Path: res.Path, Stat: res.Stat}
	case wire.OpSetData, wire.OpSetACL:
		return wire.StatResponse{Stat: res.Stat}
	case wire.OpSync:
		var r wire.SyncRequest
		_ = wire.Decode(p.req.Body, &r) // cannot fail: it was decoded when it was received
		if r.Path == wire.SyncQuestion {
			r.Path = wire.SyncLinearizable
		}
		return wire.SyncResponse(r)
	case wire.OpMulti:
		return x.multiReply(res)
	case wire.OpReconfig:
		data, stat, _ := store.Get(configPath, []znode.Identity{superIdentity})
		return wire.GetDataResponse{Data: data, Stat: stat}
	}
	return nil // delete, closeSession
}

func (x executor) multiReply(res *znode.Result) wire.Record {
	results := make([]wire.MultiResult, len(res.Multi))
	for i := range res.Multi {
		op := &res.Multi[i]
		results[i] = wire.MultiResult{Op: op.Op, Err: x.quotaError(op.Code), Path: op.Path}
		if op.Op == wire.OpCreate2 || op.Op == wire.OpSetData {
			results[i].Stat = &op.Stat
		}
	}
	return wire.MultiResponse{Results: results}
}

// quotaError returns the code that the client gets instead of QuotaExceeded. Other codes stay as
// they are. QuotaExceeded is known to the libraries of ZooKeeper 3.7 and later only: at a code that
// it does not know, the connection thread of kazoo ends, and the program goes on to believe that it
// is connected and holds its locks.
func (x executor) quotaError(code wire.Code) wire.Code {
	if code != wire.CodeQuotaExceeded {
		return code
	}
	x.m.stats.inc(&x.m.stats.QuotaExceeded)
	x.m.refusals.Warn("quota "+x.c.addr().String(), "request refused: it exceeds a quota (enforceQuota)",
		"session", x.c.id(), "client", x.c.addr())
	return x.m.cfg.QuotaError
}

// executeLong executes a read that takes long: its answer has admission.HeavyBytes or more, or it
// would keep the state locked for long and releases the lock between two steps. It returns false,
// and has done nothing, for other requests. Only Submit's goroutine calls it, when all
// requests before are answered.
//
// Reads with long answers take turns: each deletion in the state is noted in all listings, and
// clients with short requests would wait for a processor behind all of them.
func (x executor) executeLong(p *pending) bool {
	if r, ok := p.record.(*wire.SetWatchesRequest); ok {
		x.setWatchesInSteps(p, r)
		return true
	}
	if !isLong(p.req.Op) {
		return false
	}
	bytes, fits := 0, false
	x.m.replica.View(func(store *znode.Store) { bytes, fits = x.answerSize(store, p) })
	if !fits || bytes < admission.HeavyBytes {
		return false
	}
	x.c.out.wake()
	turn := x.m.answering
	if turn.Acquire(x.m.ctx, 1) != nil {
		return true // the member stops
	}
	defer turn.Release(1)
	if r, ok := p.record.(*wire.PathWatchRequest); !ok || !x.listInSteps(p, r) {
		x.m.replica.View(func(store *znode.Store) { x.execute(store, p) })
	}
	return true
}

// listStep bounds the children that are listed under one lock.
const listStep = 5000

// listInSteps executes getChildren and getChildren2 of a node with more children than that; false
// if it has fewer. The answer is the state at its last step, which sets the watch, too. An event
// that fires the watch before the reply is made waits for the reply.
func (x executor) listInSteps(p *pending, r *wire.PathWatchRequest) bool {
	for !x.c.ended.Load() {
		var l *znode.Listing
		x.m.replica.View(func(store *znode.Store) {
			if stat, ok := store.Node(r.Path); ok && stat.NumChildren > listStep {
				l = store.List(r.Path)
			}
		})
		if l == nil {
			return false
		}
		if x.list(p, r, l) {
			break
		}
	}
	return true
}

// list executes a request with a listing; false if the node was deleted meanwhile.
func (x executor) list(p *pending, r *wire.PathWatchRequest, l *znode.Listing) bool {
	var done, lost bool
	var h wire.ReplyHeader
	var stat wire.Stat
	bytes := 0
	for !done && !lost {
		x.m.replica.View(func(store *znode.Store) {
			if done, lost = l.Step(store, listStep); !done {
				lost = lost || x.c.ended.Load()
			}
			if lost || done {
				l.Close()
			}
			if done {
				h = wire.ReplyHeader{Xid: p.req.Xid, Zxid: store.Zxid()}
				stat, bytes, h.Err = x.listed(store, p, r)
				x.c.out.holdEvents()
			}
		})
	}
	if lost {
		return false
	}
	var body wire.Record = wire.GetChildrenResponse{Children: l.Names()}
	if p.req.Op == wire.OpGetChildren2 {
		body = wire.GetChildren2Response{Children: l.Names(), Stat: stat}
	}
	x.reply(p, h, body, bytes)
	x.c.out.releaseEvents()
	return true
}

// listed is the last step of listInSteps: the permission, the size of the answer, and the watch.
func (x executor) listed(store *znode.Store, p *pending, r *wire.PathWatchRequest) (wire.Stat, int, wire.Code) {
	bytes, code := x.measure(store, p)
	if code != wire.CodeOK {
		return wire.Stat{}, 0, code
	}
	stat, code := store.Exists(r.Path, p.ids)
	if code == wire.CodeOK && r.Watch && !x.m.watches.add(x.c, r.Path, 0, standard) {
		code = wire.CodeBadArguments
	}
	return stat, bytes, code
}

// setWatchesStep bounds the paths of a setWatches that are processed under one lock.
const setWatchesStep = 500

// setWatchesInSteps executes a setWatches, which a client sends when it has connected again and
// which may have a hundred thousand paths, a step at a time, and releases the state's lock between
// two steps.
//
// Each path is compared, and its watch set, under one lock: a change before it gives an event at
// once, a change after it fires the watch. So no event is lost, and none is sent twice that would
// not also be sent twice if all were one step. Between two steps a watch may fire for a change that
// is later than a change of a path that has not been compared yet. Therefore events that fire wait
// until the last step, and are sent before the reply: the client sees no event before an earlier
// one (promise C3).
func (x executor) setWatchesInSteps(p *pending, r *wire.SetWatchesRequest) {
	x.c.out.holdEvents()
	fits, done := true, false
	for !done && !x.c.ended.Load() {
		var step *wire.SetWatchesRequest
		step, done = nextStep(r)
		x.m.replica.View(func(store *znode.Store) {
			fits = x.setWatches(store, step, p.ids) && fits
			if !done {
				return
			}
			x.c.out.releaseEvents()
			p.record = &wire.SetWatchesRequest{} // nothing is left of it
			if !fits {
				// a client would not look at an error here
				p.code, p.last = wire.CodeBadArguments, true
			}
			x.execute(store, p)
		})
	}
	x.c.out.releaseEvents() // unless it was done, the connection has ended
}

// nextStep takes the first setWatchesStep paths off r; done says that none are left.
func nextStep(r *wire.SetWatchesRequest) (step *wire.SetWatchesRequest, done bool) {
	step = &wire.SetWatchesRequest{V2: r.V2, RelativeZxid: r.RelativeZxid}
	room := setWatchesStep
	take := func(from *[]string) []string {
		n := min(room, len(*from))
		paths := (*from)[:n]
		*from, room = (*from)[n:], room-n
		return paths
	}
	step.Data, step.Exist, step.Child = take(&r.Data), take(&r.Exist), take(&r.Child)
	step.Persistent, step.PersistentRecursive = take(&r.Persistent), take(&r.PersistentRecursive)
	left := len(r.Data) + len(r.Exist) + len(r.Child) + len(r.Persistent) + len(r.PersistentRecursive)
	return step, left == 0
}

// reportPrefix begins the paths of reports. A report is no node: getData of such a path is answered
// with JSON that this member makes of its state for whoever asks, such as all locks with their
// queues, which a client would have to gather node by node (docs/api.md). No other operation knows
// these paths, and no watch can be set there.
const reportPrefix = "/zookeeper/api/v1/"

// reportOf returns the name of the report that a request asks for.
func (x executor) reportOf(p *pending) (name string, ok bool) {
	r, is := p.record.(*wire.PathWatchRequest)
	if !is || p.code != wire.CodeOK || p.req.Op != wire.OpGetData || x.m.cfg.Report == nil {
		return "", false
	}
	return strings.CutPrefix(r.Path, reportPrefix)
}

// executeReport answers a request for a report; false if it is another one. Only Submit's goroutine
// calls it, when all requests before are answered.
func (x executor) executeReport(p *pending) bool {
	name, ok := x.reportOf(p)
	if !ok {
		return false
	}
	var data []byte
	code := wire.CodeBadArguments
	if !p.record.(*wire.PathWatchRequest).Watch {
		x.c.out.wake()
		data, code = x.m.cfg.Report(x.m.ctx, name, p.ids)
	}
	x.m.replica.View(func(store *znode.Store) {
		h := wire.ReplyHeader{Xid: p.req.Xid, Zxid: store.Zxid(), Err: code}
		if code != wire.CodeOK {
			x.reply(p, h, nil, 0)
			return
		}
		stat := wire.Stat{Czxid: h.Zxid, Mzxid: h.Zxid, Pzxid: h.Zxid, DataLength: int32(len(data))}
		x.reply(p, h, wire.GetDataResponse{Data: data, Stat: stat}, len(data))
	})
	return true
}

// answerWrite queues the reply to a write.
func (x executor) answerWrite(store *znode.Store, p *pending, res *znode.Result) {
	var body wire.Record
	if res.Code == wire.CodeOK {
		body = x.writeReply(store, p, res)
	}
	x.reply(p, wire.ReplyHeader{Xid: p.req.Xid, Zxid: res.Zxid, Err: x.quotaError(res.Code)}, body, 0)
	if p.req.Op == wire.OpCloseSession && res.Code == wire.CodeOK {
		x.m.log.Debug("session closed by its client", "session", x.c.id(), "zxid", res.Zxid)
		x.c.out.finish(true)
	}
}

// reply queues a reply. bytes is about the size of a body that may be large, else 0.
func (x executor) reply(p *pending, h wire.ReplyHeader, body wire.Record, bytes int) {
	if p.req.Op == wire.OpPing {
		h.Xid = wire.XidPing
	}
	sent, ok := x.c.out.reply(h, body, bytes, p.own)
	x.m.gate.Replied(&x.c.account, sent)
	if !ok {
		x.m.log.Warn("client does not read its answers, connection closed", "session", x.c.id(), "client", x.c.addr())
		return
	}
	now := time.Now()
	latency := now.Sub(p.received)
	x.c.stats.reply(h, x.m.of(now), latency)
	x.m.stats.replied(isWrite(p.req.Op) && p.req.Op != wire.OpSync, latency)
	if p.last {
		x.c.out.finish(false)
	}
}

// isWrite reports whether requests with op become commands of the log.
func isWrite(op wire.Op) bool {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, wire.OpDelete,
		wire.OpSetData, wire.OpSetACL, wire.OpSync, wire.OpMulti, wire.OpReconfig, wire.OpCloseSession:
		return true
	}
	return false
}

// isLocal reports whether requests with op are answered by this member alone, from its own state.
func isLocal(op wire.Op) bool {
	switch op {
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpPing,
		wire.OpCheckWatches, wire.OpRemoveWatches, wire.OpAddWatch, wire.OpSetWatches, wire.OpSetWatches2,
		wire.OpMultiRead, wire.OpGetEphemerals, wire.OpGetAllChildrenNumber, wire.OpWhoAmI:
		return true
	}
	return false
}

// isLong reports whether a read may take long. Such a read waits until all requests before it are
// answered: reads behind a write are executed in the critical section of that write, and a thousand
// long reads would block it. It does not wait for a change of the members that is being carried
// out, which may take minutes.
func isLong(op wire.Op) bool {
	switch op {
	case wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpMultiRead, wire.OpGetEphemerals,
		wire.OpSetWatches, wire.OpSetWatches2:
		return true
	}
	return false
}
