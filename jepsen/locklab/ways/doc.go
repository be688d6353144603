// Package ways has all ways to lock of the lab. Each follows the texts and libraries that teach it,
// with the client library that its users have, and no more: the gaps of each are the point of the
// lab. The packages below have one system each; begin with All.
package ways
