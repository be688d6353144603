package secure

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	oldSecret = "0123456789abcdef0123456789abcdef"
	newSecret = "fedcba9876543210fedcba9876543210"
)

// writeSecret replaces the file of a secret, as an operator does.
func writeSecret(t *testing.T, path string, secrets ...string) {
	t.Helper()
	next := path + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(secrets, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// TestSecretFileIsReadAgain: a file that has changed counts within a second; one that cannot be
// used does not, and the secrets before it do.
func TestSecretFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, path, oldSecret)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f, err := OpenSecretFile(path, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, failures int64, want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			if got := string(bytes.Join(f.Current(), []byte(" "))); got != strings.Join(want, " ") {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
			if got := f.Failures.Load(); got != failures {
				t.Errorf("%s: %d failures, want %d", what, got, failures)
			}
		}
		check("at first", 0, oldSecret)
		writeSecret(t, path, oldSecret, newSecret)
		check("a second one", 0, oldSecret, newSecret)
		writeSecret(t, path, newSecret)
		check("the second one alone", 0, newSecret)
		writeSecret(t, path, "short")
		check("one that is too short", 1, newSecret)
		check("nothing new", 1, newSecret)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		check("no file", 2, newSecret)
		writeSecret(t, path, oldSecret)
		check("another one", 2, oldSecret)
		if log := out.String(); strings.Contains(log, oldSecret) || strings.Contains(log, newSecret) || !strings.Contains(log, path) {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// FuzzSecretFile: of any file, one or two secrets that are long enough are accepted, or none.
func FuzzSecretFile(f *testing.F) {
	f.Add([]byte(oldSecret + "\n" + newSecret))
	f.Fuzz(func(t *testing.T, text []byte) {
		secrets, err := parseSecrets(text)
		if err == nil && (len(secrets) < 1 || len(secrets) > 2) {
			t.Errorf("%d secrets", len(secrets))
		}
		for _, s := range secrets {
			if len(s) < 32 || !bytes.Contains(text, s) {
				t.Errorf("the secret %q", s)
			}
		}
	})
}
