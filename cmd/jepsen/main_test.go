package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/splitbrain"
)

// asProgram makes the test binary the program jepsen.
const asProgram = "JEPSEN_TEST_AS_PROGRAM"

// tools are the programs that the tests start.
var tools *jepsen.Toolbox

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	flag.Parse()
	os.Exit(jepsen.Main(m, &tools, jepsen.Race))
}

// program is a jepsen that has not been started. Its child processes have the environment variable
// mark, which is unlike any other.
func program(t *testing.T, args ...string) (cmd *exec.Cmd, mark string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	mark = asProgram + "=" + t.TempDir()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), mark, "TMPDIR="+t.TempDir())
	return cmd, mark
}

// runProgram runs jepsen to its end.
func runProgram(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd, _ := program(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		out    []string
	}{
		{[]string{"help"}, exitOK, []string{"run "}},
		{nil, exitOK, []string{"./cmd/jepsen run"}},
		{[]string{"help", "run"}, exitOK, []string{"partition-bridge", "-seed", "register"}},
		{[]string{"--help", "sim"}, exitOK, []string{"jepsen sim [flags]", "-seeds"}},
		{[]string{"help", "split-brain"}, exitOK, []string{"-members n-m", "-out file"}},
		{[]string{"help", "dance"}, exitUsage, []string{`"dance"`, "run "}},
		{[]string{"help", "client"}, exitUsage, []string{`"client"`}}, // not for people
		{[]string{"dance"}, exitUsage, []string{`"dance"`, "run "}},
		{[]string{"run", "-help"}, exitOK, []string{"partition-bridge", "-seed", "register"}},
		{[]string{"run", "-nonsense"}, exitUsage, []string{"-nonsense", "-help"}},
		{[]string{"run", "more"}, exitUsage, []string{`unexpected argument "more"`}},
		{[]string{"run", "-members", "0", "-workload", "dance,register", "-nemesis", "flood"}, exitUsage,
			[]string{"dance", "flood"}},
		{[]string{"run", "-workload", "register", "-target", "etcd"}, exitUsage, []string{`"etcd"`}},
		{[]string{"help", "lock-lab"}, exitOK, []string{"-faults", "WAY/FAULT"}},
		{[]string{"lock-lab", "-faults", "flood"}, exitUsage, []string{`"flood"`}},
		{[]string{"help", "attack"}, exitOK, []string{"-only names", "-out file"}},
		{[]string{"attack", "-list"}, exitOK, []string{"acl-entries", "peer-snapshot"}},
		{[]string{"attack", "-list", "-only", "http-slow"}, exitOK, []string{"http-slow "}},
		{[]string{"attack", "-only", "dance", "-target", "etcd"}, exitUsage, []string{`"dance"`, `"etcd"`}},
		{[]string{"split-brain", "-help"}, exitOK, []string{"set.size > n/2", "-members n-m"}},
		{[]string{"split-brain", "-members", "7-3", "-target", "etcd"}, exitUsage, []string{`"7-3"`, `"etcd"`}},
		{[]string{"split-brain", "-members", "8"}, exitUsage, []string{"2 to 7"}},
		{[]string{"split-brain", "more"}, exitUsage, []string{`unexpected argument "more"`}},
	} {
		var out bytes.Buffer
		status := dispatch(context.Background(), test.args, &out, &out)
		if status != test.status {
			t.Errorf("%q: status %d, want %d", test.args, status, test.status)
		}
		for _, want := range test.out {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q: want %q in:\n%s", test.args, want, out.String())
			}
		}
	}
}

// lines sends the lines of r, and closes the channel at its end.
func lines(r *bufio.Scanner) <-chan string {
	ch := make(chan string, 1000)
	go func() {
		defer close(ch)
		for r.Scan() {
			ch <- r.Text()
		}
	}()
	return ch
}

// Cases with observers are played when they are asked for, or by default if one of the sizes is 5
// or more and -brief is not given.
func TestChooseCases(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		members   string
		brief     bool
		observers *bool
		want      bool
	}{
		{"3-4", false, nil, false}, {"3-5", false, nil, true}, {"3-5", true, nil, false},
		{"3-5", false, &no, false}, {"3", false, &yes, true}, {"3", true, &yes, true},
	} {
		cases, err := chooseCases(test.members, test.brief, test.observers)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(cases, func(c splitbrain.Case) bool { return c.Cluster.Observers > 0 })
		if got != test.want {
			t.Errorf("%+v: observers: %v", test, got)
		}
	}
}
