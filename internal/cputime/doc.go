// Package cputime says how much CPU time this process has used. It is for figures (bench) and for
// the number of processors that a member uses (cmd/lockkeeper); it knows nothing of either.
package cputime
