package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	out := flag.String("out", "", "the `directory` to write the site to; files of an earlier site stay if no page has replaced them")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	pages, err := build(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s; begin with %s/index.html\n", pages, *out, *out)
}
