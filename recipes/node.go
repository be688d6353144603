package recipes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/locknode"
)

// node is one ephemeral node of ours, from before its creation until it is certain that it is gone.
// One goroutine at a time works on it.
//
// A reply can get lost, and so a node is more than a create and a delete. The rules:
//
//   - The name of a numbered node holds a UUID, so that the node can be found again.
//   - Before we look for it, we make a barrier: a write that changes nothing (writeNothing). The
//     cluster orders it behind everything that it will ever accept of the session's older
//     connections; a plain read on a new connection may come too early to see a create that is
//     still on its way to the server that answers.
//   - A node that another session owns is not ours, even if it has our UUID.
type node struct {
	link   *link
	dir    string // the parent
	prefix string // the name; of a numbered node, without the sequence number
	fixed  *fixed // nil: the node is numbered
	data   []byte
	acl    []zk.ACL

	lease *lease          // of the session in which the node is made
	path  string          // "" while it is not known
	doubt bool            // there may be a node of ours that is not known
	owned bool            // the node belongs to lease's session, and goes with it
	token int64           // czxid of the node
	ctime int64           // when the cluster made it, in ms, by its clock
	made  time.Time       // a time at which the node was there already
	own   <-chan zk.Event // watch on the node
	// resumed: the previous process held something by the node, which it has made in our session
	resumed bool
}

// fixed is the name of a node without a sequence number: another contender's node may have the same
// path.
type fixed struct {
	path string
	// mark is the Info.ID in the node's data, which tells it from others of the same session. ""
	// for a path that is claimed: nobody else in this Session makes such a node.
	mark string
	// create makes the node; nil: with a create. It is called again when the request before it had
	// no effect.
	create func() error
}

func (n *node) name() string {
	_, name := split(n.path)
	return name
}

// number returns the sequence number of a numbered node. The error is ErrExhausted if there are no
// more.
func (n *node) number() (int64, error) {
	number, ok := locknode.Sequence(n.name())
	switch {
	case !ok:
		return 0, fmt.Errorf("server made a node without a sequence number: %s", n.path)
	case number >= locknode.MaxSequence:
		return 0, ErrExhausted
	}
	return number, nil
}

// create makes the node, once, or takes up the one of the previous process. The outcome of a lost
// request is settled before another is sent. The error is zk.ErrNodeExists if another has the fixed
// path.
func (n *node) create(ctx context.Context) error {
	if n.path == "" {
		if err := n.takeUp(ctx, false); err != nil {
			return err
		}
	}
	if n.path != "" {
		return nil
	}
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		sent := time.Now()
		path, err := n.request()
		switch fateOf(err) {
		case fateDone:
			n.path = path
			n.lease.prove(sent)
			return nil
		case fateRefused:
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if err := n.link.makeDir(ctx, n.dir, n.acl); err != nil {
				return err
			}
			continue
		case fateStrange:
			n.doubt = true
			return err
		}
		n.doubt = true
		if err := n.settle(ctx, attempt); err != nil {
			return err
		}
		if n.path != "" {
			return nil
		}
	}
}

// takeUp makes a node that the previous process has left in our session the present one: the first
// in the queue, if it has left several. With onlyHeld it takes none that was not held. n.path is ""
// if there is none. A writer that was downgraded is deleted: it cannot write again.
func (n *node) takeUp(ctx context.Context, onlyHeld bool) error {
	if n.fixed != nil && n.fixed.create != nil {
		return nil
	}
	for {
		path, held := n.link.keeper.TakeUp(n.lease.id, onlyHeld, n.fits)
		if path == "" {
			return nil
		}
		n.path, n.resumed = path, held
		err := n.link.again(ctx, n.lease, n.describe)
		if errors.Is(err, errDowngraded) {
			if err = leftNode(n.link, n.lease, path).leave(n.remove); err == nil {
				err = errDowngraded
			}
		}
		switch {
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, ErrDeleted):
			n.link.log.Warn("recipes: somebody has deleted a node of the previous process", "node", path)
		case !errors.Is(err, errDowngraded):
			return err
		}
		n.link.keeper.Release(path)
		n.path, n.resumed = "", false
	}
}

// errDowngraded: the previous process only read by the node.
var errDowngraded = errors.New("recipes: the node's holder had turned into a reader")

// fits reports whether a node of our session could be this one: it has the path, or is in the queue
// and has the name but for the UUID and the number.
func (n *node) fits(path string) bool {
	if n.fixed != nil {
		return path == n.fixed.path
	}
	dir, name := split(path)
	_, numbered := locknode.Sequence(name)
	return dir == n.dir && numbered && strings.HasPrefix(name, protectPrefix) &&
		locknode.Layout(name) == locknode.Layout(n.prefix+"0000000000")
}

// describe writes our data into a node that was taken up, where the previous process has left its
// own. The reply, as to every write, proves the session.
func (n *node) describe() error {
	// A server that lags behind may not have the node yet.
	sent := time.Now()
	if err := n.link.writeNothing(); err != nil {
		return err
	}
	n.lease.prove(sent)
	old, _, err := n.link.conn.Get(n.path)
	if err != nil {
		return err
	}
	was, is := locknode.ParseInfo(old), locknode.ParseInfo(n.data)
	if was != nil && was.Downgraded {
		return errDowngraded
	}
	if was != nil && is != nil {
		is.Since = was.Since
		n.data = encodeInfo(*is)
	}
	if bytes.Equal(old, n.data) {
		return nil
	}
	err = n.set(n.data)
	if errors.Is(err, zk.ErrNoAuth) { // then it names the previous process
		if n.fixed != nil && was != nil {
			n.fixed.mark = was.ID
		}
		return nil
	}
	return err
}

// request sends the request for the node, and returns the path.
func (n *node) request() (string, error) {
	switch {
	case n.fixed == nil:
		return n.link.conn.Create(n.dir+"/"+n.prefix, n.data, zk.FlagEphemeralSequential, n.acl)
	case n.fixed.create == nil:
		return n.link.conn.Create(n.fixed.path, n.data, zk.FlagEphemeral, n.acl)
	}
	return n.fixed.path, n.fixed.create()
}

// settle finds out, after a create with an unknown outcome, whether there is a node now. It keeps
// asking until it knows.
func (n *node) settle(ctx context.Context, attempt int) error {
	for ; ; attempt++ {
		if err := n.link.pause(ctx, attempt); err != nil {
			return err
		}
		if err := n.over(); err != nil {
			return err
		}
		paths, err := n.find()
		switch fateOf(err) {
		case fateDone:
			n.doubt = false
			if len(paths) > 0 {
				n.path = paths[0]
			}
			return nil
		case fateUnknown:
		default:
			return err
		}
	}
}

// moveBack replaces the node by another one at the end of the queue, called prefix, in one
// transaction. It reports false if the node is in its place yet.
//
// Both names have the same UUID. So a node that is found with it is ours, and it is one of the two.
func (n *node) moveBack(ctx context.Context, prefix string) (done bool, err error) {
	old, sent := n.path, time.Now()
	n.prefix, n.owned = prefix, false
	results, err := n.link.conn.Multi(&zk.DeleteRequest{Path: old, Version: -1}, &zk.CreateRequest{
		Path: n.dir + "/" + prefix, Data: n.data, Acl: n.acl, Flags: zk.FlagEphemeralSequential})
	switch fateOf(err) {
	case fateDone:
		n.path = results[1].String
		n.lease.prove(sent)
	case fateRefused:
		n.owned = true
		if len(results) > 0 && errors.Is(results[0].Error, zk.ErrNoNode) {
			return false, n.gone(zk.ErrNoNode)
		}
		return false, err
	default:
		n.path, n.doubt = "", true
		if fateOf(err) == fateStrange {
			return false, err
		}
		if err := n.settle(ctx, 1); err != nil {
			return false, err
		}
		if n.path == "" {
			return false, n.gone(zk.ErrNoNode)
		}
	}
	if n.path == old {
		n.owned = true
		return false, nil
	}
	n.made = time.Time{}
	return true, n.watchOwn(ctx)
}

// find lists the nodes that are ours. A node that it does not find does not exist, and will not
// come to exist unless we make another create.
func (n *node) find() ([]string, error) {
	if err := n.link.writeNothing(); err != nil {
		return nil, err
	}
	if n.fixed != nil {
		return n.findFixed()
	}
	names, _, err := n.link.conn.Children(n.dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		if strings.HasPrefix(name, locknode.Protection(n.prefix)) {
			paths = append(paths, n.dir+"/"+name)
		}
	}
	return paths, nil
}

// findFixed returns the path if the node there is ours: its owner is the session in force, which
// may be a later one than the lease's if the create was carried over into it.
func (n *node) findFixed() ([]string, error) {
	data, stat, err := n.link.conn.Get(n.fixed.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ours := n.fixed.marks(data) && stat.EphemeralOwner == n.link.conn.SessionID()
	if !ours {
		return nil, nil
	}
	return []string{n.fixed.path}, nil
}

// marks reports whether a node with these data may be ours.
func (f *fixed) marks(data []byte) bool {
	i := locknode.ParseInfo(data)
	return f.mark == "" || i != nil && i.ID == f.mark
}

// watchOwn sets the watch on the node and reads its token.
func (n *node) watchOwn(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		data, stat, events, err := n.link.conn.GetW(n.path)
		switch fateOf(err) {
		case fateDone:
			if over := n.over(); over != nil {
				return over
			}
			if stat.EphemeralOwner != n.lease.id {
				// The create was carried out in the next session, or the node is left over from the
				// session before.
				return ErrExpired
			}
			if n.fixed != nil && !n.fixed.marks(data) {
				n.doubt = true
				return ErrDeleted // and made again, by another one of our session
			}
			n.owned, n.token, n.own = true, stat.Czxid, events
			n.ctime = stat.Ctime
			if n.made.IsZero() {
				n.made = time.Now()
			}
			return nil
		case fateUnknown:
			if err := n.link.pause(ctx, attempt); err != nil {
				return err
			}
		default:
			return n.gone(err)
		}
	}
}

// gone translates the error of a call that needs the node to exist.
func (n *node) gone(err error) error {
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if over := n.over(); over != nil {
		return over
	}
	return ErrDeleted
}

// over reports why the session of the node has ended, or nil.
func (n *node) over() error { return n.link.over(n.lease) }

// changed deals with an event of the watch on the node, which it sets again if the node is still
// there.
func (n *node) changed(ctx context.Context, ev zk.Event) error {
	n.own = nil
	if err := n.over(); err != nil {
		return err
	}
	token, err := n.token, ErrDeleted
	if ev.Type != zk.EventNodeDeleted {
		if err = n.watchOwn(ctx); err == nil && n.token != token {
			err = ErrDeleted // and made again, by somebody who copies names
		}
	}
	if err != nil && n.fixed != nil {
		n.doubt = true // there may be another's by now
	}
	return err
}

// leave deletes the node with remove, and returns nil when it is certain that nothing is left and
// nothing will appear: while the outcome of a request is unknown it goes on. Only the end of the
// Session stops it.
//
// ErrDeleted means that the node had been gone before.
func (n *node) leave(remove func(path string) error) error {
	ctx := context.Background() // leave has no deadline; see above
	// A path that others' nodes have too must be ours for certain. Somebody who deletes others'
	// nodes may have deleted ours, and a claimed path may be another's by now.
	if f := n.fixed; f != nil && n.path != "" && (f.mark == "" || !n.owned) {
		n.doubt = true
	}
	first := true
	for attempt := 1; ; attempt++ {
		if n.fixed != nil && n.lease != nil && n.over() == nil {
			// go-zookeeper keeps a request until it has a connection, and be it in the next
			// session, when the node of this path is somebody else's.
			if _, err := n.link.ready(ctx); err != nil {
				return err
			}
		}
		paths := []string{n.path}
		var err error
		switch {
		case !n.doubt && n.path == "", n.owned && n.over() != nil:
			return n.link.over(nil) // never made, or gone with its session
		case n.doubt:
			paths, err = n.find()
		}
		for i := 0; err == nil && i < len(paths); i++ {
			err = remove(paths[i])
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
				if first && !n.doubt && n.over() == nil {
					return ErrDeleted
				}
			}
		}
		first = false
		switch fateOf(err) {
		case fateDone:
			return nil
		case fateRefused:
			n.link.log.Error("lock node cannot be deleted, it stays until the session ends",
				"path", n.dir, "node", n.prefix, "err", err)
			return err
		case fateUnknown:
			n.doubt = n.doubt || n.fixed != nil // by now it may be somebody else's
		case fateStrange:
			n.doubt = n.doubt || n.fixed != nil
			n.link.log.Warn("lock node not deleted, trying again", "path", n.dir, "node", n.prefix, "err", err)
		}
		if err := n.link.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// remove deletes the node at path.
func (n *node) remove(path string) error { return n.link.conn.Delete(path, -1) }

// set changes the data of the node.
func (n *node) set(data []byte) error {
	_, err := n.link.conn.Set(n.path, data, -1)
	return err
}

// holding describes an ephemeral node with a fixed path that is held: the contender that can make
// it has its name. The grant of it behaves as a lock's.
type holding struct {
	s    *Session
	dir  string
	name string
	data []byte
	acl  []zk.ACL
	// lease is the session that has to own the node; nil: any.
	lease *lease

	// create makes the node; nil: with a create.
	create func() error
}

// hold makes the node. The error is ErrTaken if somebody else has the name.
//
// When the reply to the creation is lost, our node is recognised by the session that owns it; and a
// name is claimed, so that nobody else in this Session makes one that looks the same.
func hold(ctx context.Context, h holding) (*Grant, error) {
	path := h.dir + "/" + h.name
	if !h.s.claims.claim(path) {
		return nil, ErrTaken
	}
	k := h.s.link
	n := &node{link: k, dir: h.dir, prefix: h.name, data: h.data, acl: h.acl}
	n.fixed = &fixed{path: path, create: h.create}
	leave := func() error {
		defer h.s.claims.free(path)
		return n.leave(n.remove)
	}
	return call(ctx, k, func(ctx context.Context) (*Grant, error) {
		g, err := n.hold(ctx, h.lease, leave)
		after := func() { g.keep() }
		if err != nil {
			after = func() { _ = leave() }
		}
		if !k.spawn(after) && err == nil {
			err = k.closed()
		}
		return g, err
	}, (*Grant).giveUp)
}

// hold makes the node, in the session of the lease if there is one, and a grant of it.
func (n *node) hold(ctx context.Context, of *lease, leave func() error) (_ *Grant, err error) {
	if n.lease, err = n.link.ready(ctx); err != nil {
		return nil, err
	}
	if of != nil && n.lease != of {
		return nil, cmp.Or(n.link.over(of), ErrExpired)
	}
	if err := n.create(ctx); errors.Is(err, zk.ErrNodeExists) {
		return nil, ErrTaken
	} else if err != nil {
		return nil, err
	}
	if err := n.watchOwn(ctx); err != nil {
		return nil, err
	}
	g := newGrant(n, n.dir, leave)
	if err := n.lease.admit(ctx, g); err != nil {
		return nil, err
	}
	g.record()
	return g, nil
}

// claims are the paths that somebody in a Session has, or tries to get.
type claims struct {
	mu    sync.Mutex
	paths map[string]bool
}

// claim reserves a path, and reports false if it is reserved.
func (c *claims) claim(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paths[path] {
		return false
	}
	if c.paths == nil {
		c.paths = make(map[string]bool)
	}
	c.paths[path] = true
	return true
}

func (c *claims) free(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.paths, path)
}
