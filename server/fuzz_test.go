package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/internal/simnet"
	"lockkeeper/server/zoocfg"
	"lockkeeper/session/sasl"
	"lockkeeper/wire"
)

// How FuzzConnection sends its bytes.
const (
	fuzzRaw    = iota // as the first bytes of a connection
	fuzzFrames        // behind a handshake
	fuzzFrame         // as one frame behind a handshake
	fuzzBody          // as the body of one request behind a handshake
	fuzzModes
)

// fuzzTarget is a member, in memory, that lives as long as the process, and a client that must not
// be disturbed.
type fuzzTarget struct {
	server  *Server
	host    *simnet.Host
	witness *rawClient
}

// newFuzzTarget has no T to end with, because it outlives each one. A tick is how long a handshake
// may take on a busy machine, and how long one takes that claims to have seen the future.
var newFuzzTarget = sync.OnceValues(func() (*fuzzTarget, error) {
	n := simnet.New(simnet.Config{})
	cfg := Config{
		Machine:  zoocfg.Machine{Listen: n.Host("server").Listen, Stores: diskStores(simdisk.New())},
		Logger:   slog.New(slog.DiscardHandler),
		Sessions: zoocfg.Sessions{TickTime: 500 * time.Millisecond, MaxTimeout: time.Minute},
		Client:   zoocfg.Client{HandshakeTimeout: 10 * time.Second, MaxCnxnsPerAddr: Unlimited, FourLetterWords: []string{"*"}},
		Reap:     zoocfg.Reap{ExtendedTypes: true},
		Quotas:   zoocfg.Quotas{Enforce: true},
		Auth: zoocfg.Auth{
			SuperDigest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", // super:test
			SASLUsers:   sasl.Users{"bob": sasl.NewHA1("bob", "secret")}, Ensembles: []string{"alpha"}, KeyScheme: true,
		},
		Data: zoocfg.Data{SnapCount: 5000},
	}
	s, err := Start(cfg)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); !s.Serving(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, errors.New("the member does not serve")
		}
	}
	return &fuzzTarget{server: s, host: n.Host("client")}, nil
})

func (ft *fuzzTarget) dial(t *testing.T) *rawClient {
	t.Helper()
	nc, err := ft.host.Dial(context.Background(), "tcp", simAddr)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &rawClient{Conn: nc, t: t}
}

// check has the witness write and read, and be told of it, as if there were nobody else.
func (ft *fuzzTarget) check(t *testing.T) {
	t.Helper()
	if ft.witness == nil {
		ft.witness = ft.dial(t)
		ft.witness.connect(time.Minute)
		ft.witness.call(wire.OpAuth, &wire.AuthPacket{Scheme: "digest", Auth: []byte("super:test")})
	}
	w := ft.witness
	w.t = t
	_ = w.SetDeadline(time.Now().Add(patience))
	var made wire.CreateResponse
	if err := wire.Decode(w.call(wire.OpCreate, create("/witness-", []byte("x"), wire.ModeEphemeralSequential)), &made); err != nil {
		t.Fatal(err)
	}
	w.call(wire.OpExists, &wire.PathWatchRequest{Path: made.Path, Watch: true})
	w.put(w.request(wire.OpDelete, &wire.DeleteRequest{Path: made.Path, Version: -1})...)
	if h, body := w.reply(); h.Xid != wire.XidNotification {
		t.Fatalf("not an event: %+v %q", h, body)
	}
	if h, _ := w.reply(); h.Xid != w.xid || h.Err != wire.CodeOK {
		t.Fatalf("not the reply to xid %d: %+v", w.xid, h)
	}
}

// FuzzConnection feeds bytes to a live connection. Whatever they are, the member answers in whole
// frames or ends the connection, takes no memory for bytes that it has not got, and serves its
// other clients.
func FuzzConnection(f *testing.F) {
	for _, seed := range fuzzSeeds() {
		f.Add(seed.mode, seed.op, seed.b)
	}
	f.Fuzz(func(t *testing.T, mode uint8, op int32, b []byte) {
		ft, err := newFuzzTarget()
		if err != nil {
			t.Fatal(err)
		}
		ft.check(t)
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		c := ft.dial(t)
		if mode %= fuzzModes; mode != fuzzRaw {
			c.connect(2 * time.Second)
		}
		switch mode {
		case fuzzFrame:
			b = append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
		case fuzzBody:
			b = append(wire.AppendRequest(nil, 1, wire.Op(op), wire.Empty{}), b...)
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = c.Write(b) // the member may have closed it
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		framed := mode != fuzzRaw
		for framed {
			frame, err := wire.ReadFrame(c, nil, 64<<20)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection does not end")
			} else if errors.Is(err, wire.ErrFrameLength) {
				t.Fatalf("not a frame: %v", err)
			}
			// The last frame may be cut off: a malformed request ends the connection at once.
			if framed = err == nil; framed {
				if _, _, err := wire.DecodeReply(frame); err != nil {
					t.Fatalf("not a reply: %x", frame)
				}
			}
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the connection does not end")
		}
		<-sent
		_ = c.Close()
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		// The count includes allocations of others: snapshots, the fuzzing engine.
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(32<<20+1000*len(b)); got > limit {
			t.Errorf("%d bytes allocated for %d bytes", got, len(b))
		}
		ft.check(t)
	})
}

type fuzzSeed struct {
	mode uint8
	op   int32
	b    []byte
}

// fuzzSeeds are one of everything that a client can send.
func fuzzSeeds() (seeds []fuzzSeed) {
	add := func(mode uint8, op wire.Op, b []byte) { seeds = append(seeds, fuzzSeed{mode, int32(op), b}) }
	hello := wire.AppendFrame(nil, wire.ConnectRequest{TimeoutMs: 1000, Password: make([]byte, wire.PasswordLen), HasReadOnly: true})
	add(fuzzRaw, 0, hello)
	add(fuzzRaw, 0, append(hello, wire.AppendRequest(nil, wire.XidPing, wire.OpPing, wire.Empty{})...))
	add(fuzzRaw, 0, []byte{0xff, 0xf4, 0xff, 0xfd}) // telnet's interrupt
	for _, word := range zoocfg.FourLetterWords() {
		add(fuzzRaw, 0, []byte(word))
	}
	all := []byte{}
	for i, r := range fuzzRequests() {
		frame := wire.AppendRequest(nil, wire.Xid(i+1), r.op, r.body)
		all = append(all, frame...)
		add(fuzzFrame, 0, frame[4:])
		add(fuzzBody, r.op, frame[12:])
	}
	add(fuzzFrames, 0, all)
	login := wire.AppendRequest(nil, 1, wire.OpSASL, wire.SASLRequest{Token: []byte{}})
	login = wire.AppendRequest(login, 2, wire.OpSASL, wire.SASLRequest{Token: []byte(
		`charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="n",nc=00000001,cnonce="c",digest-uri="zookeeper/zk-sasl-md5",` +
			`response=e52e5f563def809ff706508b4ff4c66f,qop=auth,authzid="bob"`)})
	add(fuzzFrames, 0, login)
	return seeds
}

type fuzzRequest struct {
	op   wire.Op
	body wire.Record
}

func fuzzRequests() []fuzzRequest {
	some := create("/f", []byte("data"), wire.ModePersistentSequential)
	ttl := &wire.CreateTTLRequest{Path: "/t", ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: 1000}
	watch := &wire.PathWatchRequest{Path: "/f", Watch: true}
	path := &wire.PathRequest{Path: "/f"}
	sets := &wire.SetWatchesRequest{Data: []string{"/f"}, Exist: []string{"/g"}, Child: []string{"/"}}
	sets2 := *sets
	sets2.V2, sets2.Persistent, sets2.PersistentRecursive = true, []string{"/f"}, []string{"/"}
	return []fuzzRequest{
		{wire.OpCreate, some}, {wire.OpCreate2, some}, {wire.OpCreateContainer, create("/c", nil, wire.ModeContainer)}, {wire.OpCreateTTL, ttl},
		{wire.OpSetData, &wire.SetDataRequest{Path: "/f", Data: []byte("new"), Version: -1}},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "/f", ACL: wire.OpenACL, Version: 0}},
		{wire.OpDelete, &wire.DeleteRequest{Path: "/f", Version: -1}}, {wire.OpSync, &wire.SyncRequest{Path: "/"}},
		{wire.OpExists, watch}, {wire.OpGetData, watch}, {wire.OpGetChildren, watch}, {wire.OpGetChildren2, watch},
		{wire.OpGetACL, path}, {wire.OpGetAllChildrenNumber, path}, {wire.OpGetEphemerals, &wire.GetEphemeralsRequest{PrefixPath: "/"}},
		{wire.OpCheckWatches, &wire.WatchesRequest{Path: "/f", Type: wire.WatchTypeAny}},
		{wire.OpRemoveWatches, &wire.WatchesRequest{Path: "/f", Type: wire.WatchTypeAny}},
		{wire.OpAddWatch, &wire.AddWatchRequest{Path: "/f", Mode: wire.AddWatchPersistentRecursive}},
		{wire.OpSetWatches, sets}, {wire.OpSetWatches2, &sets2}, {wire.OpWhoAmI, wire.Empty{}}, {wire.OpPing, wire.Empty{}},
		{wire.OpAuth, &wire.AuthPacket{Scheme: "digest", Auth: []byte("a:b")}}, {wire.OpSASL, &wire.SASLRequest{Token: []byte{}}},
		{wire.OpAuth, &wire.AuthPacket{Scheme: "ensemble", Auth: []byte("alpha")}}, {wire.OpAuth, &wire.AuthPacket{Scheme: "key", Auth: []byte("7")}},
		{wire.OpMulti, &wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Record: some}, {Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: "/f", Version: 1}},
			{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/f", Version: -1}}}}},
		{wire.OpMultiRead, &wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpGetData, Record: path}, {Op: wire.OpGetChildren, Record: path}}}},
		{wire.OpReconfig, &wire.ReconfigRequest{CurConfigID: -1}}, {wire.OpCloseSession, wire.Empty{}},
	}
}
