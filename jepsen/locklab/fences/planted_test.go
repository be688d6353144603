package fences

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goBugs are planted into a file of recipes/fence. Its tests have to find each. Those of Redis and
// etcd are in what the servers execute: redisBugs, etcdBugs.
var goBugs = []struct {
	name, file string
	edits      []string // from, to, ...
}{
	{"memory compares after the write", "gate.go", []string{
		"	if _, err := check(resource, token, r.newest); err != nil {\n", "	ferr := f()\n	if _, err := check(resource, token, r.newest); err != nil {\n",
		"	return f()\n", "	return ferr\n",
	}},
	{"memory forgets", "gate.go", []string{"	r.newest = token\n", ""}},
	{"every fence accepts the token before", "fence.go", []string{"token < newest", "token < newest-1"}},
	{"every fence refuses an equal token", "fence.go", []string{"token < newest", "token <= newest && newest > 0"}},
	{"a file compares after the write", "file.go", []string{
		"	larger, err := check(", "	gerr := g()\n	larger, err := check(", "	return g()\n", "	return gerr\n",
	}},
	{"a file forgets at a restart", "file.go", []string{
		"	tokens, data, err := f.read()\n	if err != nil {\n		return err\n	}\n",
		"	tokens, data, err := f.read()\n	if err != nil {\n		return err\n	}\n	if f.durable == nil {\n		clear(tokens)\n	}\n",
	}},
	{"a table compares after the write", "table.go", []string{
		"	if err := t.CheckTx(ctx, tx, resource, token); err != nil {\n		return false, err\n	}\n	if err := f(tx); err != nil {\n		return true, err\n	}\n",
		"	if err := f(tx); err != nil {\n		return true, err\n	}\n	if err := t.CheckTx(ctx, tx, resource, token); err != nil {\n		return false, err\n	}\n",
	}},
	{"a table forgets at a restart", "table.go", []string{"	if err := tx.Commit(); err != nil {", "	if err := tx.Rollback(); err != nil {"}},
	{"objects write whatever came after the check", "objects.go", []string{
		"		done, err := o.replace(ctx, name, s, ", "		if s, err = o.read(ctx, name); err != nil {\n			return err\n		}\n		done, err := o.replace(ctx, name, s, ",
	}},
	{"objects accept any token", "objects.go", []string{
		"	larger, err := check(name, token, s.token)\n", "	larger, err := token > s.token, error(nil)\n",
	}},
	{"objects forget", "objects.go", []string{"sidecar{token: token, data: s.data}", "sidecar{token: max(1, s.token), data: s.data}"}},
}

// TestGoBugs: the tests of recipes/fence find bugs in the fences.
func TestGoBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles recipes/fence often; not with -short")
	}
	dir, err := filepath.Abs("../../../recipes/fence")
	must(t, err)
	for _, bug := range goBugs {
		t.Run(bug.name, func(t *testing.T) {
			file := filepath.Join(dir, bug.file)
			text, err := os.ReadFile(file)
			must(t, err)
			edited := string(text)
			for i := 0; i < len(bug.edits); i += 2 {
				if !strings.Contains(edited, bug.edits[i]) {
					t.Fatalf("%s has no %q", bug.file, bug.edits[i])
				}
				edited = strings.Replace(edited, bug.edits[i], bug.edits[i+1], 1)
			}
			changed := filepath.Join(t.TempDir(), bug.file)
			must(t, os.WriteFile(changed, []byte(edited), 0o644))
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
			must(t, err)
			list := filepath.Join(t.TempDir(), "overlay.json")
			must(t, os.WriteFile(list, overlay, 0o644))
			out, err := exec.Command("go", "test", "-vet=off", "-timeout=60s", "-overlay="+list, "lockkeeper/recipes/fence").CombinedOutput()
			i := strings.Index(string(out), "--- FAIL: ")
			if err == nil || i < 0 {
				t.Fatalf("not found: %v\n%s", err, out)
			}
			first, _, _ := strings.Cut(string(out[i:]), "\n")
			t.Log(first)
		})
	}
}
