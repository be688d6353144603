package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTestClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	clock := testClock(file)
	for _, test := range []struct {
		text  string // empty: there is no file
		wrong time.Duration
	}{
		{"", 0}, {"-24h\n", -24 * time.Hour}, {"90s", 90 * time.Second}, {"nonsense", 0},
	} {
		if test.text != "" {
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := time.Now().Round(0)
		now := clock()
		if after := time.Now().Round(0); now.Before(before.Add(test.wrong)) || now.After(after.Add(test.wrong)) {
			t.Errorf("%q: it is %v, want %v later than %v", test.text, now, test.wrong, before)
		}
	}
}
