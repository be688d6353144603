// Package tidy holds no code, only tests: of the rules of the house that no
// tool knows. Which package may import which, what the pure packages may not
// do, that every package says what it is, and that ARCHITECTURE.md does not
// talk about what does not exist.
package tidy
