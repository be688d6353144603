// Package pages runs the commands that the pages of the documentation show. It has no code but its
// tests: they start a cluster, run the blocks of each page in one shell with the built program, and
// compare the commands that are not run, and those within a sentence, with the flags that exist. A
// block that is not run has its reason in a table (see unrun).
package pages
