package differ

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// kinds are the kinds of requests, and how often they come in a round without a mood.
var kinds = []struct {
	weight float64
	make   func(g *generator, slot int) Request
}{
	{14, (*generator).create},
	{3, (*generator).createTTL},
	{7, (*generator).delete},
	{9, (*generator).setData},
	{14, (*generator).read},
	{4, (*generator).readPath},
	{5, (*generator).setACL},
	{8, (*generator).multi},
	{3, (*generator).multiRead},
	{5, (*generator).addWatch},
	{3, (*generator).removeWatches},
	{3, (*generator).setWatches},
	{4, (*generator).auth},
	{6, (*generator).plain},
	{3, (*generator).quota},
}

// pool are the paths that most requests are about: few, so that they meet.
var pool = []string{
	"/a", "/b", "/c", "/a/a", "/a/b", "/b/a", "/c/a", "/a/a/a", "/a/a/b", "/b/a/a", "/c/a/a", "/c/a/b",
}

// builtIn are the nodes that are always there.
var builtIn = []string{"/", "", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/a",
	"/zookeeper/config/a"}

// badPaths are paths that are refused, or that look as if they should be.
var badPaths = []string{
	"a", "a/b", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/./a", "/a/../b", "/...", "/a/.a", "/a/a.",
	"/..a",
	"/\x00", "/a\x00", "\x00", "/a/\x00b", "/a/\x01", "/\x1f", "/a\x7f", "/\u0080", "/\u009f", "/\u00a0", "/a/\ud7ff",
	"/\ue000", "/\uf8ff", "/\uf900", "/\ufeff", "/\uffef", "/\ufff0", "/\ufffd", "/\uffff", "/\U0001F600",
	"/a/\U0001F600b",
	"/\xff", "/\xc3", "/a/\xe2\x82", "/\xed\xa0\x80", "/\xf0\x9f\x98", "/\xc0\xaf", "/ ", "/a b", "/%", "/a:b", "/é",
	"/a/日本",
	" ", ".", "..", "/zookeeper/", "/zookeeper//quota", "/zookeeper/..", "/" + strings.Repeat("x", 300),
}

// path is a path for a request.
func (g *generator) path() string {
	switch {
	case g.chance(g.mood.badPathP):
		return pick(g, badPaths)
	case g.chance(0.04):
		return pick(g, builtIn)
	case len(g.grown) > 0 && g.chance(0.2):
		return pick(g, g.grown)
	}
	return pick(g, pool)
}

// version is an expected version: often one that is right.
func (g *generator) version(current int32) int32 {
	switch g.rng.IntN(10) {
	case 0, 1, 2, 3:
		return -1
	case 4, 5, 6, 7:
		return current
	case 8:
		return current + 1
	}
	return pick(g, []int32{0, 1, -2, 1<<31 - 1, -1 << 31})
}

// maxDataLen is more than any node's data has bytes.
const maxDataLen = 3000

func (g *generator) data() []byte {
	switch g.rng.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return make([]byte, g.rng.IntN(maxDataLen))
	}
	return []byte(fmt.Sprintf("d%d", g.rng.IntN(1000)))
}

// Users that the scheme digest knows.
const (
	userOne = "u1:p1"
	userTwo = "u2:p2"
	// superUser passes every check. The servers are told so.
	superUser = "super:secret"
)

// digestOf is the id of an identity of scheme digest.
func digestOf(auth string) string {
	user, _, _ := strings.Cut(auth, ":")
	sum := sha1.Sum([]byte(auth))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

func entry(perms wire.Perm, scheme, id string) wire.ACL {
	return wire.ACL{Perms: perms, ID: wire.ID{Scheme: scheme, ID: id}}
}

func (g *generator) acl() []wire.ACL {
	if !g.chance(g.mood.closedP) {
		return wire.OpenACL
	}
	if g.chance(0.05) {
		return pick(g, [][]wire.ACL{nil, {}})
	}
	var list []wire.ACL
	for range 1 + g.rng.IntN(3) {
		list = append(list, g.aclEntry())
		if g.chance(0.1) {
			list = append(list, pick(g, list))
		}
	}
	return list
}

// userIDs are the identities of most entries.
var userIDs = []wire.ID{
	{Scheme: "world", ID: "anyone"}, {Scheme: "world", ID: "anyone"}, {Scheme: "world", ID: "anyone"},
	{Scheme: "digest", ID: digestOf(userOne)}, {Scheme: "digest", ID: digestOf(userOne)},
	{Scheme: "digest", ID: digestOf(userTwo)},
	{Scheme: "auth"}, {Scheme: "auth", ID: "u1"}, {Scheme: "auth", ID: "anyone"}, {Scheme: "auth", NullID: true},
}

// addresses are identities of scheme ip: some that are right, and some that are refused or look as
// if they should be.
var (
	addresses    = []string{"127.0.0.1", "127.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0", "127.0.0.1/31"}
	badAddresses = []string{
		"", "1.2.3", "1.2.3.4.5", "1.2.3.4/33", "1.2.3.4/-1", "1.2.3.4/", "1.2.3.4/8/8", "256.1.1.1", "-1.1.1.1",
		"a.b.c.d",
		"127.0.0.1/0", "127.0.0.1/32", "01.2.3.4", "1.2.3.+4", "1.2.3.4 ", " 127.0.0.1", "1.2.3.4/ 8", "127.0.0.1/+8",
		"127.0.0.1/08", "/8", "1..2.3", "1.2.3.4.",
	}
	badDigests = []string{"a:b", "a", "a:", "a:b:c", "", ":", ":b", "a:b:", "a:b::", "u1:x", "é:ü", "::", "a::b"}
	badSchemes = []string{"World", "", "super", "sasl", "x509", "nonsense", "DIGEST", "Auth"}
)

func (g *generator) aclEntry() wire.ACL {
	perms := wire.Perm(g.rng.IntN(32))
	if g.chance(0.4) {
		perms = wire.PermAll
	}
	if g.chance(0.03) {
		perms = pick(g, []wire.Perm{-1, 255, 32, 1 << 30})
	}
	id := pick(g, userIDs)
	switch g.rng.IntN(14) {
	case 0:
		id = wire.ID{Scheme: "ip", ID: pick(g, addresses)}
	case 1, 2: // one that is refused, or that looks as if it should be
		id = pick(g, []wire.ID{
			{Scheme: "digest", ID: pick(g, badDigests)},
			{Scheme: "ip", ID: pick(g, badAddresses)},
			{Scheme: pick(g, badSchemes), ID: pick(g, []string{"", "anyone", "u1:x", "CN=a"})},
			{Scheme: "world", ID: pick(g, []string{"", "Anyone", "anyone ", "x"})},
			{Scheme: pick(g, []string{"digest", "ip", "nonsense", "super"}), NullID: true},
			{NullScheme: true, ID: "anyone"},
		})
	}
	return wire.ACL{Perms: perms, ID: id}
}

// create makes create, create2 and createContainer.
func (g *generator) create(int) Request {
	op := pick(g, []wire.Op{wire.OpCreate, wire.OpCreate, wire.OpCreate2, wire.OpCreate2, wire.OpCreateContainer})
	q := wire.CreateRequest{Path: g.path(), Data: g.data(), ACL: g.acl()}
	if op == wire.OpCreateContainer {
		q.Mode = wire.ModeContainer
	} else {
		q.Mode = pick(g, []wire.CreateMode{0, 0, 0, 0, 1, 1, 2, 3})
	}
	if g.chance(0.05) {
		q.Mode = pick(g, []wire.CreateMode{0, 1, 2, 3, 4, 5, 6, 7, -1, 100})
		if op == wire.OpCreateContainer && q.Mode.Ephemeral() {
			// ZooKeeper deletes it with the session only if that is closed in the same moment.
			q.Mode = wire.ModePersistent
		}
	}
	if q.Mode.Sequential() {
		g.sequential(&q.Path)
	}
	return newRequest(op, q)
}

// sequential makes a path for a sequential node. There are not too many of them.
func (g *generator) sequential(path *string) {
	if len(g.grown) > 40 {
		return
	}
	*path += pick(g, []string{"/", "/", "/n-", "/n-", "", "-"})
}

func (g *generator) createTTL(int) Request {
	q := wire.CreateTTLRequest{Path: g.path(), Data: g.data(), ACL: g.acl(), Mode: wire.ModePersistentTTL, TTL: 1e9 +
		int64(g.rng.IntN(1000))}
	if g.chance(0.3) {
		q.Mode = wire.ModePersistentSequentialTTL
		g.sequential(&q.Path)
	}
	if g.chance(0.2) {
		q.TTL = pick(g, []int64{0, -1, -2, 1 << 40, 1<<40 - 1, 1<<63 - 1, -1 << 63})
	}
	return newRequest(wire.OpCreateTTL, q)
}

func (g *generator) delete(int) Request {
	path := g.path()
	if len(g.grown) > 20 && g.chance(0.7) {
		path = g.grown[g.rng.IntN(len(g.grown))]
	}
	return newRequest(wire.OpDelete, wire.DeleteRequest{Path: path, Version: g.version(g.versions[path].Version)})
}

func (g *generator) setData(int) Request {
	path := g.path()
	return newRequest(wire.OpSetData, wire.SetDataRequest{Path: path, Data: g.data(),
		Version: g.version(g.versions[path].Version)})
}

func (g *generator) setACL(int) Request {
	path := g.path()
	return newRequest(wire.OpSetACL, wire.SetACLRequest{Path: path, ACL: g.acl(),
		Version: g.version(g.versions[path].Aversion)})
}

// read makes the requests that can set a one-shot watch.
func (g *generator) read(slot int) Request {
	q := wire.PathWatchRequest{Path: g.path()}
	if g.chance(g.mood.watchP) && g.watchClass(slot, q.Path) < classPersistent {
		q.Watch = true
	}
	return newRequest(pick(g, []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetData, wire.OpGetChildren,
		wire.OpGetChildren2}), q)
}

func (g *generator) readPath(int) Request {
	return newRequest(pick(g, []wire.Op{wire.OpGetACL, wire.OpGetACL, wire.OpGetAllChildrenNumber}),
		wire.PathRequest{Path: g.path()})
}

func (g *generator) multi(slot int) Request {
	if g.oneByOne() {
		return g.create(slot)
	}
	var q wire.MultiRequest
	for range g.rng.IntN(6) {
		var r Request
		switch g.rng.IntN(12) {
		case 0, 1, 2, 3:
			r = g.create(0)
		case 4, 5:
			r = g.delete(0)
		case 6, 7, 8:
			r = g.setData(0)
		case 9:
			r = g.createTTL(0)
		default:
			path := g.path()
			r = newRequest(wire.OpCheck, wire.CheckVersionRequest{Path: path,
				Version: g.version(g.versions[path].Version)})
		}
		q.Ops = append(q.Ops, wire.MultiOp{Op: r.Op, Record: r.Body})
	}
	if g.chance(0.02) {
		r := g.read(0)
		q.Ops = append(q.Ops, wire.MultiOp{Op: r.Op, Record: r.Body}) // does not belong here
	}
	return newRequest(wire.OpMulti, q)
}

func (g *generator) multiRead(int) Request {
	var q wire.MultiRequest
	for range g.rng.IntN(5) {
		op := pick(g, []wire.Op{wire.OpGetData, wire.OpGetChildren})
		if g.chance(0.02) {
			op = pick(g, []wire.Op{wire.OpExists, wire.OpGetChildren2, wire.OpDelete})
		}
		q.Ops = append(q.Ops, wire.MultiOp{Op: op, Record: wire.PathWatchRequest{Path: g.path(), Watch: g.chance(0.5)}})
	}
	return newRequest(wire.OpMultiRead, q)
}

func (g *generator) addWatch(slot int) Request {
	q := wire.AddWatchRequest{Path: g.path()}
	if g.chance(0.1) {
		q.Path = "/"
	}
	switch g.watchClass(slot, q.Path) {
	case classPersistent:
	case classRecursive:
		q.Mode = wire.AddWatchPersistentRecursive
	default:
		if g.chance(0.9) {
			return g.read(slot)
		}
		q.Mode = pick(g, []int32{-1, 2, 100})
	}
	return newRequest(wire.OpAddWatch, q)
}

func (g *generator) removeWatches(slot int) Request {
	q := wire.WatchesRequest{Path: g.path(), Type: wire.WatchTypeAny}
	op := pick(g, []wire.Op{wire.OpCheckWatches, wire.OpRemoveWatches})
	if class := g.watchClass(slot, q.Path); class < classPersistent {
		// 3.8 removes persistent watches by these types, too.
		q.Type = pick(g, []int32{wire.WatchTypeAny, wire.WatchTypeChildren, wire.WatchTypeData})
	}
	if g.chance(0.05) {
		q.Type = pick(g, []int32{0, -1, 6, 100})
	}
	// removeWatches of these types would leave two different states.
	if op == wire.OpCheckWatches && g.chance(0.03) {
		q.Type = pick(g, []int32{wire.WatchTypePersistent, wire.WatchTypePersistentRecursive})
	}
	return newRequest(op, q)
}

func (g *generator) setWatches(slot int) Request {
	q := wire.SetWatchesRequest{Data: []string{}, Exist: []string{}, Child: []string{}}
	op := wire.OpSetWatches
	if g.chance(0.5) {
		op, q.V2 = wire.OpSetWatches2, true
		q.Persistent, q.PersistentRecursive = []string{}, []string{}
	}
	for range g.rng.IntN(6) {
		path := g.path()
		list := pick(g, []*[]string{&q.Data, &q.Exist, &q.Child})
		switch g.watchClass(slot, path) {
		case classPersistent:
			list = &q.Persistent
		case classRecursive:
			list = &q.PersistentRecursive
		}
		if list == &q.Persistent || list == &q.PersistentRecursive {
			if !q.V2 {
				continue
			}
		}
		*list = append(*list, path)
		if g.chance(0.1) {
			*list = append(*list, path)
		}
	}
	r := newRequest(op, q)
	switch g.rng.IntN(6) {
	case 0: // nothing has been seen
	case 1:
		q.RelativeZxid = 1<<62 + 1
		r.Body = q
	default:
		r.Since = g.step - 1 - g.rng.IntN(min(g.step, 30)+1)
		r.Since = max(r.Since, 0)
		// The zxid that a client has seen last is often the very change.
		if paths := r.watched(); len(paths) > 0 && g.chance(0.5) {
			if step, ok := g.changed[pick(g, paths)]; ok {
				r.Since = step
			}
		}
	}
	if g.chance(0.02) {
		// Of a null further on ZooKeeper learns when it has already dealt with the lists before it.
		q.Data = nil
		r.Body = q
	}
	return r
}

// credentials are the contents of auth requests. Only the scheme digest is known, and ip to
// ZooKeeper.
var credentials = []struct{ scheme, auth string }{
	{"digest", userOne}, {"digest", userOne}, {"digest", userTwo}, {"digest", superUser}, {"ip", "1.2.3.4"}, {"ip", ""},
	{"digest", "u3"}, {"digest", ""}, {"digest", "u1:p1:p2"}, {"digest", ":p"}, {"digest", "u\xff:p"}, {"digest", "u:"},
}

func (g *generator) auth(int) Request {
	c := pick(g, credentials)
	q := wire.AuthPacket{Scheme: c.scheme, Auth: []byte(c.auth)}
	if g.chance(0.1) {
		q.Type = 7
	}
	if c.scheme == "ip" && c.auth == "" {
		q.Auth = nil
	}
	r := newRequest(wire.OpAuth, q)
	if g.chance(0.8) {
		r.OwnXid, r.Xid = true, wire.XidAuth
	}
	return r
}

// plain makes the requests about nothing in particular.
func (g *generator) plain(int) Request {
	switch g.rng.IntN(9) {
	case 0, 1:
		q := wire.SyncRequest{Path: g.path()}
		if g.chance(0.1) {
			q = wire.SyncRequest{NullPath: true}
		}
		return newRequest(wire.OpSync, q)
	case 2:
		return newRequest(wire.OpWhoAmI, nil)
	case 3, 4:
		prefix := pick(g, []string{"", "/", "/a", "/a/", "/a/a", "/b", " ", "a", "//", "/\x00", "\t/ ", " /a", "\u00a0",
			g.path()})
		return newRequest(wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: prefix})
	case 5:
		return newRequest(wire.OpPing, nil)
	case 6:
		return newRequest(wire.OpSASL, wire.SASLRequest{Token: pick(g, [][]byte{{}, []byte("x")})})
	case 7:
		return newRequest(wire.OpReconfig, wire.ReconfigRequest{
			Joining: "server.5=127.0.0.1:1:2;3", NullLeaving: g.chance(0.5), NullNewMembers: g.chance(0.5),
			CurConfigID: -1,
		})
	}
	return newRequest(wire.OpWhoAmI, encoded("body"))
}

// The quota of the rounds that have one. It is made and taken away as a whole: of half a quota
// ZooKeeper loses count.
const (
	quotaNode   = "/zookeeper/quota/b"
	quotaLimits = quotaNode + "/zookeeper_limits"
	quotaStats  = quotaNode + "/zookeeper_stats"
)

// limits are contents of zookeeper_limits, some of them malformed.
var limits = []string{
	"count=3,bytes=20", "count=-1,bytes=-1=;byteHardLimit=12;countHardLimit=3", "count=1,bytes=1=;countHardLimit=2",
	"count=-1,bytes=-1=;byteHardLimit=6", "count=-1,bytes=-1=;countHardLimit=100;byteHardLimit=100000", "count=5", "",
	"nonsense", "count=x,bytes=1", "countHardLimit=1", "countHardLimit=,byteHardLimit=5", ",,count=1",
	"count=1;;bytes=3,,",
}

// quota makes the requests about quotas, in rounds that have them.
func (g *generator) quota(slot int) Request {
	if !g.mood.quota {
		return g.read(slot)
	}
	create := func(path, data string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreate, Record: wire.CreateRequest{Path: path, Data: []byte(data),
			ACL: wire.OpenACL}}
	}
	remove := func(path string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpDelete, Record: wire.DeleteRequest{Path: path, Version: -1}}
	}
	switch g.rng.IntN(8) {
	case 0, 1:
		return newRequest(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			create(quotaNode, ""), create(quotaLimits, pick(g, limits)), create(quotaStats, ""),
		}})
	case 2:
		return newRequest(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{remove(quotaStats), remove(quotaLimits),
			remove(quotaNode)}})
	case 3, 4:
		return newRequest(wire.OpSetData, wire.SetDataRequest{Path: quotaLimits, Data: []byte(pick(g, limits)),
			Version: -1})
	case 5:
		return newRequest(wire.OpGetData, wire.PathWatchRequest{Path: quotaLimits})
	}
	return newRequest(wire.OpGetData, wire.PathWatchRequest{Path: quotaStats})
}

// oneByOne says that requests must not be sent behind each other or in multis: ZooKeeper looks at
// the applied state when it enforces a quota, and lets a burst through.
func (g *generator) oneByOne() bool { return g.mood.quota && g.mood.enforce }
