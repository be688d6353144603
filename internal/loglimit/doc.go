// Package loglimit bounds the lines of the log that others can cause: the first line of a cause is
// logged at once, then one a minute that says how many were suppressed.
package loglimit
