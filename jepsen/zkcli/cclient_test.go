package zkcli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockkeeper/jepsen"
)

// cliMT is where Debian's package zookeeper-bin has the C client's own command line client.
const cliMT = "/usr/lib/zookeeper/bin/cli_mt"

var (
	cNoise     = regexp.MustCompile(`^(Batch mode: |Watcher SESSION_EVENT |Got a new session id: |time = )`)
	cZxidLine  = regexp.MustCompile(`^(\t[cm]zxid=)([0-9a-f]+)$`)
	cTimeLine  = regexp.MustCompile(`^(\t[cm]time ?=)(.*)$`)
	cOwnerLine = regexp.MustCompile(`^(\tephemeralOwner = )([0-9a-f]+)$`)
)

// cBlock normalises the output of cli_mt for one command. Children come in the order of a hash
// table.
func (n *normaliser) cBlock(lines []string) []string {
	var all, children []string
	for _, line := range lines {
		zxid, time, owner := cZxidLine.FindStringSubmatch(line), cTimeLine.FindStringSubmatch(line),
			cOwnerLine.FindStringSubmatch(line)
		switch {
		case cNoise.MatchString(line):
			continue
		case zxid != nil && zxid[2] != "0":
			line = zxid[1] + name(n.zxids, "z", zxid[2])
		case time != nil && !strings.HasSuffix(line, " 1970"):
			line = time[1] + " (time)"
		case owner != nil && isSession("0x"+owner[2]):
			line = owner[1] + name(n.sessions, "s", owner[2])
		case strings.HasPrefix(line, "\t") && !strings.Contains(line, "="):
			children = append(children, line)
			continue
		case line == "":
			line = emptyLine
		}
		all = append(all, line)
	}
	slices.Sort(children)
	return append(all, children...)
}

func TestCClient(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	if _, err := os.Stat(cliMT); err != nil {
		jepsen.Need(t, fmt.Errorf("%s: %w (apt-get install zookeeper-bin)", cliMT, jepsen.ErrMissing))
	}
	zookeeper, err := jepsen.ZooKeeper()
	jepsen.Need(t, err)
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	const file = "testdata/c/commands.txt"
	for _, target := range []jepsen.Target{zookeeper, lockkeeper} {
		if *updateFlag && target.Name != "zookeeper" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			tr, dir, n := load(t, file), t.TempDir(), newNormaliser()
			server := start(ctx, t, target, 1, settings, dir)
			var got [][]string
			for i, b := range tr.blocks {
				if len(b.commands) != 1 {
					t.Fatalf("%s:%d: one process has one command", file, b.line)
				}
				cmd := exec.Command(cliMT, "-h", server, "-c", b.commands[0])
				cmd.Env = append(os.Environ(), "TZ=UTC")
				printed := filepath.Join(dir, fmt.Sprintf("printed-%d", i))
				if err := jepsen.Run(ctx, "cli_mt", cmd, printed); err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(printed)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, n.cBlock(strings.Split(strings.TrimRight(string(text), "\n"), "\n")))
			}
			if *updateFlag {
				tr.update(t, file, got)
			} else {
				tr.compare(t, file, target.Name, got)
			}
		})
	}
}
