package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"lockkeeper/server/ops"
	"lockkeeper/wire"
)

// varying are the fields of answers that differ from one moment to the next: the instant, and the
// counters of connections and of the member itself.
var varying = map[string]bool{"at": true, "zxid": true, "Zxid": true, "heldMs": true, "waitMs": true, "longestWaitMs": true,
	"sinceAt": true, "lastHeardMs": true, "received": true, "sent": true, "avgLatencyMs": true, "maxLatencyMs": true, "lastOp": true,
	"leftMs": true, "queued": true, "unsentBytes": true, "last_snapshot": true, "uptime": true, "os.memory.free": true, "os.memory.total": true}

// steady removes them from an answer.
func steady(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if varying[name] {
				delete(v, name)
			} else {
				v[name] = steady(v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	}
	return v
}

// An anonymous client asks for everything before and after many changes below a node that it may
// not read, and gets the same answers. Left out are the totals of the cluster view and of mntr,
// which are of the whole state, and the facts that exists shows to everybody, in ZooKeeper, too:
// whether there is a node of a given path, and its number of children.
//
// Defends: C9.
func TestNothingOfAProtectedSubtree(t *testing.T) {
	c := newConsoleTest(t)
	alice, bob := c.client(), c.client()
	auth := func(z *rawClient, user string) {
		z.call(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte(user)})
	}
	auth(alice, "alice:secret")
	auth(bob, "alice:secret")
	mine := []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}
	make := func(z *rawClient, path, data string, acl []wire.ACL, mode wire.CreateMode) {
		r := create(path, []byte(data), mode)
		r.ACL = acl
		z.call(wire.OpCreate, r)
	}
	make(alice, "/vault", "", mine, wire.ModePersistent)
	make(alice, "/open", "", wire.OpenACL, wire.ModePersistent)
	const note = `{"by":"lockkeeper/recipes","program":"nightly","note":"open","since":"2026-11-21T14:00:00Z"}`
	make(alice, "/open/x-lock-", note, wire.OpenACL, wire.ModeEphemeralSequential)
	make(bob, "/open/y-lock-", note, wire.OpenACL, wire.ModeEphemeralSequential)

	var paths []string
	for _, what := range []string{"locks", "locks?only=trouble", "locks?search=payroll", "locks?search=merger", "locks?search=vault",
		"locks?under=/vault", "queues", "queues?under=/vault", "queues?under=/vault/payroll", "queues?from=/open",
		"locks?sort=waiting&limit=0", "lock?path=/open", "lock?path=/vault/payroll", "history?path=/open",
		"history?path=/vault/payroll", "trouble", "trouble?limit=1", "sessions", "sessions?sort=watches", "sessions?sort=ephemerals",
		"session?id=" + ops.Hex(alice.id.SessionID), "session?id=" + ops.Hex(bob.id.SessionID), "node?path=/vault",
		"children?path=/vault"} {
		paths = append(paths, "/api/v1/"+what)
	}
	for _, command := range []string{"dump", "watches", "watches_by_path", "leader", "is_read_only", "ruok", "environment", "initial_configuration"} {
		paths = append(paths, "/commands/"+command)
	}
	paths = append(paths, "/fence?lock=/open&token=5", "/ready", "/stoppable")
	ask := func() map[string]string {
		answers := map[string]string{}
		for _, path := range paths {
			resp, err := http.Get("http://" + c.s.HTTPAddr().String() + path)
			if err != nil {
				t.Fatal(err)
			}
			var body any
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			_ = resp.Body.Close()
			text, _ := json.Marshal(steady(body))
			answers[path] = fmt.Sprint(resp.StatusCode, " ", strings.ReplaceAll(string(text), "\\u003e", ">"))
		}
		return answers
	}
	before := ask()

	make(alice, "/vault/payroll", "", mine, wire.ModePersistent)
	make(bob, "/vault/payroll/x-lock-", strings.ReplaceAll(note, "open", "merger with acme"), mine, wire.ModeEphemeralSequential)
	// This makes a deadlock with /open.
	make(alice, "/vault/payroll/y-lock-", note, mine, wire.ModeEphemeralSequential)
	for i := range 20 {
		make(alice, fmt.Sprintf("/vault/payroll/n%d", i), "", mine, wire.ModeEphemeral)
	}
	alice.call(wire.OpAddWatch, wire.AddWatchRequest{Path: "/vault/payroll", Mode: wire.AddWatchPersistentRecursive})
	bob.call(wire.OpAddWatch, wire.AddWatchRequest{Path: "/vault/payroll", Mode: wire.AddWatchPersistent})
	await(t, "the deadlock", func() bool {
		_, all := c.get("trouble", asSuper)
		return all["counts"].(map[string]any)["deadlock"] == 1.0
	})
	for path, answer := range ask() {
		if answer != before[path] {
			t.Errorf("%s: it was\n%s\nand is\n%s", path, before[path], answer)
		}
	}
}
