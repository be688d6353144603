package main

import (
	"os"
	"strings"
	"time"
)

// testClockEnv names a file that holds by how much this member's wall clock is wrong, as 90s or
// -24h. It is read whenever the time is asked for. Tests set a member's clock with it, which cannot
// be done to one process alone otherwise; nobody else knows of it.
const testClockEnv = "LOCKKEEPER_TEST_CLOCK"

// testClock is the wall clock that is wrong by what the file says, or right if it says nothing.
func testClock(file string) func() time.Time {
	return func() time.Time {
		now := time.Now().Round(0) // without the monotonic clock, which nobody can set
		text, err := os.ReadFile(file)
		if err != nil {
			return now
		}
		wrong, err := time.ParseDuration(strings.TrimSpace(string(text)))
		if err != nil {
			return now
		}
		return now.Add(wrong)
	}
}
