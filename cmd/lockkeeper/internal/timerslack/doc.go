// Package timerslack lets Linux fire the timers of a process later than they are due, which saves
// the wake-ups of a thread of Go's runtime; docs/performance.md has the figures. Begin reading with
// Set.
package timerslack

// Variable, set to anything in the environment, keeps the slack that the process was started with.
// Set sets it for the program that it starts.
const Variable = "LOCKKEEPER_TIMER_SLACK"
