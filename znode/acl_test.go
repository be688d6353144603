package znode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lockkeeper/wire"
)

// distinctByComparison is distinct in the plain way, as ZooKeeper does it: each entry is compared
// with all before it.
func distinctByComparison(acl []wire.ACL) ([]wire.ACL, wire.Code) {
	kept := make([]wire.ACL, 0, len(acl))
next:
	for _, a := range acl {
		for _, b := range kept {
			switch {
			case a.Perms != b.Perms:
			case a.NullScheme:
				return nil, wire.CodeMarshallingError
			case b.NullScheme || a.Scheme != b.Scheme:
			case a.NullID:
				return nil, wire.CodeMarshallingError
			case a == b:
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept, wire.CodeOK
}

func TestDistinctAgreesWithComparison(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	codes := map[wire.Code]int{}
	for range 20_000 {
		acl := make([]wire.ACL, rng.IntN(6))
		for i := range acl {
			acl[i] = wire.ACL{Perms: wire.Perm(rng.IntN(2)), ID: wire.ID{
				Scheme: []string{"", "ip", "digest"}[rng.IntN(3)], ID: []string{"", "a:b"}[rng.IntN(2)]}}
			if rng.IntN(8) == 0 {
				acl[i].Scheme, acl[i].NullScheme = "", true
			}
			if rng.IntN(8) == 0 {
				acl[i].ID.ID, acl[i].NullID = "", true
			}
		}
		got, code := distinct(acl)
		want, wantCode := distinctByComparison(acl)
		if !slices.Equal(got, want) || code != wantCode {
			t.Fatalf("%+v: %+v %v, comparison gives %+v %v", acl, got, code, want, wantCode)
		}
		codes[code]++
	}
	if len(codes) != 2 {
		t.Errorf("codes seen: %v", codes)
	}
}

// allowedByScan is the permission check in the plain way: each entry is held against each identity.
func allowedByScan(acl []wire.ACL, ids []Identity, want wire.Perm) bool {
	for _, a := range acl {
		for _, id := range ids {
			switch {
			case a.Perms&want == 0:
			case id.Scheme == schemeSuper, a.Scheme == schemeWorld && a.ID.ID == idAnyone:
				return true
			case id.Scheme != a.Scheme:
			case id.Scheme == schemeIP:
				network, bits, ok := parseIPExpr(a.ID.ID)
				addr, isAddr := parseIP(id.ID)
				if prefix, err := network.Prefix(bits); ok && isAddr && err == nil && prefix.Contains(addr) {
					return true
				}
			case id.ID == a.ID.ID:
				return true
			}
		}
	}
	return false
}

func TestGrantsAgreeWithAScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	addr := func() string {
		if rng.IntN(2) == 0 {
			return fmt.Sprintf("10.0.%d.%d", rng.IntN(3), rng.IntN(4))
		}
		return fmt.Sprintf("fd00:0:0:%d:0:0:0:%d", rng.IntN(3), rng.IntN(4))
	}
	allowed := 0
	for range 20_000 {
		var acl []wire.ACL
		for range 1 + rng.IntN(6) {
			a := wire.ACL{Perms: wire.Perm(rng.IntN(32)), ID: wire.ID{Scheme: schemeIP, ID: addr()}}
			switch rng.IntN(6) {
			case 0:
				a.ID = wire.ID{Scheme: schemeDigest, ID: fmt.Sprintf("u:%d", rng.IntN(3))}
			case 1:
				a.ID = wire.ID{Scheme: schemeWorld, ID: []string{idAnyone, "else"}[rng.IntN(2)]}
			case 2, 3:
				a.ID.ID += fmt.Sprintf("/%d", rng.IntN(140))
			}
			acl = append(acl, a)
		}
		ids := []Identity{{schemeIP, addr()}, {schemeDigest, fmt.Sprintf("u:%d", rng.IntN(3))}}
		want := wire.Perm(rng.IntN(32))
		got := Allowed(acl, ids, want)
		if got != allowedByScan(acl, ids, want) {
			t.Fatalf("%v as %v, %d: %v", acl, ids, want, got)
		}
		if got {
			allowed++
		}
	}
	if allowed < 2000 || allowed > 18_000 {
		t.Errorf("%d of 20000 were allowed: the cases are one-sided", allowed)
	}
}

// manyAddresses is an ACL of n addresses, none of them a client's.
func manyAddresses(n int) []wire.ACL {
	acl := make([]wire.ACL, n)
	for i := range acl {
		acl[i] = wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: fmt.Sprintf("192.168.%d.%d", i/250, i%250)}}
	}
	return acl
}

// A check against an ACL of thousands of entries looks at one of them for each length of a prefix,
// and a multi asks an ACL once, however many of its ops need a permission.
//
// Defends: C9.
func TestLargeACLIsAskedOnce(t *testing.T) {
	list := newACLList(manyAddresses(5000))
	if len(list.bits) != 1 {
		t.Errorf("a check looks up %d prefixes", len(list.bits))
	}
	client := wire.ACL{Perms: wire.PermAll, ID: wire.ID{Scheme: schemeIP, ID: "10.0.0.1"}}
	s := New()
	s.Apply(1, &Entry{Commands: []Command{
		{Session: 1, Body: &CreateSession{Connection: Connection{Addr: "10.0.0.1"}}},
		request(1, wire.OpCreate, wire.CreateRequest{Path: "/n", ACL: append(manyAddresses(5000), client)}),
		request(2, wire.OpMulti, checks("/n", 8000)),
	}}, func(c *Command, r *Result) {
		if c.req().Op == wire.OpMulti && (len(r.Multi) != 8000 || r.Multi[7999].Code != wire.CodeOK) {
			t.Errorf("the multi: %d results, the first %+v", len(r.Multi), r.Multi[0])
		}
	})
	if len(s.tx.granted) != 1 {
		t.Errorf("%d ACLs were asked", len(s.tx.granted))
	}
}

// request is request seq of session 1.
func request(seq uint64, op wire.Op, body wire.Record) Command {
	return Command{Session: 1, Generation: 1, Seq: seq, Body: &Request{Op: op, Body: body.Append(nil)}}
}

// checks is a multi of n checks of one node.
func checks(path string, n int) wire.MultiRequest {
	var m wire.MultiRequest
	for range n {
		m.Ops = append(m.Ops, wire.MultiOp{Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: path, Version: -1}})
	}
	return m
}
