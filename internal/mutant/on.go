//go:build mutants

package mutant

// Compiled says whether the hooks are in this binary.
const Compiled = true
