package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var aStat = Stat{Czxid: 1 << 40, Mzxid: -2, Ctime: 3, Mtime: 4, Version: -5, Cversion: 6, Aversion: 7,
	EphemeralOwner: -8, DataLength: 9, NumChildren: 10, Pzxid: 11}

const aStatHex = "0000010000000000" + "fffffffffffffffe" + "0000000000000003" + "0000000000000004" + "fffffffb" +
	"00000006" + "00000007" + "fffffffffffffff8" + "00000009" + "0000000a" + "000000000000000b"

// recordCase says that a record has these bytes; blanks in hex are for reading.
type recordCase struct {
	rec decodable
	hex string
}

var openACLHex = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"

var recordCases = []recordCase{
	{&Empty{}, ""},
	{&aStat, aStatHex},
	{&ACL{Perms: -1, ID: ID{Scheme: "a", NullID: true}}, "ffffffff 00000001 61 ffffffff"},
	{&ACL{Perms: PermRead, ID: ID{NullScheme: true}}, "00000001 ffffffff 00000000"},
	{&ClientInfo{"ip", "::1"}, "00000002 6970 00000003 3a3a31"},

	{&ConnectRequest{ProtocolVersion: 7, LastZxidSeen: -1, TimeoutMs: -2, SessionID: 3},
		"00000007 ffffffffffffffff fffffffe 0000000000000003 ffffffff"},
	{&ConnectRequest{Password: []byte{}, HasReadOnly: true},
		"00000000 0000000000000000 00000000 0000000000000000 00000000 00"},
	{&ConnectRequest{Password: []byte{9}, HasReadOnly: true, ReadOnly: true},
		"00000000 0000000000000000 00000000 0000000000000000 00000001 09 01"},
	{&ConnectResponse{TimeoutMs: 4000, SessionID: -1, Password: []byte("pw")},
		"00000000 00000fa0 ffffffffffffffff 00000002 7077"},
	{&ConnectResponse{HasReadOnly: true, ReadOnly: true}, "00000000 00000000 0000000000000000 ffffffff 01"},
	{&ReplyHeader{Xid: -8, Zxid: 1 << 32, Err: CodeNoNode}, "fffffff8 0000000100000000 ffffff9b"},

	{&CreateRequest{Path: "/a", Data: []byte{1}, ACL: OpenACL, Mode: 3},
		"00000002 2f61 00000001 01 " + openACLHex + " 00000003"},
	{&CreateRequest{Path: "", Mode: -1}, "00000000 ffffffff ffffffff ffffffff"},
	{&CreateRequest{Data: []byte{}, ACL: []ACL{}}, "00000000 00000000 00000000 00000000"},
	{&CreateTTLRequest{Path: "/a", ACL: OpenACL, Mode: 5, TTL: -3},
		"00000002 2f61 ffffffff " + openACLHex + " 00000005 fffffffffffffffd"},
	{&CreateResponse{"/a"}, "00000002 2f61"},
	{&Create2Response{"/ä", aStat}, "00000003 2fc3a4" + aStatHex},

	{&DeleteRequest{"/a", -1}, "00000002 2f61 ffffffff"},
	{&PathWatchRequest{"/a", true}, "00000002 2f61 01"},
	{&PathWatchRequest{"", false}, "00000000 00"},
	{&PathRequest{"/a"}, "00000002 2f61"},
	{&SetDataRequest{"/a", []byte("xy"), 4}, "00000002 2f61 00000002 7879 00000004"},
	{&SetDataRequest{"", nil, 4}, "00000000 ffffffff 00000004"},
	{&SetDataRequest{"", []byte{}, 4}, "00000000 00000000 00000004"},
	{&SetACLRequest{"/a", OpenACL, 2}, "00000002 2f61 " + openACLHex + " 00000002"},
	{&SetACLRequest{"", nil, 2}, "00000000 ffffffff 00000002"},
	{&SetACLRequest{"", []ACL{}, 2}, "00000000 00000000 00000002"},
	{&CheckVersionRequest{"/a", 1}, "00000002 2f61 00000001"},
	{&StatResponse{aStat}, aStatHex},
	{&GetDataResponse{[]byte("d"), aStat}, "00000001 64" + aStatHex},
	{&GetDataResponse{nil, aStat}, "ffffffff" + aStatHex},
	{&GetDataResponse{[]byte{}, aStat}, "00000000" + aStatHex},
	{&GetACLResponse{OpenACL, aStat}, openACLHex + aStatHex},
	{&GetACLResponse{nil, aStat}, "ffffffff" + aStatHex},

	{&GetChildrenResponse{[]string{"a", ""}}, "00000002 00000001 61 00000000"},
	{&GetChildrenResponse{[]string{}}, "00000000"},
	{&GetChildrenResponse{}, "ffffffff"},
	{&GetChildren2Response{[]string{"a"}, aStat}, "00000001 00000001 61" + aStatHex},
	{&GetAllChildrenNumberResponse{12}, "0000000c"},
	{&GetEphemeralsRequest{"/"}, "00000001 2f"},
	{&GetEphemeralsResponse{[]string{"/e"}}, "00000001 00000002 2f65"},

	{&SyncRequest{"/a", false}, "00000002 2f61"},
	{&SyncRequest{"", true}, "ffffffff"},
	{&SyncResponse{"", false}, "00000000"},
	{&SyncResponse{"", true}, "ffffffff"},
	{&ReconfigRequest{Joining: "j", NullLeaving: true, CurConfigID: -1}, "00000001 6a ffffffff 00000000 ffffffffffffffff"},
	{&ReconfigRequest{NullJoining: true, Leaving: "3", NullNewMembers: true}, "ffffffff 00000001 33 ffffffff 0000000000000000"},

	{&WatchesRequest{"/a", 3}, "00000002 2f61 00000003"},
	{&AddWatchRequest{"/a", 1}, "00000002 2f61 00000001"},
	{&SetWatchesRequest{RelativeZxid: 5, Data: []string{"/a"}, Exist: []string{}, Child: []string{"/b", "/c"}},
		"0000000000000005 00000001 00000002 2f61 00000000 00000002 00000002 2f62 00000002 2f63"},
	{&SetWatchesRequest{V2: true, Data: []string{}, Exist: []string{}, Child: []string{}, Persistent: []string{"/p"},
		PersistentRecursive: []string{"/r"}},
		"0000000000000000 00000000 00000000 00000000 00000001 00000002 2f70 00000001 00000002 2f72"},
	{&WatcherEvent{EventNodeDeleted, StateSyncConnected, "/a"}, "00000002 00000003 00000002 2f61"},

	{&AuthPacket{0, "digest", []byte("u:p")}, "00000000 00000006 646967657374 00000003 753a70"},
	{&AuthPacket{-1, "", nil}, "ffffffff 00000000 ffffffff"},
	{&SASLRequest{[]byte{1}}, "00000001 01"},
	{&SASLResponse{nil}, "ffffffff"},
	{&SASLResponse{[]byte{}}, "00000000"},
	{&WhoAmIResponse{[]ClientInfo{{"ip", "x"}, {"", ""}}}, "00000002 00000002 6970 00000001 78 00000000 00000000"},
	{&WhoAmIResponse{[]ClientInfo{}}, "00000000"},
	{&WhoAmIResponse{}, "ffffffff"},
	{&ErrorResponse{CodeNoAuth}, "ffffff9a"},

	{&MultiRequest{}, "ffffffff 01 ffffffff"},
	{&MultiRequest{[]MultiOp{
		{OpCheck, &CheckVersionRequest{"/a", 1}},
		{OpCreate2, &CreateRequest{Path: "/b", ACL: []ACL{}, Mode: 2}},
		{OpDelete, &DeleteRequest{"/a", 1}},
	}}, "0000000d 00 ffffffff 00000002 2f61 00000001" +
		"0000000f 00 ffffffff 00000002 2f62 ffffffff 00000000 00000002" +
		"00000002 00 ffffffff 00000002 2f61 00000001" + "ffffffff 01 ffffffff"},
	{&MultiRequest{[]MultiOp{{OpGetData, &PathWatchRequest{"/a", true}}, {OpGetChildren, &PathWatchRequest{"/a", false}}}},
		"00000004 00 ffffffff 00000002 2f61 01" + "00000008 00 ffffffff 00000002 2f61 00" + "ffffffff 01 ffffffff"},
	{&MultiResponse{}, "ffffffff 01 ffffffff"},
	{&MultiResponse{[]MultiResult{
		{Op: OpCreate, Path: "/a"}, {Op: OpCreate2, Path: "/b", Stat: &aStat}, {Op: OpDelete},
		{Op: OpSetData, Stat: &aStat}, {Op: OpCheck},
	}}, "00000001 00 00000000 00000002 2f61" + "0000000f 00 00000000 00000002 2f62" + aStatHex + "00000002 00 00000000" +
		"00000005 00 00000000" + aStatHex + "0000000d 00 00000000" + "ffffffff 01 ffffffff"},
	{&MultiResponse{[]MultiResult{{Op: OpError}, {Op: OpError, Err: CodeNoNode}, {Op: OpError, Err: CodeRuntimeInconsistency}}},
		"ffffffff 00 00000000 00000000" + "ffffffff 00 ffffff9b ffffff9b" + "ffffffff 00 fffffffe fffffffe" +
			"ffffffff 01 ffffffff"},
	{&MultiResponse{[]MultiResult{{Op: OpGetData, Data: []byte("d"), Stat: &aStat}, {Op: OpGetChildren, Children: []string{"c"}}}},
		"00000004 00 00000000 00000001 64" + aStatHex + "00000008 00 00000000 00000001 00000001 63" + "ffffffff 01 ffffffff"},
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// fresh returns a pointer to a zero record of rec's type, told what is not on the wire.
func fresh(rec any) decodable {
	p := reflect.New(reflect.TypeOf(rec).Elem()).Interface()
	if sw, ok := p.(*SetWatchesRequest); ok {
		sw.V2 = rec.(*SetWatchesRequest).V2
	}
	return p.(decodable)
}

func TestRecords(t *testing.T) {
	for _, c := range recordCases {
		t.Run(fmt.Sprintf("%T", c.rec)[len("*wire."):], func(t *testing.T) {
			want := unhex(t, c.hex)
			if got := c.rec.Append([]byte("before")); !bytes.Equal(got, append([]byte("before"), want...)) {
				t.Errorf("%+v encodes to\n%x, want\n%x", c.rec, got[len("before"):], want)
			}
			rec := fresh(c.rec)
			if err := Decode(want, rec); err != nil {
				t.Fatalf("decode %x: %v", want, err)
			}
			if !reflect.DeepEqual(rec, c.rec) {
				t.Errorf("%x decodes to\n%#v, want\n%#v", want, rec, c.rec)
			}
		})
	}
}

// A record decodes only when all of it is there, and whatever is behind it does not matter.
func TestRecordsTruncated(t *testing.T) {
	for _, c := range recordCases {
		name := fmt.Sprintf("%T", c.rec)
		want := unhex(t, c.hex)
		for n := range want {
			short := want[:n]
			// The byte that old clients leave out.
			switch r := c.rec.(type) {
			case *ConnectRequest:
				if r.HasReadOnly && n == len(want)-1 {
					continue
				}
			case *ConnectResponse:
				if r.HasReadOnly && n == len(want)-1 {
					continue
				}
			}
			if err := Decode(short, fresh(c.rec)); err == nil {
				t.Errorf("%s: %d of %d bytes decode", name, n, len(want))
			} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "byte") {
				t.Errorf("%s: error without a place: %v", name, err)
			}
		}
		rec := fresh(c.rec)
		switch c.rec.(type) {
		case *ConnectRequest, *ConnectResponse:
			continue // what is behind may be the readOnly byte
		}
		if err := Decode(append(want, 0xAA, 0xBB), rec); err != nil || !reflect.DeepEqual(rec, c.rec) {
			t.Errorf("%s with trailing bytes: %+v, %v", name, rec, err)
		}
	}
}

func TestConnectReadOnlyByte(t *testing.T) {
	base := ConnectRequest{TimeoutMs: 1, Password: make([]byte, PasswordLen)}
	if n := len(base.Append(nil)); n != 44 {
		t.Errorf("request without readOnly has %d bytes, want 44", n)
	}
	if n := len(ConnectResponse{Password: base.Password}.Append(nil)); n != 36 {
		t.Errorf("response without readOnly has %d bytes, want 36", n)
	}
	for _, c := range []struct {
		tail          string
		readOnly, has bool
	}{{"", false, false}, {"00", false, true}, {"01", true, true}, {"7f", true, true}, {"00ff", false, true}} {
		var r ConnectRequest
		if err := Decode(append(base.Append(nil), unhex(t, c.tail)...), &r); err != nil {
			t.Fatal(err)
		}
		if r.ReadOnly != c.readOnly || r.HasReadOnly != c.has {
			t.Errorf("tail %q: readOnly %v, there %v", c.tail, r.ReadOnly, r.HasReadOnly)
		}
	}
}
