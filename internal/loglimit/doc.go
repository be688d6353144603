// Package loglimit bounds the lines of the log that others can cause. A Handler bounds all lines of
// a member, by their messages. A Limiter is for one place: the first line of a cause is logged at
// once, then one a minute with the number of those that were suppressed. Neither drops a line
// without saying so later.
package loglimit
