// Command release builds the files of a release: archives, Debian and RPM packages, an image, lists
// of modules, and the checksums of all with their signature. The same commit gives the same bytes.
// docs/release.md describes how it is used. It is a module of its own for the sake of the libraries
// that write packages and images.
//
//	main.go      the arguments, the order of the steps, checksums and signature
//	program.go   the program of a platform, and the pages and licences that go with it
//	archive.go   the archives
//	packages.go  the packages, of the files in deploy/package
//	image.go     the image
//	sbom.go      the lists of modules
//
// The tests install the packages in a Debian that they copy from this machine's, and run them
// there.
package main
