package zkcli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

// TestCommands: lockkeeper's own commands for nodes say the same, and end with the same status,
// whether they are connected to ZooKeeper or to lockkeeper. Each line is a command, with its
// standard input behind a <, the exit status, and its output on either stream.
func TestCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	zookeeper, err := jepsen.ZooKeeper("-Dzookeeper.extendedTypesEnabled=true")
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	for _, target := range []jepsen.Target{zookeeper, lockkeeper} {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			server := start(ctx, t, target, 1, settings, t.TempDir())
			for _, c := range nodeCommands {
				line, input, _ := strings.Cut(c.line, " < ")
				cmd := lockkeeper.Tool(strings.Fields(line)...)
				cmd.Env = append(cmd.Environ(), "LOCKKEEPER_SERVERS="+server)
				cmd.Stdin = strings.NewReader(input)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				status := 0
				if err := cmd.Run(); errors.As(err, new(*exec.ExitError)) {
					status = cmd.ProcessState.ExitCode()
				} else if err != nil {
					t.Fatal(err)
				}
				if got := out.String(); status != c.status || !regexp.MustCompile(`(?s)\A`+c.want+`\z`).MatchString(got) {
					t.Errorf("%s: status %d, %q, want %d, %q", c.line, status, got, c.status, c.want)
				}
			}
		})
	}
}

var nodeCommands = []struct {
	line   string
	status int
	want   string
}{
	{"ls /", 0, "zookeeper\n"},
	{"ls -r /zookeeper -sync", 0, "/zookeeper\n/zookeeper/config\n/zookeeper/quota\n"},
	{"stat /a", 3, "lockkeeper stat: /a does not exist\n"},
	{"create /a one", 0, "/a\n"},
	{"create /a one", 4, ".*exists already\n"},
	{"create /a/b/c", 3, ".*the parent of /a/b/c does not exist.*\n"},
	{"create -p -json /a/b/c", 0, `{"path":"/a/b/c"}` + "\n"},
	{"create -s /a/s-", 0, "/a/s-0000000001\n"},
	{"create -c /a/container", 0, "/a/container\n"},
	{"create -ttl 1h /a/ttl", 0, "/a/ttl\n"},
	{"create -ttl 1h -s /a/ttl-", 0, "/a/ttl-0000000004\n"},
	{"get /a", 0, "one"},
	{"get -json -sync /a", 0, `{"path":"/a","data":"b25l","text":"one","stat":{"czxid":"0x[0-9a-f]+","ctime":"20[^"]*Z",.*` +
		`"version":0,"cversion":5,"aversion":0,"ephemeralOwner":"0x0","dataLength":3,"numChildren":5}}` + "\n"},
	{"get /b", 3, ".*/b does not exist\n"},
	{"set /a - < two\nlines", 0, ""},
	{"get /a", 0, "two\nlines"},
	{"set -version 0 /a three", 5, ".*/a does not have version 0 any more.*\n"},
	{"set -version 1 /a three", 0, ""},
	{"set /b x", 3, ".*/b does not exist\n"},
	{"set /a -json four", 0, `{"path":"/a","stat":{.*"version":3,.*}}` + "\n"},
	{"stat /a", 0, "cZxid = 0x[0-9a-f]+\nctime = 20.*\ncversion = 5\ndataVersion = 3\naclVersion = 0\nephemeralOwner = 0x0\n" +
		"dataLength = 4\nnumChildren = 5\n"},
	{"ls /a", 0, "b\ncontainer\ns-0000000001\nttl\nttl-0000000004\n"},
	{"ls -r /a", 0, "/a\n/a/b\n/a/b/c\n/a/container\n/a/s-0000000001\n/a/ttl\n/a/ttl-0000000004\n"},
	{"ls -json /a/b", 0, `{"path":"/a/b/c","stat":{.*"numChildren":0}}` + "\n"},
	{"ls /b", 3, ".*/b does not exist\n"},
	{"delete /a", 7, ".*/a has children.*\n"},
	{"delete -version 4 /a/b/c", 5, ".*version 4.*\n"},
	{"delete -r -json /a", 0, `{"path":"/a","deleted":7}` + "\n"},
	{"delete /a", 3, ".*/a does not exist\n"},
	{"delete -r /zookeeper/config", 1, ".*invalid arguments\n"},
	{"create -auth u:p -acl auth::cdrwa,world:anyone:c /mine x", 0, "/mine\n"},
	{"get /mine", 6, ".*the ACL does not allow this at /mine.*\n"},
	{"get /mine -auth u:q", 6, ".*the ACL does not allow this at /mine.*\n"},
	{"get /mine -auth u:p", 0, "x"},
	{"set /mine y", 6, ".*the ACL does not allow this at /mine.*\n"},
	{"stat -acl -auth u:p /mine", 0, ".*\nacl = digest:u:[^\n]*=:cdrwa\nacl = world:anyone:c\n"},
	{"create -acl auth::r /no", 1, ".*does not take this ACL.*\n"},
	{"create -acl digest:u:r /no", 1, ".*does not take this ACL.*\n"},
	{"create /mine/child", 0, "/mine/child\n"},
	// ZooKeeper since 3.9 checks the ACL of exists, too; 3.8.0 does not.
	{"ls -r /mine", 6, ".*(may not be listed|does not allow this at /mine.*)\n"},
	{"delete -r /mine", 6, ".*the ACL does not allow this.*\n"},
	{"delete -r -auth u:p /mine", 0, ""},
	{"create -auth nobody:knows:this -acl x509:a:r /no", 1, ".*"},
	{"get -auth sasl:u:p -timeout 2s /a", 6, ".*refuses the identity.*\n"},
	{"get -servers 127.0.0.1:1 /a", 8, ".*connection refused.*-servers names others.*\n"},
	{"get a", 2, fmt.Sprintf(".*%q is not the path of a node.*", "a")},
	{"status", 0, ".*  standalone .*\nhealthy: 1 of 1 voters serve.*\n"},
	{"status -json", 0, `{"state":"healthy","voters":1,"serving":1,"quorum":1,"mayFail":0,.*"role":"standalone".*`},
}

// TestStatus: lockkeeper status sees the members of either server, and how they fail.
func TestStatus(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	zookeeper, err := jepsen.ZooKeeper()
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	for _, target := range []jepsen.Target{zookeeper, lockkeeper} {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: 3, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := cluster.Close(); err != nil {
					t.Error(err)
				}
			})
			members := cluster.Members()
			await := func(status int, servers string, wants ...string) {
				t.Helper()
				err := jepsen.Poll(ctx, 50*time.Millisecond, func() error {
					cmd := lockkeeper.Tool("status", "-servers", servers)
					out, err := cmd.CombinedOutput()
					if cmd.ProcessState == nil {
						return err
					}
					for _, want := range wants {
						if got := cmd.ProcessState.ExitCode(); got != status || !regexp.MustCompile(want).Match(out) {
							return fmt.Errorf("status %d, want %d and %q:\n%s", got, status, want, out)
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			// The other members are found, and known by their numbers.
			await(0, members[0].ClientAddr, `(?m)^healthy: 3 of 3 voters serve in term [1-9]\d*, 2 make a quorum, 1 more may fail$`,
				members[1].ClientAddr+` +2 +(leader|follower) `, members[2].ClientAddr+` +3 +(leader|follower) `)
			leader, err := cluster.AwaitLeader(ctx)
			if err != nil {
				t.Fatal(err)
			}
			last := members[leader.ID%3] // not the leader
			if err := last.Kill(); err != nil {
				t.Fatal(err)
			}
			await(3, cluster.Servers(), "(?m)^degraded: 2 of 3 voters serve .*, 0 more may fail$",
				fmt.Sprintf("%s +%d +cannot be reached: connection refused", last.ClientAddr, last.ID))
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
			await(4, cluster.Servers(), "(?m)^no quorum: 0 of 3 voters serve$", "serves nobody: it knows no leader")
		})
	}
}
