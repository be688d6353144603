package zkcli

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
)

var updateFlag = flag.Bool("update", false, "write what ZooKeeper prints into testdata")

const (
	// patience is for one transcript with one server; it takes about 3 s.
	patience = 2 * time.Minute

	// manyCommands is less than the number of commands in all transcripts.
	manyCommands = 300
)

// settings are for both servers. The super user's password is test.
var settings = []string{
	"extendedTypesEnabled=true",
	"enforceQuota=true",
	"quotaError=QuotaExceeded",
	"DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
}

var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// load reads a file of testdata.
func load(t *testing.T, file string) transcript {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return tr
}

// files are the transcripts.
func files(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(all) == 0 {
		t.Fatalf("no transcripts (%v)", err)
	}
	return all
}

func TestTranscripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	lockkeeper, err := tools.Lockkeeper()
	jepsen.Need(t, err)
	for _, file := range files(t) {
		var options []string
		if filepath.Base(file) == saslFile {
			options = []string{"-D" + jaasKey + "=" + jaas(t)}
		}
		zookeeper, err := jepsen.ZooKeeper(options...)
		jepsen.Need(t, err)
		zkCli, err := jepsen.JavaTool("org.apache.zookeeper.ZooKeeperMain", options...)
		jepsen.Need(t, err)
		targets := []jepsen.Target{zookeeper, lockkeeper}
		if *updateFlag {
			targets = targets[:1]
		}
		for _, target := range targets {
			t.Run(target.Name+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				t.Parallel()
				tr := load(t, file)
				got := play(t, tr, target, file, zkCli)
				if *updateFlag {
					tr.update(t, file, got)
				} else {
					tr.compare(t, file, target.Name, got)
				}
			})
		}
	}
}

// saslFile is the transcript of a client that has logged in with SASL. It and the servers have the
// same JAAS file: ZooKeeper and the client as an option of the JVM.
const (
	saslFile = "sasl.txt"
	jaasKey  = "java.security.auth.login.config"
)

// jaas is the JAAS file.
func jaas(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/sasl.jaas")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serversFor are the servers that a transcript is typed to: their number, and their settings.
func serversFor(t *testing.T, file string) (members int, extra []string) {
	switch filepath.Base(file) {
	case "cluster.txt":
		return 3, settings
	case "reconfig.txt":
		return 3, append(slices.Clone(settings), "reconfigEnabled=true")
	case saslFile:
		return 3, append(slices.Clone(settings), jaasKey+"="+jaas(t), "sessionRequireClientSASLAuth=true",
			"authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider")
	}
	return 1, settings
}

// start starts a server for the rest of the test and returns the client address of its first
// member.
func start(ctx context.Context, t *testing.T, target jepsen.Target, members int, extra []string, dir string) string {
	t.Helper()
	cluster, err := jepsen.StartCluster(ctx, jepsen.ClusterConfig{Target: target, Members: members, Dir: dir,
		Extra: extra})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		complaints, err := cluster.Complaints()
		if err := errors.Join(err, cluster.Close()); err != nil {
			t.Error(err)
		}
		for _, c := range complaints {
			t.Error(c)
		}
		if t.Failed() {
			t.Log(cluster.Logs())
		}
	})
	return cluster.Members()[0].ClientAddr
}

// play types the commands into a client of a fresh server and returns the output of each block.
func play(t *testing.T, tr transcript, target jepsen.Target, file string, zkCli func(...string) *exec.Cmd) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	members, extra := serversFor(t, file)
	server := start(ctx, t, target, members, extra, dir)
	input, printed := filepath.Join(dir, "input"), filepath.Join(dir, "printed")
	if err := os.WriteFile(input, []byte(tr.input(server)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := zkCli("-waitforconnection", "-server", server)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8")
	stdin, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	cmd.Stdin = stdin
	if err := jepsen.Run(ctx, "zkCli", cmd, printed); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(printed)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := split(string(text), len(tr.blocks))
	if err != nil {
		t.Fatalf("%v; all that was printed:\n%s", err, text)
	}
	n := newNormaliser()
	for i := range blocks {
		blocks[i] = n.block(tr.blocks[i].commands, blocks[i])
	}
	return blocks
}

// update writes the file anew.
func (t transcript) update(tb testing.TB, file string, got [][]string) {
	tb.Helper()
	for i := range t.blocks {
		t.blocks[i].output = got[i]
	}
	if err := os.WriteFile(file, []byte(t.String()), 0o644); err != nil {
		tb.Fatal(err)
	}
}

// compare fails the test for every block that printed something else.
func (t transcript) compare(tb testing.TB, file, target string, got [][]string) {
	tb.Helper()
	for i, b := range t.blocks {
		want := b.outputOf(target)
		if !slices.Equal(got[i], want) {
			tb.Errorf("%s:%d: > %s\nprints\n  %s\nand should print\n  %s", file, b.line,
				strings.Join(b.commands, "\n> "), strings.Join(got[i], "\n  "), strings.Join(want, "\n  "))
		}
		if b.reason != "" && slices.Equal(b.output, b.other) {
			tb.Errorf("%s:%d: there is no difference to be explained", file, b.line)
		}
	}
}

// TestCoverage says that the transcripts use every command that the client has, with every option.
// Its output for "help" lists them. Every one is ended by quit.
func TestCoverage(t *testing.T) {
	used := make(map[string]bool) // "get", "get -s"
	var usage []string
	commands := 0
	for _, file := range files(t) {
		for _, b := range load(t, file).blocks {
			for _, command := range b.commands {
				commands++
				words := strings.Fields(command)
				for _, word := range words {
					used[words[0]+" "+word] = true
				}
				if command == "help" {
					usage = b.output
				}
			}
		}
	}
	if commands < manyCommands {
		t.Errorf("the transcripts have %d commands, fewer than %d", commands, manyCommands)
	}
	known := 0
	for _, line := range usage {
		line, ok := strings.CutPrefix(line, "\t")
		if !ok {
			continue
		}
		known++
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" []|", r) })
		for i, word := range words {
			if (i == 0 || strings.HasPrefix(word, "-") && len(word) > 1) && word != "quit" && !used[words[0]+" "+word] {
				t.Errorf("no transcript has %s %s", words[0], word)
			}
			if word == "#" {
				break
			}
		}
	}
	if known < 25 {
		t.Errorf("only %d commands in what the client prints for help", known)
	}
}
