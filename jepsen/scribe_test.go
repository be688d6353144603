package jepsen

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// scribe writes nodes without end and remembers those that were acknowledged.
type scribe struct {
	conn *zk.Conn
	dir  string
	done chan struct{}
	stop chan struct{}

	mu           sync.Mutex
	acknowledged []string
}

// startScribe has it write below a node, which it makes.
func (l *lab) startScribe(dir string) *scribe {
	l.t.Helper()
	s := &scribe{conn: l.connect(), dir: dir, done: make(chan struct{}), stop: make(chan struct{})}
	if _, err := s.conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			path, err := s.conn.Create(s.dir+"/n-", make([]byte, 2000), zk.FlagSequence, zk.WorldACL(zk.PermAll))
			s.mu.Lock()
			if err == nil {
				s.acknowledged = append(s.acknowledged, path)
			}
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *scribe) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acknowledged)
}

// end stops writing and reports missing acknowledged nodes.
func (s *scribe) end(l *lab) {
	l.t.Helper()
	close(s.stop)
	<-s.done
	s.check(l, s.conn)
}

// check reports the acknowledged nodes that a client does not see. Nothing is written any more.
func (s *scribe) check(l *lab, c *zk.Conn) {
	l.t.Helper()
	if _, err := c.Sync(s.dir); err != nil {
		l.t.Fatal(err)
	}
	children, _, err := c.Children(s.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, c := range children {
		there[s.dir+"/"+c] = true
	}
	for _, path := range s.acknowledged {
		if !there[path] {
			l.t.Errorf("%s was acknowledged and is not there", path)
		}
	}
	l.t.Logf("figures: %d nodes acknowledged, %d there", len(s.acknowledged), len(children))
}

// writes waits until n more nodes have been acknowledged.
func (l *lab) writes(s *scribe, n int) {
	l.t.Helper()
	from := s.count()
	err := Poll(l.ctx, 10*time.Millisecond, func() error {
		if s.count() < from+n {
			return errors.New("too few nodes are acknowledged")
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}
