package znode

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"lockkeeper/wire"
)

// testCommands are commands of every kind, with small and large fields.
func testCommands() []Command {
	return []Command{
		{Session: 0x0100000000000001, Generation: 1, Seq: 1, Body: &Request{Op: wire.OpCreate, Body: create("/a", "data", 0).Append(nil)}},
		{Session: -1, Generation: math.MaxUint64, Seq: math.MaxUint64,
			Body: &Request{Op: math.MinInt32, Identities: []Identity{{"digest", "u:h"}, {"", ""}, {"x509", "CN=\xff"}}}},
		{Session: math.MinInt64, Seq: 1 << 63, Body: &CreateSession{Connection: Connection{TimeoutMs: math.MaxInt32, Password: wire.Password(bytes.Repeat([]byte{0xFF}, wire.PasswordLen)), Addr: "10.0.0.1"}}},
		{Session: 5, Generation: 7, Body: &Attach{Connection: Connection{TimeoutMs: -1, Password: wire.Password([]byte("0123456789abcdef")), Addr: "0:0:0:0:0:0:0:1"}}},
		{Session: 5, Generation: 7, Body: &Expire{}},
		{Body: &Reap{Path: "/container", NeverUsedMs: 60_000}},
		{Seq: math.MaxUint64, Body: &Sync{}},
		{Body: &SetMembers{Text: strings.Repeat("server", 1000)}},
		{Seq: 1 << 63, Body: &ChangeMembers{Text: "server.1=a"}},
		{Body: &NameCluster{ID: 0xc1}},
		{Session: 5, Generation: 7, Seq: 8, Body: &RestoreStep{Step: RestoreBlock, Data: []byte("block")}},
		{Seq: 1 << 63, Body: &Reconfigure{Request: wire.ReconfigRequest{CurConfigID: -1}.Append(nil)}},
		{Session: 5, Generation: 7, Seq: 9, Body: &Reconfigured{Code: wire.CodeNewConfigNoQuorum, Why: "why"}},
	}
}

func TestCommandRoundTrip(t *testing.T) {
	for _, want := range testCommands() {
		b := want.Append([]byte("before"))
		got, rest, err := DecodeCommand(append(b, "after"...)[len("before"):])
		if err != nil || string(rest) != "after" || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v, rest %q, %v", want, got, rest, err)
		}
		for n := range len(b) - len("before") {
			if _, _, err := DecodeCommand(b[len("before"):][:n]); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v cut after %d bytes: %v", want.Kind(), n, err)
			}
		}
	}
	for kind, want := range map[Kind]error{0: ErrDamaged, KindRestore + 1: ErrNewer, 255: ErrNewer} {
		b := (&Command{Body: &Expire{}}).Append(nil)
		b[0] = byte(kind)
		if _, _, err := DecodeCommand(b); !errors.Is(err, want) {
			t.Errorf("kind %v: %v, want %v", kind, err, want)
		}
	}
}

func TestCommandKey(t *testing.T) {
	base := Command{Session: 1, Generation: 2, Seq: 3, Body: &Request{}}
	same := Command{Session: 1, Generation: 2, Seq: 3, Body: &Request{Op: wire.OpSync, Body: []byte("x")}}
	if base.Key() != same.Key() {
		t.Error("the key depends on the contents")
	}
	for _, c := range []Command{
		{Session: 1, Generation: 2, Seq: 3, Body: &Expire{}},
		{Session: 9, Generation: 2, Seq: 3, Body: &Request{}},
		{Session: 1, Generation: 9, Seq: 3, Body: &Request{}},
		{Session: 1, Generation: 2, Seq: 9, Body: &Request{}},
	} {
		if c.Key() == base.Key() {
			t.Errorf("%+v has the key of %+v", c, base)
		}
	}
}

func encodedCommands(cmds []Command) (encoded [][]byte) {
	for _, c := range cmds {
		encoded = append(encoded, c.Append(nil))
	}
	return encoded
}

func TestEntryRoundTrip(t *testing.T) {
	for _, want := range []Entry{
		{Stamp: Stamp{1_700_000_000_000, 7, EnforceQuota | SkipACL}, Commands: testCommands()},
		{Stamp: Stamp{math.MinInt64, 7, knownFlags}, Commands: testCommands()[:1]},
		{Commands: []Command{}},
	} {
		b := AppendEntry([]byte("before"), want.Stamp, encodedCommands(want.Commands))
		got, err := DecodeEntry(b[len("before"):])
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%+v became %+v, %v", want, got, err)
		}
	}
}

// TestEntryDamage changes and cuts an entry in every place.
func TestEntryDamage(t *testing.T) {
	good := AppendEntry(nil, Stamp{12345, 678, ExtendedTypes}, encodedCommands(testCommands()[:4]))
	for i := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			if _, err := DecodeEntry(bad); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
		if _, err := DecodeEntry(good[:i]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d: %v", i, err)
		}
	}
	if _, err := DecodeEntry(append(bytes.Clone(good), 0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("one byte more: %v", err)
	}
	newer := bytes.Clone(good)
	newer[0]++
	if _, err := DecodeEntry(newer); !errors.Is(err, ErrNewer) {
		t.Fatalf("a newer version: %v", err)
	}
	for flag := KeyScheme; flag != 0; flag <<= 1 {
		_, err := DecodeEntry(AppendEntry(nil, Stamp{12345, 678, flag}, nil))
		if want := flag != KeyScheme; errors.Is(err, ErrNewer) != want || !want && err != nil {
			t.Errorf("flags %#x: %v", uint32(flag), err)
		}
	}
}

// TestEntryFormat pins the bytes: logs on disk are read by later versions.
func TestEntryFormat(t *testing.T) {
	cmds := []Command{
		{Session: 0x0102030405060708, Generation: 2, Seq: 300,
			Body: &Request{Op: wire.OpSync, Body: []byte{0, 0, 0, 1, '/'}, Identities: []Identity{{"digest", "u:h"}}}},
		{Session: -2, Seq: 1 << 63, Body: &CreateSession{Connection: Connection{TimeoutMs: 4000, Password: wire.Password([]byte("0123456789abcdef")), Addr: "10.0.0.1"}}},
	}
	const commands = "00000002" +
		"1f" + "01" + "0102030405060708" + "02" + "ac02" + "12" + "05000000012f" + "01" + "06646967657374" + "03753a68" +
		"30" + "02" + "fffffffffffffffe" + "00" + "80808080808080808001" + "c03e" +
		"1030313233343536373839616263646566" + "0831302e302e302e31"
	const want = "01" + "790a40ef" + "00000002" + "0000018bcfe56800" + "0000000005265c00" + commands
	got := AppendEntry(nil, Stamp{1_700_000_000_000, 86_400_000, ExtendedTypes}, encodedCommands(cmds))
	if hex.EncodeToString(got) != want {
		t.Errorf("got\n%x\nwant\n%s", got, want)
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range testCommands() {
		f.Add(c.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, rest, err := DecodeCommand(b)
		if err != nil {
			return
		}
		again, none, err := DecodeCommand(c.Append(nil))
		if err != nil || len(none) != 0 || !reflect.DeepEqual(c, again) || len(rest) > len(b) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

// FuzzDecodeEntry also applies the decoded entry: whatever a log holds, Apply must neither panic
// nor break an invariant. The checksum is set right, so that the fuzzer gets past it.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(AppendEntry(nil, Stamp{12345, 678, ExtendedTypes}, encodedCommands(testCommands())))
	open := Command{Session: 1, Body: &CreateSession{}}
	multi := wire.MultiRequest{Ops: []wire.MultiOp{
		{Op: wire.OpCreate, Record: create("/a", "x", 1)}, {Op: wire.OpDelete, Record: wire.DeleteRequest{Path: "/b", Version: -1}},
	}}
	f.Add(AppendEntry(nil, Stamp{TimeMs: 1}, encodedCommands([]Command{
		open,
		{Session: 1, Generation: 1, Seq: 1, Body: &Request{Op: wire.OpCreate, Body: create("/b", "x", 3).Append(nil)}},
		{Session: 1, Generation: 1, Seq: 2, Body: &Request{Op: wire.OpMulti, Body: multi.Append(nil)}},
		{Session: 1, Generation: 1, Body: &Expire{}},
	})))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = bytes.Clone(b)
		if len(b) >= entryHeaderSize {
			b[0] = entryVersion
			sum := entrySum(b)
			b[1], b[2], b[3], b[4] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(AppendEntry(nil, e.Stamp, encodedCommands(e.Commands)))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
		s := New()
		s.Apply(1, e, nil)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
