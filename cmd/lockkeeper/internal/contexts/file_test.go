package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChanges: contexts are added, used and removed, and comments stay.
func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockkeeper", "contexts")
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		change func() error
		want   string
	}{
		{func() error { return f.Add("prod", map[string]string{Servers: "a:1,b:2", AuthFile: "secret"}) },
			"[prod]\nservers = a:1,b:2\nauth-file = secret\n"},
		{func() error {
			return os.WriteFile(path, []byte("# mine\n[prod]\nservers=a:1,b:2\nauth-file=secret"), 0o600)
		}, ""},
		{func() error { f, err = Load(path); return err }, ""},
		{func() error { return f.Use("prod") }, "current = prod\n# mine\n[prod]\nservers=a:1,b:2\nauth-file=secret"},
		{func() error { return f.Add("test", map[string]string{Servers: "c"}) },
			"current = prod\n# mine\n[prod]\nservers=a:1,b:2\nauth-file=secret\n\n[test]\nservers = c\n"},
		{func() error { return f.Use("test") },
			"current = test\n# mine\n[prod]\nservers=a:1,b:2\nauth-file=secret\n\n[test]\nservers = c\n"},
		{func() error { return f.Remove("prod") }, "current = test\n# mine\n[test]\nservers = c\n"},
		{func() error { return f.Use("") }, "# mine\n[test]\nservers = c\n"},
		{func() error { return f.Use("test") }, "current = test\n# mine\n[test]\nservers = c\n"},
		{func() error { return f.Remove("test") }, "# mine\n"},
	} {
		if err := step.change(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got, err := os.ReadFile(path); err != nil || step.want != "" && string(got) != step.want {
			t.Fatalf("step %d: %v, got\n%s\nwant\n%s", i, err, got, step.want)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files: %v, %v", left, err)
	}
	for _, err := range []error{f.Use("prod"), f.Remove("prod")} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	if err := f.Add("a b", map[string]string{Servers: "c"}); err == nil {
		t.Error("a name with a space")
	}
}

// TestFilesOfAContext: relative names begin at the directory of the file.
func TestFilesOfAContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts")
	if err := os.WriteFile(path, []byte("[a]\nservers=h\ntls-ca=ca.pem\nauth-file=/s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Find("a")
	if err != nil || c.Get(CA) != filepath.Join(filepath.Dir(path), "ca.pem") || c.Get(AuthFile) != "/s" ||
		c.Get(Servers) != "h" || c.Get(Cert) != "" {
		t.Errorf("%v %+v", err, c)
	}
}

// TestFaults: each fault of a damaged file has its file, line and key.
func TestFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts")
	for text, want := range map[string]string{
		"current = prod\n":                            ":1: current: there is no [prod]",
		"current =\n":                                 ":1: current: it has no value",
		"servers = a\n":                               `:1: servers: only one "current" may be in front of the first [name]`,
		"current=a\ncurrent=b\n[a]\nservers=h\n":      `:2: current: only one "current" may`,
		"# x\n[a]\nservers = h\npassword = x\n":       ":4: password: a context has the keys servers, http, tls-ca",
		"[a]\nservers = h\nservers = i\n":             ":3: servers: it is in line 2 already",
		"[a]\n[b]\nservers=h\n":                       ":1: servers: it is missing in [a]",
		"[a\nservers=h\n":                             `:1: "[a" does not begin a context`,
		"[a]\nservers=h\n[a]\nservers=h\n":            `:3: there are two contexts "a"`,
		"[a]\nservers\n":                              `:2: "servers" is neither [name] nor key = value`,
		"[a]\nservers=h\n[b c]\nservers=h\n":          `:3: "[b c]" does not begin a context`,
		"\x00\x01":                                    ":1: this is no file of contexts",
		"[a]\nserver=h\n":                             ":2: server: a context has the keys",
		"[a]\ntls-ca=x\nservers=\n":                   ":3: servers: it has no value",
		"[a]\nservers=h\n" + strings.Repeat("x", 2e6): ":1: this is no file of contexts",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path+want) {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}
