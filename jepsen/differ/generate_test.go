package differ

import (
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"lockkeeper/wire"
)

// generator makes steps. It follows the answers of the first server, so that many of its requests
// make sense. Its steps follow from its seed and those answers alone.
type generator struct {
	rng   *rand.Rand
	mood  mood
	step  int
	slots []held

	restarted bool // the observer has lost its connection

	grown    []string // paths that creates have returned and that are not in the pool, oldest first
	versions map[string]wire.Stat
	changed  map[string]int // the step that last changed a path's data or children
	salt     uint32
}

// held is the generator's knowledge of a slot.
type held struct{ session, connection bool }

// mood is how likely things are in one round. Rounds with different moods find more than one that
// has a little of everything.
type mood struct {
	weights  []float64 // of the kinds of requests
	closedP  float64   // that an ACL is not the open one
	watchP   float64   // that a read sets a watch
	damageP  float64   // that a request is damaged
	badPathP float64   // that a path is one that makes no sense
	batchP   float64   // that a step has several requests
	sessionP float64   // that a step is about connections
	ttl      bool      // TTL nodes are enabled
	quota    bool      // there are quotas
	enforce  bool      // they are enforced
}

func newGenerator(seed uint64, slots int) *generator {
	rng := rand.New(rand.NewPCG(seed, 1))
	g := &generator{rng: rng, slots: make([]held, slots), salt: rng.Uint32(),
		versions: make(map[string]wire.Stat), changed: make(map[string]int)}
	swarm := []float64{0, 0.3, 1, 1, 1, 3}
	for _, k := range kinds {
		g.mood.weights = append(g.mood.weights, k.weight*swarm[rng.IntN(len(swarm))])
	}
	g.mood.weights[0] += kinds[0].weight // there is always something to create
	pick := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	g.mood.closedP = pick(0, 0.05, 0.15, 0.4)
	g.mood.watchP = pick(0, 0.2, 0.5, 0.8)
	g.mood.damageP = pick(0, 0.01, 0.05)
	g.mood.badPathP = pick(0.01, 0.05, 0.15)
	g.mood.batchP = pick(0, 0.2, 0.5)
	g.mood.sessionP = pick(0.01, 0.03, 0.1)
	g.mood.ttl = rng.IntN(4) != 0
	if g.mood.quota = rng.IntN(4) == 0; g.mood.quota {
		g.mood.weights[len(kinds)-1] += 5
	}
	g.mood.enforce = rng.IntN(2) == 0
	return g
}

// chance is true with probability p.
func (g *generator) chance(p float64) bool { return g.rng.Float64() < p }

func pick[T any](g *generator, list []T) T { return list[g.rng.IntN(len(list))] }

// next makes the next step.
func (g *generator) next() *Step {
	st := &Step{ID: g.step, Slot: g.rng.IntN(len(g.slots))}
	g.step++
	if g.restarted {
		g.restarted = false
		return observe(st.ID)
	}
	h := g.slots[st.Slot]
	switch {
	case g.chance(0.001):
		st.Kind, st.Slot = Restart, 0
		g.restarted = true
	case !h.session:
		st.Kind = Connect
		if g.chance(0.02) {
			st.Kind = Expire
			st.Requests = g.more(nil, st.Slot, 1+g.rng.IntN(4))
			st.Handshake = Handshake{TimeoutMs: 1}
			return st
		}
		st.Handshake = g.handshake(Connect)
		if st.Handshake.Zxid != SeenAhead && g.chance(0.3) {
			st.Requests = g.afterHandshake(st.Slot)
		}
	case !h.connection || g.chance(g.mood.sessionP):
		if h.connection && g.chance(0.5) {
			g.part(st)
			return st
		}
		st.Kind = Attach
		st.Handshake = g.handshake(Attach)
		if g.chance(0.3) {
			st.Requests = g.afterHandshake(st.Slot)
		}
	case g.chance(g.mood.batchP):
		st.Requests = g.more(nil, st.Slot, 2+g.rng.IntN(6))
	default:
		st.Requests = g.more(nil, st.Slot, 1)
	}
	return st
}

// part makes a step in which a connection ends.
func (g *generator) part(st *Step) {
	switch g.rng.IntN(8) {
	case 0, 1, 2:
		st.Kind = Drop
	case 3, 4, 5:
		st.Requests = g.more(nil, st.Slot, g.rng.IntN(3))
		st.Requests = append(st.Requests, newRequest(wire.OpCloseSession, nil))
		if g.chance(0.3) && !g.oneByOne() { // none of this may take effect
			if r := g.request(st.Slot); !r.mayClose() {
				st.Requests = append(st.Requests, r)
			}
		}
	case 6:
		st.Requests = []Request{g.farewell()}
	case 7:
		st.Kind = Raw
		st.Bytes = pick(g, rawBytes)
	}
}

// farewell is a request after which the server closes the connection.
func (g *generator) farewell() Request {
	switch g.rng.IntN(4) {
	case 0:
		ops := []wire.Op{0, 10, 23, 99, 108, -1, -2, 1000, -100}
		return newRequest(pick(g, ops), encoded(make([]byte, g.rng.IntN(20))))
	case 1:
		r := newRequest(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(userOne)})
		if g.chance(0.5) {
			r = newRequest(wire.OpSASL, wire.SASLRequest{Token: pick(g, [][]byte{nil, []byte("x")})})
		}
		r.Damage.Cut = g.rng.IntN(5)
		return r
	default:
		return newRequest(wire.OpAuth, pick(g, []wire.AuthPacket{
			{Scheme: "world", Auth: []byte("anyone")}, {Scheme: "nonsense"}, {Scheme: "", Auth: []byte{}},
			{Scheme: "digest"}, {Scheme: "sasl", Auth: []byte("x")}, {Scheme: "auth"},
			{Scheme: "super", Auth: []byte("super:super")},
			{Scheme: "x509", Auth: []byte("CN=a")}, {Scheme: "Digest", Auth: []byte("u1:p1")},
		}))
	}
}

// rawBytes are frames that are none.
var rawBytes = [][]byte{
	{0, 0, 0, 0},
	{0, 0, 0, 4, 0, 0, 0, 1},
	{0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0},
	{0xFF, 0xFF, 0xFF, 0xFF},
	{0x80, 0, 0, 0},
	{0, 0x10, 0, 0}, // one more than jute.maxbuffer
	[]byte("ruok"),
	[]byte("GET / HTTP/1.1\r\n\r\n"),
}

// handshake makes a connect request, mostly one that succeeds.
func (g *generator) handshake(kind Kind) Handshake {
	h := Handshake{TimeoutMs: sessionTimeoutMs}
	switch g.rng.IntN(4) {
	case 0:
		h.TimeoutMs = 2 * sessionTimeoutMs // more than there is
	case 1:
		h.TimeoutMs = sessionTimeoutMs - 1 - int32(g.rng.IntN(1000))
	}
	if g.chance(0.7) {
		h.HasReadOnly, h.ReadOnly = true, g.chance(0.3)
	}
	if g.chance(0.3) {
		h.Zxid = SeenLast
	}
	if !g.chance(0.25) {
		return h
	}
	switch g.rng.IntN(10) {
	case 0:
		h.Zxid = SeenAhead // it waits for a second
	case 1, 2, 3:
		h.Password = pick(g, []Password{WrongPassword, ShortPassword, NullPassword})
	case 4, 5, 6:
		h.Foreign = kind == Attach
	default:
		h.HasReadOnly, h.Tail = true, 1+g.rng.IntN(9)
	}
	return h
}

// afterHandshake makes the requests that clients send right behind a connect request.
func (g *generator) afterHandshake(slot int) []Request {
	var list []Request
	if g.chance(0.5) {
		list = append(list, g.auth(slot))
	}
	if g.chance(0.7) {
		list = append(list, g.setWatches(slot))
	}
	return g.more(list, slot, g.rng.IntN(3))
}

// more adds n requests to those that are sent at once.
func (g *generator) more(list []Request, slot, n int) []Request {
	setsACL := func(r Request) bool { return r.Op == wire.OpSetACL }
	for range n {
		if len(list) > 0 && g.oneByOne() {
			break
		}
		r := g.request(slot)
		if len(list) > 0 && r.mayClose() {
			continue // its answer may overtake others
		}
		if r.needsACL() && slices.ContainsFunc(list, setsACL) {
			// With which ACL ZooKeeper checks a write behind a setACL is a matter of time: among
			// the changes that are still to be applied it keeps the new aversion, but not the new
			// ACL.
			continue
		}
		list = append(list, r)
	}
	return list
}

// request makes one request.
func (g *generator) request(slot int) Request {
	total := 0.0
	for _, w := range g.mood.weights {
		total += w
	}
	at := g.rng.Float64() * total
	i := 0
	for ; i < len(kinds)-1; i++ {
		if at -= g.mood.weights[i]; at < 0 {
			break
		}
	}
	r := kinds[i].make(g, slot)
	if r.mayClose() {
		return r
	}
	if g.chance(g.mood.damageP) {
		g.damage(&r)
	}
	if g.chance(0.02) {
		r.OwnXid, r.Xid = true, pick(g, []wire.Xid{0, -3, -8, -4, -100, 1 << 30, -1 << 31, 1<<31 - 1})
	}
	return r
}

// damage spoils the bytes of a request.
func (g *generator) damage(r *Request) {
	if r.Body == nil {
		r.Body = encoded{}
	}
	switch g.rng.IntN(4) {
	case 0:
		switch r.Op {
		case wire.OpSetWatches, wire.OpSetWatches2, wire.OpWhoAmI, wire.OpPing:
		case wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches:
			// A watch without a path breaks 3.8.0: it cannot close the connection any more.
		default:
			r.Damage.NullPath = true
		}
	case 1:
		r.Damage.Tail = 1 + g.rng.IntN(12)
	default:
		r.Damage.Cut = 1 + g.rng.IntN(len(r.Body.Append(nil))+1)
	}
}

// observe takes note of the first server's answer.
func (g *generator) observe(s *side, streams []stream) {
	for i := range g.slots {
		g.slots[i] = held{session: s.slots[i].id != 0, connection: s.slots[i].conn != nil}
	}
	for _, st := range streams {
		for i := range st.items {
			if it := &st.items[i]; it.kind == reply && it.request != nil && it.header.Err == wire.CodeOK {
				g.learn(it)
			}
		}
	}
}

func (g *generator) learn(it *item) {
	rec, err := wire.DecodeResponse(it.request.Op, it.body)
	if err != nil {
		return
	}
	path := it.request.path()
	if it.request.changes(it.body) && path != "" {
		g.changed[path] = g.step - 1
		g.changed[path[:strings.LastIndexByte(path, '/')]] = g.step - 1
	}
	if it.request.Op == wire.OpDelete {
		g.grown = slices.DeleteFunc(g.grown, func(p string) bool { return p == path })
		delete(g.versions, path)
	}
	switch q := rec.(type) {
	case *wire.CreateResponse:
		g.born(q.Path)
	case *wire.Create2Response:
		g.born(q.Path)
	case *wire.MultiResponse:
		for _, p := range q.Results {
			if p.Path != "" {
				g.born(p.Path)
			}
		}
	default:
		if stat := reflect.ValueOf(rec).Elem().FieldByName("Stat"); stat.IsValid() {
			g.versions[path] = stat.Interface().(wire.Stat)
		}
	}
}

func (g *generator) born(path string) {
	g.versions[path] = wire.Stat{}
	if slices.Contains(pool, path) || slices.Contains(g.grown, path) || strings.HasPrefix(path, "/zookeeper") {
		return
	}
	g.grown = append(g.grown, path)
}

// watchClass says in which way a slot watches a path: ZooKeeper 3.8 remembers one way only, the
// last one (docs/protocol/watches.md 7), and the newer ones keep them apart.
func (g *generator) watchClass(slot int, path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int((h.Sum32()^g.salt)>>3+uint32(slot)) % 5
}

// The ways of watching: 0 to 2 are the one-shot watches.
const (
	classPersistent = 3
	classRecursive  = 4
)
