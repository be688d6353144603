// Package tidy holds tests only: of the rules of this repository that no tool checks. They state
// the import graph, the layers of files, the limits of the pure packages, a doc comment for every
// package, pages that name existing files and symbols only, the tests of each promise, and the
// width and the words of prose. Nothing imports it.
package tidy
