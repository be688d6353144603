package curator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockkeeper/jepsen"
)

// javaDir is where Debian's packages put their jars.
const javaDir = "/usr/share/java"

// jars are the libraries of the program; packages has them, and the JDK.
var jars = []string{
	"curator-recipes", "curator-framework", "curator-client", "curator-x-discovery",
	"zookeeper", "zookeeper-jute", "guava", "slf4j-simple",
	"jackson-core", "jackson-databind", "jackson-annotations",
}

const packages = "default-jdk-headless libcurator-recipes-java libcurator-discovery-java"

// compile compiles the Java program, once, and returns how to run it.
var compile = sync.OnceValues(func() (func(args ...string) *exec.Cmd, error) {
	var paths []string
	for _, jar := range jars {
		file := filepath.Join(javaDir, jar+".jar")
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%s: %w (apt-get install %s)", file, jepsen.ErrMissing, packages)
		}
		paths = append(paths, file)
	}
	for _, tool := range []string{"java", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: %w (apt-get install %s)", tool, jepsen.ErrMissing, packages)
		}
	}
	sources, err := filepath.Glob("checks/*.java")
	if err != nil {
		return nil, err
	}
	classPath := strings.Join(append([]string{classes}, paths...), string(os.PathListSeparator))
	// The annotations of other people's classes name classes that are not on the class path.
	args := []string{"-Xlint:all,-classfile,-path,-processing", "-Werror", "-cp", classPath, "-d", classes}
	if out, err := exec.Command("javac", append(args, sources...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w\n%s", err, out)
	}
	return func(args ...string) *exec.Cmd {
		flags := []string{
			"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m",
			"-Dorg.slf4j.simpleLogger.showDateTime=true",
			"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-cp", classPath, "Main",
		}
		return exec.Command("java", append(flags, args...)...)
	}, nil
})

// run is one run of the program.
type run struct {
	t       *testing.T
	ctx     context.Context
	cluster *jepsen.Cluster
	logPath string

	planned []string
	done    map[string]bool
	passed  int
	ended   bool
}

// run runs the program to its end, and makes a subtest of each check.
func (r *run) run(cmd *exec.Cmd) {
	r.t.Helper()
	r.done = make(map[string]bool)
	log, err := os.Create(r.logPath)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	// The program ends with its standard input, so it cannot outlive this process either.
	stop := context.AfterFunc(r.ctx, func() { _ = in.Close() })
	defer stop()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.line(lines.Text(), in)
	}
	if err := lines.Err(); err != nil {
		r.t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		r.t.Errorf("the program: %v (%v)", err, context.Cause(r.ctx))
	}
	r.judge()
}

// line is one line that the program said.
func (r *run) line(line string, in io.Writer) {
	r.t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "plan":
		r.planned = append(r.planned, rest)
	case "ok":
		tookMs, name, _ := strings.Cut(rest, " ")
		r.result(name, tookMs, "")
	case "failed":
		tookMs, rest, _ := strings.Cut(rest, " ")
		name, why, _ := strings.Cut(rest, ": ")
		r.result(name, tookMs, why)
	case "do":
		answer := "ok"
		if err := r.do(strings.Fields(rest)); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(in, answer); err != nil {
			r.t.Error(err)
		}
	case "end":
		r.ended = true
	default:
		r.t.Errorf("the program says %q", line)
	}
}

// result is the result of a check; why is empty if it passed.
func (r *run) result(name, tookMs, why string) {
	r.t.Helper()
	if r.done[name] || !slices.Contains(r.planned, name) {
		r.t.Errorf("a result of %q, which is not one of the checks to come", name)
	}
	r.done[name] = true
	if r.t.Run(name, func(t *testing.T) {
		if why != "" {
			t.Errorf("%s (after %s ms)", why, tookMs)
		}
	}) {
		r.passed++
	}
}

// do does something to members.
func (r *run) do(words []string) error {
	if len(words) < 2 || (words[0] != "kill" && words[0] != "start") {
		return fmt.Errorf("unknown: %q", words)
	}
	members := r.cluster.Members()
	var chosen []*jepsen.Member
	for _, address := range words[1:] {
		i := slices.IndexFunc(members, func(m *jepsen.Member) bool { return m.ClientAddr == address })
		if i < 0 {
			return fmt.Errorf("no member at %s", address)
		}
		chosen = append(chosen, members[i])
	}
	for _, m := range chosen {
		act := m.Kill
		if words[0] == "start" {
			act = m.Start
		}
		if err := act(); err != nil {
			return err
		}
	}
	if words[0] == "kill" {
		return nil
	}
	return r.cluster.AwaitServing(r.ctx)
}

// judge fails the test for checks that the program did not run.
func (r *run) judge() {
	r.t.Helper()
	if len(r.planned) == 0 {
		r.t.Error("no check was run")
	}
	for _, name := range r.planned {
		if !r.done[name] {
			r.t.Errorf("no result of %s", name)
		}
	}
	if !r.ended {
		r.t.Error("the program did not come to its end")
	}
	if r.t.Failed() {
		text, err := os.ReadFile(r.logPath)
		if err != nil {
			r.t.Error(err)
		}
		r.t.Logf("the end of the program's log:\n%s", text[max(0, len(text)-6000):])
	}
}
