// Package kazoosuite runs the tests that come with kazoo, the Python client
// (Debian's package, written for 2.8), against lockkeeper: one server alone, and
// a cluster of three. It has tests only.
//
// kazoo's tests start, stop and restart their servers themselves. standin.py, a plugin for kazoo's
// test runner, has them start lockkeeper instead of Java with the very configuration that they
// write, and records the result of each test. The installed package is not changed.
//
// Tests that do not pass are listed in excluded.txt with their reasons. A test fails here if it is
// not listed and does not pass, and also if it is listed and does.
//
//	go test ./jepsen/kazoosuite                       what CI runs
//	go test ./jepsen/kazoosuite -target zookeeper     the reference: what ZooKeeper passes
//	go test ./jepsen/kazoosuite -tests kazoo.tests.test_lock
//
// # Goroutines
//
// None of its own; the two kinds of servers are tested side by side.
package kazoosuite
