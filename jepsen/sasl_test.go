package jepsen

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const saslJAAS = `Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="of Ann" user_bob="of Bob";
};
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="ann" password="of Ann";
};
`

// TestSASLClients: kazoo and Curator take locks at members that require a login with SASL, and log
// in again at another member when theirs is killed.
func TestSASLClients(t *testing.T) {
	curator, kazoo := client(t, "curator"), client(t, "kazoo")
	jaas := filepath.Join(t.TempDir(), "jaas")
	if err := os.WriteFile(jaas, []byte(saslJAAS), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "java.security.auth.login.config="
	l := newLabWith(t, time.Minute, ClusterConfig{
		Target: findTarget(t, "lockkeeper"), Members: 3, TickTime: 2 * time.Second,
		Extra: []string{"minSessionTimeout=1000", key + jaas, "sessionRequireClientSASLAuth=true"},
	})
	curator.Command = slices.Insert(slices.Clone(curator.Command), 1, "-D"+key+jaas)
	kazoo.Command = slices.Concat([]string{"env", "WORKER_SASL=bob:of Bob"}, kazoo.Command)
	locks := map[string]string{"curator": "mutex", "kazoo": "lock"}
	for _, c := range []Client{curator, kazoo} {
		w, err := StartWorker(l.ctx, WorkerConfig{Name: c.Name, Client: c, Servers: l.cluster.Servers(),
			SessionTimeout: l.sessionTimeout, Dir: l.dir, History: l.history})
		if err != nil {
			t.Fatal(err)
		}
		l.workers = append(l.workers, w)
		l.mustDo(w, "main", "open", "m", locks[c.Name], "/"+c.Name)
		l.mustDo(w, "t1", "acquire", "m", "-1")
		l.mustDo(w, "t1", "release", "m")
	}
	// Each member once, so that the one of each client is among them.
	for _, m := range l.cluster.Members() {
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if err := l.cluster.AwaitServing(l.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range l.workers {
		l.waitFor("true", func() string {
			if l.do(w, "t1", "acquire", "m", "5000").Kind != OK {
				return "false"
			}
			l.mustDo(w, "t1", "release", "m")
			return "true"
		})
	}
	l.stopWorkers()
}
