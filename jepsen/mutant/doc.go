// Package mutant is the table of the bugs that are planted deliberately, to see that the
// simulations (jepsen/simtest) and the schedules of the recipes catch them. The product has none of
// this: planted.diff lists the replaced lines by file, and Overlay writes the changed files for go
// build -overlay. A replaced line asks which bug is switched on:
//
//	if mutant.On(mutant.GapTaken) { ... }
//
// So one build has all bugs, and Use switches one on before anything runs.
package mutant
