package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

// view is what a look at a node has shown, and how to learn of a change.
type view struct {
	exists bool
	data   []byte   // lookNode
	names  []string // lookChildren
	stat   *zk.Stat
	watch  *watch // fires after the next change of what was looked at; nil: see lookWhileThere
}

// watch is a watch that stands until it fires. go-zookeeper keeps one channel for
// every call that watches and has no way to take it back, so that a program which
// looks often at something that does not change would pile them up. A Session
// has one standing watch for what it looks at, and reads without a watch while
// that stands.
//
// Order: the standing watch first, then the read. A change after the read comes
// after the watch was set, and the event of a change before it arrives before the
// reply. So the watch of a view never misses what the view does not show.
type watch struct {
	// news is the Session's channel of changes from before the watch was set. A
	// watch counts for one connection: go-zookeeper sets it again after a
	// reconnect, but does not say if that fails, and has a race that can lose a
	// change (see setwatches_test.go).
	news   <-chan struct{}
	number uint64 // from 1, in the order in which they were set
	fired  chan struct{}
	event  zk.EventType // once fired is closed
}

// watchKey is what a standing watch is for.
type watchKey struct {
	path string
	what byte // 'e' existence, 'd' data, 'c' children
}

// lookExists looks whether a node exists. Its watch also fires when the data
// changes.
func (s *Session) lookExists(path string) (view, error) {
	return s.look(watchKey{path, 'e'}, func() (v view, err error) {
		v.exists, v.stat, err = s.conn.Exists(path)
		return v, err
	}, func() (v view, events <-chan zk.Event, err error) {
		v.exists, v.stat, events, err = s.conn.ExistsW(path)
		return v, events, err
	})
}

// lookNode reads a node, if it exists.
func (s *Session) lookNode(path string) (view, error) {
	return s.orMissing(path, func() (view, error) { return s.lookData(path) })
}

// lookWhileThere reads a node that does not come back under its name, or of which the list of its
// siblings tells if it does. Of one that is missing it sets no watch, which would never fire: the
// view has no watch then.
func (s *Session) lookWhileThere(path string) (view, error) {
	v, err := s.lookData(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	return v, err
}

// lookUntilGone is lookWhileThere for who waits for the node to go, which may take longer than many
// connections live. Its watch may be of an earlier connection; see recheck.
func (s *Session) lookUntilGone(path string) (view, error) {
	s.mu.Lock()
	w := s.watches[watchKey{path, 'd'}]
	s.mu.Unlock()
	if w == nil {
		return s.lookWhileThere(path)
	}
	v := view{exists: true, watch: w}
	var err error
	v.data, v.stat, err = s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	return v, err
}

// recheck returns a channel that fires when who waits for w has to look again: never, if w was set
// on the connection of news. Of an earlier one it may be lost. To set it again would pile up
// channels, one for each reconnect.
func (s *Session) recheck(w *watch, news <-chan struct{}) <-chan time.Time {
	if w.news == news {
		return nil
	}
	return time.After(s.Timeout())
}

// lookData reads a node; the error is zk.ErrNoNode if there is none.
func (s *Session) lookData(path string) (view, error) {
	return s.look(watchKey{path, 'd'}, func() (v view, err error) {
		v.exists = true
		v.data, v.stat, err = s.conn.Get(path)
		return v, err
	}, func() (v view, events <-chan zk.Event, err error) {
		v.exists = true
		v.data, v.stat, events, err = s.conn.GetW(path)
		return v, events, err
	})
}

// lookChildren lists a node's children, if it exists.
func (s *Session) lookChildren(path string) (view, error) {
	return s.orMissing(path, func() (view, error) {
		return s.look(watchKey{path, 'c'}, func() (v view, err error) {
			v.exists = true
			v.names, v.stat, err = s.conn.Children(path)
			return v, err
		}, func() (v view, events <-chan zk.Event, err error) {
			v.exists = true
			v.names, v.stat, events, err = s.conn.ChildrenW(path)
			return v, events, err
		})
	})
}

// orMissing watches for a node to be made if a look at it finds none: no other
// call sets a watch on what does not exist.
func (s *Session) orMissing(path string, look func() (view, error)) (view, error) {
	for {
		v, err := look()
		if !errors.Is(err, zk.ErrNoNode) {
			return v, err
		}
		if v, err = s.lookExists(path); err != nil || !v.exists {
			return v, err
		}
	}
}

func (s *Session) look(key watchKey, read func() (view, error), set func() (view, <-chan zk.Event, error),
) (view, error) {
	s.mu.Lock()
	s.observeLocked()
	news, w := s.changed, s.watches[key]
	s.watchings++
	number := s.watchings
	s.mu.Unlock()
	if w != nil && w.news == news {
		v, err := read()
		v.watch = w
		return v, err
	}
	v, events, err := set()
	if err != nil {
		return view{}, err
	}
	w = &watch{news: news, number: number, fired: make(chan struct{})}
	v.watch = w
	s.mu.Lock()
	if s.watches == nil {
		s.watches = make(map[watchKey]*watch)
	}
	s.watches[key] = w
	s.mu.Unlock()
	if !s.spawn(func() { s.awaitEvent(key, w, events) }) {
		return view{}, s.closed()
	}
	return v, nil
}

// awaitEvent waits for the event of one watch.
func (s *Session) awaitEvent(key watchKey, w *watch, events <-chan zk.Event) {
	select {
	case ev := <-events:
		w.event = ev.Type
	case <-s.quit:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[key] == w {
		delete(s.watches, key)
	}
	close(w.fired)
}

// stands reports whether nothing has happened since the view of the watch; news
// is the Session's channel of changes now.
func (w *watch) stands(news <-chan struct{}) bool {
	select {
	case <-w.fired:
		return false
	default:
		return w.news == news
	}
}

// watchNumber is larger than that of every watch that was set before the call, and smaller than
// that of every one that is set after it.
func (s *Session) watchNumber() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchings++
	return s.watchings
}

// saw reports whether the watch has fired, for this event.
func (w *watch) saw(event zk.EventType) bool {
	select {
	case <-w.fired:
		return w.event == event
	default:
		return false
	}
}

// until looks again and again, whenever something has changed, until seen is true
// or returns an error, or the session of l ends.
func (s *Session) until(ctx context.Context, l *lease, look func() (view, error), seen func(view) (bool, error)) error {
	for attempt := 1; ; {
		news := s.news()
		if err := s.over(l); err != nil {
			return err
		}
		v, err := look()
		if fateOf(err) == fateUnknown {
			if err := s.pause(ctx, attempt); err != nil {
				return err
			}
			attempt++
			continue
		}
		if err != nil {
			return err
		}
		attempt = 1
		if ok, err := seen(v); ok || err != nil {
			return err
		}
		select {
		case <-v.watch.fired:
		case <-news:
		case <-l.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
