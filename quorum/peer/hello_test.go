package peer

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"lockkeeper/quorum/codec"
)

func encodeHello(h Hello) []byte {
	c := codec.Encode(nil)
	h.code(&c)
	return c.Encoded()
}

// The answer to a hello is the same in all versions, but for what later ones append: members of any
// can tell each other how they are.
func TestHelloLayout(t *testing.T) {
	h := Hello{State: Used, Member: true, Disk: 0x0a, Counted: 0x0b, Cluster: 0x01020304, Acked: 0x0c, Listed: 5, Version: 6,
		Imported: Imported{StateTerm: 7, Index: 8, Digest: 9}, Report: Report{Role: "leader", ClientAddr: ":2181", PeerAuth: "open"}}
	want := "02" + "01" + "000000000000000a" + "000000000000000b" + "0000000001020304" + "000000000000000c" + "00" + "00000005" + "0000000000000006" +
		"0000000000000007" + "0000000000000008" + "0000000000000009" + "06" + hex.EncodeToString([]byte("leader")) + "05" + hex.EncodeToString([]byte(":2181")) + "04" + hex.EncodeToString([]byte("open")) +
		"00000000" + "00" + "00" + "00" // no details, readiness, stop, notReady
	if got := hex.EncodeToString(encodeHello(h)); got != want {
		t.Errorf("encoded as %s, want %s", got, want)
	}
	h.Role, h.Details = strings.Repeat("x", 300), []byte(`{"a":1}`)
	h.Ready, h.NotReady, h.Stop = IsNotReady, "it is behind", ToldToStop
	var got Hello
	d := codec.Decode(append(encodeHello(h), 1, 2, 3))
	if got.code(&d); !d.More() || got.Role != h.Role[:255] || got.ClientAddr != h.ClientAddr || string(got.Details) != string(h.Details) ||
		got.Ready != h.Ready || got.NotReady != h.NotReady || got.Stop != h.Stop {
		t.Errorf("decoded %+v, %v", got, d.Err())
	}
	h.Details = nil
	d = codec.Decode(encodeHello(h))
	if got.code(&d); d.Err() != nil || len(got.Details) != 0 || got.Ready != h.Ready {
		t.Errorf("without details decoded %+v, %v", got, d.Err())
	}
}

// FuzzHello decodes what a member may answer to a hello.
func FuzzHello(f *testing.F) {
	f.Add(encodeHello(Hello{State: Blank, Report: Report{Role: "looking", PeerAuth: "open", Details: []byte("{}")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Hello
		d := codec.Decode(b)
		if h.code(&d); d.Err() == nil && !bytes.Equal(encodeHello(h), b) {
			t.Errorf("%x decoded and encoded again: %x", b, encodeHello(h))
		}
	})
}
