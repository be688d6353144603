// Command release builds the files of a release: for each platform an archive with the program, the
// licence, the pages and deploy/, and a list of the program's modules; and the checksums of all.
// The same commit gives the same bytes. docs/release.md describes how it is used.
package main
