// Package system starts the servers that the ways to lock need, from Debian's packages and from
// lockkeeper's own binary, and breaks them.
package system
