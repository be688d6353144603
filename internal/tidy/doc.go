// Package tidy holds tests only: of the rules of this repository that no tool checks. They state
// which package may import which, what the pure packages may not do, that every package has a doc
// comment, that pages name only what exists, and how wide prose may be. Nothing imports it.
package tidy
