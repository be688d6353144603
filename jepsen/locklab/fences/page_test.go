package fences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockkeeper/internal/s3test"
	"lockkeeper/jepsen/locklab/system"
)

// programBlocks are the fenced blocks of a page in a language.
func programBlocks(markdown, language string) (all []string) {
	for _, part := range strings.Split(markdown, "\n```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(part, "\n```")
		all = append(all, text)
	}
	return all
}

// indented is a block within a function.
func indented(block, by string) string {
	return by + strings.ReplaceAll(block, "\n", "\n"+by) + "\n"
}

// goProgram runs the blocks, or the one of its second argument, with the variables that they use.
func goProgram(blocks []string, source string) string {
	var b strings.Builder
	b.WriteString(`package main
import ("context"; "database/sql"; "net/http"; "os"; "strconv"
_ "github.com/jackc/pgx/v5/stdlib"; "github.com/redis/go-redis/v9"; "lockkeeper/recipes/fence")
func check(err error) { if err != nil { println(err.Error()); os.Exit(1) } }
func main() { ctx := context.Background(); token, _ := strconv.ParseInt(os.Args[1], 10, 64)
db, err := sql.Open("pgx", "` + source + `"); check(err)
client := redis.NewClient(&redis.Options{Addr: "REDIS"}); sign := http.DefaultClient.Do
_, _, _, _ = db, client, sign, ctx; var _ fence.Gate
`)
	for n, block := range blocks {
		fmt.Fprintf(&b, "if len(os.Args) < 3 || os.Args[2] == \"%d\" {\n%s\ncheck(err)\n", n, block)
		if strings.Contains(block, "objects.Put(") {
			b.WriteString("body, _, err := objects.Get(ctx, \"account\"); check(err); os.Stdout.Write(body)\n")
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// pythonProgram is the same in Python.
func pythonProgram(blocks []string, postgresql string) string {
	host, port, _ := strings.Cut(postgresql, ":")
	text := ""
	for n, block := range blocks {
		text += fmt.Sprintf("if len(sys.argv) < 3 or sys.argv[2] == '%d':\n%s", n, indented(block, "    "))
		if strings.Contains(block, "body,") {
			text += "    print(body.decode(), end='')\n"
		}
	}
	return fmt.Sprintf(`import pathlib, sys
import psycopg2, redis
from lockkeeper import fence
from lockkeeper.fence import send
token = int(sys.argv[1])
connection = psycopg2.connect(host="%s", port=%s, user="postgres", dbname="postgres")
host, port = "REDIS".split(":")
client = redis.Redis(host, int(port))
%s
`, host, port, text)
}

// javaProgram is the same in Java; it is in the package of the agent, which has an eval.
func javaProgram(blocks []string, postgresql string) string {
	var b strings.Builder
	b.WriteString(`package lockkeeper.fence;
import java.nio.file.*; import java.util.*; import javax.sql.DataSource;
class Page { static class Jedis { Object eval(String script, List<String> keys, List<String> args) {
return Agent.eval("REDIS", script, keys, args); } }
public static void main(String[] args) throws Exception { long token = Long.parseLong(args[0]); Jedis jedis = new Jedis();
Http http = Http.PLAIN; DataSource dataSource = Agent.source("jdbc:postgresql://` + postgresql + `/postgres?user=postgres");
`)
	for n, block := range blocks {
		fmt.Fprintf(&b, "if (args.length < 2 || args[1].equals(\"%d\")) {\n%s", n, indented(block, "    "))
		if strings.Contains(block, "byte[] body") {
			b.WriteString("System.out.print(new String(body));\n")
		}
		b.WriteString("}\n")
	}
	b.WriteString("}}\n")
	return b.String()
}

// TestPage runs the programs of docs/fences.md: in each language with a token that is accepted in
// every store, and with a smaller one that is refused.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/fences.md")
	must(t, err)
	postgresql, _ := start(t, "postgresql")
	redisAddr, _ := start(t, "redis")
	etcd, _ := start(t, "etcd")
	store := httptest.NewServer(new(s3test.Server))
	t.Cleanup(store.Close)
	source := system.PostgreSQLName(postgresql)
	tablePlace(t, "postgresql", "pgx", source, postgresql) // it makes the table of the fence
	db, err := sql.Open("pgx", source)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE account (balance BIGINT)")
	must(t, err)
	_, err = db.Exec("INSERT INTO account VALUES (0)")
	must(t, err)
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { client.Close() })
	elsewhere := strings.NewReplacer("127.0.0.1:2379", etcd, "http://127.0.0.1:9000/bucket", store.URL, "REDIS", redisAddr)
	dir := t.TempDir()
	for i, language := range []string{"go", "python", "java"} {
		t.Run(language, func(t *testing.T) {
			blocks := programBlocks(string(text), language)
			if len(blocks) != 5 {
				t.Fatalf("%d programs, want 5", len(blocks))
			}
			command := pageCommand(t, language, blocks, postgresql, elsewhere)
			token := 10 * (i + 1)
			if out, err := command(dir, token).CombinedOutput(); err != nil || string(out) != "1" {
				t.Fatalf("token %d: %v\n%s", token, err, out)
			}
			var failed *exec.ExitError
			if out, err := command(dir, token-1).CombinedOutput(); !errors.As(err, &failed) || !strings.Contains(string(out), "is stale") {
				t.Errorf("token %d: %v\n%s", token-1, err, out)
			}
			var balance int
			must(t, db.QueryRow("SELECT balance FROM account").Scan(&balance))
			if redisBalance, err := client.Get(context.Background(), "balance").Result(); balance != i+1 || redisBalance != "1" {
				t.Errorf("balance %d, want %d; in Redis %s, %v", balance, i+1, redisBalance, err)
			}
			// Each store refuses by itself, not only the first one.
			for n := range blocks {
				if out, err := command(dir, token-1, n).CombinedOutput(); err == nil || !strings.Contains(string(out), "is stale") {
					t.Errorf("program %d, token %d: %v\n%s", n, token-1, err, out)
				}
			}
		})
	}
}

// pageCommand builds the program with these blocks, and returns its command in a directory, with a
// token, for all blocks or for one.
func pageCommand(t *testing.T, language string, blocks []string, postgresql string, elsewhere *strings.Replacer,
) func(dir string, token int, which ...int) *exec.Cmd {
	t.Helper()
	built := t.TempDir()
	var cmd *exec.Cmd
	switch language {
	case "go":
		file := filepath.Join(built, "main.go")
		program := elsewhere.Replace(goProgram(blocks, system.PostgreSQLName(postgresql)))
		must(t, os.WriteFile(file, []byte(program), 0o644))
		if out, err := exec.Command("go", "build", "-o", filepath.Join(built, "page"), file).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s\n%s", err, out, program)
		}
		cmd = exec.Command(filepath.Join(built, "page"))
	case "python":
		file := filepath.Join(built, "page.py")
		must(t, os.WriteFile(file, []byte(elsewhere.Replace(pythonProgram(blocks, postgresql))), 0o644))
		python, err := filepath.Abs(filepath.Join(clients, "python"))
		must(t, err)
		cmd = pythonAgent(t, python)
		cmd.Args = []string{cmd.Args[0], file}
	case "java":
		cmd = javaAgent(t, filepath.Join(clients, "java/src"), elsewhere.Replace(javaProgram(blocks, postgresql)))
		cmd.Args[len(cmd.Args)-1] = "lockkeeper.fence.Page"
	}
	return func(dir string, token int, which ...int) *exec.Cmd {
		again := exec.Command(cmd.Path, append(cmd.Args[1:len(cmd.Args):len(cmd.Args)], fmt.Sprint(token))...)
		for _, n := range which {
			again.Args = append(again.Args, fmt.Sprint(n))
		}
		again.Env, again.Dir = cmd.Env, dir
		return again
	}
}
