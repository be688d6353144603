package locknode

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is a lock of a library: what its nodes are called, and its rows in the table of
// docs/guarantees.md. If the name of a node fits several programs, it has a row for each.
type program struct {
	prefix  string // of a node's name; H is a hexadecimal digit
	layout  string
	library string
	kind    Kind
	rows    []string
}

const (
	uuidPrefix  = "HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH"
	dashPrefix  = "_c_HHHHHHHH-HHHH-HHHH-HHHH-HHHHHHHHHHHH-"
	rowMutex    = "Curator `InterProcessMutex`"
	rowGo       = "go-zookeeper `Lock`"
	rowWrite    = "Curator `InterProcessReadWriteLock` to write"
	rowRead     = "Curator `InterProcessReadWriteLock` to read"
	rowLease    = "Curator `InterProcessSemaphoreV2` of 1"
	rowKazoo    = "kazoo `Lock`"
	rowKazooW   = "kazoo `WriteLock`"
	rowKazooR   = "kazoo `ReadLock`"
	rowKazooS   = "kazoo `Semaphore` of 1"
	rowShared   = "`SharedLock` (docs/locks.md, recipes/clients) over kazoo"
	rowSession  = "ZooKeeper's recipe `WriteLock` (Java)"
	rowOwnMutex = "`recipes.Mutex`, `lockkeeper lock`"
	// These are not in the table: they know their own nodes only.
	rowLatch   = "Curator `LeaderLatch`"
	rowOffer   = "ZooKeeper's LeaderElectionSupport"
	rowUnknown = "a program that nobody knows"
)

// queuePrograms make nodes in the queue of a path.
var queuePrograms = []program{
	{dashPrefix + "lock-", LayoutLock, LibraryCurator, KindWrite, []string{rowMutex}},
	{dashPrefix + "__WRIT__", LayoutWrite, LibraryCurator, KindWrite, []string{rowWrite}},
	{dashPrefix + "__READ__", LayoutRead, LibraryCurator, KindRead, []string{rowRead}},
	{dashPrefix + "latch-", LayoutLatch, LibraryCurator, KindLead, []string{rowLatch}},
	{"_c_" + uuidPrefix + "-lock-", LayoutLock, LibraryGo, KindWrite, []string{rowGo}},
	{uuidPrefix + "__lock__", LayoutKazooLock, LibraryKazoo, KindWrite, []string{rowKazoo, rowKazooW}},
	{uuidPrefix + "__rlock__", LayoutKazooRead, LibraryKazoo, KindRead, []string{rowKazooR}},
	{uuidPrefix + "-lock-", LayoutLock, LibraryKazoo, KindWrite, []string{rowShared}},
	{"x-HHHHHHHHHHH-", LayoutSession, LibraryZooKeeper, KindWrite, []string{rowSession}},
	{"n_", LayoutOffer, LibraryZooKeeper, KindLead, []string{rowOffer}},
	// Names that end like those of a library, and are not its.
	{"lock-", LayoutLock, "", KindWrite, []string{rowMutex}},
	{"block-", LayoutLock, "", KindWrite, []string{rowMutex}},
	{"my__rlock__", LayoutKazooRead, "", KindRead, []string{rowKazooR}},
	{"H__lock__", LayoutKazooLock, "", KindWrite, []string{rowKazoo, rowKazooW}},
	{"_c_HHHHHHHH-__READ__", LayoutRead, LibraryCurator, KindRead, []string{rowRead}},
	{"rlock__lock-__WRIT__", LayoutWrite, "", KindWrite, []string{rowWrite}},
	{"x-zz-", "", "", KindUnknown, []string{rowUnknown}},
	{"x--", "", "", KindUnknown, []string{rowUnknown}},
	{"an_", "", "", KindUnknown, []string{rowUnknown}},
	{"job-", "", "", KindUnknown, []string{rowUnknown}},
	{"lock-0", "", "", KindUnknown, []string{rowUnknown}}, // so that its number has eleven digits
	{"", "", "", KindUnknown, []string{rowUnknown}},
}

var (
	curatorLease  = program{dashPrefix + "lease-", LayoutLease, LibraryCurator, KindLease, []string{rowLease}}
	curatorWaiter = program{dashPrefix + "lock-", LayoutLock, LibraryCurator, KindLease, []string{rowLease}}
	kazooLease    = program{uuidPrefix, LayoutKazooLease, LibraryKazoo, KindLease, []string{rowKazooS}}
	kazooWaiter   = program{uuidPrefix + "__lock__", LayoutKazooLock, LibraryKazoo, KindLease, []string{rowKazooS}}
)

// The queues of a lock, in the order in which Resolve lists those who are equally far.
const (
	queueCuratorLeases = iota
	queueCuratorLocks
	queueKazooLeases
	queueKazooLocks
	queueLock
	queueOther // of another lock
)

// oddNode is a node of a random directory, and the truth about it: how it was meant.
type oddNode struct {
	path       string
	session    int64 // 0: it is persistent
	czxid      int64
	data       []byte
	plain      bool // a lock by itself
	program    program
	queue      int
	number     int64 // 0 for kazoo's leases
	signed     bool
	own        bool // it has the metadata of package recipes
	downgraded bool
}

// oddDirectory is a random directory with a lock in it.
type oddDirectory struct {
	r     *rand.Rand
	path  string
	nodes []oddNode
	czxid []int64 // those that nobody has yet
}

func (d *oddDirectory) hex(pattern string) string {
	name := []byte(pattern)
	digits := "0123456789abcdef"
	if d.r.IntN(4) == 0 {
		digits = "0123456789" // all digits are decimal, as one uuid in a hundred ends
	}
	for i := range name {
		if name[i] == 'H' {
			name[i] = digits[d.r.IntN(len(digits))]
		}
	}
	return string(name)
}

// note gives a node data: none, others', damaged metadata, ours.
func (d *oddDirectory) note(n *oddNode) {
	const since = `"since":"2026-11-21T14:00:00Z"`
	const ours = `{"by":"lockkeeper/recipes",` + since
	switch d.r.IntN(8) {
	case 0:
		n.data = []byte("10.0.0.7")
	case 1:
		n.data = []byte(ours) // cut off
	case 2:
		n.data = []byte(`{"by":"lockkeeper/recipes","since":"yesterday"}`)
	case 3:
		n.data = []byte(`{"by":"somebody else","downgraded":true,` + since + `}`)
	case 4:
		n.data, n.own = []byte(ours+`,"within":["0xzz","-"]}`), true
	case 5:
		n.data, n.own, n.downgraded = []byte(ours+`,"downgraded":true}`), true, true
	}
}

// number draws a sequence number from a small range, so that some are equal, or from the end of
// the range.
func (d *oddDirectory) number(p program) (n int64, signed bool) {
	switch d.r.IntN(12) {
	case 0:
		return MaxSequence - d.r.Int64N(2), false
	case 1:
		return MaxSequence + 1 + d.r.Int64N(9_999_999_999-MaxSequence), false
	case 2:
		if p.layout != "" {
			return [...]int64{-1, -999_999_999, -1_000_000_000, -2_147_483_647, -2_147_483_648}[d.r.IntN(5)], true
		}
	}
	return d.r.Int64N(12), false
}

func (d *oddDirectory) add(dir string, p program, queue int) {
	n := oddNode{program: p, queue: queue, session: 1 + d.r.Int64N(6)}
	if d.r.IntN(16) == 0 {
		n.session = -n.session // the top bit of an id is set on servers 128 and up
	}
	name := d.hex(p.prefix)
	if p.layout != LayoutKazooLease {
		n.number, n.signed = d.number(p)
		name += fmt.Sprintf("%010d", n.number)
	}
	n.path = dir + "/" + name
	d.note(&n)
	if p.kind == KindLease {
		n.data, n.own, n.downgraded = nil, false, false
	}
	d.put(n)
}

// put adds the node if its path is free.
func (d *oddDirectory) put(n oddNode) {
	if slices.ContainsFunc(d.nodes, func(o oddNode) bool { return o.path == n.path }) {
		return
	}
	n.czxid, d.czxid = d.czxid[0], d.czxid[1:]
	if len(d.nodes) > 0 && d.r.IntN(20) == 0 {
		n.czxid = d.nodes[len(d.nodes)-1].czxid // of one multi
	}
	d.nodes = append(d.nodes, n)
}

// bystanders adds nodes that do not contend for the path.
func (d *oddDirectory) bystanders() {
	for range d.r.IntN(5) {
		dir := d.path + []string{"", "", "/leases", "/locks", "-__lock__"}[d.r.IntN(5)]
		p := queuePrograms[d.r.IntN(len(queuePrograms))]
		d.put(oddNode{path: dir + "/" + d.hex(p.prefix) + fmt.Sprintf("%010d", d.r.Int64N(12))})
	}
	if d.r.IntN(4) == 0 { // a lock on the path of the leases, which is none of them
		p := queuePrograms[d.r.IntN(4)]
		d.put(oddNode{path: d.path + "/" + CuratorLeases + "/" + d.hex(p.prefix) + "0000000001",
			session: 1 + d.r.Int64N(6), program: p, queue: queueOther})
	}
	for range d.r.IntN(5) {
		name := d.hex([]string{"web-1", "config", "lock-", "lock-00000000H", "H__lock__000000000x", "job--5", "-",
			"0000000001 ", uuidPrefix[1:], uuidPrefix + "-", "lock--0000000-1"}[d.r.IntN(11)])
		if strings.HasSuffix(name, uuidPrefix[1:]) {
			continue
		}
		if len(name) == len(uuidPrefix)-1 {
			name = "g" + name[1:]
			name = strings.TrimRight(name, "0123456789") // no number at its end
		}
		d.put(oddNode{path: d.path + "/" + name, session: 1 + d.r.Int64N(6), plain: true})
	}
}

func newOddDirectory(r *rand.Rand) *oddDirectory {
	d := &oddDirectory{r: r, path: []string{"/a", "/a/b", "/locks", "/leases/a", "/0000000007"}[r.IntN(5)]}
	for _, n := range r.Perm(80) {
		d.czxid = append(d.czxid, 1<<32+int64(n))
	}
	programs := queuePrograms
	if r.IntN(2) == 0 { // of few kinds
		programs = programs[r.IntN(len(programs)):]
		programs = programs[:min(len(programs), 1+r.IntN(3))]
	}
	for range r.IntN(9) {
		d.add(d.path, programs[r.IntN(len(programs))], queueLock)
	}
	if r.IntN(3) == 0 {
		d.put(oddNode{path: d.path + "/" + CuratorLeases})
		d.put(oddNode{path: d.path + "/" + CuratorLocks})
		for range r.IntN(4) {
			d.add(d.path+"/"+CuratorLeases, curatorLease, queueCuratorLeases)
			d.add(d.path+"/"+CuratorLocks, curatorWaiter, queueCuratorLocks)
		}
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(4) {
			d.add(d.path, kazooLease, queueKazooLeases)
			d.add(d.path+KazooLockSuffix, kazooWaiter, queueKazooLocks)
		}
	}
	d.bystanders()
	return d
}

// verdict is what matters of a contender.
type verdict struct {
	Path          string
	Session       int64
	Kind          Kind
	Layout        string
	Library       string
	Held, MayHold bool
	Orphan        bool
	MayIgnore     []string
}

func (c *Contender) verdict() verdict {
	return verdict{c.Path + "/" + c.Node, c.Session, c.Kind, c.Layout, c.Library, c.Held, c.MayHold, c.Orphan, c.MayIgnore}
}

// judged is what package locknode says of all locks of the directory, from its nodes alone, as the
// console and the command lockkeeper inspect ask it.
func (d *oddDirectory) judged() map[string][]verdict {
	exists := map[string]bool{}
	for _, n := range d.nodes {
		exists[n.path] = true
	}
	queues := map[string][]Contender{}
	for _, n := range d.nodes {
		if n.session == 0 {
			continue
		}
		dir, name := Split(n.path)
		lock, plain := Place(n.path, func(path string) bool { return exists[path+"/"+CuratorLeases] })
		c := New(dir, name, n.session, time.Time{}, n.czxid, n.data)
		if plain {
			c = Plain(c)
		}
		queues[lock] = append(queues[lock], c)
	}
	all := map[string][]verdict{}
	for lock, queue := range queues {
		if len(queue) > 1 || !queue[0].Held {
			queue = Resolve(Sorted(lock, queue))
		}
		for _, c := range queue {
			all[lock] = append(all[lock], c.verdict())
		}
	}
	return all
}

// asked is what package locknode says of the lock to who reads its queues, as package recipes does.
func (d *oddDirectory) asked() (list []verdict) {
	for _, c := range Resolve(Sorted(d.path, d.read())) {
		list = append(list, c.verdict())
	}
	return list
}

// read returns the contenders of the lock. It reads the queue of a semaphore's waiters if there is
// a semaphore.
func (d *oddDirectory) read() (all []Contender) {
	parts := []string{d.path, d.path + "/" + CuratorLeases}
	for _, n := range d.nodes {
		switch {
		case n.path == d.path+"/"+CuratorLeases:
			parts = append(parts, d.path+"/"+CuratorLocks)
		case n.queue == queueKazooLocks:
			parts = append(parts, d.path+KazooLockSuffix)
		}
	}
	for _, n := range d.nodes {
		dir, name := Split(n.path)
		if n.session != 0 && slices.Contains(parts, dir) && Contends(name) {
			all = append(all, New(dir, name, n.session, time.Time{}, n.czxid, n.data))
		}
	}
	return all
}

// oracle says the same from how the nodes were meant, and the documented rules of the libraries.
type oracle struct {
	cells map[[2]string]string // of docs/guarantees.md, by row and column
}

// columns are the layouts by the head of their column in docs/guarantees.md.
var columns = map[string]string{
	"`lock-`": LayoutLock, "`__WRIT__`": LayoutWrite, "`__READ__`": LayoutRead, "`__lock__`": LayoutKazooLock,
	"`__rlock__`": LayoutKazooRead, "`x-`": LayoutSession, "Curator lease": LayoutLease, "kazoo lease": LayoutKazooLease,
}

func newOracle(t *testing.T) *oracle {
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{cells: map[[2]string]string{}}
	var heads []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 1+len(columns) && cells[0] == "who comes" {
			heads = cells
			continue
		}
		if len(cells) != len(heads) || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for i, cell := range cells[1:] {
			o.cells[[2]string{cells[0], columns[heads[1+i]]}] = cell
		}
	}
	if len(o.cells) != 17*len(columns) {
		t.Fatalf("docs/guarantees.md has %d cells", len(o.cells))
	}
	return o
}

// passes says whether a lock of the row takes no notice of a node of the layout.
func (o *oracle) passes(row, layout string) bool {
	if cell, ok := o.cells[[2]string{row, layout}]; ok {
		return cell == "**in**"
	}
	switch row { // the table has no such cell
	case rowOwnMutex, rowGo, rowShared:
		return false // they wait for every number
	case rowKazooS:
		return false // it counts every child of its path
	case rowLatch:
		return layout != LayoutLatch
	case rowOffer:
		return layout != LayoutOffer
	case rowUnknown:
		return layout != ""
	}
	return true
}

// mayIgnore says whether some program that c may be of takes no notice of other.
func (o *oracle) mayIgnore(c, other *oddNode) bool {
	layout := other.program.layout
	switch { // who waits for a lease stands for it
	case other.queue == queueCuratorLocks:
		layout = LayoutLease
	case other.queue == queueKazooLocks:
		layout = LayoutKazooLease
	}
	rows := c.program.rows
	if c.own {
		rows = []string{rowOwnMutex}
	}
	return slices.ContainsFunc(rows, func(row string) bool { return o.passes(row, layout) })
}

// place is where in the order of a queue a node comes: exhausted is behind every number that a
// server hands out in order.
func (n *oddNode) place() int64 {
	if n.signed {
		return MaxSequence
	}
	return n.number
}

func before(a, b *oddNode) int {
	return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.czxid, b.czxid), strings.Compare(a.path, b.path))
}

// conflict says whether c has to wait for other, by the rules of c's library. Only package recipes
// reads that a writer is content with reading by now.
func conflict(c, other *oddNode) bool {
	reads := c.program.kind == KindRead || c.downgraded
	return !reads || other.program.kind != KindRead && (!other.downgraded || !c.own)
}

// overtakes says whether the end of the counter hides other from c's library: it sorts a sign
// before all digits, and which of two equal numbers comes first is not said.
func overtakes(c, other *oddNode) bool {
	return !c.own && (c.signed || c.place() == MaxSequence && other.place() == MaxSequence)
}

func (o *oracle) judge(d *oddDirectory) map[string][]verdict {
	all := map[string][]verdict{}
	var nodes []*oddNode
	for i := range d.nodes {
		n := &d.nodes[i]
		switch {
		case n.session == 0:
		case n.plain:
			_, name := Split(n.path)
			all[n.path] = []verdict{{Path: n.path, Session: n.session, Kind: KindWrite, Library: Library(name, false), Held: true}}
		case n.queue == queueOther:
			dir, _ := Split(n.path)
			all[dir] = []verdict{{Path: n.path, Session: n.session, Kind: n.program.kind, Layout: n.program.layout,
				Library: n.program.library, Held: true}}
		default:
			nodes = append(nodes, n)
		}
	}
	held, places := map[*oddNode]bool{}, map[*oddNode]bool{}
	for _, n := range nodes {
		if n.queue == queueCuratorLeases || n.queue == queueKazooLeases {
			first, is := isNext(n, nodes)
			held[n] = !is
			places[first] = is
		}
	}
	type placed struct {
		*oddNode
		verdict
		rank int
	}
	var list []placed
	for _, n := range nodes {
		if places[n] {
			continue // its lease stands for it
		}
		p := placed{n, o.one(n, nodes, held), 0}
		if p.Held {
			p.rank = -2
		} else if p.MayHold {
			p.rank = -1
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.queue, b.queue), before(a.oddNode, b.oddNode))
	})
	for _, p := range list {
		all[d.path] = append(all[d.path], p.verdict)
	}
	return all
}

// isNext: a lease is not held if it is the newest of the session that is the first to wait for one,
// since before it made the lease. The place of that session in the queue is first.
func isNext(lease *oddNode, nodes []*oddNode) (first *oddNode, is bool) {
	for _, n := range nodes {
		if n.queue == lease.queue+1 && (first == nil || before(n, first) < 0) {
			first = n
		}
	}
	if first == nil || first.session != lease.session || first.czxid > lease.czxid {
		return nil, false
	}
	for _, n := range nodes {
		if n.queue == lease.queue && n.session == lease.session &&
			cmp.Or(cmp.Compare(n.czxid, lease.czxid), strings.Compare(n.path, lease.path)) > 0 {
			return nil, false
		}
	}
	return first, true
}

func (o *oracle) one(c *oddNode, nodes []*oddNode, held map[*oddNode]bool) verdict {
	p := c.program
	v := verdict{Path: c.path, Session: c.session, Kind: p.kind, Layout: p.layout, Library: p.library}
	if c.own {
		v.Library = LibraryOwn
	}
	conflicts, ignores := 0, 0
	for _, other := range nodes {
		if other == c {
			continue
		}
		if other.queue == c.queue && other.session == c.session {
			v.Orphan = true
		}
		inFront := held[other] && other.czxid < c.czxid ||
			other.queue == queueLock && before(other, c) < 0
		if c.queue == queueLock && inFront && conflict(c, other) {
			conflicts++
			// A reader of package recipes with data of its program has Curator's name.
			shares := other.downgraded && c.program.library == LibraryCurator && c.program.layout == LayoutRead && !c.own
			if o.mayIgnore(c, other) || shares || other.queue == queueLock && overtakes(c, other) {
				ignores++
			}
		}
	}
	if c.queue == queueLock {
		v.Held = conflicts == 0
		v.MayHold = conflicts > 0 && conflicts == ignores
	} else {
		v.Held = held[c]
	}
	v.MayIgnore = o.strangers(c, nodes)
	return v
}

// strangers are the layouts of other libraries' nodes of which c takes no notice.
func (o *oracle) strangers(c *oddNode, nodes []*oddNode) (layouts []string) {
	family := func(n *oddNode) string {
		switch {
		case n.queue == queueCuratorLocks:
			return LayoutLease
		case n.queue == queueKazooLocks:
			return LayoutKazooLease
		case n.program.layout == LayoutRead:
			return LayoutWrite
		case n.program.layout == LayoutKazooRead:
			return LayoutKazooLock
		}
		return n.program.layout
	}
	for _, other := range nodes {
		shares := c.program.kind == other.program.kind && (c.program.kind == KindRead || c.program.kind == KindLease)
		if shares || family(c) == family(other) || !o.mayIgnore(c, other) {
			continue
		}
		layout := other.program.layout
		if other.queue == queueCuratorLocks || other.queue == queueKazooLocks {
			layout = family(other)
		}
		layouts = append(layouts, layout)
	}
	slices.Sort(layouts)
	return slices.Compact(layouts)
}

const oracleDirectories = 8_000

// TestOracle compares the verdicts on random directories with those of a naive oracle, which knows
// how each node was meant and asks the table of docs/guarantees.md for each pair of them. The order
// in which the nodes come does not matter.
func TestOracle(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	o := newOracle(t)
	held, may, waits := 0, 0, 0
	for round := range oracleDirectories {
		d := newOddDirectory(r)
		want := o.judge(d)
		for range 3 {
			got := d.judged()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, round %d:\n%s", seed, round, explain(d, got, want))
			}
			if asked := map[string][]verdict{d.path: d.asked()}; !reflect.DeepEqual(asked[d.path], want[d.path]) {
				t.Fatalf("seed %d, round %d, who reads the queues:\n%s", seed, round, explain(d, asked, want))
			}
			r.Shuffle(len(d.nodes), func(i, j int) { d.nodes[i], d.nodes[j] = d.nodes[j], d.nodes[i] })
		}
		for _, v := range want[d.path] {
			switch {
			case v.Held:
				held++
			case v.MayHold:
				may++
			default:
				waits++
			}
		}
	}
	t.Logf("seed %d: %d hold, %d may hold, %d wait", seed, held, may, waits)
	if least := min(held, may, waits); least < oracleDirectories/2 {
		t.Errorf("of one kind there are only %d", least)
	}
}

// explain shows the nodes of a directory and where the verdicts differ.
func explain(d *oddDirectory, got, want map[string][]verdict) string {
	var b strings.Builder
	for _, n := range d.nodes {
		fmt.Fprintf(&b, "%d %s of %#x %s\n", n.czxid, n.path, n.session, n.data)
	}
	for _, m := range []map[string][]verdict{got, want} {
		b.WriteString("verdict:\n")
		for lock, list := range m {
			other := want
			if reflect.ValueOf(m).Pointer() == reflect.ValueOf(want).Pointer() {
				other = got
			}
			for i, v := range list {
				if i >= len(other[lock]) || !reflect.DeepEqual(other[lock][i], v) {
					fmt.Fprintf(&b, "%s %d: %+v\n", lock, i, v)
				}
			}
		}
	}
	return b.String()
}

// TestExtract: an Extract says of each contender what Resolve says of it among all.
func TestExtract(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	held, waits := 0, 0
	for round := range oracleDirectories / 4 {
		d := newOddDirectory(r)
		all := d.read()
		tokens := map[int64]int{}
		for _, c := range all {
			tokens[c.Token]++
		}
		want := Resolve(Sorted(d.path, slices.Clone(all)))
		holders := map[string]bool{}
		for _, c := range want {
			if c.Held {
				holders[c.Node] = true
			}
		}
		for _, c := range want {
			if tokens[c.Token] > 1 {
				continue // one command has made several
			}
			v := extractOf(d.path, all, c.Token).Verdict()
			if v.Own == nil || v.Own.Node != c.Node || v.Own.Held != c.Held || v.Own.MayHold != c.MayHold || v.Own.Kind != c.Kind ||
				(v.Holds == nil) != (len(holders) == 0) || v.Holds != nil && !holders[v.Holds.Node] ||
				(v.Behind == nil) != (c.Held || c.Kind == KindLease) {
				t.Fatalf("seed %d, round %d, %+v:\n%+v, held by %v\n%s", seed, round, c, v, holders, explain(d, nil, nil))
			}
			if c.Held {
				held++
			} else {
				waits++
			}
		}
	}
	t.Logf("seed %d: %d hold, %d do not", seed, held, waits)
}

// extractOf adds the queues of semaphores first.
func extractOf(path string, all []Contender, token int64) *Extract {
	e := NewExtract(path, token)
	for _, queues := range []bool{true, false} {
		for _, c := range all {
			if is := c.Path == path+"/"+CuratorLocks || c.Path == path+KazooLockSuffix; is == queues {
				e.Add(c)
			}
		}
	}
	return e
}
