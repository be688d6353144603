// Package mutant is the table of the bugs that are planted deliberately, to see that the
// simulations (jepsen/simtest) catch them. Each has a hook in the code that it breaks:
//
//	if mutant.On(mutant.GapTaken) { ... }
//
// Without the build tag mutants On is always false and the compiler leaves the hooks out: a
// lockkeeper that is built as usual has none of this. With the tag, one mutation at a time is
// switched on with Use, before anything runs.
package mutant
