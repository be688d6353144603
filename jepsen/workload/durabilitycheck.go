package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/jepsen"
)

// checkDurability judges the workload durability:
//
//   - what was created and answered is there, with its value, unless a delete of
//     it was sent; what was deleted and answered is not; what was refused is not;
//     what no request made is not;
//   - a client's own node holds its last value that was answered, or a later one
//     whose outcome is unknown, or an earlier one of those that took effect late;
//   - a node whose create began after that of another one was answered has a
//     larger zxid.
func checkDurability(ops []jepsen.Op) Verdict {
	v := Verdict{Checker: durabilityName, Promise: "C1", Valid: Yes}
	c := &durabilityChecker{v: &v, found: make(map[string]jepsen.Op), removed: make(map[string]*call),
		known: make(map[string]bool)}
	found, final := finals(ops, durabilityName)
	for _, op := range found {
		c.found[op.Path] = op
	}
	kills := 0
	for _, op := range ops {
		if op.F == jepsen.FKill {
			kills++
		}
	}
	calls := pair(ops, durabilityName)
	ended := make(map[jepsen.Kind]int)
	for _, call := range calls {
		ended[call.end.Kind]++
	}
	if final {
		c.compare(calls)
		c.zxids(calls)
	}
	v.judged(ended[jepsen.OK], "answered updates")
	v.Text = fmt.Sprintf("%d updates were answered, the outcome of %d is unknown, %d nodes are there at the end, %d "+
		"members were killed",
		ended[jepsen.OK], ended[jepsen.Info], len(c.found), kills)
	switch {
	case !final:
		v.doubt("what is there at the end is not known")
	case ended[jepsen.OK] == 0:
		v.doubt(tooLittle)
	}
	return v.concluded()
}

type durabilityChecker struct {
	v       *Verdict
	found   map[string]jepsen.Op
	removed map[string]*call
	known   map[string]bool // paths that requests were about
}

func (c *durabilityChecker) compare(calls []*call) {
	bumps := make(map[string][]*call)
	for _, call := range calls {
		if call.invoke.F == fRemove {
			c.removed[call.invoke.Path] = call
		}
	}
	for _, call := range calls {
		path := call.invoke.Path
		switch call.invoke.F {
		case fCreate:
			c.known[path] = true
			c.created(call)
		case fRefused:
			c.known[path] = true
			if op, there := c.found[path]; there {
				c.v.violate(append(call.entries(), op), "%s is there, though its create could only be refused", path)
			}
			if call.end.Kind == jepsen.OK {
				c.v.violate(call.entries(), "%s: a create that could only be refused was answered with success", path)
			}
		case fBump:
			c.known[path] = true
			bumps[path] = append(bumps[path], call)
		}
	}
	for _, path := range sortedKeys(bumps) {
		c.bumped(path, bumps[path])
	}
	for _, path := range sortedKeys(c.found) {
		if !c.known[path] && !owns(path) {
			c.v.violate([]jepsen.Op{c.found[path]}, "%s is there, and nobody has asked for it", path)
		}
	}
}

// owns says whether the path is a client's own node, which is made without telling.
func owns(path string) bool {
	name := strings.TrimPrefix(path, durabilityRoot+"/")
	return belongs(jepsen.Op{Worker: name}, durabilityName) && !strings.Contains(name, ".")
}

// created compares a create with the final tree.
func (c *durabilityChecker) created(call *call) {
	path := call.invoke.Path
	op, there := c.found[path]
	remove := c.removed[path]
	switch {
	case there && op.Value != call.invoke.Value:
		c.v.violate(append(call.entries(), op), "%s holds %q, it was created with %q", path, op.Value,
			call.invoke.Value)
	case there && call.end.Kind == jepsen.Fail:
		c.v.violate(append(call.entries(), op), "%s is there, though its create was refused", path)
	case there && remove != nil && remove.end.Kind == jepsen.OK:
		c.v.violate(append(conversation(pieces(call, remove)), op), "%s is there, though its deletion was answered",
			path)
	case !there && call.end.Kind == jepsen.OK && (remove == nil || remove.end.Kind == jepsen.Fail):
		c.v.violate(conversation(pieces(call, remove)), "%s is lost: its create was answered", path)
	}
}

func pieces(list ...*call) []*call {
	return slices.DeleteFunc(list, func(c *call) bool { return c == nil })
}

// bumped compares the sets of a client's own node with the final tree.
func (c *durabilityChecker) bumped(path string, calls []*call) {
	op, there := c.found[path]
	var answered, holder *call
	for _, call := range calls {
		if call.end.Kind == jepsen.OK {
			answered = call
		}
		if there && call.invoke.Value == op.Value {
			holder = call
		}
	}
	switch {
	case answered == nil && (holder != nil || op.Value == ""):
	case !there:
		c.v.violate(answered.entries(), "%s is lost: a set of it was answered", path)
	case holder == nil:
		c.v.violate(append(answered.entries(), op), "%s holds %q, which nobody has set", path, op.Value)
	case holder.end.Kind == jepsen.Fail:
		c.v.violate(append(holder.entries(), op), "%s holds %q, though that set was refused", path, op.Value)
	case number(holder.invoke.Value) < number(answered.invoke.Value) && !late(holder, answered, op):
		c.v.violate(append(answered.entries(), op), "%s holds %q: the set of %q, which was answered, is lost", path,
			op.Value, answered.invoke.Value)
	}
}

// late says whether a set without an answer took effect after one that was: the client gave
// its session up with the set still under way, and a member that was cut off then sent it on when
// it was heard again. The version counts the sets.
func late(holder, answered *call, found jepsen.Op) bool {
	return holder.end.Kind == jepsen.Info && found.Version > answered.end.Version
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// zxids compares the order of the creates in time with the order of their zxids.
func (c *durabilityChecker) zxids(calls []*call) {
	type moment struct {
		op    jepsen.Op
		call  *call
		begin bool
	}
	var moments []moment
	for _, call := range calls {
		if _, there := c.found[call.invoke.Path]; !there || call.invoke.F != fCreate {
			continue
		}
		moments = append(moments, moment{call.invoke, call, true})
		if call.end.Kind == jepsen.OK {
			moments = append(moments, moment{call.end, call, false})
		}
	}
	// A create that begins at the very moment of an answer may have come before it.
	slices.SortStableFunc(moments, func(a, b moment) int {
		if a.op.Time == b.op.Time && a.begin != b.begin {
			if a.begin {
				return -1
			}
			return 1
		}
		return int(a.op.Time - b.op.Time)
	})
	var newest *call
	zxid := func(m *call) int64 { return c.found[m.invoke.Path].Zxid }
	for _, m := range moments {
		switch {
		case m.begin:
			if newest != nil && zxid(m.call) <= zxid(newest) {
				c.v.violate(append(conversation([]*call{newest, m.call}), c.found[newest.invoke.Path],
					c.found[m.call.invoke.Path]),
					"%s was made at %#x, later than %s at %#x", m.call.invoke.Path, zxid(m.call), newest.invoke.Path,
					zxid(newest))
			}
		case newest == nil || zxid(m.call) > zxid(newest):
			newest = m.call
		}
	}
}
