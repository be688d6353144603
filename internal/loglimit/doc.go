// Package loglimit bounds the lines of the log that others can cause: the first line of a cause is
// logged at once, then one a minute with the number of those that were suppressed. It never drops a
// cause without a line. Begin with Limiter.
package loglimit
