package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeRequest(t *testing.T) {
	r, err := DecodeRequest(unhex(t, "fffffffe 0000000b 0102"))
	if err != nil || r.Xid != XidPing || r.Op != OpPing || !bytes.Equal(r.Body, []byte{1, 2}) {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = DecodeRequest(unhex(t, "00000001 fffffff5"))
	if err != nil || r.Op != OpCloseSession || len(r.Body) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := DecodeRequest(unhex(t, "00000001 000000")); err == nil {
		t.Error("7 bytes decode")
	}
}

// The type that DecodeBody promises for each op. An op that is not in the table is unknown.
var bodyTypes = map[Op]Record{
	OpCreate: &CreateRequest{}, OpCreate2: &CreateRequest{}, OpCreateContainer: &CreateRequest{},
	OpCreateTTL: &CreateTTLRequest{}, OpDelete: &DeleteRequest{},
	OpExists: &PathWatchRequest{}, OpGetData: &PathWatchRequest{}, OpGetChildren: &PathWatchRequest{},
	OpGetChildren2: &PathWatchRequest{}, OpSetData: &SetDataRequest{},
	OpGetACL: &PathRequest{}, OpGetAllChildrenNumber: &PathRequest{}, OpDeleteContainer: &PathRequest{},
	OpSetACL: &SetACLRequest{}, OpSync: &SyncRequest{}, OpCheck: &CheckVersionRequest{},
	OpMulti: &MultiRequest{}, OpMultiRead: &MultiRequest{}, OpReconfig: &ReconfigRequest{},
	OpCheckWatches: &WatchesRequest{}, OpRemoveWatches: &WatchesRequest{}, OpAddWatch: &AddWatchRequest{},
	OpSetWatches: &SetWatchesRequest{}, OpSetWatches2: &SetWatchesRequest{}, OpGetEphemerals: &GetEphemeralsRequest{},
	OpAuth: &AuthPacket{}, OpSASL: &SASLRequest{}, OpPing: &Empty{}, OpWhoAmI: &Empty{}, OpCloseSession: &Empty{},
}

func TestDecodeBodyTypes(t *testing.T) {
	// Zeroes are an empty string, buffer and vector, and an unfinished multi.
	zeroes := make([]byte, 64)
	for op := Op(-20); op < 120; op++ {
		body := zeroes
		if op == OpMulti || op == OpMultiRead {
			body = appendMultiEnd(nil)
		}
		rec, err := DecodeBody(op, body)
		want, known := bodyTypes[op]
		if !known {
			if !errors.Is(err, ErrUnknownOp) {
				t.Errorf("%v: %T, %v; want ErrUnknownOp", op, rec, err)
			}
			continue
		}
		if err != nil || reflect.TypeOf(rec) != reflect.TypeOf(want) {
			t.Errorf("%v: %T, %v; want %T", op, rec, err, want)
		}
		if sw, ok := rec.(*SetWatchesRequest); ok && sw.V2 != (op == OpSetWatches2) {
			t.Errorf("%v: V2 is %v", op, sw.V2)
		}
		if _, err := DecodeResponse(op, nil); errors.Is(err, ErrUnknownOp) && op != OpCheck {
			t.Errorf("%v has no response", op)
		}
	}
}

// An op whose body is ignored decodes from anything.
func TestDecodeBodyIgnored(t *testing.T) {
	for _, op := range []Op{OpPing, OpWhoAmI, OpCloseSession} {
		if _, err := DecodeBody(op, []byte{1, 2, 3}); err != nil {
			t.Error(err)
		}
		if _, err := DecodeBody(op, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestDecodeBodyNullPath(t *testing.T) {
	const null = "ffffffff"
	refused := []Op{OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL, OpDelete, OpExists, OpGetData, OpGetChildren,
		OpGetChildren2, OpGetACL, OpGetAllChildrenNumber, OpDeleteContainer}
	for _, op := range refused {
		if rec, err := DecodeBody(op, unhex(t, null+strings.Repeat("00", 40))); err == nil {
			t.Errorf("%v: %+v", op, rec)
		} else if errors.Is(err, ErrUnknownOp) || !strings.Contains(err.Error(), op.String()+" request") {
			t.Errorf("%v: %v", op, err)
		}
	}
	for _, op := range []Op{OpSetData, OpSetACL, OpCheck, OpAddWatch, OpCheckWatches, OpRemoveWatches, OpGetEphemerals} {
		rec, err := DecodeBody(op, unhex(t, null+strings.Repeat("00", 40)))
		if err != nil {
			t.Errorf("%v: %v", op, err)
			continue
		}
		if path := reflect.ValueOf(rec).Elem().Field(0).String(); path != "" {
			t.Errorf("%v: path %q", op, path)
		}
	}
	rec, err := DecodeBody(OpSync, unhex(t, null))
	if err != nil || *rec.(*SyncRequest) != (SyncRequest{NullPath: true}) {
		t.Errorf("sync: %+v, %v", rec, err)
	}
}

func TestDecodeBodyNullVector(t *testing.T) {
	if _, err := DecodeBody(OpSetWatches, unhex(t, "0000000000000000 00000000 ffffffff 00000000")); err == nil {
		t.Error("setWatches: null vector decodes")
	}
	if _, err := DecodeBody(OpSetWatches2, unhex(t, "0000000000000000 00000000 00000000 00000000 00000000 ffffffff")); err == nil {
		t.Error("setWatches2: null vector decodes")
	}
	if _, err := DecodeBody(OpSetWatches, unhex(t, "0000000000000000 00000001 ffffffff 00000000 00000000")); err == nil {
		t.Error("setWatches: null path decodes")
	}
	rec, err := DecodeBody(OpSetWatches, unhex(t, "0000000000000000 fffffffb 00000000 80000000"))
	if sw, _ := rec.(*SetWatchesRequest); err != nil || len(sw.Data) != 0 || len(sw.Child) != 0 {
		t.Errorf("setWatches: counts -5 and minimum: %+v, %v", rec, err)
	}
	rec, err = DecodeBody(OpSetACL, unhex(t, "00000000 fffffffe 00000000"))
	if r, _ := rec.(*SetACLRequest); err != nil || r.ACL == nil || len(r.ACL) != 0 {
		t.Errorf("setACL: count -2: %+v, %v", rec, err)
	}
}

// Buffers alias the frame but cannot grow into what is behind them.
func TestBufferAliases(t *testing.T) {
	body := SetDataRequest{Path: "/a", Data: []byte("data"), Version: 1}.Append(nil)
	rec, err := DecodeBody(OpSetData, body)
	if err != nil {
		t.Fatal(err)
	}
	r := rec.(*SetDataRequest)
	if cap(r.Data) != len(r.Data) {
		t.Errorf("data has capacity %d", cap(r.Data))
	}
	body[bytes.Index(body, []byte("data"))] = 'D'
	if string(r.Data) != "Data" {
		t.Errorf("data is a copy: %q", r.Data)
	}
	body[4] = 'X'
	if r.Path != "/a" {
		t.Errorf("path is no copy: %q", r.Path)
	}
}

func TestAppendReply(t *testing.T) {
	h := ReplyHeader{Xid: 1, Zxid: 2, Err: CodeOK}
	body := CreateResponse{"/a"}
	cases := []struct {
		got  []byte
		want string
	}{
		{AppendReply(nil, h, body), "00000016 00000001 0000000000000002 00000000 00000002 2f61"},
		{AppendReply([]byte{7}, h, &body), "07 00000016 00000001 0000000000000002 00000000 00000002 2f61"},
		{AppendReply(nil, h, nil), "00000010 00000001 0000000000000002 00000000"},
		{AppendReply(nil, ReplyHeader{1, 2, CodeNoNode}, body), "00000010 00000001 0000000000000002 ffffff9b"},
		{AppendReply([]byte{7}, ReplyHeader{Xid: XidNotification, Zxid: ZxidNone}, WatcherEvent{EventNodeCreated, StateSyncConnected, "/a"}),
			"07 0000001e ffffffff ffffffffffffffff 00000000 00000001 00000003 00000002 2f61"},
		{AppendRequest([]byte{7}, 5, OpCloseSession, nil), "07 00000008 00000005 fffffff5"},
		{AppendRequest(nil, 5, OpSync, SyncRequest{Path: "/"}), "0000000d 00000005 00000009 00000001 2f"},
		{AppendFrame([]byte{7}, PathRequest{"/"}, nil, ErrorResponse{}), "07 00000009 00000001 2f 00000000"},
		{AppendFrame(nil), "00000000"},
	}
	for i, c := range cases {
		if want := unhex(t, c.want); !bytes.Equal(c.got, want) {
			t.Errorf("%d: %x, want %x", i, c.got, want)
		}
	}
	gotH, gotBody, err := DecodeReply(cases[0].got[4:])
	if err != nil || gotH != h || !bytes.Equal(gotBody, unhex(t, "00000002 2f61")) {
		t.Errorf("%+v, %x, %v", gotH, gotBody, err)
	}
	if _, _, err := DecodeReply(make([]byte, 15)); err == nil {
		t.Error("a reply of 15 bytes decodes")
	}
	if _, err := DecodeResponse(OpCreateSession, nil); !errors.Is(err, ErrUnknownOp) {
		t.Errorf("response of createSession: %v", err)
	}
}
