package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/jepsen"
)

// checkOnce judges the workload exactly-once. For every connection:
//
//   - every request that was answered was answered with success, and with the
//     number that follows the one before;
//   - what took effect are its first so many requests, each once, and among
//     them all that were answered.
func checkOnce(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: onceName, Promise: "C5", Valid: Yes}
	connections := make(map[string]*onceConnection)
	var order []*onceConnection
	for _, c := range pair(ops, onceName) {
		prefix := connectionOf(c.invoke.Path)
		if prefix == "" {
			continue
		}
		o := connections[prefix]
		if o == nil {
			o = &onceConnection{prefix: prefix, dirs: make(map[string]*onceDirectory)}
			connections[prefix], order = o, append(order, o)
		}
		o.calls = append(o.calls, c)
	}
	found, final := finals(ops, onceName)
	for _, op := range found {
		if o := connections[connectionOf(op.Path)]; o != nil {
			o.found = append(o.found, op)
		}
	}
	answered, unknown, broken := 0, 0, 0
	for _, o := range order {
		o.answers()
		if final {
			o.effects()
		}
		v.Violations = append(v.Violations, o.violations...)
		answered, unknown = answered+o.answered, unknown+o.unknown
		if o.unknown > 0 {
			broken++
		}
	}
	v.judged(answered, "answered requests")
	v.Text = fmt.Sprintf("%d requests on %d connections were answered; the outcome of %d more, on %d connections, "+
		"was open until the end",
		answered, len(order), unknown, broken)
	switch {
	case !final:
		v.doubt("what is there at the end is not known")
	case answered == 0:
		v.doubt(tooLittle)
	}
	return v.concluded()
}

// onceConnection has the requests of a connection, and their outcomes.
type onceConnection struct {
	prefix     string
	calls      []*call
	found      []jepsen.Op
	dirs       map[string]*onceDirectory
	violations []Violation

	answered, unknown int
}

// onceDirectory has the effects in a directory.
type onceDirectory struct {
	there    bool
	node     jepsen.Op
	children []jepsen.Op
	wanted   []string // values of the creates that were asked for
	values   []string // of the node, by version, that were asked for
}

func (o *onceConnection) directory(path string) *onceDirectory {
	d := o.dirs[path]
	if d == nil {
		d = &onceDirectory{}
		o.dirs[path] = d
	}
	return d
}

func (o *onceConnection) violation(ops []jepsen.Op, format string, args ...any) {
	o.violations = append(o.violations, Violation{Text: o.prefix + "*: " + fmt.Sprintf(format, args...), Ops: ops})
}

// answers checks the answers by themselves.
func (o *onceConnection) answers() {
	creates, sets := make(map[string]int), make(map[string]int)
	for _, c := range o.calls {
		dir := c.invoke.Path
		want, got := "", ""
		switch c.invoke.F {
		case fCount:
			want, got = fmt.Sprintf("%s/n-%010d", dir, creates[dir]), c.end.Path
			creates[dir]++
		case fSet:
			sets[dir]++
			want, got = fmt.Sprintf("version %d", sets[dir]), fmt.Sprintf("version %d", c.end.Version)
		}
		switch {
		case c.end.Kind == jepsen.Info:
			o.unknown++
			continue
		case c.end.Kind == jepsen.Fail:
			o.violation(c.entries(), "request %s (%s) was answered with %s", c.invoke.Value, c.invoke.F, c.end.Note)
		case want != got:
			o.violation(c.entries(), "request %s (%s) made %s, where %s was due", c.invoke.Value, c.invoke.F, got, want)
		}
		o.answered++
	}
}

// effects compares the final tree with the requests.
func (o *onceConnection) effects() {
	for _, op := range o.found {
		dir, name, nested := strings.Cut(strings.TrimPrefix(op.Path, onceRoot+"/"), "/")
		d := o.directory(onceRoot + "/" + dir)
		if nested && name != "" {
			d.children = append(d.children, op)
		} else {
			d.there, d.node = true, op
		}
	}
	for _, d := range o.dirs {
		slices.SortFunc(d.children, func(a, b jepsen.Op) int { return strings.Compare(a.Path, b.Path) })
	}
	var missing *call
	var zxid int64
	for _, c := range o.calls {
		done, evidence := o.directory(c.invoke.Path).took(c)
		switch {
		case !done && c.end.Kind == jepsen.OK:
			o.violation(c.entries(), "request %s (%s) was answered and has had no effect", c.invoke.Value, c.invoke.F)
		case done && missing != nil:
			o.violation(append(conversation([]*call{missing, c}), evidence),
				"request %s (%s) took effect, and request %s (%s) before it did not", c.invoke.Value, c.invoke.F,
				missing.invoke.Value, missing.invoke.F)
		}
		if !done && missing == nil {
			missing = c
		}
		if done && c.invoke.F != fSet {
			if evidence.Zxid <= zxid {
				o.violation(append(c.entries(), evidence), "request %s (%s) took effect at %#x, one before it at %#x",
					c.invoke.Value, c.invoke.F, evidence.Zxid, zxid)
			}
			zxid = evidence.Zxid
		}
	}
	for _, op := range o.found {
		if dir := parent(op.Path); dir != onceRoot {
			o.directory(dir).surplus(o, op)
		}
	}
	for _, path := range sortedKeys(o.dirs) {
		o.dirs[path].altered(o, path)
	}
}

// took says whether a call took effect, with the evidence.
func (d *onceDirectory) took(c *call) (bool, jepsen.Op) {
	switch c.invoke.F {
	case fCount:
		d.wanted = append(d.wanted, c.invoke.Value)
		i, there := slices.BinarySearchFunc(d.children, fmt.Sprintf("%s/n-%010d", c.invoke.Path, len(d.wanted)-1),
			func(op jepsen.Op, path string) int { return strings.Compare(op.Path, path) })
		if there && d.children[i].Value == c.invoke.Value {
			return true, d.children[i]
		}
		return false, jepsen.Op{}
	case fSet:
		// The version is the number that took effect; the value is the last one's, see altered.
		d.values = append(d.values, c.invoke.Value)
		return d.there && int(d.node.Version) >= len(d.values)-1, d.node
	}
	d.values = append(d.values, c.invoke.Value)
	return d.there, d.node
}

// surplus finds nodes that were not requested, or not in that place.
func (d *onceDirectory) surplus(o *onceConnection, op jepsen.Op) {
	_, number, _ := strings.Cut(op.Path, "/n-")
	i, err := strconv.Atoi(number)
	switch {
	case err != nil || i >= len(d.wanted):
		o.violation([]jepsen.Op{op}, "%s is there, %d creates asked for nodes", op.Path, len(d.wanted))
	case d.wanted[i] != op.Value:
		o.violation([]jepsen.Op{op}, "%s is of request %s, where that of request %s was due", op.Path, op.Value,
			d.wanted[i])
	}
}

// altered compares the node's own data with the sets.
func (d *onceDirectory) altered(o *onceConnection, path string) {
	n := int(d.node.Version)
	switch {
	case !d.there:
	case n >= len(d.values):
		o.violation([]jepsen.Op{d.node}, "%s was set %d times, %d requests asked for it", path, n, len(d.values)-1)
	case d.node.Value != d.values[n]:
		o.violation([]jepsen.Op{d.node},
			"%s was set %d times and holds the value of request %s, where that of request %s was due",
			path, n, d.node.Value, d.values[n])
	}
}

// parent is the path of a node's parent.
func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// connectionOf is the beginning of the names of a connection's directories, for
// one of these or a node in it.
func connectionOf(path string) string {
	rest, ok := strings.CutPrefix(path, onceRoot+"/")
	if !ok {
		return ""
	}
	dir, _, _ := strings.Cut(rest, "/")
	i := strings.LastIndexByte(dir, '.')
	if i < 0 {
		return ""
	}
	return onceRoot + "/" + dir[:i+1]
}
