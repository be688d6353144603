package session

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

func TestLockFamily(t *testing.T) {
	for name, want := range map[string]string{
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-0000000000":    "lock-",
		"_c_34c73d33a36442858dd68b05f149fed9-lock-0000000012":        "lock-",
		"b7bfcd3227404d3880a0eccd4e5100cf-lock-0000000012":           "lock-",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__WRIT__0000000005": "__WRIT__",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__READ__0000000005": "__WRIT__",
		"b7bfcd3227404d3880a0eccd4e5100cf__lock__0000000003":         "__lock__",
		"b7bfcd3227404d3880a0eccd4e5100cf__rlock__0000000004":        "__lock__",
		"x-72057594037927937-0000000004":                             "x-",
		"_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lease-0000000005":   "",
		"lock-": "", "lock-00000000x0": "", "n_0000000001": "", "0000000001": "", "": "",
	} {
		if got := lockFamily(name); got != want {
			t.Errorf("lockFamily(%q) = %q, want %q", name, got, want)
		}
	}
}

// foreignLockTest is a member whose log the test reads, and a client.
type foreignLockTest struct {
	t   *testing.T
	m   *Manager
	c   *client
	log bytes.Buffer
}

func newForeignLockTest(t *testing.T) *foreignLockTest {
	s := &foreignLockTest{t: t}
	s.m, _ = newMember(t, Config{})
	s.m.log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.c = mustConnect(t, s.m, 10*time.Second)
	return s
}

// node makes a lock's node, and returns what the member's log says of it.
func (s *foreignLockTest) node(path, data string) string {
	s.t.Helper()
	s.log.Reset()
	s.make(path, data, wire.ModeEphemeralSequential)
	return s.log.String()
}

func (s *foreignLockTest) make(path, data string, mode wire.CreateMode) {
	s.t.Helper()
	xid := s.c.send(wire.OpCreate2, wire.CreateRequest{Path: path, Data: []byte(data), ACL: wire.OpenACL, Mode: mode})
	s.c.expect(fmt.Sprintf("%d Ok", xid))
}

const (
	curatorNode = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-"
	curatorRead = "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-__READ__"
	gozkNode    = "_c_34c73d33a36442858dd68b05f149fed9-lock-"
	kazooNode   = "b7bfcd3227404d3880a0eccd4e5100cf__lock__"
	sharedNode  = "b7bfcd3227404d3880a0eccd4e5100cf-lock-"
	ourData     = `{"by":"lockkeeper/recipes","host":"h"}`
)

// TestForeignLocksAreLogged: the log tells of locks of two libraries on one path, and of no others.
func TestForeignLocksAreLogged(t *testing.T) {
	for _, tt := range []struct {
		about         string
		first, second [2]string // name and data
		told          bool
	}{
		{"kazoo behind Curator", [2]string{curatorNode}, [2]string{kazooNode}, true},
		{"Curator behind kazoo", [2]string{kazooNode}, [2]string{curatorNode}, true},
		{"kazoo behind ours, which waits, but kazoo does not", [2]string{curatorNode, ourData}, [2]string{kazooNode}, true},
		{"Curator's lock for writing and its mutex", [2]string{curatorNode}, [2]string{curatorRead}, true},
		{"our lock for reading and our mutex", [2]string{curatorNode, ourData}, [2]string{curatorRead, ourData}, false},
		{"go-zookeeper and our lock for reading", [2]string{gozkNode}, [2]string{curatorRead, ourData}, false},
		{"ZooKeeper's recipe and kazoo", [2]string{"x-72057594037927937-"}, [2]string{kazooNode}, true},
		{"one library", [2]string{curatorNode}, [2]string{curatorNode}, false},
		{"kazoo with Curator's names", [2]string{curatorNode}, [2]string{sharedNode}, false},
		{"no locks", [2]string{"member-"}, [2]string{curatorNode}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newForeignLockTest(t)
			s.make("/q", "", wire.ModePersistent)
			if log := s.node("/q/"+tt.first[0], tt.first[1]); log != "" {
				t.Errorf("%s: said of the first: %s", tt.about, log)
			}
			log := s.node("/q/"+tt.second[0], tt.second[1])
			if told := strings.Contains(log, "there may be two holders") && strings.Contains(log, "path=/q "); told != tt.told {
				t.Errorf("%s: said %q", tt.about, log)
			}
			if met := s.m.Stats().ForeignLocks; (met == 1) != tt.told {
				t.Errorf("%s: counted %d", tt.about, met)
			}
		})
	}
}

// TestForeignLocksAreBounded: what is said, and what is looked at, has bounds.
func TestForeignLocksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newForeignLockTest(t)
		lock := func(path string) (lines int) {
			s.make(path, "", wire.ModePersistent)
			s.node(path+"/"+curatorNode, "")
			return strings.Count(s.node(path+"/"+kazooNode, ""), "two holders")
		}
		if lock("/a") != 1 {
			t.Error("nothing was said")
		}
		if log := s.node("/a/"+kazooNode, ""); log != "" {
			t.Errorf("said again: %s", log)
		}
		for i := range foreignPaths - 1 {
			if lock(fmt.Sprint("/b", i)) != 1 {
				t.Fatalf("nothing was said of path %d", i)
			}
		}
		if lock("/c") != 0 {
			t.Error("one path too many")
		}
		if met := s.m.Stats().ForeignLocks; met != foreignPaths+2 {
			t.Errorf("counted %d", met)
		}
		time.Sleep(foreignAgain)
		s.c = mustConnect(t, s.m, 10*time.Second) // the other has expired
		if lock("/"+strings.Repeat("d", 5000)) != 1 {
			t.Error("nothing was said an hour later")
		}
		if s.log.Len() > 2000 {
			t.Errorf("a line of %d bytes", s.log.Len())
		}
		// The foreign node is behind more siblings than are looked at.
		s.make("/e", "", wire.ModePersistent)
		for range foreignSiblings {
			s.node("/e/"+curatorNode, "")
		}
		s.make("/e/"+kazooNode+"0000009999", "", wire.ModeEphemeral)
		met := s.m.Stats().ForeignLocks
		if s.node("/e/"+curatorNode, ""); s.m.Stats().ForeignLocks != met {
			t.Errorf("more than %d siblings were looked at", foreignSiblings)
		}
	})
}
