// Package loglimit keeps what others cause from filling the log: a line for each cause at once,
// then one a minute that says how many were left out.
package loglimit
