package recipes

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// view is the result of a look at a node, and the way to learn of a change.
type view struct {
	exists bool
	data   []byte   // of node, data, whileThere and untilGone
	names  []string // of children
	stat   *zk.Stat
	watch  *watch // fires after the next change of the view; nil: see whileThere
}

// watch is a watch that stands until it fires.
type watch struct {
	// news is the link's channel of changes from before the watch was set. A watch counts for one
	// connection: go-zookeeper sets it again after a reconnect, but does not say if that fails, and
	// has a race that can lose a change (see setwatches_test.go).
	news   <-chan struct{}
	number uint64 // from 1, in the order in which they were set
	fired  chan struct{}
	event  zk.EventType // once fired is closed
}

// watches are the watches of a Session. go-zookeeper keeps one channel for every call that watches
// and has no way to take it back, so that a program which looks often at a node that does not
// change would pile them up. Here each node has one standing watch, and is read without a watch
// while that stands.
//
// Order: the standing watch first, then the read. A change after the read comes after the watch was
// set, and the event of a change before it arrives before the reply. So the watch of a view never
// misses a change that the view does not show.
type watches struct {
	link *link

	mu       sync.Mutex // taken without link.mu
	standing map[watchKey]*watch
	last     uint64 // number of the last watch
}

// watchKey says which changes a standing watch tells of.
type watchKey struct {
	path string
	kind byte // 'e' existence, 'd' data, 'c' children
}

func newWatches(k *link) *watches { return &watches{link: k, standing: make(map[watchKey]*watch)} }

// exists looks whether a node exists. Its watch also fires when the data changes.
func (ws *watches) exists(path string) (view, error) {
	return ws.look(watchKey{path, 'e'}, func() (v view, err error) {
		v.exists, v.stat, err = ws.link.conn.Exists(path)
		return v, err
	}, func() (v view, events <-chan zk.Event, err error) {
		v.exists, v.stat, events, err = ws.link.conn.ExistsW(path)
		return v, events, err
	})
}

// node reads a node, if it exists.
func (ws *watches) node(path string) (view, error) {
	return ws.orMissing(path, func() (view, error) { return ws.data(path) })
}

// whileThere reads a node that does not come back under its name, or that its parent's list of
// children shows if it does. It sets no watch on a missing one, which would never fire: the view
// has no watch then.
func (ws *watches) whileThere(path string) (view, error) {
	v, err := ws.data(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	return v, err
}

// untilGone is whileThere for a caller that waits for the node to go, which may take longer than
// many connections live. Its watch may be of an earlier connection; see recheck.
func (ws *watches) untilGone(path string) (view, error) {
	ws.mu.Lock()
	w := ws.standing[watchKey{path, 'd'}]
	ws.mu.Unlock()
	if w == nil {
		return ws.whileThere(path)
	}
	v := view{exists: true, watch: w}
	var err error
	v.data, v.stat, err = ws.link.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return view{}, nil
	}
	return v, err
}

// recheck returns a channel that fires when a caller that waits for w has to look again: never, if
// w was set on the connection of news. A watch of an earlier one may be lost. To set it again would
// pile up channels, one for each reconnect.
func (ws *watches) recheck(w *watch, news <-chan struct{}) <-chan time.Time {
	if w.news == news {
		return nil
	}
	return time.After(ws.link.sessionTimeout())
}

// data reads a node; the error is zk.ErrNoNode if there is none.
func (ws *watches) data(path string) (view, error) {
	return ws.look(watchKey{path, 'd'}, func() (v view, err error) {
		v.exists = true
		v.data, v.stat, err = ws.link.conn.Get(path)
		return v, err
	}, func() (v view, events <-chan zk.Event, err error) {
		v.exists = true
		v.data, v.stat, events, err = ws.link.conn.GetW(path)
		return v, events, err
	})
}

// children lists a node's children, if it exists.
func (ws *watches) children(path string) (view, error) {
	return ws.orMissing(path, func() (view, error) {
		return ws.look(watchKey{path, 'c'}, func() (v view, err error) {
			v.exists = true
			v.names, v.stat, err = ws.link.conn.Children(path)
			return v, err
		}, func() (v view, events <-chan zk.Event, err error) {
			v.exists = true
			v.names, v.stat, events, err = ws.link.conn.ChildrenW(path)
			return v, events, err
		})
	})
}

// orMissing watches for a node to be made if a look at it finds none: no other call sets a watch on
// a missing node.
func (ws *watches) orMissing(path string, look func() (view, error)) (view, error) {
	for {
		v, err := look()
		if !errors.Is(err, zk.ErrNoNode) {
			return v, err
		}
		if v, err = ws.exists(path); err != nil || !v.exists {
			return v, err
		}
	}
}

// look reads beside the standing watch of key, or sets a watch if none stands.
func (ws *watches) look(key watchKey, read func() (view, error), set func() (view, <-chan zk.Event, error),
) (view, error) {
	ws.link.observe()
	news := ws.link.news()
	ws.mu.Lock()
	w := ws.standing[key]
	ws.last++
	number := ws.last
	ws.mu.Unlock()
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
	ws.mu.Lock()
	ws.standing[key] = w
	ws.mu.Unlock()
	if !ws.link.spawn(func() { ws.await(key, w, events) }) {
		return view{}, ws.link.closed()
	}
	return v, nil
}

// await waits for the event of one watch.
func (ws *watches) await(key watchKey, w *watch, events <-chan zk.Event) {
	select {
	case ev := <-events:
		w.event = ev.Type
	case <-ws.link.quit:
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.standing[key] == w {
		delete(ws.standing, key)
	}
	close(w.fired)
}

// number is larger than the number of every watch that was set before the call, and smaller than
// the number of every watch that is set after it.
func (ws *watches) number() uint64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.last++
	return ws.last
}

// until looks whenever there is a change, until seen is true or returns an error, or the session of
// l ends.
func (ws *watches) until(ctx context.Context, l *lease, look func() (view, error),
	seen func(view) (bool, error)) error {
	for {
		news := ws.link.news()
		var v view
		err := ws.link.again(ctx, l, func() (err error) {
			v, err = look()
			return err
		})
		if err != nil {
			return err
		}
		if ok, err := seen(v); ok || err != nil {
			return err
		}
		if err := awaitAny(ctx, l, news, v); err != nil {
			return err
		}
	}
}

// stands reports whether the view of the watch is still up to date; news is the link's channel of
// changes now.
func (w *watch) stands(news <-chan struct{}) bool {
	select {
	case <-w.fired:
		return false
	default:
		return w.news == news
	}
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

// awaitAny waits until one of the views is out of date, or may be. It returns the error of ctx, or
// the reason for the end of the session of l.
func awaitAny(ctx context.Context, l *lease, news <-chan struct{}, views ...view) error {
	cases := make([]reflect.SelectCase, 0, len(views)+3)
	on := func(ch any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	on(ctx.Done())
	on(l.ended)
	on(news)
	for _, v := range views {
		on(v.watch.fired)
	}
	switch n, _, _ := reflect.Select(cases); n {
	case 0:
		return ctx.Err()
	case 1:
		return l.link.over(l)
	}
	return nil
}
