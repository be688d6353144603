package znode

import (
	"iter"
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// A quota on /a/b is a pair of nodes: /zookeeper/quota/a/b/zookeeper_limits makes it and says how
// much is allowed, and the data of /zookeeper/quota/a/b/zookeeper_stats shows how much is used
// (docs/protocol/semantics.md section 8).
const (
	limitsName = "/zookeeper_limits"
	statsName  = "/zookeeper_stats"
)

// quota is a quota, apart from its nodes. It counts each node at and below path that has no deeper
// quota (family.count and family.bytes of the node there). So a quota inside of another takes its
// part out of the outer one; nodes of quotas count nowhere. This follows from the tree alone,
// unlike ZooKeeper's figures for nested quotas, which depend on the events since the start.
type quota struct {
	path   string
	dirty  bool   // the stats node does not show the usage yet
	read   bool   // limits and valid agree with the limits node
	valid  bool   // the limits can be read
	limits limits // hard ones
}

// quotaSet holds the active quotas: their limits node exists.
type quotaSet struct {
	byPath map[string]*quota
	dirty  []*quota
}

func (s *quotaSet) touch(q *quota) {
	if !q.dirty {
		q.dirty = true
		s.dirty = append(s.dirty, q)
	}
}

// limitsOf returns the path with the quota that has its limits node at path; ok says that path
// belongs to a limits node. The root cannot have a quota.
func limitsOf(path string) (of string, ok bool) { return quotaNode(path, limitsName) }

// statsOf is limitsOf for stats nodes.
func statsOf(path string) (of string, ok bool) { return quotaNode(path, statsName) }

func quotaNode(path, name string) (of string, ok bool) {
	of, below := strings.CutPrefix(path, quotaPath)
	of, ok = strings.CutSuffix(of, name)
	return of, below && ok && strings.HasPrefix(of, "/")
}

// underQuota reports whether path is the node of the quotas or below it: such nodes count for no
// quota.
func underQuota(path string) bool {
	return strings.HasPrefix(path, quotaPath) && (len(path) == len(quotaPath) || path[len(quotaPath)] == '/')
}

// quotaAt returns the quota that the node at i counts for: the deepest at or above it, nil if there
// is none.
func (t *tree) quotaAt(i slot) (deepest *quota) {
	if len(t.quotas.byPath) == 0 {
		return nil
	}
	for i != noSlot {
		if i == t.quotaTop {
			return nil
		}
		n := t.nodes.row(i)
		if f := t.family(n); f != nil && deepest == nil {
			deepest = f.quota
		}
		i = n.parent
	}
	return deepest
}

// quotaFor is quotaAt for a node that is to be made at path, below the one at parent. A quota on
// its path may be there before it.
func (t *tree) quotaFor(path string, parent slot) *quota {
	if underQuota(path) {
		return nil
	}
	if q := t.quotas.byPath[path]; q != nil {
		return q
	}
	return t.quotaAt(parent)
}

// usage returns the nodes and bytes that count for a quota on path, whether or not that is active.
func (t *tree) usage(path string) (count, bytes int64) {
	i, ok := t.find(path)
	if !ok {
		return 0, 0
	}
	nodes, bytes := t.sums(i)
	return int64(nodes), bytes
}

// usageText returns the data of the stats node for path.
func (t *tree) usageText(path string) []byte {
	count, bytes := t.usage(path)
	b := strconv.AppendInt([]byte("count="), count, 10)
	return strconv.AppendInt(append(b, ",bytes="...), bytes, 10)
}

// startQuota makes the quota on path active: its nodes no longer count for the quota around it.
func (t *tree) startQuota(path string) {
	q := &quota{path: path}
	if i, ok := t.find(path); ok {
		t.detail(i)
		f := t.family(t.nodes.row(i))
		t.sumUp(i, 0, -f.count, -f.bytes)
		f.quota = q
	}
	t.quotas.byPath[path] = q
	t.quotas.touch(q)
}

// stopQuota makes the quota on path inactive.
func (t *tree) stopQuota(path string) {
	delete(t.quotas.byPath, path)
	if i, ok := t.find(path); ok {
		f := t.family(t.nodes.row(i))
		f.quota = nil
		t.sumUp(i, 0, f.count, f.bytes)
	}
}

// forget drops the note that stats nodes are not up to date: the changes have been taken back, or
// the nodes are up to date after all.
func (s *quotaSet) forget() {
	for _, q := range s.dirty {
		q.dirty = false
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
}

// flushQuotas updates the data of the stats nodes. Neither Stat nor watches show that. It runs
// after the command, so that one that fails changes nothing here either.
func (t *tree) flushQuotas() {
	for _, q := range t.quotas.dirty {
		stats := quotaPath + q.path + statsName
		i, ok := t.find(stats)
		if !ok || t.quotas.byPath[q.path] != q {
			continue
		}
		t.replaceData(i, stats, t.usageText(q.path))
	}
	t.quotas.forget()
}

// checkQuota checks whether q, which may be nil, allows count more nodes and bytes more bytes. Only
// hard limits count. ZooKeeper compares the applied usage and lets a burst pass; this is exact.
func (t *tree) checkQuota(q *quota, count, bytes int64) wire.Code {
	if q == nil {
		return wire.CodeOK
	}
	if !q.read {
		q.limits, q.valid = parseLimits(t.nodes.row(t.slotOf(quotaPath + q.path + limitsName)).data())
		q.read = true
	}
	if !q.valid {
		return wire.CodeMarshallingError
	}
	if _, whole := t.find(quotaPath + q.path + statsName); !whole {
		return wire.CodeOK // as in ZooKeeper: half a quota limits nothing
	}
	usedCount, usedBytes := t.usage(q.path)
	switch {
	case count != 0 && q.limits.count >= 0 && usedCount+count > q.limits.count:
		return wire.CodeQuotaExceeded
	case bytes != 0 && q.limits.bytes >= 0 && usedBytes+bytes > q.limits.bytes:
		return wire.CodeQuotaExceeded
	}
	return wire.CodeOK
}

// KeepQuotas hides the nodes of quotas, with their limits and usage, from clients that may not read
// the node with the quota. The super user sees all of them. Events there are for the super user
// only. It changes reads, and nothing of the state; the members that take writes there refuse them
// (WritesQuota).
func (s *Store) KeepQuotas() { s.state.keepsQuotas = true }

// WritesQuota reports whether a request may change or check a node of the quotas, the one above all
// of them included.
func WritesQuota(record wire.Record) (yes bool) {
	yieldPaths(record, true, func(path string) bool {
		yes = underQuota(path)
		return !yes
	})
	return yes
}

// WrittenPaths returns the paths of the nodes that a request may create, delete or change: one for
// each operation of a multi. A sequential node still lacks its number.
func WrittenPaths(record wire.Record) iter.Seq[string] {
	return func(yield func(string) bool) { yieldPaths(record, false, yield) }
}

// yieldPaths yields WrittenPaths, with checks also the paths of checks of versions.
func yieldPaths(record wire.Record, checks bool, yield func(string) bool) (more bool) {
	switch r := record.(type) {
	case *wire.CreateRequest:
		return yield(r.Path)
	case *wire.CreateTTLRequest:
		return yield(r.Path)
	case *wire.DeleteRequest:
		return yield(r.Path)
	case *wire.SetDataRequest:
		return yield(r.Path)
	case *wire.SetACLRequest:
		return yield(r.Path)
	case *wire.CheckVersionRequest:
		return !checks || yield(r.Path)
	case *wire.MultiRequest:
		for _, op := range r.Ops {
			if !yieldPaths(op.Record, checks, yield) {
				return false
			}
		}
	}
	return true
}

// hidesQuota reports whether path is one of the quotas, and hidden from a connection with the
// identities ids: the node that the quota is on is missing, or may not be read.
func (st *state) hidesQuota(path string, ids []Identity) bool {
	if !st.keepsQuotas || !underQuota(path) || IsSuper(ids) {
		return false
	}
	of := strings.TrimPrefix(path, quotaPath)
	for _, name := range []string{limitsName, statsName} {
		of = strings.TrimSuffix(of, name)
	}
	i, ok := st.tree.find(of)
	return !ok || !st.tree.nodes.row(i).acl.allows(ids, wire.PermRead)
}

// limits are the hard limits of a quota; -1 is none.
type limits struct{ count, bytes int64 }

// parseLimits reads the data of a limits node as ZooKeeper does: pieces between commas and
// semicolons, of which the part before the first "=" is the key and the next part the number. ok is
// false where ZooKeeper's reader fails.
func parseLimits(data []byte) (l limits, ok bool) {
	l = limits{count: -1, bytes: -1}
	if data == nil {
		return l, false
	}
	text := strings.TrimRight(string(data), ",;")
	if text == "" {
		return l, true
	}
	// Java's split leaves an empty piece in front of separators at the start, but none between
	// adjacent ones.
	if strings.IndexAny(text, ",;") == 0 {
		return l, false
	}
	pieces := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' })
	for _, piece := range pieces {
		parts := strings.Split(strings.TrimRight(piece, "="), "=")
		if len(parts) < 2 {
			return l, false
		}
		n := int64(-1)
		if parts[1] != "" {
			var err error
			if n, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
				return l, false
			}
		}
		switch parts[0] {
		case "countHardLimit":
			l.count = n
		case "byteHardLimit":
			l.bytes = n
		}
	}
	return l, true
}
