package wire

import (
	"bytes"
	"reflect"
	"testing"
)

func multiOf(ops ...MultiOp) []byte { return MultiRequest{ops}.Append(nil) }

func createOp(op Op, mode CreateMode) MultiOp {
	return MultiOp{op, &CreateRequest{Path: "/a", ACL: OpenACL, Mode: mode}}
}

func createTTLOp(mode CreateMode, ttl int64) MultiOp {
	return MultiOp{OpCreateTTL, &CreateTTLRequest{Path: "/a", ACL: OpenACL, Mode: mode, TTL: ttl}}
}

// rawPart is the request record of a part, byte by byte.
type rawPart []byte

func (r rawPart) Append(b []byte) []byte { return append(b, r...) }

// What makes a multi undecodable as a whole: docs/protocol/wire.md section 9.
func TestMultiRefused(t *testing.T) {
	check := MultiOp{OpCheck, &CheckVersionRequest{"/a", 1}}
	get := MultiOp{OpGetData, &PathWatchRequest{"/a", false}}
	children := MultiOp{OpGetChildren, &PathWatchRequest{"/a", false}}
	nullPath := rawPart(unhex(t, "ffffffff 00000001"))
	good := multiOf(check, createOp(OpCreate, ModePersistent))
	cases := []struct {
		what string
		op   Op
		body []byte
	}{
		{"read in a multi", OpMulti, multiOf(get)},
		{"children in a multi", OpMulti, multiOf(children)},
		{"write in a multiRead", OpMultiRead, multiOf(check)},
		{"write then read", OpMulti, multiOf(check, get)},
		{"read then write", OpMultiRead, multiOf(get, check)},
		{"setACL inside", OpMulti, multiOf(MultiOp{OpSetACL, &SetACLRequest{Path: "/a", ACL: OpenACL}})},
		{"multi inside", OpMulti, multiOf(MultiOp{OpMulti, &MultiRequest{}})},
		{"exists inside", OpMultiRead, multiOf(MultiOp{OpExists, &PathWatchRequest{"/a", false}})},
		{"deleteContainer inside", OpMulti, multiOf(MultiOp{OpDeleteContainer, &PathRequest{"/a"}})},
		{"op 10 inside", OpMulti, multiOf(MultiOp{10, &Empty{}})},
		{"error inside", OpMulti, multiOf(MultiOp{OpError, &ErrorResponse{}})},
		{"mode 7", OpMulti, multiOf(createOp(OpCreate, 7))},
		{"mode -1", OpMulti, multiOf(createOp(OpCreate2, -1))},
		{"TTL mode in a create", OpMulti, multiOf(createOp(OpCreate, ModePersistentTTL))},
		{"TTL mode in a createContainer", OpMulti, multiOf(createOp(OpCreateContainer, ModePersistentSequentialTTL))},
		{"TTL 0", OpMulti, multiOf(createTTLOp(ModePersistentTTL, 0))},
		{"TTL -1", OpMulti, multiOf(createTTLOp(ModePersistentTTL, -1))},
		{"TTL too long", OpMulti, multiOf(createTTLOp(ModePersistentTTL, MaxTTLMs+1))},
		{"createTTL without TTL mode", OpMulti, multiOf(createTTLOp(ModePersistent, -1))},
		{"createTTL with container mode and a TTL", OpMulti, multiOf(createTTLOp(ModeContainer, 1))},
		{"createTTL with mode 9", OpMulti, multiOf(createTTLOp(9, 1))},
		{"null ACL", OpMulti, multiOf(MultiOp{OpCreate, &CreateRequest{Path: "/a"}})},
		{"null ACL with a TTL", OpMulti, multiOf(MultiOp{OpCreateTTL, &CreateTTLRequest{Path: "/a", Mode: 5, TTL: 1}})},
		{"null path of a check", OpMulti, multiOf(MultiOp{OpCheck, nullPath})},
		{"null path of a delete", OpMulti, multiOf(MultiOp{OpDelete, nullPath})},
		{"null path of a setData", OpMulti, multiOf(MultiOp{OpSetData, append(nullPath, 0, 0, 0, 0)})},
		{"null path of a getData", OpMultiRead, multiOf(MultiOp{OpGetData, nullPath})},
		{"no end", OpMulti, good[:len(good)-multiHeaderLen]},
		{"half an end", OpMulti, good[:len(good)-1]},
		{"nothing", OpMulti, nil},
	}
	for _, c := range cases {
		if rec, err := DecodeBody(c.op, c.body); err == nil {
			t.Errorf("%s: decodes to %+v", c.what, rec.(*MultiRequest).Ops)
		}
	}
	if _, err := DecodeBody(OpMulti, good); err != nil {
		t.Errorf("the good one: %v", err)
	}
	for n := range good {
		if _, err := DecodeBody(OpMulti, good[:n]); err == nil {
			t.Errorf("%d of %d bytes decode", n, len(good))
		}
	}
}

// The op of a create comes from its mode first.
func TestMultiCreateOps(t *testing.T) {
	cases := []struct {
		in   MultiOp
		want Op
	}{
		{createOp(OpCreate, ModePersistent), OpCreate},
		{createOp(OpCreate, ModeEphemeralSequential), OpCreate},
		{createOp(OpCreate, ModeContainer), OpCreateContainer},
		{createOp(OpCreate2, ModePersistentSequential), OpCreate2},
		{createOp(OpCreate2, ModeContainer), OpCreateContainer},
		{createOp(OpCreateContainer, ModeContainer), OpCreateContainer},
		{createOp(OpCreateContainer, ModePersistent), OpCreateContainer},
		{createTTLOp(ModePersistentTTL, 1), OpCreateTTL},
		{createTTLOp(ModePersistentSequentialTTL, MaxTTLMs), OpCreateTTL},
		{createTTLOp(ModeContainer, -1), OpCreateContainer},
	}
	for _, c := range cases {
		rec, err := DecodeBody(OpMulti, multiOf(c.in))
		if err != nil {
			t.Errorf("%v %+v: %v", c.in.Op, c.in.Record, err)
			continue
		}
		got := rec.(*MultiRequest).Ops[0]
		_, isTTL := got.Record.(*CreateTTLRequest)
		if got.Op != c.want || isTTL != (c.want == OpCreateTTL) {
			t.Errorf("%v %+v: %v with %T, want %v", c.in.Op, c.in.Record, got.Op, got.Record, c.want)
		}
	}
	// An empty ACL is for the op to refuse, not for the multi.
	rec, err := DecodeBody(OpMulti, multiOf(MultiOp{OpCreate, &CreateRequest{Path: "/a", ACL: []ACL{}}}))
	if err != nil || len(rec.(*MultiRequest).Ops) != 1 {
		t.Errorf("empty ACL: %v", err)
	}
}

// The end of a multi is the done byte; type and err of that header do not matter.
func TestMultiEnd(t *testing.T) {
	for _, end := range []string{"ffffffff 01 ffffffff", "00000001 01 00000000", "0000004d ff 00000007 0000"} {
		for _, op := range []Op{OpMulti, OpMultiRead} {
			rec, err := DecodeBody(op, unhex(t, end))
			if err != nil || len(rec.(*MultiRequest).Ops) != 0 {
				t.Errorf("%v %s: %+v, %v", op, end, rec, err)
			}
		}
	}
}

// The server's own results keep their op and leave it to the encoder what the wire calls them.
func TestMultiResultOps(t *testing.T) {
	create2 := MultiResponse{[]MultiResult{{Op: OpCreate2, Path: "/a", Stat: &aStat}}}.Append(nil)
	for _, op := range []Op{OpCreateContainer, OpCreateTTL} {
		if got := (MultiResponse{[]MultiResult{{Op: op, Path: "/a", Stat: &aStat}}}).Append(nil); !bytes.Equal(got, create2) {
			t.Errorf("%v: %x, want %x", op, got, create2)
		}
	}
	failed := MultiResponse{[]MultiResult{{Op: OpError, Err: CodeNoNode}}}.Append(nil)
	if got := (MultiResponse{[]MultiResult{{Op: OpSetData, Err: CodeNoNode, Stat: &aStat}}}).Append(nil); !bytes.Equal(got, failed) {
		t.Errorf("failed setData: %x, want %x", got, failed)
	}
	zero := MultiResponse{[]MultiResult{{Op: OpSetData, Stat: new(Stat)}}}.Append(nil)
	if got := (MultiResponse{[]MultiResult{{Op: OpSetData}}}).Append(nil); !bytes.Equal(got, zero) {
		t.Errorf("setData without a stat: %x, want %x", got, zero)
	}
	var r MultiResponse
	if err := Decode(unhex(t, "00000013 00 00000000"), &r); err == nil {
		t.Errorf("a result of createContainer decodes: %+v", r)
	}
	defer func() {
		if recover() == nil {
			t.Error("a result of sync encodes")
		}
	}()
	MultiResponse{[]MultiResult{{Op: OpSync}}}.Append(nil)
}

func TestMultiDecodeIntoUsed(t *testing.T) {
	r := MultiRequest{Ops: []MultiOp{{OpDelete, &DeleteRequest{"/old", 1}}}}
	if err := Decode(multiOf(MultiOp{OpDelete, &DeleteRequest{"/new", 1}}), &r); err != nil {
		t.Fatal(err)
	}
	want := MultiRequest{Ops: []MultiOp{{OpDelete, &DeleteRequest{"/new", 1}}}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v", r)
	}
	if err := Decode(nil, &r); err == nil || r.Ops != nil {
		t.Errorf("after a failure: %+v, %v", r, err)
	}
}
