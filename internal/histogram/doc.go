// Package histogram counts how often values of any size were seen: durations in nanoseconds, bytes,
// numbers of commands. A histogram has a fixed size, takes no lock and allocates nothing, so that
// it can be on the path of every request. Begin with Histogram.
package histogram
