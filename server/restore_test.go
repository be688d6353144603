package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/server/ops/admin"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// restorable lets a super user restore as often as a test likes.
func restorable(c *Config) {
	superSettings(c)
	c.HTTP.SnapshotInterval = time.Millisecond
}

const restorableLines = "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\nadmin.rateLimiterIntervalInMS=1\n"

func restoreClient(s *Server, auth string) *admin.Client {
	return &admin.Client{URL: "http://" + s.HTTPAddr().String() + "/commands", Authorization: auth,
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

func noProgress(int64, int64) {}

func download(t *testing.T, s *Server) ([]byte, znode.SnapshotInfo) {
	t.Helper()
	var b bytes.Buffer
	info, err := restoreClient(s, superAuth).Snapshot(t.Context(), &b, noProgress)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), info
}

func upload(t *testing.T, s *Server, snapshot []byte) (wire.Zxid, error) {
	t.Helper()
	time.Sleep(2 * s.cfg.HTTP.SnapshotInterval)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return restoreClient(s, superAuth).Restore(ctx, bytes.NewReader(snapshot), int64(len(snapshot)), "", noProgress)
}

// writing has a client write until stop, and reconnect when it has been cut off.
func writing(t *testing.T, s *Server, name string, stop <-chan struct{}) {
	for n := 0; ; {
		nc, err := net.Dial("tcp", s.ClientAddr().String())
		if err != nil {
			t.Error(err)
			return
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _ = nc.Write(wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 10_000, Password: make([]byte, wire.PasswordLen)}))
		buf := make([]byte, 4096)
		_, err = nc.Read(buf)
		for xid := int32(1); err == nil; xid++ {
			select {
			case <-stop:
				_ = nc.Close()
				return
			default:
			}
			mode := []wire.CreateMode{wire.ModePersistent, wire.ModeEphemeral}[n%2]
			n++
			_, _ = nc.Write(wire.AppendRequest(nil, wire.Xid(xid), wire.OpCreate, create(fmt.Sprintf("/%s-%d", name, n), []byte("data"), mode)))
			_, err = nc.Read(buf)
		}
		_ = nc.Close()
	}
}

// sameState compares the state of a member with a snapshot after the end of all its sessions: every
// node with its data, ACL and Stat. The restore changes a node that loses an ephemeral child.
func sameState(t *testing.T, s *Server, snapshot []byte, zxid wire.Zxid) {
	t.Helper()
	want, err := znode.Restore(bytes.NewReader(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	super := []znode.Identity{{Scheme: "super"}}
	lost := map[string]int32{} // ephemeral children
	nodes := 0
	var walk func(got *znode.Store, path string)
	walk = func(got *znode.Store, path string) {
		names, _, _ := want.Children(path, super)
		for _, name := range names {
			child := strings.TrimSuffix(path, "/") + "/" + name
			if _, stat, _ := want.Get(child, super); stat.EphemeralOwner != 0 {
				lost[path]++
				if _, _, code := got.Get(child, super); code != wire.CodeNoNode {
					t.Errorf("%s: the ephemeral node is there: %v", child, code)
				}
				continue
			}
			walk(got, child)
		}
		wantData, wantStat, _ := want.Get(path, super)
		data, stat, code := got.Get(path, super)
		wantACL, _, _ := want.GetACL(path, super)
		acl, _, _ := got.GetACL(path, super)
		if n := lost[path]; n > 0 {
			wantStat.Pzxid, wantStat.NumChildren, wantStat.Cversion = zxid, wantStat.NumChildren-n, wantStat.Cversion+n
		}
		nodes++
		if path != "/zookeeper/config" && (code != wire.CodeOK || !bytes.Equal(data, wantData) || stat != wantStat || fmt.Sprint(acl) != fmt.Sprint(wantACL)) {
			t.Errorf("%s: %q %+v %v, want %q %+v %v", path, data, stat, acl, wantData, wantStat, wantACL)
		}
	}
	s.View(func(got *znode.Store) {
		walk(got, "/")
		if err := got.Check(); err != nil {
			t.Error(err)
		}
		if got.Zxid() != zxid || got.Counts().Nodes != nodes+1 || got.Counts().Sessions != 0 {
			t.Errorf("%v with %+v, want %v with %d nodes", got.Zxid(), got.Counts(), zxid, nodes+1)
		}
	})
}

// TestRestoreIntoAnotherCluster: a snapshot that was saved under load, restored into another
// cluster, is the state of that moment, on all its members; the members of the cluster stay who
// they are.
func TestRestoreIntoAnotherCluster(t *testing.T) {
	from := startReal(t, restorable)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { writing(t, from, fmt.Sprintf("w%d", i), stop) })
	}
	await(t, "some nodes", func() bool {
		nodes := 0
		from.View(func(s *znode.Store) { nodes = s.Counts().Nodes })
		return nodes > 3000
	})
	snapshot, info := download(t, from)
	close(stop)
	writers.Wait()
	if info.Nodes < 3000 || info.Sessions < 4 {
		t.Fatalf("%+v", info)
	}

	members, _ := startCluster(t, restorableLines)
	for _, s := range members {
		awaitServing(t, s)
	}
	var config []byte
	var before wire.Zxid
	super := []znode.Identity{{Scheme: "super"}}
	await(t, "the configuration", func() bool {
		members[0].View(func(s *znode.Store) { config, _, _ = s.Get("/zookeeper/config", super); before = s.Zxid() })
		return len(config) > 0
	})
	c := dialReal(t, members[1])
	c.connect(10 * time.Second)
	c.call(wire.OpCreate, create("/gone", nil, wire.ModePersistent))
	c.call(wire.OpCreate, create("/gone/lock", nil, wire.ModeEphemeral))
	// Every member may be asked, not only the leader.
	follower := members[0]
	if follower.Status().Role == "leader" {
		follower = members[2]
	}
	sc := znode.NewSnapshotScanner(bytes.NewReader(snapshot))
	zxid, err := admin.Restore(t.Context(), follower.Ops(), sc)
	if err != nil || zxid <= info.Zxid || zxid <= before {
		t.Fatalf("%v, %v", zxid, err)
	}
	c.expectEnd()
	for _, s := range members {
		await(t, "the restore everywhere", func() bool {
			applied := wire.Zxid(0)
			s.View(func(store *znode.Store) { applied = store.Zxid() })
			return applied >= zxid
		})
		sameState(t, s, snapshot, zxid)
		s.View(func(store *znode.Store) {
			if got, _, _ := store.Get("/zookeeper/config", super); !bytes.Equal(got, config) {
				t.Errorf("the configuration is %q", got)
			}
		})
	}
	// The client's session has ended, and a new node has a greater zxid than everything before.
	again := dialReal(t, members[1])
	again.connect(10 * time.Second)
	again.call(wire.OpCreate, create("/new", nil, wire.ModePersistent))
	members[1].View(func(store *znode.Store) {
		if _, stat, code := store.Get("/new", super); code != wire.CodeOK || stat.Czxid <= zxid {
			t.Errorf("%v %+v", code, stat)
		}
	})
}

// TestRestoreOverHTTP: a snapshot that is damaged, cut off, too large or not from a super user is
// refused and changes nothing; the right one is restored while clients write.
func TestRestoreOverHTTP(t *testing.T) {
	checkGoroutines(t)
	s := startReal(t, func(c *Config) {
		restorable(c)
		c.Limits.Nodes = 20_000
	})
	c := dialReal(t, s)
	c.connect(10 * time.Second)
	for i := range 300 {
		c.call(wire.OpCreate, create(fmt.Sprintf("/n%d", i), []byte("data"), wire.ModePersistent))
	}
	_ = c.Close()
	snapshot, _ := download(t, s)
	digest := func() (d uint64) {
		s.View(func(store *znode.Store) { d = store.TreeDigest() })
		return d
	}
	before := digest()
	damaged := bytes.Clone(snapshot)
	damaged[len(damaged)/2] ^= 1
	for what, bad := range map[string][]byte{"damaged": damaged, "it ends too early": snapshot[:len(snapshot)-9],
		"something follows the end": append(bytes.Clone(snapshot), 1), "not a snapshot": []byte("PK\x03\x04 and more of that")} {
		if _, err := upload(t, s, bad); err == nil || !strings.Contains(err.Error(), what) && !strings.Contains(err.Error(), "checksum") || errors.Is(err, admin.ErrUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for auth, status := range map[string]int{"": 401, "digest a:b": 403} {
		_, err := restoreClient(s, auth).Restore(t.Context(), bytes.NewReader(snapshot), int64(len(snapshot)), "", noProgress)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("as %q: %v", auth, err)
		}
		if _, err := restoreClient(s, auth).Snapshot(t.Context(), &bytes.Buffer{}, noProgress); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("snapshot as %q: %v", auth, err)
		}
	}
	var large bytes.Buffer
	huge := bigStore(t, 30_000).Snapshot()
	if _, err := huge.WriteTo(&large); err != nil {
		t.Fatal(err)
	}
	if _, err := upload(t, s, large.Bytes()); err == nil || !strings.Contains(err.Error(), "maxNodes") {
		t.Errorf("too large: %v", err)
	}
	if digest() != before {
		t.Error("the state has changed")
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 3 {
		writers.Go(func() { writing(t, s, fmt.Sprintf("w%d", i), stop) })
	}
	for range 5 {
		zxid, err := upload(t, s, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		s.View(func(store *znode.Store) {
			if _, _, code := store.Get("/n299", nil); code != wire.CodeOK || store.Zxid() < zxid {
				t.Errorf("%v at %v, restored at %v", code, store.Zxid(), zxid)
			}
			if err := store.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	close(stop)
	writers.Wait()
}

// bigStore is a state with n nodes.
func bigStore(t *testing.T, nodes int) *znode.Store {
	t.Helper()
	s := znode.New()
	const id = wire.SessionID(1 << 56)
	s.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: id, Body: &znode.CreateSession{Connection: znode.Connection{TimeoutMs: 1000}}}}}, nil)
	for i := range nodes {
		body := create(fmt.Sprintf("/n%d", i), nil, wire.ModePersistent).Append(nil)
		s.Apply(1, &znode.Entry{Commands: []znode.Command{{Session: id, Generation: 1, Seq: uint64(i + 1), Body: &znode.Request{Op: wire.OpCreate, Body: body}}}}, nil)
	}
	return s
}

// TestSnapshotOfAnotherCluster: it is refused with both ids, and restored if its own is named. Then
// the state belongs to this cluster.
func TestSnapshotOfAnotherCluster(t *testing.T) {
	from, to := startReal(t, restorable), startReal(t, restorable)
	var own znode.ClusterID
	for _, s := range []*Server{from, to} { // a leader proposes the name soon after its election
		await(t, "a name", func() bool {
			s.View(func(s *znode.Store) { own = s.Cluster() })
			return own != 0
		})
	}
	snapshot, info := download(t, from)
	if info.Cluster == own {
		t.Fatalf("the snapshot is of %v, and this is %v", info.Cluster, own)
	}
	_, err := upload(t, to, snapshot)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("of %v, and this is %v", info.Cluster, own)) {
		t.Errorf("not named: %v", err)
	}
	restore := func(of string) error {
		time.Sleep(2 * to.cfg.HTTP.SnapshotInterval)
		_, err := restoreClient(to, superAuth).Restore(t.Context(), bytes.NewReader(snapshot), int64(len(snapshot)), of, noProgress)
		return err
	}
	if err := restore(own.String()); err == nil {
		t.Error("a wrong name is taken")
	}
	if err := restore(info.Cluster.String()); err != nil {
		t.Error(err)
	}
	to.View(func(s *znode.Store) {
		if s.Cluster() != own {
			t.Errorf("the state is of cluster %v, want %v", s.Cluster(), own)
		}
	})
}
