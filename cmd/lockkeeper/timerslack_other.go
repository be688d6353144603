//go:build !linux

package main

import "time"

// setTimerSlack and timerSlack are for Linux.
func setTimerSlack() {}

func timerSlack() time.Duration { return 0 }
