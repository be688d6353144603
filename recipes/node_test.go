package recipes

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestLeftNameOfAnother: the session expires before our node has been read back, and another makes
// a node of the same name. That one stays.
func TestLeftNameOfAnother(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		const path = "/g/x"
		conns[0].hook = func(_ int, op, at string) fault {
			if op == "get" && at == path {
				c.with(func() {
					conns[0].hook = nil
					conns[0].expireLocked()
					if _, err := c.createLocked(path, nil, zk.FlagEphemeral, conns[1].id); err != nil {
						t.Error(err)
					}
				})
			}
			return faultNone
		}
		if _, err := NewGroup(s[0], "/g", nil).Join(t.Context(), "x", nil); !errors.Is(err, ErrExpired) {
			t.Errorf("Join = %v, want ErrExpired", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.with(func() {
			if n := c.nodes[path]; n == nil {
				t.Error("the node of another was deleted")
			}
		})
	})
}

func TestClaims(t *testing.T) {
	var c claims
	if !c.claim("/a") || c.claim("/a") || !c.claim("/b") {
		t.Error("a path is claimed twice, or not at all")
	}
	c.free("/a")
	if !c.claim("/a") || c.claim("/b") {
		t.Error("the wrong path was freed")
	}
}

// TestSettledCreate: the reply to the creation of a node is lost; the node is found, and is the
// only one.
func TestSettledCreate(t *testing.T) {
	for _, fixedName := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
			lease, err := s[0].link.ready(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n := &node{link: s[0].link, dir: "/a", prefix: "x-", lease: lease, acl: s[0].aclOr(nil)}
			if fixedName {
				n.fixed = &fixed{path: "/a/x"}
			}
			if err := s[0].link.makeDir(t.Context(), "/a", n.acl); err != nil {
				t.Fatal(err)
			}
			conns[0].hook = func(_ int, op, _ string) fault {
				if op == "create" {
					return faultCutAfter
				}
				return faultNone
			}
			if err := n.create(t.Context()); err != nil || n.doubt {
				t.Errorf("create: %v, in doubt: %v", err, n.doubt)
			}
			if paths := c.paths(); len(paths) != 1 || paths[0] != n.path {
				t.Errorf("made %v, found %s", paths, n.path)
			}
			if err := n.leave(n.remove); err != nil {
				t.Error(err)
			}
			if paths := c.paths(); len(paths) != 0 {
				t.Errorf("left %v", paths)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	const own, token = "_c_x-__READ__0000000010", 50
	writer, info := "_c_y-__WRIT__0000000009", newInfo("")
	info.Downgraded = true
	reader := encodeInfo(info)
	for _, tt := range []struct {
		about string
		front string
		data  []byte
		stat  zk.Stat
		reads bool
		want  bool
	}{
		{"a writer", writer, nil, zk.Stat{EphemeralOwner: 1, Czxid: 40}, true, true},
		{"a writer that reads, before a reader", writer, reader, zk.Stat{EphemeralOwner: 1, Czxid: 40}, true, false},
		{"a writer that reads, before a writer", writer, reader, zk.Stat{EphemeralOwner: 1, Czxid: 40}, false, true},
		{"without a session", writer, nil, zk.Stat{Czxid: 40}, true, false},
		{"of our number, earlier", "a-lock-0000000010", nil, zk.Stat{EphemeralOwner: 1, Czxid: 49}, true, true},
		{"of our number, later", "a-lock-0000000010", nil, zk.Stat{EphemeralOwner: 1, Czxid: 51}, true, false},
	} {
		if got := blocks(tt.front, tt.data, &tt.stat, own, token, tt.reads); got != tt.want {
			t.Errorf("%s: blocks = %v, want %v", tt.about, got, tt.want)
		}
	}
}
