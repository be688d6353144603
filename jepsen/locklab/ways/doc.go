// Package ways has all ways to lock of the lab. Each does what the texts and libraries do that
// teach it, with the client library that its users have, and no more: what is missing in one of
// them is the point of the lab. The packages below have one system each; begin with All.
package ways
