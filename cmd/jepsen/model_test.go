package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestModel(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		want   string // in the output or in the errors
	}{
		{"-terms 1", exitOK, "every state keeps the contract"},
		{"-terms 3 -entries 0 -without vote-transaction", exitInvalid, "a leader lacks a committed entry"},
		{"-terms 2 -entries 0 -without rising-terms -find nothing-lost", exitInvalid, "after 8 steps"},
		{"-terms 2 -states 100", exitInvalid, "more than 100 states"},
		{"-walks 3 -terms 4 -members 4 -lost 1 -changes 3 -parallel -early", exitOK, "3 walks"},
		{"-reach deposed-unflushed", exitOK, "unsynced"},
		{"-help", exitOK, "notice-behind-disk"},
		{"-without held-ack", exitUsage, `no rule "held-ack"`},
		{"-reach nowhere", exitUsage, `no state "nowhere"`},
		{"-find held-acks", exitUsage, `no promise "held-acks"`},
		{"-terms 9", exitUsage, "terms are 1 to 4"},
	} {
		var out, errs bytes.Buffer
		status := runModel(t.Context(), strings.Fields(test.args), &out, &errs)
		if status != test.status || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("model %s: status %d, want %d and %q:\n%s%s", test.args, status, test.status, test.want, &out, &errs)
		}
	}
}

// A script that was printed can be played.
func TestModelScript(t *testing.T) {
	var out, again, errs bytes.Buffer
	args := []string{"-terms", "2", "-parallel", "-without", "held-acks"}
	if status := runModel(t.Context(), args, &out, &errs); status != exitInvalid {
		t.Fatalf("status %d: %s", status, &errs)
	}
	_, script, _ := strings.Cut(out.String(), "\n")
	file := filepath.Join(t.TempDir(), "script.txt")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	status := runModel(t.Context(), []string{"-script", file}, &again, &errs)
	if status != exitOK || again.String() != script {
		t.Errorf("status %d, %s\n%s\nwant\n%s", status, &errs, &again, script)
	}
}
