package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockkeeper/wire"
)

// foreignLockTest is a member with a log for the test, and a client.
type foreignLockTest struct {
	t    *testing.T
	s    *Server
	c    *rawClient
	log  logged
	read int // bytes of the log
}

func newForeignLockTest(t *testing.T) *foreignLockTest {
	f := &foreignLockTest{t: t}
	f.s = startReal(t, func(c *Config) { c.Logger = f.log.logger() })
	f.c = dialReal(t, f.s)
	f.c.connect(10 * time.Second)
	return f
}

// node makes a lock's node, and returns the lines of the log about locks.
func (f *foreignLockTest) node(path, data string) string {
	f.t.Helper()
	f.make(path, data, wire.ModeEphemeralSequential)
	text := f.log.String()[f.read:]
	f.read += len(text)
	if i := strings.Index(text, "two libraries"); i >= 0 {
		return text[i:]
	}
	return ""
}

func (f *foreignLockTest) make(path, data string, mode wire.CreateMode) {
	f.t.Helper()
	f.c.call(wire.OpCreate2, create(path, []byte(data), mode))
}

func (f *foreignLockTest) met() int64 { return f.s.port.counters.lockStrangers.Load() }

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
	s := newForeignLockTest(t)
	for n, tt := range []struct {
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
		dir := fmt.Sprint("/q", n)
		s.make(dir, "", wire.ModePersistent)
		if log := s.node(dir+"/"+tt.first[0], tt.first[1]); log != "" {
			t.Errorf("%s: said of the first: %s", tt.about, log)
		}
		before := s.met()
		log := s.node(dir+"/"+tt.second[0], tt.second[1])
		if told := strings.Contains(log, "there may be two holders") && strings.Contains(log, "path="+dir+" "); told != tt.told {
			t.Errorf("%s: said %q", tt.about, log)
		}
		if met := s.met() - before; (met == 1) != tt.told {
			t.Errorf("%s: counted %d", tt.about, met)
		}
	}
}

// TestForeignLocksAreBounded: the lines of the log are bounded, and the siblings that are read.
func TestForeignLocksAreBounded(t *testing.T) {
	var f foreignLocks
	now := time.Unix(1e9, 0)
	long := "/" + strings.Repeat("d", 5000)
	if !f.due(long, now) || f.due(long, now) || f.due(long+"d", now) || len(shorten(long)) > foreignPathBytes+3 {
		t.Error("a path is logged once, and shortened")
	}
	for i := range foreignPaths - 1 {
		if !f.due(fmt.Sprint("/b", i), now) {
			t.Fatalf("path %d is not logged", i)
		}
	}
	if f.due("/c", now.Add(foreignAgain-1)) || !f.due("/c", now.Add(foreignAgain)) {
		t.Errorf("more than %d paths an hour", foreignPaths)
	}
	// The foreign node is behind more siblings than are read.
	s := newForeignLockTest(t)
	s.make("/e", "", wire.ModePersistent)
	for range foreignSiblings {
		s.node("/e/"+curatorNode, "")
	}
	s.make("/e/"+kazooNode+"0000009999", "", wire.ModeEphemeral)
	met := s.met()
	if s.node("/e/"+curatorNode, ""); s.met() != met {
		t.Errorf("more than %d siblings were read", foreignSiblings)
	}
}
