// Package durable replaces small files as a whole, so that a crash or a power cut leaves the old
// content or the new one, and an error never a wrong belief about which of them is on disk.
// durable.go has Replace and the file system below it.
package durable
