package jepsen

import (
	"errors"
	"log"
	"os"
)

// Main runs the tests of a package that starts processes; TestMain calls it, after flag.Parse.
// Before them it makes the Toolbox, with the race detector in its server if race (mostly Race: if
// the tests have it). It returns the exit status.
func Main(m interface{ Run() int }, tools **Toolbox, race bool) (status int) {
	t, err := NewToolbox(race)
	if err != nil {
		log.Print(err)
		return 1
	}
	*tools = t
	defer func() {
		if err := t.Close(); err != nil {
			log.Print(err)
		}
	}()
	return m.Run()
}

// Need ends a test if err is not nil. When it is ErrMissing, something is not installed: on a
// developer's machine the test is skipped then; in CI (CI is set), where everything is to be there,
// it fails.
func Need(t interface {
	Helper()
	Skip(...any)
	Fatal(...any)
}, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrMissing) && os.Getenv("CI") == "":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// KeptDir is a directory that is kept, and named, if the test fails or keep is set; else it is gone
// after the test.
func KeptDir(t interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(string, ...any)
	Error(...any)
	Fatal(...any)
}, keep bool) string {
	t.Helper()
	dir, err := tempDir("jepsen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() || keep {
			t.Logf("logs and data are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
