package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed are the words, without their descriptions, that complete a command line.
func (u *user) completed(args ...string) (words []string) {
	u.t.Helper()
	status, stdout, _ := u.invoke(append([]string{"__complete"}, args...)...)
	if status != exitOK {
		u.t.Errorf("%q: status %d", args, status)
	}
	for line := range strings.Lines(stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

// Completion knows commands, flags with the dashes that are there, words, and the paths of nodes.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := cluster(t, nil)
	for _, path := range []string{"/locks", "/locks/a", "/locks/b", "/logs"} {
		if status, _, stderr := s.invoke("create", path); status != exitOK {
			t.Fatal(stderr)
		}
	}
	for line, want := range map[string]string{
		"sta":                            "stat status",
		"ls -s":                          "-servers -session -sync",
		"ls --serv":                      "--servers",
		"ls /lo":                         "/locks /logs",
		"ls /locks/":                     "/locks/a /locks/b",
		"lock -timeout 1s /locks/":       "/locks/a /locks/b",
		"lock -timeout /locks/":          "",
		"lock /l -":                      "",
		"elect -v /locks/a":              "/locks/a",
		"cluster tr":                     "transfer-leader",
		"certs re":                       "renew retire",
		"help stat":                      "stat status",
		"completion z":                   "zsh",
		"set /locks /lo":                 "",
		"ls -servers 127.0.0.1:1 /locks": "",
	} {
		got := s.completed(strings.Fields(line)...)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	if got := s.completed("stat", "-servers", s.ClientAddr().String(), ""); !slices.Contains(got, "/zookeeper") {
		t.Errorf("without a path: %q", got)
	}
}

// Completion knows the user's contexts, without a server.
func TestCompletionOfContexts(t *testing.T) {
	t.Parallel()
	u := &user{t: t, configDir: t.TempDir(), variables: map[string]string{}}
	if got := u.completed("context", "use", ""); !slices.Equal(got, []string{"default"}) {
		t.Errorf("without a file: %q", got)
	}
	for _, name := range []string{"prod", "preview", "test"} {
		if status, _, stderr := u.invoke("context", "-servers", "127.0.0.1:1", "add", name); status != exitOK {
			t.Fatal(stderr)
		}
	}
	for line, want := range map[string]string{
		"locks -context ":       "default preview prod test",
		"locks --context pr":    "preview prod",
		"context use ":          "default preview prod test",
		"context remove ":       "preview prod test",
		"context use prod ":     "",
		"context add ":          "",
		"ls -context prod /l":   "", // its server is not there
		"context -servers ":     "",
		"status -context=prod ": "",
	} {
		words := strings.Split(line, " ") // an empty one at the end is to be completed
		got := u.completed(words...)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// Each shell gets a script that asks the program.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range shells {
		status, stdout, stderr := invoke("completion", shell)
		if status != exitOK || !strings.Contains(stdout, "__complete") || stderr != "" {
			t.Errorf("%s: status %d, %d bytes, %s", shell, status, len(stdout), stderr)
		}
	}
	if status, _, stderr := invoke("completion", "tcsh"); status != exitUsage || !strings.Contains(stderr, "bash, zsh, fish") {
		t.Errorf("tcsh: status %d, %s", status, stderr)
	}
}

// Every command has a manual page with its flags.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man1")
	if status, _, stderr := invoke("man", dir); status != exitOK {
		t.Fatal(stderr)
	}
	for _, c := range commands() {
		page, err := os.ReadFile(filepath.Join(dir, "lockkeeper-"+c.name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{".SH NAME\nlockkeeper\\-" + c.name + " \\- ", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s lacks %q", c.name, want)
			}
		}
	}
	lock, _ := os.ReadFile(filepath.Join(dir, "lockkeeper-lock.1"))
	if !strings.Contains(string(lock), "\\-on\\-lost action") || !strings.Contains(string(lock), ".SH EXIT STATUS\nCMD") {
		t.Errorf("the page of lock:\n%s", lock)
	}
}
