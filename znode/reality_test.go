package znode

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/freeport"
	"lockkeeper/wire"
)

var realitySeed = flag.Uint64("reality-seed", 0, "what TestReality starts its random numbers with, 0 for the clock")

// TestReality sends random requests to a ZooKeeper and to a Store and compares the answers: codes,
// paths, data, and of the Stats all that does not depend on the clock or on how zxids are counted.
// It avoids the differences of Debian's 3.8.0 from 3.9 (docs/protocol/wire.md section
// 13) and those that the Store makes on purpose (quotas within quotas and within a multi).
func TestReality(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a ZooKeeper")
	}
	const jar, logger = "/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"
	if _, err := os.Stat(jar); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("apt-get install zookeeper: ", err)
		}
		t.Skip("apt-get install zookeeper: ", err)
	}
	dir := t.TempDir()
	ports, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	config := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", dir, ports[0])
	if err := os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.enforceQuota=true", "-cp", jar+":"+logger,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("%s", output.Bytes()[max(0, output.Len()-3000):])
		}
	})
	seed := *realitySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	r := &reality{oracle: newOracle(t, seed), zk: dialZooKeeper(t, addr)}
	r.seen = map[string]int{}
	r.flags = EnforceQuota | ExtendedTypes
	r.apply(Command{Session: realSession, Body: &CreateSession{Connection: Connection{Addr: "127.0.0.1"}}})
	r.conns[realSession] = &conn{generation: 1}
	for range 1500 {
		r.step()
	}
	// Now the same under a quota.
	r.quota = true
	for _, c := range []wire.Record{
		create("/a", "", 0), create("/zookeeper/quota/a", "", 0),
		create("/zookeeper/quota/a/zookeeper_limits", "countHardLimit=9", 0), create("/zookeeper/quota/a/zookeeper_stats", "", 0),
	} {
		r.both(r.driver.request(realSession, wire.OpCreate, c))
	}
	for range 1500 {
		r.step()
	}
	// Histories differ a lot; this one must not have ended in a state in which everything is
	// refused.
	if r.seen[wire.CodeOK.Error()] < 100 || len(r.seen) < 8 {
		t.Errorf("only these answers came up: %v", r.seen)
	}
	t.Logf("%v", r.seen)
}

const realSession = wire.SessionID(1)

// zooKeeper is a connection to a ZooKeeper.
type zooKeeper struct {
	conn net.Conn
	xid  wire.Xid
}

// dialZooKeeper opens a session as soon as the server takes one.
func dialZooKeeper(t *testing.T, addr string) *zooKeeper {
	t.Helper()
	var err error
	for start := time.Now(); time.Since(start) < 60*time.Second; time.Sleep(50 * time.Millisecond) {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err != nil {
			continue
		}
		// A server that is just starting may accept a connection and never answer.
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if _, err = c.Write(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 40000})); err == nil {
			if _, err = wire.ReadFrame(c, nil, 1<<20); err == nil {
				t.Cleanup(func() { c.Close() })
				return &zooKeeper{conn: c}
			}
		}
		c.Close()
	}
	t.Fatalf("no session with ZooKeeper: %v", err)
	return nil
}

// call sends a request with an encoded body and returns the code and the body of the
// reply.
func (z *zooKeeper) call(op wire.Op, body []byte) (wire.Code, []byte, error) {
	z.xid++
	_ = z.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := z.conn.Write(wire.AppendRequest(nil, z.xid, op, encoded(body))); err != nil {
		return 0, nil, err
	}
	frame, err := wire.ReadFrame(z.conn, nil, 1<<24)
	if err != nil {
		return 0, nil, err
	}
	h, reply, err := wire.DecodeReply(frame)
	if err == nil && h.Xid != z.xid {
		err = errors.New("reply out of order")
	}
	return h.Err, reply, err
}

// encoded is a record that has been encoded.
type encoded []byte

func (e encoded) Append(b []byte) []byte { return append(b, e...) }

// reality is an oracle that asks ZooKeeper.
type reality struct {
	*oracle
	zk    *zooKeeper
	quota bool // there is one on /a
}

// comparable returns the part that two servers must agree about.
func comparableStat(s wire.Stat) string {
	return fmt.Sprintf("v=%d cv=%d av=%d len=%d children=%d owned=%v changed=%v child=%v",
		s.Version, s.Cversion, s.Aversion, s.DataLength, s.NumChildren, s.EphemeralOwner != 0, s.Mzxid != s.Czxid, s.Pzxid != s.Czxid)
}

// request returns a random request that both are to answer alike.
func (r *reality) nextRequest() Command {
	for {
		c := r.randomRequest(realSession)
		undo := func() { r.conns[realSession].seq-- }
		if c.req().Op == wire.OpCloseSession || c.req().Op == wire.OpCheck || c.req().Op == wire.OpDeleteContainer || c.req().Op == wire.OpGetData {
			undo()
			continue
		}
		c.req().Identities = nil
		if r.rng.IntN(30) == 0 && c.req().Op != wire.OpMulti {
			c.req().Body = c.req().Body[:r.rng.IntN(len(c.req().Body)+1)]
		}
		if !r.fair(c) {
			undo()
			continue
		}
		return c
	}
}

// fair reports whether a request keeps away from the known differences.
func (r *reality) fair(c Command) bool {
	rec, err := wire.DecodeBody(c.req().Op, c.req().Body)
	if err != nil {
		return c.req().Op != wire.OpMulti // in a multi, 3.8 refuses less as a whole
	}
	ops := []wire.MultiOp{{Op: c.req().Op, Record: rec}}
	if m, ok := rec.(*wire.MultiRequest); ok {
		ops = m.Ops
	}
	for _, op := range ops {
		path := ""
		switch q := op.Record.(type) {
		case *wire.CreateRequest:
			path = q.Path
			if c.req().Op == wire.OpMulti && (op.Op == wire.OpCreateContainer || op.Op == wire.OpCreate2) {
				return false // no Stat in 3.8
			}
		case *wire.CreateTTLRequest:
			path = q.Path
			if c.req().Op == wire.OpMulti || !q.Mode.TTL() {
				return false // crashes ZooKeeper; and no Stat
			}
		case *wire.SetDataRequest:
			path = q.Path
		case *wire.DeleteRequest:
			path = q.Path
		case *wire.SetACLRequest:
			path = q.Path
			if builtIn(path) {
				return false // it could lock us out of everything
			}
		}
		// A multi may overshoot a quota there, not here. While there are stats and no limits,
		// ZooKeeper loses count; and it answers the creation of stats before it writes the usage
		// into them.
		limited, isLimits := limitsOf(path)
		counted, isStats := statsOf(path)
		switch {
		case underQuota(path) && !r.quota, c.req().Op == wire.OpMulti && r.quota:
			return false
		case isLimits && (limited != "/a" || op.Op == wire.OpDelete), isStats && (counted != "/a" || op.Op != wire.OpDelete):
			return false
		case path == "/zookeeper/quota/zookeeper_limits", path == "/zookeeper/quota/zookeeper_stats":
			return false
		}
	}
	return true
}

func (r *reality) step() {
	r.t.Helper()
	r.both(r.nextRequest())
	r.compareNode()
}

// both sends a request to both.
func (r *reality) both(c Command) {
	r.t.Helper()
	r.timeMs++
	got := r.oracle.apply(c)[0]
	code, body, err := r.zk.call(c.req().Op, c.req().Body)
	if err != nil {
		r.t.Fatalf("%v %x: %v", c.req().Op, c.Body, err)
	}
	rec, _ := wire.DecodeBody(c.req().Op, c.req().Body)
	r.seen[code.Error()]++
	if code != got.Code {
		r.t.Fatalf("%v %+v: %v, ZooKeeper says %v", c.req().Op, rec, got.Code, code)
	}
	if code == wire.CodeOK {
		if here, there := r.mine(c, got), r.theirs(c.req().Op, body); here != there {
			r.t.Fatalf("%v %+v:\n%s\nZooKeeper says\n%s", c.req().Op, rec, here, there)
		}
	}
}

// mine and theirs describe an answer in the same words.
func (r *reality) mine(c Command, got Result) string {
	switch c.req().Op {
	case wire.OpCreate:
		return got.Path
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return got.Path + " " + comparableStat(got.Stat)
	case wire.OpSetData, wire.OpSetACL:
		return comparableStat(got.Stat)
	case wire.OpMulti:
		text := ""
		for _, res := range got.Multi {
			text += fmt.Sprintf("%v %v %s", res.Op, res.Code, res.Path)
			if res.Op == wire.OpSetData {
				text += comparableStat(res.Stat)
			}
			text += "\n"
		}
		return text
	}
	return ""
}

func (r *reality) theirs(op wire.Op, body []byte) string {
	rec, err := wire.DecodeResponse(op, body)
	if err != nil {
		r.t.Fatal(err)
	}
	switch q := rec.(type) {
	case *wire.CreateResponse:
		return q.Path
	case *wire.Create2Response:
		return q.Path + " " + comparableStat(q.Stat)
	case *wire.StatResponse:
		return comparableStat(q.Stat)
	case *wire.MultiResponse:
		text := ""
		for _, res := range q.Results {
			text += fmt.Sprintf("%v %v %s", res.Op, res.Err, res.Path)
			if res.Op == wire.OpSetData {
				text += comparableStat(*res.Stat)
			}
			text += "\n"
		}
		return text
	}
	return ""
}

// compareNode reads some node in both, its ACL and its children.
func (r *reality) compareNode() {
	r.t.Helper()
	path := r.path()
	ids := []Identity{{"ip", "127.0.0.1"}}
	get := func(op wire.Op) (wire.Code, []byte) {
		code, body, err := r.zk.call(op, wire.PathWatchRequest{Path: path}.Append(nil))
		if err != nil && err != io.EOF {
			r.t.Fatal(err)
		}
		return code, body
	}
	data, stat, code := r.s.Get(path, ids)
	there, body := get(wire.OpGetData)
	if code != there {
		r.t.Fatalf("getData %q: %v, ZooKeeper says %v", path, code, there)
	}
	if code == wire.CodeOK {
		var q wire.GetDataResponse
		if err := wire.Decode(body, &q); err != nil {
			r.t.Fatal(err)
		}
		if !bytes.Equal(q.Data, data) || (q.Data == nil) != (data == nil) || comparableStat(q.Stat) != comparableStat(stat) {
			r.t.Fatalf("getData %q: %q %s\nZooKeeper says %q %s", path, data, comparableStat(stat), q.Data, comparableStat(q.Stat))
		}
	}
	names, _, code := r.s.Children(path, ids)
	if there, body = get(wire.OpGetChildren); code == wire.CodeOK && there == code {
		var q wire.GetChildrenResponse
		if err := wire.Decode(body, &q); err != nil {
			r.t.Fatal(err)
		}
		slices.Sort(names)
		slices.Sort(q.Children)
		if !slices.Equal(names, q.Children) {
			r.t.Fatalf("getChildren %q: %q, ZooKeeper says %q", path, names, q.Children)
		}
	}
	acl, _, code := r.s.GetACL(path, ids)
	if there, body = get(wire.OpGetACL); code != there {
		r.t.Fatalf("getACL %q: %v, ZooKeeper says %v", path, code, there)
	}
	if code == wire.CodeOK {
		var q wire.GetACLResponse
		if err := wire.Decode(body, &q); err != nil {
			r.t.Fatal(err)
		}
		if !slices.Equal(acl, q.ACL) {
			r.t.Fatalf("getACL %q: %v, ZooKeeper says %v", path, acl, q.ACL)
		}
	}
}
