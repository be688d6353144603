package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// recommendedSuffix is behind the name of a system with the settings that its own documentation
// recommends for a server of its own. docs/performance.md names the sources.
const recommendedSuffix = "-recommended"

// logDiskHint is for systems whose only recommended setting needs another disk.
const logDiskHint = " and, with -log-disk, a disk of its own for the log"

// settings are the settings of a system beside its defaults.
type settings struct {
	java    []string // options of the JVM
	zooCfg  []string // lines of zoo.cfg
	command []string // the program that starts it, with its arguments
	logDisk string   // where the log has its directories; empty: beside the data
}

// recommendedSettings are the recommended settings of a system. logDisk is a directory on a disk
// for logs, or empty.
func recommendedSettings(name, logDisk string) settings {
	s := settings{logDisk: logDisk}
	switch name {
	case "zookeeper":
		s.java = []string{"-Xmx3g"}
		if logDisk == "" {
			s.zooCfg = []string{"snapCount=1000000"}
		}
	case "etcd", "etcd37":
		s.command = []string{"ionice", "-c", "2", "-n", "0"}
	}
	return s
}

// empty reports whether there is no setting.
func (s settings) empty() bool {
	return len(s.java)+len(s.zooCfg)+len(s.command) == 0 && s.logDisk == ""
}

// text lists them.
func (s settings) text() string {
	list := slices.Concat(s.java, s.zooCfg)
	if len(s.command) > 0 {
		list = append(list, strings.Join(s.command, " "))
	}
	if s.logDisk != "" {
		list = append(list, "its log on a disk of its own")
	}
	return strings.Join(list, ", ")
}

// extra are the lines for zoo.cfg.
func (s settings) extra() []string {
	if s.logDisk == "" {
		return s.zooCfg
	}
	return append(slices.Clone(s.zooCfg), "dataLogDir="+filepath.Join(s.logDisk, "{dir}", "log"))
}

// etcd is the command line of a member of etcd that has its data in dir.
func (s settings) etcd(program, dir string) []string {
	line := append(slices.Clone(s.command), program, "--data-dir", dir)
	if s.logDisk != "" {
		line = append(line, "--wal-dir", filepath.Join(s.logDisk, dir, "log"))
	}
	return line
}

// writeRecommended writes the figures of the systems with recommended settings beside their
// defaults, if there are any.
func (rep *report) writeRecommended(w io.Writer) {
	var names []string
	head := []string{"figure", ""}
	for _, s := range rep.systems {
		if name, is := strings.CutSuffix(s.name, recommendedSuffix); is {
			names = append(names, name)
			head = append(head, title(name), "recommended", "ratio")
		}
	}
	var rows [][]string
	for _, r := range rep.Rows {
		cells, measured := []string{r.Name, r.Unit}, false
		for _, name := range names {
			with := r.Systems[name+recommendedSuffix]
			measured = measured || with != nil
			cells = append(cells, r.Systems[name].text(), with.text(), r.ratio(name+recommendedSuffix, name))
		}
		if measured {
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\nRecommended settings beside the defaults:\n\n")
	writeHead(w, head)
	for _, cells := range rows {
		writeCells(w, cells)
	}
}
