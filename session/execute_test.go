package session

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// ZooKeeper calls Java's trim to see whether a prefix is blank or "/": it takes away all up to
// U+0020, control characters too, and nothing else. Otherwise the prefix counts as it stands.
func TestPrefixOfGetEphemerals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		all := []string{"/a", "/ab"}
		for _, path := range all {
			c.send(wire.OpCreate, create(path, wire.ModeEphemeral))
		}
		c.expect("1 Ok", "2 Ok")
		for _, tt := range []struct {
			prefix string
			want   []string
		}{
			{"", all}, {" ", all}, {"\x00", all}, {"\t\n\x1f", all}, {"/", all}, {" / ", all}, {"/\x00", all},
			{"/a", all}, {"/ab", all[1:]}, {" /ab", nil}, {"/ab ", nil}, {"a", nil}, {"//", nil}, {"\u00a0", nil}, {"\u0085", nil},
		} {
			c.send(wire.OpGetEphemerals, wire.GetEphemeralsRequest{PrefixPath: tt.prefix})
			h, body, err := c.next()
			if err != nil || h.Err != wire.CodeOK {
				t.Fatalf("%q: %v %v", tt.prefix, h.Err, err)
			}
			var q wire.GetEphemeralsResponse
			if err := wire.Decode(body, &q); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(q.Ephemerals); !slices.Equal(q.Ephemerals, tt.want) {
				t.Errorf("%q: %q, want %q", tt.prefix, q.Ephemerals, tt.want)
			}
		}
	})
}
