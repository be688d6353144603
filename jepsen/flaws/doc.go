// Package flaws plays the published flaws of ZooKeeper, as far as a client can, on the real one
// (Debian's 3.8.0) and on lockkeeper, and records the answers of each. All of it is test code, as
// nothing else uses it. Begin with flaw in flaws_test.go, then the list in list_test.go. The table
// in docs/security.md has all flaws, those among them that cannot be played, and the tests that
// each has in the package to which it belongs.
package flaws
