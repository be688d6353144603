package znode

import (
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// Cost bounds the work of applying a request, in any state: Apply takes time in proportion to the
// request, and this is the proportion. A member adds it up before it proposes the request, because
// every member then has to apply it, with its state locked, and again at each start.
type Cost struct {
	// Nanoseconds is how long applying it takes, estimated from the prices below.
	Nanoseconds int64
	// ACLEntries and ACLBytes are the size of the largest ACL that a node would get.
	ACLEntries, ACLBytes int
	// ACLPrefixes is the number of different lengths of network prefixes in such an ACL: each is a
	// lookup for every request on the node.
	ACLPrefixes int
	// Ephemerals is the number of ephemeral nodes that it creates.
	Ephemerals int
	// Size bounds the growth of the state, in bytes: deleted and replaced data are not subtracted.
	Size Size
	// LimitsBytes is the size of the largest data for the limits node of a quota, which each write
	// below the quota has read.
	LimitsBytes int
}

// Prices in nanoseconds, as BenchmarkWorst measures them, rounded up. The price of an op includes
// undoing it, when a later op of the multi fails, and the reply.
const (
	// of an op that changes a node: 250 connections that watch this node and no other of the
	// command, each about 45 ns; their number is not known at the proposal. Connections that watch
	// many nodes of a command at once, recursively or by their parent, cost as much once
	// (session/watch.go).
	eventPrice  = 11_500
	createPrice = 3000 + eventPrice
	deletePrice = 3000 + eventPrice
	setPrice    = 1200 + eventPrice // setData
	setACLPrice = 1200              // which no watch sees
	checkPrice  = 900
	readPrice   = 700 // a part of a multiRead
	lookupPrice = 60  // of each identity, in the ACL of a node that an op of a multi names
	prefixPrice = 25  // of each length of network prefixes there
	// of a path: sums and quotas are kept along it, and recursive watches looked for
	componentPrice = 30
	aclEntryPrice  = 1200   // that is not the open ACL: it is checked, hashed and indexed
	byteRate       = 1      // of data
	memberPrice    = 60_000 // a member in a reconfig: it is held against 255 others
)

// MaxACLPrefixes bounds the different lengths of network prefixes in an ACL that a member proposes.
// ACLs of another version or of ZooKeeper's data may have more.
const MaxACLPrefixes = 12

// CostOf returns the cost of a request, as DecodeBody has it, of a connection with the identities
// ids.
func CostOf(r wire.Record, ids []Identity) Cost {
	var c Cost
	switch r := r.(type) {
	case *wire.MultiRequest:
		proved := provenOf(ids)
		for i := range r.Ops {
			c.add(r.Ops[i].Record, proved)
		}
		c.Nanoseconds += int64(len(r.Ops)) * (lookupPrice*int64(len(ids)) + prefixPrice*MaxACLPrefixes)
	default:
		c.add(r, provenOf(ids))
	}
	return c
}

// proven describes the identities that replace an entry of scheme auth: their number, and the bytes
// of their schemes and ids.
type proven struct{ n, bytes int }

func provenOf(ids []Identity) (p proven) {
	for i := range ids {
		if authenticated(ids[i].Scheme, KeyScheme) {
			p.n++
			p.bytes += len(ids[i].Scheme) + len(ids[i].ID)
		}
	}
	return p
}

// add adds the cost of one op; proved describes the entries that replace its entries of scheme
// auth.
func (c *Cost) add(r wire.Record, proved proven) {
	switch r := r.(type) {
	case *wire.CreateRequest:
		c.addCreate(r.Path, r.Data, r.ACL, r.Mode.Ephemeral(), proved)
	case *wire.CreateTTLRequest:
		c.addCreate(r.Path, r.Data, r.ACL, false, proved)
	case *wire.DeleteRequest:
		c.addPath(deletePrice, r.Path)
	case *wire.SetDataRequest:
		c.addPath(setPrice, r.Path)
		c.addData(r.Path, r.Data)
	case *wire.SetACLRequest:
		c.addPath(setACLPrice, r.Path)
		c.addACL(r.ACL, proved)
	case *wire.CheckVersionRequest:
		c.addPath(checkPrice, r.Path)
	case *wire.PathWatchRequest:
		c.Nanoseconds += readPrice
	case *wire.ReconfigRequest:
		for _, text := range []string{r.Joining, r.Leaving, r.NewMembers} {
			c.Nanoseconds += memberPrice * int64(strings.Count(text, ",")+strings.Count(text, "\n"))
		}
	}
}

func (c *Cost) addCreate(path string, data []byte, acl []wire.ACL, ephemeral bool, proved proven) {
	c.addPath(createPrice, path)
	c.addData(path, data)
	c.addACL(acl, proved)
	c.Size.Nodes++
	c.Size.Bytes += NodeMemory + int64(len(path)) + sequenceDigits
	if ephemeral {
		c.Ephemerals++
	}
}

func (c *Cost) addPath(price int64, path string) {
	c.Nanoseconds += price + componentPrice*int64(strings.Count(path, "/"))
}

func (c *Cost) addData(path string, data []byte) {
	c.Nanoseconds += byteRate * int64(len(data))
	c.Size.Bytes += int64(len(data))
	if _, ok := limitsOf(path); ok {
		c.LimitsBytes = max(c.LimitsBytes, len(data))
	}
}

func (c *Cost) addACL(acl []wire.ACL, proved proven) {
	if len(acl) == 1 && acl[0] == wire.OpenACL[0] {
		return
	}
	entries, bytes := 0, 0
	var lengths prefixLengths
	for i := range acl {
		if acl[i].Scheme == schemeIP {
			lengths.add(acl[i].ID.ID)
		}
		if acl[i].Scheme == schemeAuth {
			entries += max(1, proved.n)
			bytes += proved.bytes
			continue
		}
		entries++
		bytes += len(acl[i].Scheme) + len(acl[i].ID.ID)
	}
	const aroundEntry = 12 // of its encoding
	c.Size.Bytes += aclMemory(entries, bytes+aroundEntry*entries)
	c.Nanoseconds += aclEntryPrice * int64(entries)
	c.ACLEntries, c.ACLBytes = max(c.ACLEntries, entries), max(c.ACLBytes, bytes)
	c.ACLPrefixes = max(c.ACLPrefixes, lengths.n)
}

// prefixLengths counts different lengths.
type prefixLengths struct {
	n    int
	seen [129]bool
}

// add counts the prefix length of an expression of scheme ip, unless it is an address or invalid.
func (p *prefixLengths) add(expr string) {
	_, suffix, network := strings.Cut(expr, "/")
	if !network {
		return
	}
	if bits, err := strconv.Atoi(suffix); err == nil && bits >= 0 && bits < len(p.seen) && !p.seen[bits] {
		p.seen[bits] = true
		p.n++
	}
}

// Replaced returns the number of bytes of a request's data that replace present data. Cost.Size
// counts them, although they do not make the state larger.
func (s *Store) Replaced(r wire.Record) (bytes int64) {
	t := s.state.tree
	switch r := r.(type) {
	case *wire.MultiRequest:
		for i := range r.Ops {
			bytes += s.Replaced(r.Ops[i].Record)
		}
	case *wire.SetDataRequest:
		if i, ok := t.find(r.Path); ok {
			bytes = int64(min(len(r.Data), len(t.nodes.row(i).data())))
		}
	}
	return bytes
}

// Refusal returns the code with which Apply is certain to refuse a request of a connection with the
// identities ids, in any state and with any flags of the entry; CodeOK if the answer depends on
// them. Such a request need not be proposed. It only finds requests that fail their first test, in
// the order of the tests.
func Refusal(r wire.Record, ids []Identity) wire.Code {
	switch r := r.(type) {
	case *wire.CreateRequest:
		switch _, _, ok := split(r.Path); {
		case !r.Mode.Valid():
			return wire.CodeBadArguments
		case r.Mode.TTL():
			return wire.CodeOK // whether there are such nodes is a flag
		case !ok:
			return wire.CodeBadArguments
		}
		return aclRefusal(r.ACL, ids)
	case *wire.DeleteRequest:
		if _, _, ok := split(r.Path); !ok || builtIn(r.Path) {
			return wire.CodeBadArguments
		}
	case *wire.SetDataRequest:
		if !ValidPath(r.Path) {
			return wire.CodeBadArguments
		}
	case *wire.SetACLRequest:
		if !ValidPath(r.Path) {
			return wire.CodeBadArguments
		}
		return aclRefusal(r.ACL, ids)
	}
	return wire.CodeOK
}

// aclRefusal is Refusal for an ACL. An ACL that is refused although every existing scheme may be
// stored, is refused with any flags, and with the same code: an entry with a scheme that may not be
// stored is InvalidACL, too.
func aclRefusal(acl []wire.ACL, ids []Identity) wire.Code {
	if _, code := distinct(acl); code != wire.CodeOK {
		return code
	}
	if _, code := fixACL(acl, ids, X509|SASL|KeyScheme); code == wire.CodeInvalidACL {
		return code
	}
	return wire.CodeOK
}
