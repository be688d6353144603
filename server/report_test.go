package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"lockkeeper/wire"
)

// queuesOf has the fields of a report on queues that tests read.
type queuesOf struct {
	Locks []struct {
		Lock  struct{ Path, Kind string }
		Queue []struct {
			Session, Address, Note, Who string
			Held                        bool
		}
	}
	Next *struct {
		From   string
		Offset int
	}
}

// readReport reads a report as any client can: getData of a path.
func readReport(t *testing.T, c *rawClient, name string) (r queuesOf, code wire.Code) {
	t.Helper()
	c.put(c.request(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/api/v1/" + name})...)
	h, body := c.reply()
	if h.Err != wire.CodeOK {
		return r, h.Err
	}
	var got wire.GetDataResponse
	if err := wire.Decode(body, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got.Data, &r); err != nil || got.Stat.DataLength != int32(len(got.Data)) || got.Stat.Mzxid != h.Zxid {
		t.Fatalf("%v, Stat %+v, zxid %v: %s", err, got.Stat, h.Zxid, got.Data)
	}
	return r, h.Err
}

// TestReport: a client reads all locks with one request of its session, HTTP or not; behind its own
// writes, in parts if they do not fit, and nothing that it may not read.
func TestReport(t *testing.T) {
	s := startReal(t, nil)
	c, stranger := dialReal(t, s), dialReal(t, s)
	c.connect(10 * time.Second)
	stranger.connect(10 * time.Second)
	for _, path := range []string{"/a", "/b", "/b/c"} {
		c.call(wire.OpCreate, create(path, nil, wire.ModePersistent))
	}
	for range 3 {
		contend(t, c, "/a", "_c_34c73d33-a364-4285-8dd6-8b05f149fed9-lock-")
	}
	note := `{"by":"lockkeeper/recipes","program":"nightly","host":"web-3","pid":7,"since":"2026-11-21T14:00:00Z"}`
	c.call(wire.OpCreate2, create("/b/c/x__WRIT__", []byte(note), wire.ModeEphemeralSequential))
	c.call(wire.OpAuth, &wire.AuthPacket{Scheme: "digest", Auth: []byte("me:secret")})
	mine := create("/mine", nil, wire.ModePersistent)
	mine.ACL = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
	c.call(wire.OpCreate, mine)
	contend(t, c, "/mine", "lock-")
	closed := create("/a/x-lock-", []byte("who I am"), wire.ModeEphemeralSequential)
	closed.ACL = mine.ACL

	// Two requests at once: the report is made after the write.
	c.put(append(c.request(wire.OpCreate, closed),
		c.request(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/api/v1/queues"})...)...)
	c.reply()
	h, body := c.reply()
	var data wire.GetDataResponse
	var own queuesOf
	if err := wire.Decode(body, &data); err != nil || h.Err != wire.CodeOK || json.Unmarshal(data.Data, &own) != nil {
		t.Fatal(h, err)
	}
	if len(own.Locks) != 3 || own.Locks[0].Lock.Path != "/a" || len(own.Locks[0].Queue) != 4 || own.Locks[2].Lock.Path != "/mine" {
		t.Errorf("%s", data.Data)
	}
	if one := own.Locks[1].Queue[0]; one.Who != "nightly[7]@web-3" || !one.Held || one.Address != c.LocalAddr().String() {
		t.Errorf("%+v, not from %v", one, c.LocalAddr())
	}
	if last := own.Locks[0].Queue[3]; last.Who != "who I am" || last.Address == "" {
		t.Errorf("its own node: %+v", last)
	}

	theirs, _ := readReport(t, stranger, "queues")
	if len(theirs.Locks) != 2 || len(theirs.Locks[0].Queue) != 4 {
		t.Fatalf("a stranger sees %+v", theirs)
	}
	if last := theirs.Locks[0].Queue[3]; last.Who != "" || last.Address != "" {
		t.Errorf("of a node that it may not read, a stranger sees %+v", last)
	}
	for name, want := range map[string]wire.Code{
		"queues?under=/mine": wire.CodeNoAuth, "lock?path=/mine": wire.CodeNoNode, "history?path=/mine": wire.CodeNoAuth,
		"sessions": wire.CodeNoNode, "cluster": wire.CodeNoNode, "nothing": wire.CodeNoNode, "queues?limit=x": wire.CodeBadArguments,
	} {
		if _, code := readReport(t, stranger, name); code != want {
			t.Errorf("%s: %v, want %v", name, code, want)
		}
	}
	c.put(c.request(wire.OpGetData, wire.PathWatchRequest{Path: "/zookeeper/api/v1/queues", Watch: true})...)
	if h, _ := c.reply(); h.Err != wire.CodeBadArguments {
		t.Errorf("with a watch: %v", h.Err)
	}

	// In parts of two contenders each.
	total, parts := map[string]int{}, 0
	q := url.Values{"limit": {"2"}}
	for more := true; more; parts++ {
		r, code := readReport(t, c, "queues?"+q.Encode())
		if code != wire.CodeOK || parts > 9 {
			t.Fatal(code, parts)
		}
		for _, l := range r.Locks {
			total[l.Lock.Path] += len(l.Queue)
		}
		if more = r.Next != nil; more {
			q.Set("from", r.Next.From)
			q.Set("offset", fmt.Sprint(r.Next.Offset))
		}
	}
	if total["/a"] != 4 || total["/b/c"] != 1 || total["/mine"] != 1 || parts < 3 {
		t.Errorf("in %d parts: %v", parts, total)
	}
}
