package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/spellings.txt")

// spelled are command lines that fail before they reach a server, or need none.
var spelled = []string{
	"nope", "lokc /l true", "status2", "-nope", "--nope", "-version", "--version", "-V",
	"serve a b", "serve -log-level loud", "serve -log-format xml", "serve -myid 1", "serve -myid x", "serve -without x", "serve -drain 5",
	"serve -data-dir d zoo.cfg", "serve -client-address :1 zoo.cfg", "-client-address :1 zoo.cfg", "serve missing.cfg",
	"lock", "lock /l", "lock l true", "lock / true", "lock -timeout 1 /l true", "lock -session x /l true", "lock -session 1ms /l true",
	"lock -shared -n 2 /l true", "lock -n -1 /l true", "lock -n x /l true", "lock -on-lost x /l true", "lock -background x /l true",
	"lock -delay 2m /l true", "lock -auth x /l true", "lock -auth a:b -auth-file f /l true", "lock -servers /x /l true",
	"lock -servers , /l true", "lock -tls-cert f /l true", "lock -acl x /l true", "lock --timeout=0 /l /no/such/program -x --y",
	"lock /l -- /no/such/program --servers x", "lock -servers=h:0 /l true", "lock -shared=maybe /l true", "lock -- /l",
	"elect", "elect /l", "elect l true", "elect -n 1 /l true", "elect /l /no/such/program -h",
	"fence", "fence x", "fence -listen :0 -to x -lock /l", "fence -listen :0 -to http://h -lock l", "fence -listen :0 -to http://h -lock /l -requests 0",
	"fence -listen :0 -to http://h -lock /l -wait -1s",
	"locks a b", "locks x", "locks -watch -history /l", "sessions a b", "sessions -limit x",
	"status x", "status -wait 1s", "status -may-stop x",
	"ls", "ls x", "ls /a /b", "ls -nope /", "ls / -nope", "ls / -- -nope", "get", "get x", "set", "set /a b c", "set x y", "create", "create x",
	"create -c -e /a", "create -ttl 1 /a", "create -acl x /a", "delete", "delete x", "delete /", "delete -version x /a", "stat", "stat x",
	"cluster", "cluster nope", "cluster list x", "cluster add", "cluster add x", "cluster add 4=h:1:2", "cluster remove", "cluster remove x",
	"cluster transfer-leader x", "cluster transfer-leader 1 2", "cluster -nope", "cluster list -timeout 5",
	"snapshot", "snapshot nope", "snapshot save", "snapshot save a b", "snapshot save -commands x a",
	"config", "config nope", "config check", "config check missing.cfg", "config check a b",
	"import", "import missing.cfg", "export", "export missing.cfg d", "export a b c", "inspect", "inspect missing", "inspect a b",
	"recover", "recover missing.cfg", "recover a b", "log", "log convert", "log nope", "log convert -to x", "log convert missing.cfg",
	"digest -algorithm x u", "certs", "certs nope", "certs lsit D", "certs init", "certs list missing",
	"version x", "version -nope", "help nope", "help config nope", "help lock extra",
}

// TestSpellings: the exit status and the messages of command lines, among them every flag of every
// command, are the ones in the file. A flag has one dash or two, with the same result.
func TestSpellings(t *testing.T) {
	golden, err := filepath.Abs("testdata/spellings.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var got strings.Builder
	show := func(args ...string) (status int, text string) {
		status, stdout, stderr := invoke(args...)
		if strings.HasPrefix(stdout, "lockkeeper 0.") || strings.HasPrefix(stdout, "Usage: ") {
			stdout, _, _ = strings.Cut(stdout, " ") // the rest differs from version to version
			stdout += "\n"
		}
		return status, strings.ReplaceAll(stdout+stderr, dir, "DIR")
	}
	write := func(line string, status int, text string) {
		fmt.Fprintf(&got, "$ lockkeeper %s\n%s[%d]\n\n", line, text, status)
	}
	for _, line := range spelled {
		status, text := show(strings.Fields(line)...)
		write(line, status, text)
	}
	for _, c := range commands() {
		c.flagSet(env{}).VisitAll(func(f *flag.Flag) {
			wrong := f.Name // there is no value
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
				wrong += "=perhaps"
			}
			status, text := show(c.name, "-"+wrong)
			write(c.name+" -"+wrong, status, text)
			if again, same := show(c.name, "--"+wrong); again != status || same != text {
				t.Errorf("%s --%s: status %d, %s", c.name, wrong, again, same)
			}
		})
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.SplitAfter(string(file), "\n\n")
	for i, one := range strings.SplitAfter(got.String(), "\n\n") {
		if i >= len(want) || one != want[i] {
			t.Fatalf("got\n%swant\n%s", one, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
}
