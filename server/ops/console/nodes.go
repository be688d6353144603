package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockkeeper/server/ops"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

type statRow struct {
	Czxid          string `json:"czxid"`
	Mzxid          string `json:"mzxid"`
	Pzxid          string `json:"pzxid"`
	CreatedAt      stamp  `json:"createdAt"`
	ModifiedAt     stamp  `json:"modifiedAt"`
	Version        int32  `json:"version"`
	Cversion       int32  `json:"cversion"`
	Aversion       int32  `json:"aversion"`
	EphemeralOwner string `json:"ephemeralOwner"`
	DataLength     int32  `json:"dataLength"`
	NumChildren    int32  `json:"numChildren"`
}

type aclRow struct {
	Perms  string `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

type nodeAnswer struct {
	head
	Path        string   `json:"path"`
	Type        string   `json:"type"`
	Stat        statRow  `json:"stat"`
	ACL         []aclRow `json:"acl"`
	Data        *blob    `json:"data"`
	DataRefused bool     `json:"dataRefused"`
	Watches     int      `json:"watches"`
	Lock        *string  `json:"lock"`
}

const (
	dataShown    = 64 << 10
	dataShownMax = 1 << 20
	aclShown     = 1000 // entries
)

// node answers with one node.
func (c *Console) node(q url.Values, v *viewer, now time.Time) (any, error) {
	path := cmp.Or(q.Get("path"), "/")
	most, err := number(q, "bytes", dataShown, dataShownMax)
	if err != nil {
		return nil, err
	}
	a := nodeAnswer{Path: path, ACL: []aclRow{}}
	var data []byte
	var acl []wire.ACL
	var stat wire.Stat
	var code, dataCode wire.Code
	c.View(func(store *znode.Store) {
		acl, stat, code = store.GetACL(path, v.readers())
		data, _, dataCode = store.Get(path, v.readers())
	})
	if err := notReadable(path, code); err != nil {
		return nil, err
	}
	if a.DataRefused = dataCode != wire.CodeOK; !a.DataRefused {
		a.Data = newBlob(data, most)
	}
	for _, e := range acl[:min(len(acl), aclShown)] {
		a.ACL = append(a.ACL, aclRow{permText(e.Perms), e.Scheme, e.ID.ID})
	}
	a.Type = typeOf(stat.EphemeralOwner)
	owner := stat.EphemeralOwner
	if a.Type != "ephemeral" {
		owner = 0
	}
	a.Stat = statRow{ops.Hex(stat.Czxid), ops.Hex(stat.Mzxid), ops.Hex(stat.Pzxid), stamp(instant(stat.Ctime)),
		stamp(instant(stat.Mtime)), stat.Version, stat.Cversion, stat.Aversion, ops.Hex(owner), stat.DataLength,
		stat.NumChildren}
	a.Watches = c.Sessions().Watches().Watchers(path)
	// Without an index the answer only lacks the lock that the node belongs to.
	_ = c.index.with(func() {
		if a.Type == "ephemeral" {
			lock := c.index.lockAt(path)
			a.Lock = &lock
		} else if c.index.locks[path] != nil {
			a.Lock = &path
		}
	})
	a.head = c.head(now)
	return a, nil
}

func notReadable(path string, code wire.Code) error {
	switch code {
	case wire.CodeOK:
		return nil
	case wire.CodeNoAuth:
		return failf(http.StatusForbidden, "%s may not be read", path)
	}
	return failf(http.StatusNotFound, "there is no node %s", path)
}

// typeOf returns the type of a node from its owner field, as ZooKeeper has it.
func typeOf(owner wire.SessionID) string {
	switch {
	case owner == 0:
		return "persistent"
	case uint64(owner) == 1<<63:
		return "container"
	case uint64(owner)>>56 == 0xFF:
		return "ttl"
	}
	return "ephemeral"
}

// permText writes permissions as ZooKeeper's tools do.
func permText(p wire.Perm) string {
	var b strings.Builder
	for _, one := range []struct {
		perm   wire.Perm
		letter byte
	}{{wire.PermCreate, 'c'}, {wire.PermDelete, 'd'}, {wire.PermRead, 'r'}, {wire.PermWrite, 'w'},
		{wire.PermAdmin, 'a'}} {
		if p&one.perm != 0 {
			b.WriteByte(one.letter)
		}
	}
	return b.String()
}

type childRow struct {
	Name      string `json:"name"`
	Children  int32  `json:"children"`
	Bytes     int32  `json:"bytes"`
	Ephemeral bool   `json:"ephemeral"`
}

type childrenAnswer struct {
	head
	Path     string     `json:"path"`
	Total    int        `json:"total"`
	Next     *string    `json:"next"`
	Children []childRow `json:"children"`
}

// childStep is the number of children that are listed under one lock of the state.
const childStep = 2000

// children answers with a page of a node's children.
func (c *Console) children(q url.Values, v *viewer, now time.Time) (any, error) {
	limit, err := number(q, "limit", 100, 1000)
	if err != nil {
		return nil, err
	}
	path, after := cmp.Or(q.Get("path"), "/"), q.Get("after")
	select {
	case c.listings <- struct{}{}:
		defer func() { <-c.listings }()
	default:
		return nil, failf(http.StatusServiceUnavailable, "too many directories are being listed; try again")
	}
	names, err := c.list(path, v)
	if err != nil {
		return nil, err
	}
	a := childrenAnswer{Path: path, Total: len(names), Children: []childRow{}}
	if after != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return n <= after })
	}
	slices.Sort(names)
	if len(names) > limit {
		names = names[:limit]
		if limit > 0 {
			a.Next = &names[limit-1]
		}
	}
	for part := range slices.Chunk(names, walkStep) {
		c.View(func(store *znode.Store) {
			for _, name := range part {
				if st, ok := store.Node(strings.TrimSuffix(path, "/") + "/" + name); ok {
					a.Children = append(a.Children,
						childRow{name, st.NumChildren, st.DataLength, typeOf(st.EphemeralOwner) == "ephemeral"})
				}
			}
		})
	}
	a.head = c.head(now)
	return a, nil
}

// list lists the children of a node, in steps.
func (c *Console) list(path string, v *viewer) ([]string, error) {
	var listing *znode.Listing
	var code wire.Code
	c.View(func(store *znode.Store) {
		if _, code = store.Exists(path, v.readers()); code == wire.CodeOK {
			listing = store.List(path)
		}
	})
	if err := notReadable(path, code); err != nil {
		return nil, err
	}
	defer func() { c.View(func(*znode.Store) { listing.Close() }) }()
	for done, lost := false, false; !done; {
		c.View(func(store *znode.Store) { done, lost = listing.Step(store, childStep) })
		if lost {
			return nil, failf(http.StatusNotFound, "there is no node %s any more", path)
		}
	}
	var names []string
	c.View(func(*znode.Store) { names = slices.Clone(listing.Names()) })
	return names, nil
}
