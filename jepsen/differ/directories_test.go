package differ

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

var directoriesFlag = flag.Int("directories", 20, "how many directories of ZooKeeper are imported and compared")

const (
	// directoriesPerRun is the number of directories that are made of one ZooKeeper's files.
	directoriesPerRun = 10
	// directoryRequests bounds the requests that ZooKeeper gets.
	directoryRequests = 1500
	// logHeader is the length of the header of ZooKeeper's logs.
	logHeader = 16
)

// TestDirectories lets ZooKeeper write directories: with random requests, snapshots in between, in
// all compressions, and then takes the newest snapshots away, cuts the newest log at any byte, or
// cuts a snapshot short. After an import lockkeeper has the same nodes, Stats, ACLs, sessions and
// zxid as that ZooKeeper has after a start on a copy, and ZooKeeper refuses every directory that it
// refuses. The long form is -directories 1000.
func TestDirectories(t *testing.T) {
	ar := newArena(t)
	oracle := startOracle(t)
	seed := cmp.Or(*seedFlag, uint64(time.Now().UnixNano())%1e9)
	began := time.Now()
	var total imports
	runs := (*directoriesFlag + directoriesPerRun - 1) / directoriesPerRun
	for i := range uint64(runs) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed+i, 2))
			source, wrote := ar.write(t, seed+i, rng)
			for n := range directoriesPerRun {
				dir := filepath.Join(t.TempDir(), fmt.Sprint(n))
				mustCopy(t, dir, source)
				what := spoil(t, dir, rng)
				if ar.compareImport(t, oracle, dir, wrote, &total); t.Failed() {
					t.Fatalf("directory %d, %s: kept in %s", n, what, keep(t, dir))
				}
			}
		})
	}
	t.Logf("figures: %d directories in %.0f s: %d refused by both, %d by lockkeeper alone, %d nodes and %d sessions equal",
		total.directories, time.Since(began).Seconds(), total.refused, total.stricter, total.nodes, total.sessions)
	if total.nodes < total.directories || total.sessions == 0 || total.refused+total.stricter > total.directories/2 {
		t.Error("that has shown little")
	}
}

// imports counts the results.
type imports struct{ directories, refused, stricter, nodes, sessions int }

// writer has the settings of the ZooKeeper that wrote a directory, to start another one on it.
type writer struct{ extended, closeTxns bool }

// write has a ZooKeeper answer random requests, kills it, and returns its data directory.
func (ar *arena) write(t *testing.T, seed uint64, rng *rand.Rand) (dir string, wrote writer) {
	t.Helper()
	g := newGenerator(seed, players)
	one := func(values ...string) string { return values[rng.IntN(len(values))] }
	config := append(settings(g.mood), "preAllocSize=16", fmt.Sprintf("snapCount=%d", 10+rng.IntN(90)),
		"digest.enabled="+one("true", "false"))
	wrote = writer{g.mood.ttl, rng.IntN(2) == 0}
	config = append(config, fmt.Sprintf("closeSessionTxn.enabled=%v", wrote.closeTxns))
	if method := one("", "gz", "snappy"); method != "" {
		config = append(config, "snapshot.compression.method="+method)
	}
	c, err := jepsen.StartCluster(t.Context(), jepsen.ClusterConfig{Target: ar.targets[0], Members: 1, Dir: t.TempDir(), Extra: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	member := c.Members()[0]
	s := newSide("zookeeper", member, players+1)
	defer s.close()
	for _, st := range openingSteps() {
		if _, err := s.do(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	for done, all := 0, 100+rng.IntN(directoryRequests-100); done < all; {
		g.observe(s, nil)
		st := g.next()
		streams, err := s.do(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		g.observe(s, streams)
		done += max(1, len(st.Requests))
	}
	if err := member.Kill(); err != nil {
		t.Fatal(err)
	}
	return member.DataDir(), wrote
}

// spoil changes a directory as crashes and time may have left it, and says how.
func spoil(t *testing.T, dir string, rng *rand.Rand) string {
	t.Helper()
	snapshots, logs := numbered(t, dir, "snapshot."), numbered(t, dir, "log.")
	var done []string
	say := func(format string, args ...any) { done = append(done, fmt.Sprintf(format, args...)) }
	// The snapshots that go were the newest ones: the logs, which are all there, lead past them.
	for len(snapshots) > 1 && rng.IntN(3) > 0 {
		last := len(snapshots) - 1
		say("without %s", filepath.Base(snapshots[last]))
		if err := os.Remove(snapshots[last]); err != nil {
			t.Fatal(err)
		}
		snapshots = snapshots[:last]
	}
	if len(snapshots) > 1 && rng.IntN(4) == 0 {
		newest := snapshots[len(snapshots)-1]
		at := rng.Int64N(size(t, newest))
		say("%s cut at byte %d", filepath.Base(newest), at)
		if err := os.Truncate(newest, at); err != nil {
			t.Fatal(err)
		}
	}
	newest := logs[len(logs)-1]
	end := used(t, newest)
	switch at := rng.Int64N(end + 1); rng.IntN(6) {
	case 0, 1:
		say("%s cut at byte %d", filepath.Base(newest), at)
		if err := os.Truncate(newest, at); err != nil {
			t.Fatal(err)
		}
	case 2:
		// The file had its length before; the last write is not on the disk.
		at = max(at, 16)
		say("%s zeros from byte %d", filepath.Base(newest), at)
		f, err := os.OpenFile(newest, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, end-min(at, end)), at)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	case 3:
		say("a bit of byte %d of %s", at, filepath.Base(newest))
		b, err := os.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		b[min(at, end-1)] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(newest, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(done, ", ")
}

// numbered are the files of version-2 with that prefix, by their zxid.
func numbered(t *testing.T, dir, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "version-2", prefix+"*"))
	if err != nil || len(files) == 0 {
		t.Fatal(prefix, files, err)
	}
	number := func(path string) (n uint64) {
		_, _ = fmt.Sscanf(strings.TrimPrefix(filepath.Base(path), prefix), "%x", &n)
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return files
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// used is the length of a file without the zeros at its end.
func used(t *testing.T, path string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(bytes.TrimRight(b, "\x00")))
}

func mustCopy(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// keep copies a directory to where it outlives the test.
func keep(t *testing.T, dir string) string {
	t.Helper()
	kept, err := os.MkdirTemp("", "zookeeper-directory-")
	if err != nil {
		t.Fatal(err)
	}
	mustCopy(t, kept, filepath.Join(dir, "version-2"))
	return kept
}

// stricter are refusals of ours where ZooKeeper starts without acknowledged updates (zkdata.Load,
// zkdata.LogReader).
var stricter = []string{"the logs do not lead from the snapshot before it to it", "another record begins",
	"version 2 is known"}

// compareImport imports a copy of a directory and compares.
func (ar *arena) compareImport(t *testing.T, o *oracle, dir string, wrote writer, total *imports) {
	t.Helper()
	total.directories++
	theirs := dir + ".zookeeper"
	mustCopy(t, theirs, dir)
	for _, log := range numbered(t, theirs, "log.") {
		if size(t, log) < logHeader { // it has nothing, yet ZooKeeper 3.8.0 does not start
			if err := os.Remove(log); err != nil {
				t.Fatal(err)
			}
		}
	}
	config := dir + ".cfg"
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=1\nextendedTypesEnabled=%v\n", dir, wrote.extended)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want, failed := o.loaded(theirs, wrote)
	tool := func(args ...string) ([]byte, error) {
		cmd := ar.targets[1].Tool(args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, errs.Bytes())
		}
		return out.Bytes(), nil
	}
	_, err := tool("import", config)
	switch {
	case err != nil && failed != "":
		total.refused++
		return
	case err != nil && slices.ContainsFunc(stricter, func(s string) bool { return strings.Contains(err.Error(), s) }):
		total.stricter++
		return
	case err != nil || failed != "":
		t.Errorf("lockkeeper: %v\nZooKeeper: %s", err, failed)
		return
	}
	got, err := imported(tool, config)
	if err != nil {
		t.Error(err)
		return
	}
	slices.Sort(want)
	slices.Sort(got)
	for _, line := range got {
		switch kind, _, _ := strings.Cut(line, " "); kind {
		case "node":
			total.nodes++
		case "session":
			total.sessions++
		}
	}
	if d := firstDifference(want, got); d != "" {
		t.Error(d)
	}
}

// firstDifference compares sorted lines.
func firstDifference(want, got []string) string {
	for i := range max(len(want), len(got)) {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			return fmt.Sprintf("ZooKeeper has\n%s\nand lockkeeper\n%s", w, g)
		}
	}
	return ""
}

// imported describes a member's state, as the oracle does.
func imported(tool func(args ...string) ([]byte, error), config string) (lines []string, err error) {
	summary, err1 := tool("inspect", "-json", config)
	sessions, err2 := tool("inspect", "-json", "-sessions", config)
	tree, err3 := tool("inspect", "-json", "-tree", config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var all struct{ Zxid string }
	if err := json.Unmarshal(summary, &all); err != nil {
		return nil, err
	}
	lines = append(lines, "zxid "+all.Zxid)
	for d := json.NewDecoder(bytes.NewReader(sessions)); ; {
		var s struct {
			ID        string
			TimeoutMs int32
		}
		if err := d.Decode(&s); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("session %s %d", s.ID, s.TimeoutMs))
	}
	for d := json.NewDecoder(bytes.NewReader(tree)); ; {
		var n struct {
			Path string
			Data []byte
			ACL  []wire.ACL
			Stat wire.Stat
		}
		if err := d.Decode(&n); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		if n.Path != configNode {
			lines = append(lines, nodeLine(n.Path, n.Data, n.ACL, &n.Stat))
		}
	}
	return lines, nil
}

// configNode names the members; lockkeeper makes its own.
const configNode = "/zookeeper/config"

func nodeLine(path string, data []byte, acl []wire.ACL, s *wire.Stat) string {
	content := "null"
	if data != nil {
		content = "x" + hex.EncodeToString(data)
	}
	b := fmt.Appendf(nil, "node %x %s %d %d %d %d %d %d %d %d %d %d %d", path, content, int64(s.Czxid), int64(s.Mzxid), s.Ctime, s.Mtime,
		s.Version, s.Cversion, s.Aversion, int64(s.EphemeralOwner), s.DataLength, s.NumChildren, int64(s.Pzxid))
	for _, a := range acl {
		b = fmt.Appendf(b, " %d:%s:%s", a.Perms, a.Scheme, a.ID.ID)
	}
	return string(b)
}

// oracle is a ZooKeeper that starts on directories.
type oracle struct {
	t     *testing.T
	asks  io.Writer
	lines *bufio.Scanner
}

func startOracle(t *testing.T) *oracle {
	t.Helper()
	java, err := jepsen.JavaTool("testdata/Loaded.java")
	jepsen.Need(t, err)
	cmd := java()
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	return &oracle{t, in, lines}
}

// loaded is ZooKeeper's state after a start on a directory, or why it does not start. Its zxid is
// the highest one that shows: a snapshot may have nodes of transactions behind the one that it is
// named after, and when the log that has them was cut, ZooKeeper gives their zxids to others.
// lockkeeper goes on behind them.
func (o *oracle) loaded(dir string, wrote writer) (lines []string, failed string) {
	o.t.Helper()
	if _, err := fmt.Fprintln(o.asks, wrote.extended, wrote.closeTxns, dir); err != nil {
		o.t.Fatal(err)
	}
	config := fmt.Sprintf("node %x ", configNode)
	var highest int64
	for o.lines.Scan() {
		line := o.lines.Text()
		switch {
		case line == ".":
			if failed == "" {
				lines = append(lines, fmt.Sprintf("zxid 0x%x", highest))
			}
			return lines, failed
		case strings.HasPrefix(line, "zxid "):
			_, _ = fmt.Sscanf(line, "zxid 0x%x", &highest)
		case strings.HasPrefix(line, "failed "):
			failed = line
		case !strings.HasPrefix(line, config):
			lines = append(lines, line)
			if strings.HasPrefix(line, "node ") {
				words := strings.Fields(line)
				for _, i := range []int{3, 4, 13} { // czxid, mzxid, pzxid
					zxid, _ := strconv.ParseInt(words[i], 10, 64)
					highest = max(highest, zxid)
				}
			}
		}
	}
	o.t.Fatal("the oracle has ended: ", o.lines.Err())
	return nil, ""
}
