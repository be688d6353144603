package main

import (
	"cmp"
	"debug/elf"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"lockkeeper/server"
)

type versionCommand struct{ static bool }

func (c *versionCommand) flags(fs *flag.FlagSet, _ env) {
	fs.BoolVar(&c.static, "static", false, "print nothing, and fail if the program needs a C library at its start")
}

func (c *versionCommand) run(e env, _ []string) error {
	if c.static {
		return checkStatic("/proc/self/exe")
	}
	b := server.BuildInfo()
	commit, date := cmp.Or(b.Commit, "unknown"), "unknown"
	if b.Changed {
		commit += ", and changes that are not committed"
	}
	if !b.Time.IsZero() {
		date = b.Time.Format("2006-01-02 15:04 MST")
	}
	fmt.Fprintf(e.stdout, "lockkeeper %s\ncommit     %s\ndate       %s\n", b.Version, commit, date)
	fmt.Fprintf(e.stdout, "compiler   %s\nprotocol   ZooKeeper %s\n", b.Go, server.ZooKeeperVersion)
	return nil
}

// checkStatic returns an error if a Linux program has an interpreter, the dynamic linker of a C
// library.
func checkStatic(program string) error {
	f, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("cannot read the program: %w", err)
	}
	defer f.Close()
	file, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("cannot read the program: %w", err)
	}
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		linker, err := io.ReadAll(p.Open())
		if err != nil {
			return fmt.Errorf("cannot read the program: %w", err)
		}
		return fmt.Errorf("this program is linked to a C library, by %s; CGO_ENABLED=0 go build ./cmd/lockkeeper "+
			"makes one that needs none",
			strings.TrimRight(string(linker), "\x00"))
	}
	return nil
}
